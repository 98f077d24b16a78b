//! Checks a definition without building it: everything that is wrong with it, in one pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Set;
use super::any::FlowType;
use super::catalog::Catalog;
use super::implied;
use super::keys;
use super::problem::{Problem, suggest};
use super::resume;
use super::sources;
use super::stages::{Before, Defaults, Stages};
use super::survey;
use super::tree::{self, Key, Node, Place, Value};
use super::units::duration;
use super::vars::Vars;
use crate::checkpoint::Checkpoint;
use crate::options::Options;
use crate::pipeline::StallRule;

/// More stages are refused: each has its tasks and its buffer.
const STAGES_MAX: usize = 1000;
/// The keys at the top of a definition.
const TOP: [&str; 8] = ["version", "name", "doc", "vars", "run", "defaults", "sources", "stages"];
/// The keys of the block `run`.
const RUN: [&str; 10] = [
    "seed",
    "epochs",
    "shard",
    "memory",
    "cores",
    "io_threads",
    "stall",
    "stall_fails",
    "checkpoint",
    "deterministic",
];

/// A definition without mistakes.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) run: RunBlock,
    pub(super) steps: Vec<Step>,
    pub(super) yields: FlowType,
}

/// A stage without mistakes.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) id: String,
    /// The operator's name and place.
    pub(super) key: Key,
    /// Its arguments.
    pub(super) node: Node,
    pub(super) options: Options,
    /// Whether its `retry` is a default, which holds only where items can be tried again.
    pub(super) retries_by_default: bool,
    /// Where the values of its runtime keys stand.
    pub(super) places: BTreeMap<String, Place>,
    pub(super) form: usize,
    pub(super) yields: FlowType,
    /// The stages that it takes from, by their numbers: none for a source, several where they join.
    pub(super) after: Vec<usize>,
    /// The named source that it is of, if it is.
    pub(super) of: Option<String>,
}

impl Step {
    /// Its id without the name of its source, so that stages of one name in branches that are zipped
    /// have one seed: what they shuffle stays side by side.
    pub(super) fn own_id(&self) -> &str {
        let of = self.of.as_deref().and_then(|of| self.id.strip_prefix(of)?.strip_prefix('.'));
        of.unwrap_or(&self.id)
    }
}

pub(super) fn check(
    file: &str,
    text: &Arc<str>,
    catalog: &Catalog,
    set: &Set,
) -> Result<Checked, Vec<Problem>> {
    let mut top = tree::parse(text).map_err(|problem| vec![*problem])?;
    let mut problems = Vec::new();
    let whole = 0..text.lines().next().map_or(0, str::len);
    if !matches!(top.value, Value::Map(_)) {
        let message =
            format!("a definition is a mapping with `stages:`, but this is {}", top.kind());
        return Err(vec![
            Problem::new("forebay::top", message, &whole, "here")
                .help("begin with `version: 1`, `name: ...` and `stages:`"),
        ]);
    }
    only("a definition", &top, &TOP, &mut problems);
    version(&top, &whole, &mut problems);
    let mut set = set.clone();
    let mut vars = Vars::read(top.get("vars"), &mut set, &mut problems);
    let mut keys_set = BTreeMap::new();
    for (name, value) in set {
        match name.rsplit_once('.') {
            Some((stage, key)) => {
                keys_set.insert((stage.to_owned(), key.to_owned()), value);
            }
            None => {
                let message = format!("`--set {name}`: there is no variable `{name}`");
                let known: Vec<_> = vars.names().collect();
                let help = match known.is_empty() {
                    true => "the definition declares no variables".to_owned(),
                    false => suggest(&name, known),
                };
                problems.push(Problem::new("forebay::var", message, &whole, "").help(help));
            }
        }
    }
    if let Value::Map(entries) = &mut top.value {
        for (_, node) in entries.iter_mut().filter(|(key, _)| key.text != "vars") {
            vars.substitute(node, &mut problems);
        }
    }
    vars.check_used(&mut problems);
    let run = RunBlock::read(top.get("run"), &mut problems);
    let defaults = Defaults::read(top.get("defaults"), &mut problems);
    let name = name(&top, file, &mut problems);
    let mut stages = Stages {
        catalog,
        defaults,
        set: keys_set,
        steps: Vec::new(),
        before: Before::Nothing,
        left_out: Vec::new(),
        named: Vec::new(),
        names: Vec::new(),
        meant: Vec::new(),
        of: None,
    };
    let named = sources::lists(top.get("sources"), &mut problems);
    let of_named: usize = named.iter().map(|(_, nodes)| nodes.len()).sum();
    match top.get("stages") {
        Some(Node { value: Value::List(nodes), place }) if nodes.len() + of_named > STAGES_MAX => {
            let message = format!("there are {} stages", nodes.len() + of_named);
            problems.push(
                Problem::new("forebay::stages", message, place, "here")
                    .help(format!("write {STAGES_MAX} at most, or make several definitions")),
            );
        }
        Some(Node { value: Value::List(nodes), .. }) if !nodes.is_empty() => {
            stages.all(&named, nodes, &mut problems);
        }
        Some(node) => {
            let found = match &node.value {
                Value::List(_) => "it is empty".to_owned(),
                _ => format!("this is {}", node.kind()),
            };
            let message = "`stages` is a list with one stage at least";
            let place = if node.place.is_empty() { &whole } else { &node.place };
            problems.push(
                Problem::new("forebay::stages", message, place, found)
                    .help("write `stages:` and below it `  - zarr.windows: { store: ... }`"),
            );
        }
        None => problems.push(
            Problem::new("forebay::stages", "a definition needs `stages`", &whole, "here")
                .help("write `stages:` and below it `  - zarr.windows: { store: ... }`"),
        ),
    }
    for ((stage, key), _) in stages.set {
        let message = format!("`--set {stage}.{key}`: there is no stage `{stage}`");
        let ids = stages.steps.iter().map(|step| &*step.id);
        problems.push(Problem::new("forebay::set", message, &whole, "").help(suggest(&stage, ids)));
    }
    if problems.is_empty() && stages.steps.is_empty() {
        let mut left_out = stages.left_out.iter();
        let (_, first) = left_out.next().expect("a definition without stages was told above");
        let problem =
            Problem::new("forebay::stages", "no stage is left", first, "this is not true");
        let problem = left_out
            .fold(problem, |problem, (_, place)| problem.and(place, "and this is not true"));
        problems.push(problem.help("one `when` at least must be true"));
    }
    implied::add(top.get("run"), catalog, &mut stages.steps, &mut problems);
    match (problems.is_empty(), stages.before) {
        (true, Before::Yields(yields, _)) => Ok(Checked { name, run, steps: stages.steps, yields }),
        _ => {
            problems.extend(survey::of_sources(catalog, text, &stages.steps));
            Err(problems)
        }
    }
}

/// Refuses keys of a mapping that are not among `known`.
pub(super) fn only(what: &str, node: &Node, known: &[&str], problems: &mut Vec<Problem>) {
    let Value::Map(entries) = &node.value else { return };
    for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
        let message = format!("{what} has no `{}`", key.text);
        problems.push(
            Problem::new("forebay::key", message, &key.place, "unknown")
                .meant(&key.text, known.iter().copied()),
        );
    }
}

fn version(top: &Node, whole: &Place, problems: &mut Vec<Problem>) {
    match top.get("version") {
        Some(Node { value: Value::Int(1), .. }) => {}
        Some(node) => problems.push(
            Problem::new("forebay::version", "this version is not known", &node.place, "here")
                .help("write `version: 1`"),
        ),
        None => problems.push(
            Problem::new("forebay::version", "a definition begins with its version", whole, "here")
                .help("write `version: 1` as its first line"),
        ),
    }
}

fn name(top: &Node, file: &str, problems: &mut Vec<Problem>) -> String {
    match top.get("name") {
        Some(node) => match node.as_text() {
            Some(name) if name.chars().any(char::is_control) || name.chars().count() > 100 => {
                let message = "the name has a control character, or more than 100 characters";
                problems.push(Problem::new("forebay::key", message, &node.place, "here"));
                String::new()
            }
            Some(name) => name.to_owned(),
            None => {
                let message = format!("the name is {}, not text", node.kind());
                problems.push(Problem::new("forebay::key", message, &node.place, "here"));
                String::new()
            }
        },
        None => {
            let stem = std::path::Path::new(file).file_stem();
            stem.map_or_else(|| "pipeline".to_owned(), |stem| stem.to_string_lossy().into_owned())
        }
    }
}

/// The block `run`.
#[derive(Debug, Default)]
pub(super) struct RunBlock {
    pub(super) seed: u64,
    pub(super) cores: Option<usize>,
    pub(super) io_threads: Option<usize>,
    pub(super) stall: StallRule,
    /// Bytes of host memory that items and caches may take, and where that stands.
    pub(super) memory: Option<(u64, Place)>,
    /// Where the place of a run is kept, and where that stands.
    pub(super) checkpoint: Option<(Checkpoint, Place)>,
    /// Where it is asked for that nothing depends on timing.
    pub(super) deterministic: Option<Place>,
}

impl RunBlock {
    fn read(block: Option<&Node>, problems: &mut Vec<Problem>) -> Self {
        let Some(block) = block else { return RunBlock::default() };
        only("`run`", block, &RUN, problems);
        let mut wrong = |node: &Node, message: String| {
            problems.push(Problem::new("forebay::key", message, &node.place, "here"));
        };
        let mut number = |name: &str, range: std::ops::RangeInclusive<i128>| {
            let node = block.get(name)?;
            match node.value {
                Value::Int(n) if range.contains(&n) => Some(n),
                _ => {
                    let (least, most) = range.into_inner();
                    wrong(node, format!("`{name}` is not an integer from {least} to {most}"));
                    None
                }
            }
        };
        let seed = number("seed", 0..=u64::MAX.into()).map_or(0, |n| n as u64);
        let cores = number("cores", 1..=4096).map(|n| n as usize);
        let io_threads = number("io_threads", 1..=1024).map(|n| n as usize);
        let mut stall = StallRule::default();
        match block.get("stall").map(|node| (node, &node.value)) {
            None => {}
            Some((_, Value::Bool(false))) => stall.after = None,
            Some((_, Value::Text(text))) if text == "off" => stall.after = None,
            Some((node, Value::Text(text))) => match duration(text) {
                Ok(Duration::ZERO) => {
                    let why =
                        "`stall` is no time at all: write how long nothing moves, `10s`, or `off`";
                    wrong(node, why.to_owned());
                }
                Ok(after) => stall.after = Some(after),
                Err(error) => wrong(node, format!("`stall`: {error}")),
            },
            Some((node, _)) => wrong(node, "`stall` is a time such as `10s`, or `off`".to_owned()),
        }
        match block.get("stall_fails").map(|node| (node, &node.value)) {
            None => {}
            Some((node, Value::Bool(true))) if stall.after.is_none() => {
                let why = "`stall_fails` needs stalls to be looked for, but `stall` is off: leave out one \
                           of them";
                wrong(node, why.to_owned());
            }
            Some((_, Value::Bool(fails))) => stall.fails = *fails,
            Some((node, _)) => wrong(node, "`stall_fails` is true or false".to_owned()),
        }
        let memory = block.get("memory").and_then(|node| match keys::size(node) {
            Ok(bytes) => Some((bytes, node.place.clone())),
            Err(why) => {
                wrong(node, format!("`memory`: {why}"));
                None
            }
        });
        let deterministic = match block.get("deterministic").map(|node| (node, &node.value)) {
            None | Some((_, Value::Bool(false) | Value::Unknown)) => None,
            Some((node, Value::Bool(true))) => Some(node.place.clone()),
            Some((node, _)) => {
                wrong(node, "`deterministic` is true or false".to_owned());
                None
            }
        };
        let checkpoint =
            block.get("checkpoint").and_then(|node| resume::checkpoint(node, problems));
        RunBlock { seed, cores, io_threads, stall, memory, checkpoint, deterministic }
    }
}
