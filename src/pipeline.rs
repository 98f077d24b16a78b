//! The plan: a source and a chain of stages. Inert until it is run.

use std::any::type_name;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::assembly::{Assembly, Build, index_flow, source_flow, stage_flow};
use crate::engine::Engine;
use crate::fault::PlanError;
use crate::limits::check;
use crate::options::Options;
use crate::running::Running;
use crate::source::Index;
use crate::stage::{Kind, Source, Stage};

/// A pipeline that yields items of type `T`: a plan that does nothing until [`run`](Self::run).
///
/// It is generic only in what comes out of its end; stages are stored erased, items never are.
///
/// ```
/// use forebay::prelude::*;
///
/// let run = Pipeline::from(source::iter("numbers", 1..=4_u64))
///     .then(cpu::map("square", |x: u64| Ok::<_, Never>(x * x)).workers(2))
///     .run()?;
/// let squares: Vec<u64> = run.collect::<Result<_, _>>()?;
/// assert_eq!(squares, [1, 4, 9, 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pipeline<T> {
    head: Head<T>,
    nodes: Vec<Node>,
    problems: Vec<PlanError>,
    settings: RunSettings,
}

/// What the pipeline ends in so far.
enum Head<T> {
    /// Items that can be computed by position: nothing of it runs as a stage yet.
    Index(Index<T>),
    /// Stages.
    Flow(Build<T>),
}

/// A stage of a plan, as it can be shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// What was said about how it runs.
    pub options: Options,
    /// The Rust type that it yields.
    pub yields: &'static str,
    /// Whether it is computed by position within the source, and costs no task of its own.
    pub by_position: bool,
    /// Whether its workers make calls.
    pub(crate) makes_calls: bool,
    /// Tells nodes that two pipelines share from those that look alike.
    pub(crate) number: u64,
}

/// What holds for a whole run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunSettings {
    /// The pipeline's name in reports.
    pub name: String,
    /// Cores that cpu stages may use. Default: all of up to 4, else three quarters, because a
    /// loader that takes every core delays the launches on the device that it feeds.
    pub cores: Option<usize>,
    /// Threads of the I/O runtime. Default: the cores, at most 4.
    pub io_threads: Option<usize>,
    /// What happens when nothing moves. Default: after 10 s a warning says what is waited for.
    pub stall: StallRule,
    /// Remembers calls for a trace, see [`Handle::write_trace`](crate::running::Handle::write_trace). Default:
    /// not.
    pub trace: Option<TraceRule>,
}

/// What happens when nothing moves in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallRule {
    /// After how long it is said what the run waits for; `None` is never.
    pub after: Option<Duration>,
    /// Whether the run then also fails.
    pub fails: bool,
}

impl Default for StallRule {
    fn default() -> Self {
        StallRule { after: Some(Duration::from_secs(10)), fails: false }
    }
}

/// How much a trace remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRule {
    /// The last so many seconds are shown.
    pub last: Duration,
    /// Memory for each stage, in bytes, at most.
    pub bytes: usize,
}

impl Default for TraceRule {
    fn default() -> Self {
        TraceRule { last: Duration::from_secs(10), bytes: 16 << 20 }
    }
}

impl TraceRule {
    /// How many calls of a stage are remembered: each is kept as a call, as sent, and perhaps with a
    /// request.
    pub(crate) fn calls(&self) -> usize {
        const EACH: usize = 160;
        (self.bytes / EACH).max(1)
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            name: "pipeline".to_owned(),
            cores: None,
            io_threads: None,
            stall: StallRule::default(),
            trace: None,
        }
    }
}

impl RunSettings {
    /// The core budget.
    pub fn core_budget(&self) -> usize {
        self.cores.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            if cores <= 4 { cores } else { (cores * 3).div_ceil(4) }
        })
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Begins with a source.
    pub fn from<S: Source<Item = T>>(source: S) -> Self {
        Self::from_with(source, Options::default())
    }

    /// Begins with a source; of the options, `id` and `buffer` apply.
    pub fn from_with<S: Source<Item = T>>(source: S, options: Options) -> Self {
        let node = node::<T>(source.name(), Kind::Source, options);
        let mut problems = Vec::new();
        check(&node, false, &mut problems);
        let head = match source.into_index() {
            Ok(index) => Head::Index(index),
            Err(source) => Head::Flow(source_flow(source, node.clone())),
        };
        let mut nodes = vec![node];
        nodes[0].by_position = matches!(head, Head::Index(_));
        Pipeline { head, nodes, problems, settings: RunSettings::default() }
    }

    /// Adds a stage.
    pub fn then<S: Stage<In = T>>(self, stage: S) -> Pipeline<S::Out> {
        self.then_with(stage, Options::default())
    }

    /// Adds a stage with options that win over the stage's own.
    pub fn then_with<S: Stage<In = T>>(mut self, stage: S, options: Options) -> Pipeline<S::Out> {
        let options = stage.options().overridden_by(options);
        let mut node = node::<S::Out>(stage.name(), stage.kind(), options);
        node.makes_calls = stage.makes_calls();
        self.number(&mut node);
        check(&node, stage.can_retry(), &mut self.problems);
        let head = match self.head {
            Head::Index(index) if stage.needs_groups() && !index.is_grouped() => {
                self.problems.push(PlanError::NeedsGroups(node.id.clone()));
                let source = index_flow(index, self.nodes[0].clone());
                Head::Flow(stage_flow(source, stage, node.clone()))
            }
            Head::Index(index) => match stage.index(index) {
                Ok(index) => {
                    node.by_position = true;
                    Head::Index(index)
                }
                Err((stage, index)) => {
                    self.problems.extend(unmet(&stage, &node));
                    // What was computed by position up to here becomes the source.
                    let source = index_flow(index, self.nodes[0].clone());
                    Head::Flow(stage_flow(source, stage, node.clone()))
                }
            },
            Head::Flow(build) => {
                self.problems.extend(unmet(&stage, &node));
                Head::Flow(stage_flow(build, stage, node.clone()))
            }
        };
        self.nodes.push(node);
        Pipeline { head, nodes: self.nodes, problems: self.problems, settings: self.settings }
    }

    /// Gives `node` an id that no earlier one has, unless it was given one.
    fn number(&mut self, node: &mut Node) {
        match free_id(&self.nodes, node) {
            Some(id) => node.id = id,
            None => self.problems.push(PlanError::Duplicate(node.id.clone())),
        }
    }

    /// The stages so far, sources first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many items the pipeline yields, where that is known before it runs.
    pub fn len_known(&self) -> Option<u64> {
        match &self.head {
            Head::Index(index) => Some(index.len()),
            Head::Flow(_) => None,
        }
    }

    /// Its items by position, if they can be computed so up to its last stage.
    pub fn index(&self) -> Option<&Index<T>> {
        match &self.head {
            Head::Index(index) => Some(index),
            Head::Flow(_) => None,
        }
    }

    /// Names the pipeline.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// What holds for the whole run.
    pub fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// What holds for the whole run.
    pub fn settings_mut(&mut self) -> &mut RunSettings {
        &mut self.settings
    }

    /// Everything that keeps the pipeline from running.
    pub fn problems(&self) -> &[PlanError] {
        &self.problems
    }

    /// Runs it. Items are fetched and computed at once, up to the bounds, whether or not anybody
    /// asks for them.
    ///
    /// It may be called from sync code or inside any runtime, and several runs may go on side by
    /// side: each has its own threads.
    ///
    /// # Errors
    /// The first of the plan's [problems](Self::problems), or that the machine gave no threads.
    pub fn run(self) -> Result<Running<T>, PlanError> {
        if let Some(problem) = self.problems.first() {
            return Err(problem.clone());
        }
        let cores = self.settings.core_budget();
        let threads = self.settings.io_threads.unwrap_or(cores.min(4));
        let refused = |error: std::io::Error| PlanError::Machine(error.to_string());
        let (engine, runtime) =
            Engine::new(self.settings.clone(), threads.max(1)).map_err(refused)?;
        let mut assembly = Assembly { engine: Arc::clone(&engine), cores, renamed: Vec::new() };
        let you = assembly.you();
        let build = match self.head {
            Head::Flow(build) => build,
            Head::Index(index) => index_flow(index, self.nodes[0].clone()),
        };
        let inlet = build(&mut assembly, &you);
        if let Err(error) = engine.keep(runtime) {
            engine.cancel.cancel();
            return Err(refused(error));
        }
        Ok(Running::new(engine, inlet))
    }

    /// The parts for a stage that joins several pipelines.
    pub(crate) fn into_parts(self) -> (Build<T>, Vec<Node>, Vec<PlanError>, RunSettings) {
        let build = match self.head {
            Head::Flow(build) => build,
            Head::Index(index) => index_flow(index, self.nodes[0].clone()),
        };
        (build, self.nodes, self.problems, self.settings)
    }

    pub(crate) fn from_parts(
        build: Build<T>,
        nodes: Vec<Node>,
        problems: Vec<PlanError>,
        settings: RunSettings,
    ) -> Self {
        Pipeline { head: Head::Flow(build), nodes, problems, settings }
    }
}

impl<T> fmt::Debug for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("nodes", &self.nodes)
            .field("problems", &self.problems)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

pub(crate) fn node<T>(name: &str, kind: Kind, options: Options) -> Node {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let id = options.id.clone().unwrap_or_else(|| name.to_owned());
    let (yields, by_position, makes_calls) = (type_name::<T>(), false, false);
    Node { id, kind, options, yields, by_position, makes_calls, number }
}

/// The id for `node` among `nodes`; none if it was given one that is taken.
pub(crate) fn free_id(nodes: &[Node], node: &Node) -> Option<String> {
    let taken = |id: &str| nodes.iter().any(|other| other.id == id);
    if !taken(&node.id) {
        return Some(node.id.clone());
    }
    if node.options.id.is_some() {
        return None;
    }
    (2..).map(|n| format!("{}-{n}", node.id)).find(|id| !taken(id))
}

fn unmet<S: Stage>(stage: &S, node: &Node) -> Option<PlanError> {
    let unmet = stage.needs_index() || stage.needs_groups();
    unmet.then(|| PlanError::NeedsIndex(node.id.clone()))
}
