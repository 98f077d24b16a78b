//! What flows on every edge of a definition and how much memory a run can take, from metadata alone:
//! what does not fit is told before a byte of data is read.

use super::any::FlowType;
use super::catalog::{Asked, Catalog};
use super::check::{Checked, Step};
use super::fix::Fix;
use super::flow::{Flow, Misfit};
use super::holds::Holds;
use super::lint;
use super::problem::{Problem, Problems};
use super::resume::{self, Entries};
use super::tree::{Node, Place, Value};
use crate::entering::Entry;
use crate::limits;
use crate::options::Options;
use crate::pipeline::RunSettings;
use crate::stage::Kind;

/// What is known of a definition before it runs.
#[derive(Debug)]
pub struct Survey {
    /// What flows out of each stage, in order.
    pub edges: Vec<Edge>,
    /// Bytes of host memory that items take at most in calls, in buffers, while they wait for their turn
    /// and at the consumer, with what is kept for later windows; if all stages say how much that is. A
    /// stage's own scratch memory, and what pools keep to lend it again, come on top.
    pub memory: Option<u64>,
    /// The same of memory of devices.
    pub device_memory: Option<u64>,
    /// How much memory of the host the definition allows, if it says.
    pub memory_max: Option<u64>,
    /// How much of that is left for items; the rest is what stages keep beside them.
    pub(super) items_max: Option<u64>,
    /// How a run goes on from a checkpoint in the middle; `None` if a stage of a user's own does not say:
    /// then it is known once the pipeline is built.
    pub entry: Option<Entry>,
    /// What runs but was hardly meant.
    pub warnings: Problems,
}

/// What flows out of a stage.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The stage's id.
    pub id: String,
    /// Its operator.
    pub operator: String,
    /// Its kind.
    pub kind: Kind,
    /// The type of the items.
    pub yields: FlowType,
    /// The ids of the stages that it takes from: none for a source, several where they join.
    pub after: Vec<String>,
    /// What is known of them.
    pub flow: Flow,
    /// Bytes of host memory that the stage and its buffer take at most.
    pub memory: Option<u64>,
    /// The same of memory of a device.
    pub device_memory: Option<u64>,
}

/// Goes along the edges.
pub(super) struct Surveyor<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) checked: &'a Checked,
    text: &'a str,
    pub(super) online: bool,
    pub(super) problems: Vec<Problem>,
    pub(super) edges: Vec<Edge>,
    /// How many items each of them holds.
    held: Vec<u64>,
    entries: Entries,
    cores: usize,
    /// Bytes that stages keep beside items, such as chunks for later windows.
    pub(super) kept: u64,
    /// What the buffer of the source is, while nothing has made a stream of its items.
    pending: Option<Pending>,
}

/// A source whose items are computed by position up to some stage, behind which its buffer stands.
struct Pending {
    edge: usize,
    options: Options,
}

impl<'a> Surveyor<'a> {
    pub(super) fn new(
        catalog: &'a Catalog,
        checked: &'a Checked,
        text: &'a str,
        online: bool,
    ) -> Self {
        let cores = checked.run.cores;
        let cores = RunSettings { cores, ..RunSettings::default() }.core_budget();
        let (problems, edges, held, entries, kept, pending) = Default::default();
        Surveyor {
            catalog,
            checked,
            text,
            online,
            problems,
            edges,
            held,
            entries,
            cores,
            kept,
            pending,
        }
    }

    /// How many of the items that the stage `from` makes there are at most, until the stage `until` has
    /// copied them to its device.
    pub(super) fn held(&self, from: usize, until: usize) -> u64 {
        let steps = &self.checked.steps;
        let next = |&at: &usize| (at + 1..=until).find(|&to| steps[to].after.contains(&at));
        let held = std::iter::successors(Some(from), next)
            .fold(0, |sum: u64, at| sum.saturating_add(self.held[at]));
        held.min(self.edges[from].flow.items.unwrap_or(u64::MAX))
    }

    /// What flows out of `step`. `known` is that of a source which has been made.
    pub(super) fn step(&mut self, step: &Step, known: Option<Flow>) {
        let operator = self.catalog.get(&step.key.text).expect("checked against this catalogue");
        let form = &operator.forms[step.form];
        let Step { key, node, .. } = step;
        if step.after.len() != 1 {
            // Here another chain begins, or several end.
            self.settle_last();
        }
        let branches: Vec<_> = step.after.iter().map(|&at| self.flow(at)).collect();
        let before = &branches.first().cloned().unwrap_or_default();
        let (branches, online) = (&branches[..], self.online);
        let asked = Asked { key, node, main: operator.main, before, branches, online };
        let flow = match (known, &form.flow) {
            (Some(flow), _) => flow,
            (None, Some(flow)) => flow(&asked).unwrap_or_else(|misfit| {
                let problem = problem(self.text, step, operator.main, misfit);
                self.problems.push(self.with_branches(step, problem));
                before.streamed()
            }),
            (None, None) => Flow::default(),
        };
        let options = form.options.clone().overridden_by(step.options.clone());
        let stage = (step, operator.kind);
        self.entries.add(stage, (form, &options), &asked, flow.by_position);
        self.lint(step, &options, (before, branches), &flow);
        let Holds { items, host: memory, device: device_memory } =
            self.holds(operator.kind, &options, before, &flow);
        self.held.push(items);
        self.edges.push(Edge {
            id: step.id.clone(),
            operator: key.text.clone(),
            kind: operator.kind,
            yields: step.yields,
            after: step.after.iter().map(|&at| self.edges[at].id.clone()).collect(),
            memory,
            device_memory,
            flow: flow.clone(),
        });
        if operator.kind == Kind::Source && flow.by_position {
            self.pending = Some(Pending { edge: self.edges.len() - 1, options });
        }
    }

    /// What flows out of the stage `at`.
    pub(super) fn flow(&self, at: usize) -> Flow {
        Flow { held: None, ..self.edges[at].flow.clone() }
    }

    /// Names what flows out of the branches that `step` joins.
    fn with_branches(&self, step: &Step, problem: Problem) -> Problem {
        let branches = step.after.iter().filter(|_| step.after.len() > 1);
        branches.fold(problem, |problem, &at| {
            let (place, flow) = (&self.checked.steps[at].key.place, &self.edges[at].flow);
            problem.and(place, format!("yields {flow}"))
        })
    }

    fn lint(
        &mut self,
        step: &Step,
        options: &Options,
        (before, branches): (&Flow, &[Flow]),
        after: &Flow,
    ) {
        let all = &self.checked.steps;
        if step.key.text == "zip" {
            lint::zip(step, all, branches, &mut self.problems);
        }
        let previous = step.after.first().map(|&at| &all[at]).filter(|_| step.after.len() == 1);
        let steps = lint::Steps { step, previous };
        lint::stage(&steps, options, (before, after), &mut self.problems);
    }

    /// What a stage and its buffer hold at most.
    fn holds(&mut self, kind: Kind, options: &Options, before: &Flow, after: &Flow) -> Holds {
        let kept = if kind == Kind::Source { after.kept } else { 0 };
        let kept = after.held.unwrap_or(0).saturating_add(kept);
        self.kept = self.kept.saturating_add(kept);
        let own = Holds::own(kept);
        if after.by_position {
            return own;
        }
        // The buffer that the source has stands where its items begin to flow.
        self.settle(before);
        own.with(kind, options, self.cores, before, after)
    }

    /// The items of the last stage so far flow into another chain, or to the consumer.
    fn settle_last(&mut self) {
        if let Some(edge) = self.edges.last() {
            let flow = edge.flow.clone();
            self.settle(&flow);
        }
    }

    /// The items of the source flow from here on: they wait in its buffer.
    fn settle(&mut self, flow: &Flow) {
        if let Some(Pending { edge, options }) = self.pending.take() {
            let buffer = flow
                .bytes
                .map(|bytes| limits::buffered(&options, bytes, flow.items).saturating_add(bytes));
            let edge = &mut self.edges[edge];
            edge.memory = edge.memory.zip(buffer).map(|(own, buffer)| own.saturating_add(buffer));
        }
    }

    /// What was found, or everything that does not fit.
    pub(super) fn finish(
        mut self,
        file: &str,
        text: &std::sync::Arc<str>,
    ) -> Result<Survey, Problems> {
        self.settle_last();
        // And what the consumer has taken.
        let taken = |on_device| match self.edges.last() {
            Some(edge) if edge.flow.on_device == on_device => edge.flow.bytes,
            _ => Some(0),
        };
        let of = |of: fn(&Edge) -> Option<u64>, taken| {
            let all = self.edges.iter().map(of).chain([taken]);
            let sum = all.map(|bytes| bytes.map(u128::from)).sum::<Option<u128>>();
            sum.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        let memory = of(|edge| edge.memory, taken(false));
        let device_memory = of(|edge| edge.device_memory, taken(true));
        if let Some((most, place)) = &self.checked.run.memory {
            self.within(memory, *most, place);
        }
        let entry = self.entries.entry();
        let never = entry.as_ref().and_then(|entry| resume::never(entry, self.checked));
        self.problems.extend(never);
        let (warnings, errors): (Vec<_>, Vec<_>) =
            self.problems.into_iter().partition(|problem| problem.is_warning);
        let warnings = Problems::new(file, text, warnings);
        if !errors.is_empty() {
            return Err(Problems::new(file, text, errors).and(warnings));
        }
        let memory_max = self.checked.run.memory.as_ref().map(|(most, _)| *most);
        let items_max = memory_max.map(|most| most.saturating_sub(self.kept).max(1));
        Ok(Survey {
            edges: self.edges,
            memory,
            device_memory,
            memory_max,
            items_max,
            entry,
            warnings,
        })
    }
}

/// What does not fit in the sources among `steps`, where something else of the definition is wrong: so that
/// it is told in the same pass.
pub(super) fn of_sources(catalog: &Catalog, text: &str, steps: &[Step]) -> Vec<Problem> {
    let misfit = |step: &Step| {
        let operator = catalog.get(&step.key.text)?;
        let form = &operator.forms[step.form];
        let asked = Asked {
            key: &step.key,
            node: &step.node,
            main: operator.main,
            before: &Flow::default(),
            branches: &[],
            online: false,
        };
        let misfit = form.flow.as_ref().filter(|_| operator.kind == Kind::Source)?(&asked).err()?;
        Some(problem(text, step, operator.main, misfit))
    };
    steps.iter().filter_map(misfit).collect()
}

/// What is wrong, with the place of the argument that is to blame.
fn problem(text: &str, step: &Step, main: Option<&str>, misfit: Misfit) -> Problem {
    let Misfit { code, message, at, line, help, before, meant } = misfit;
    let place = match at.is_empty() {
        true => step.key.place.clone(),
        false => locate(&step.node, main, &at).unwrap_or_else(|| step.key.place.clone()),
    };
    let block = at.last().and_then(|name| step.node.get(name)?.as_text());
    let line =
        line.zip(block).and_then(|(line, block)| line_of(text, &place, block, line.get() as usize));
    let place = line.unwrap_or(place);
    let problem = Problem::new(code, message, &place, "here");
    let problem = match help {
        Some(help) => problem.help(help),
        None => problem,
    };
    match (meant, at.last(), before.is_empty()) {
        (Some(text), Some(find), _) => {
            let (find, text) = (find.clone(), text.into());
            problem.fix(Fix::Replace { place, find, text })
        }
        (_, _, false) => problem.fix(Fix::Insert { before: step.key.place.clone(), items: before }),
        _ => problem,
    }
}

/// Where the n-th line, from 1, of a text stands that begins in the line below its key, as behind `|`.
fn line_of(text: &str, key: &Place, block: &str, n: usize) -> Option<Place> {
    let wanted = block.lines().nth(n - 1)?.trim();
    let begun = text.get(..key.start)?.rfind('\n').map_or(0, |at| at + 1);
    let start = begun + text[begun..].split_inclusive('\n').take(n).map(str::len).sum::<usize>();
    let line = text[start..].lines().next().unwrap_or_default();
    let start = start + line.len() - line.trim_start().len();
    // It may be text of another form, such as one in quotes.
    (!wanted.is_empty() && line.trim() == wanted).then(|| start..start + wanted.len())
}

/// Where the argument at `path` stands: keys of mappings, and entries of lists by their text.
fn locate(node: &Node, main: Option<&str>, path: &[String]) -> Option<Place> {
    let is_short = !matches!(node.value, Value::Map(_)) && main == path.first().map(String::as_str);
    let shown = main.is_some_and(|main| node.get(main).is_none());
    let path = if (is_short || shown) && main == path.first().map(String::as_str) {
        &path[1..]
    } else {
        path
    };
    let (mut at, mut place) = (node, node.place.clone());
    for segment in path {
        let next = match &at.value {
            Value::Map(entries) => {
                let (key, node) = entries.iter().find(|(key, _)| key.text == *segment)?;
                (node, key.place.clone())
            }
            Value::List(nodes) => {
                let node = nodes.iter().find(|node| node.as_text() == Some(segment))?;
                (node, node.place.clone())
            }
            _ => break,
        };
        (at, place) = next;
    }
    Some(place)
}
