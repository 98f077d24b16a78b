//! The stages of a definition: their operations, ids, runtime keys and types, one after the other.

use std::collections::BTreeMap;

use super::any::FlowType;
use super::catalog::{Catalog, Operator, Takes};
use super::check::{Step, only};
use super::fix::Fix;
use super::keys;
use super::problem::{Problem, suggest};
use super::retries;
use super::sources::Named;
use super::tree::{Key, Node, Place, Value};
use super::vars::scalar;
use crate::options::Options;
use crate::stage::Kind;

/// The kinds of stages that `defaults` can be given for.
pub(super) const KINDS: [&str; 3] = ["io", "cpu", "device"];

/// The runtime keys that hold for all stages, or for those of a kind.
pub(super) struct Defaults {
    all: Options,
    by_kind: BTreeMap<&'static str, Options>,
}

impl Defaults {
    pub(super) fn read(block: Option<&Node>, problems: &mut Vec<Problem>) -> Self {
        let mut defaults = Defaults { all: Options::default(), by_kind: BTreeMap::new() };
        let Some(block) = block else { return defaults };
        let known: Vec<_> = keys::SETTINGS.iter().chain(&KINDS).copied().collect();
        only("`defaults`", block, &known, problems);
        let keys_of = |node: &Node, problems: &mut Vec<Problem>| {
            let Value::Map(entries) = &node.value else { return Options::default() };
            let entries = entries.iter().map(|(key, node)| (key, node));
            let keys = entries.filter(|(key, _)| keys::SETTINGS.contains(&key.text.as_str()));
            keys::read(keys, None, problems)
        };
        defaults.all = keys_of(block, problems);
        for kind in KINDS {
            if let Some(node) = block.get(kind) {
                only(&format!("`defaults.{kind}`"), node, keys::SETTINGS, problems);
                defaults.by_kind.insert(kind, keys_of(node, problems));
            }
        }
        defaults
    }

    fn of(&self, kind: Kind) -> Options {
        let name = match kind {
            Kind::Io => "io",
            Kind::Cpu => "cpu",
            Kind::Device => "device",
            // They make no calls; of all keys only the buffer means something to them.
            Kind::Source | Kind::Flow => {
                return Options { buffer: self.all.buffer, ..Options::default() };
            }
        };
        let of_kind = self.by_kind.get(name).cloned().unwrap_or_default();
        self.all.clone().overridden_by(of_kind)
    }
}

/// The operation of a stage: the entry that is no runtime key.
pub(super) fn operations<'a>(node: &'a Node, catalog: &Catalog) -> Vec<&'a (Key, Node)> {
    let Value::Map(entries) = &node.value else { return Vec::new() };
    let is_operation = |key: &Key| {
        catalog.get(&key.text).is_some()
            || (key.text.contains('.') && !keys::KEYS.contains(&key.text.as_str()))
    };
    let found: Vec<_> = entries.iter().filter(|(key, _)| is_operation(key)).collect();
    if !found.is_empty() {
        return found;
    }
    // None is known: the first key that can't be a runtime key was meant as one.
    entries.iter().find(|(key, _)| !keys::KEYS.contains(&key.text.as_str())).into_iter().collect()
}

pub(super) struct Stages<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) defaults: Defaults,
    pub(super) set: BTreeMap<(String, String), String>,
    pub(super) steps: Vec<Step>,
    pub(super) before: Before,
    /// The stages since then that are left out, and where that is said.
    pub(super) left_out: Vec<(String, Place)>,
    /// The named sources so far.
    pub(super) named: Vec<Named>,
    /// The names of all of them.
    pub(super) names: Vec<Key>,
    /// Those that some stage means to take, though it cannot.
    pub(super) meant: Vec<String>,
    /// The source whose stages these are, if it has a name.
    pub(super) of: Option<String>,
}

/// What the stages so far yield.
#[derive(Clone)]
pub(super) enum Before {
    /// There are none.
    Nothing,
    /// A type, from the stage at a place.
    Yields(FlowType, (String, Place)),
    /// Not known, because of a problem that was told.
    Unknown,
}

impl<'a> Stages<'a> {
    pub(super) fn stage(&mut self, node: &Node, id: String, problems: &mut Vec<Problem>) {
        let Value::Map(entries) = &node.value else {
            let message = format!("a stage is a mapping, but this is {}", node.kind());
            let mut problem = Problem::new("forebay::stage", message, &node.place, "here");
            if let Some(name) = node.as_text().filter(|name| self.catalog.get(name).is_some()) {
                problem = problem.help(format!("write `- {name}:` with a colon"));
            }
            problems.push(problem);
            self.before = Before::Unknown;
            return;
        };
        let operations = operations(node, self.catalog);
        let Some(&(key, arguments)) = operations.first() else {
            let message = "this stage has no operation";
            let names = self.catalog.operators().map(Operator::name).collect::<Vec<_>>();
            problems.push(
                Problem::new("forebay::op::none", message, &node.place, "here")
                    .help(format!("write one of {}", names.join(", "))),
            );
            self.before = Before::Unknown;
            return;
        };
        if let [first, second, ..] = operations[..] {
            let message = format!("a stage has {} operations", operations.len());
            let (first, second) = (&first.0, &second.0);
            problems.push(
                Problem::new(
                    "forebay::op::two",
                    message,
                    &first.place,
                    format!("`{}` is the operation of this stage", first.text),
                )
                .and(&second.place, format!("`{}` needs its own `- `", second.text))
                .help(format!("put a dash before `{}`: each stage is one list item", second.text)),
            );
        }
        let operator = self.operator(key, problems);
        let names: Vec<_> = operations.iter().map(|(key, _)| &*key.text).collect();
        let others = entries.iter().filter(|(key, _)| !names.contains(&&*key.text));
        let mut runtime = Vec::new();
        for (key, node) in others {
            if keys::KEYS.contains(&key.text.as_str()) {
                runtime.push((key.clone(), node.clone()));
            } else {
                let message = format!("a stage has no `{}`", key.text);
                problems.push(
                    Problem::new("forebay::key", message, &key.place, "unknown")
                        .meant(&key.text, keys::KEYS),
                );
            }
        }
        self.add_set(&id, key, &mut runtime, problems);
        let is_there = node.get("when").is_none_or(|node| {
            keys::when(node).unwrap_or_else(|why| {
                let message = format!("`when` can't be read: {why}");
                problems.push(Problem::new("forebay::key", message, &node.place, "here"));
                true
            })
        });
        let kind = operator.map(|operator| operator.kind);
        let stated = keys::read(runtime.iter().map(|(key, node)| (key, node)), kind, problems);
        let Some(operator) = operator else { return };
        check_kind(operator, key, node, problems);
        problems.extend(operator.check(key, arguments));
        let mut defaults = self.defaults.of(operator.kind);
        let retries_by_default = stated.retry.is_none();
        if operator.kind.makes_calls() && operator.never_retries() {
            defaults.retry = None;
            problems.extend(retries::refused(operator, &runtime));
        }
        let options = defaults.overridden_by(stated);
        let options = Options { id: Some(id.clone()), ..options };
        let kept = if is_there { None } else { Some(self.before.clone()) };
        let joins = operator.forms.iter().any(|form| matches!(form.takes, Takes::Named(_)));
        let fit = match joins {
            true => self.join(operator, key, arguments, problems),
            false => {
                self.fit(operator, key, problems).map(|(form, yields)| (form, yields, Vec::new()))
            }
        };
        if let Some(before) = kept {
            // Left out: what comes before it flows on. It fits where it would stand all the same.
            self.before = before;
            let place = node.get("when").map_or(&key.place, |when| &when.place).clone();
            self.left_out.push((id, place));
            return;
        }
        let Some((form, yields, taken)) = fit else { return };
        let mut after = self.put(&taken);
        if !joins {
            after.extend(self.steps.len().checked_sub(1));
        }
        self.before = Before::Yields(yields, (key.text.clone(), key.place.clone()));
        let (key, node) = (key.clone(), arguments.clone());
        self.left_out.clear();
        let places = runtime.iter().map(|(key, node)| (key.text.clone(), node.place.clone()));
        let places = places.collect();
        self.steps.push(Step {
            id,
            key,
            node,
            options,
            retries_by_default,
            places,
            form,
            yields,
            after,
            of: self.of.clone(),
        });
    }

    /// The operator that `key` names.
    fn operator(&mut self, key: &Key, problems: &mut Vec<Problem>) -> Option<&'a Operator> {
        let operator = self.catalog.get(&key.text);
        if operator.is_none() {
            let message = format!("there is no operator `{}`", key.text);
            let names = self.catalog.operators().map(Operator::name);
            problems.push(
                Problem::new("forebay::op::unknown", message, &key.place, "unknown")
                    .meant(&key.text, names.chain(keys::KEYS)),
            );
            self.before = Before::Unknown;
        }
        operator
    }

    /// Adds what `--set stage.key=value` says.
    fn add_set(
        &mut self,
        id: &str,
        operation: &Key,
        runtime: &mut Vec<(Key, Node)>,
        problems: &mut Vec<Problem>,
    ) {
        let here: Vec<_> = self.set.keys().filter(|(stage, _)| stage == id).cloned().collect();
        for at in here {
            let text = self.set.remove(&at).expect("its key was just found");
            let name = at.1;
            if !keys::SETTINGS.contains(&name.as_str()) {
                let message = format!("`--set {id}.{name}`: a stage has no `{name}` to set");
                problems.push(
                    Problem::new("forebay::set", message, &operation.place, "this stage")
                        .help(suggest(&name, keys::SETTINGS.iter().copied())),
                );
                continue;
            }
            let place = operation.place.clone();
            runtime.retain(|(key, _)| key.text != name);
            let node = Node { value: scalar(&text), place: place.clone() };
            runtime.push((Key { text: name, place }, node));
        }
    }

    /// The form of `operator` that takes what the stages so far yield, and what it yields.
    fn fit(
        &mut self,
        operator: &Operator,
        key: &Key,
        problems: &mut Vec<Problem>,
    ) -> Option<(usize, FlowType)> {
        let find = |takes: Takes| operator.forms.iter().position(|form| form.takes == takes);
        let is_source = find(Takes::Nothing).is_some();
        let found = match &self.before {
            Before::Nothing if is_source => find(Takes::Nothing),
            Before::Nothing => {
                let message = format!("`{}` can't be the first stage: it takes items", key.text);
                let sources = self.catalog.operators().filter(|o| o.kind == Kind::Source);
                let names: Vec<_> = sources.map(|o| format!("`{}`", o.name)).collect();
                let problem = Problem::new("forebay::source", message, &key.place, "here")
                    .help(format!("begin with a source: {}", names.join(", ")));
                problems.push(self.with_left_out(problem));
                None
            }
            Before::Yields(..) | Before::Unknown if is_source => {
                let message = format!("`{}` is a source: it can only be the first stage", key.text);
                problems.push(Problem::new("forebay::source", message, &key.place, "here"));
                None
            }
            Before::Yields(before, from) => {
                let form = find(Takes::One(*before)).or_else(|| find(Takes::Any));
                if form.is_none() {
                    problems.push(self.mismatch(operator, key, *before, from));
                }
                form
            }
            Before::Unknown => None,
        };
        let yields = match (found, &self.before) {
            (Some(form), before) => match (operator.forms[form].yields, before) {
                (Some(yields), _) => Some((form, yields)),
                (None, Before::Yields(before, _)) => Some((form, *before)),
                (None, _) => None,
            },
            (None, _) => None,
        };
        if yields.is_none() {
            // What follows is checked against what this stage would yield, if that is clear.
            let mut all = operator.forms.iter().filter_map(|form| form.yields);
            self.before = match (all.next(), all.next()) {
                (Some(one), None) => Before::Yields(one, (key.text.clone(), key.place.clone())),
                (Some(one), Some(other)) if one == other => {
                    Before::Yields(one, (key.text.clone(), key.place.clone()))
                }
                _ => Before::Unknown,
            };
        }
        yields
    }

    /// Names the stages before it that are left out, if there are any.
    fn with_left_out(&self, problem: Problem) -> Problem {
        if self.left_out.is_empty() {
            return problem;
        }
        let problem = self.left_out.iter().fold(problem, |problem, (id, place)| {
            problem.and(place, format!("`{id}` is left out, as this is not true"))
        });
        problem.help("what follows must fit without it, too: give that a `when`")
    }

    fn mismatch(
        &self,
        operator: &Operator,
        key: &Key,
        before: FlowType,
        (name, place): &(String, Place),
    ) -> Problem {
        let takes: Vec<_> = operator.forms.iter().map(|form| form.takes).collect();
        let wanted: Vec<_> = takes
            .iter()
            .filter_map(|takes| match takes {
                Takes::One(takes) => Some(takes.to_string()),
                _ => None,
            })
            .collect();
        let message = format!("`{}` cannot take what `{name}` yields", key.text);
        let problem = Problem::new(
            "forebay::type::mismatch",
            message,
            &key.place,
            format!("takes {}", wanted.join(" or ")),
        )
        .and(place, format!("yields {before}"));
        if !self.left_out.is_empty() {
            return self.with_left_out(problem);
        }
        match self.catalog.adapters(before, &takes) {
            Some(way) if !way.is_empty() => {
                let way = || way.iter().filter_map(|name| self.catalog.get(name));
                let steps: Vec<_> = way()
                    .map(|operator| match operator.main {
                        Some(main) if operator.requires(main) => {
                            format!("`- {}: <{main}>`", operator.name)
                        }
                        _ => format!("`- {}:`", operator.name),
                    })
                    .collect();
                let problem = problem.help(format!("add between them: {}", steps.join(" then ")));
                // Those that need no arguments can be added by a program.
                match way().all(|operator| operator.requires_nothing()) {
                    true => problem.fix(Fix::Insert {
                        before: key.place.clone(),
                        items: way().map(|operator| format!("{}:", operator.name)).collect(),
                    }),
                    false => problem,
                }
            }
            _ => problem.help(format!(
                "no operator makes {} of {before}: leave one of the two out",
                wanted.join(" or ")
            )),
        }
    }
}

/// A stated `kind` is an assertion.
fn check_kind(operator: &Operator, key: &Key, stage: &Node, problems: &mut Vec<Problem>) {
    let Some(node) = stage.get("kind") else { return };
    let stated = node.as_text().unwrap_or_default();
    if stated != operator.kind.to_string() {
        let (name, kind) = (&operator.name, operator.kind);
        let message = format!("`{name}` is a stage of kind {kind}; it cannot run as `{stated}`");
        problems.push(
            Problem::new("forebay::kind", message, &node.place, "asked for here")
                .and(&key.place, format!("registered as `{kind}`"))
                .help("`kind:` is optional: leave it out, it comes from the registration"),
        );
    }
}
