//! The plan: a source and a chain of stages. Inert until it is run.

mod settings;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use settings::{RunSettings, StallRule, TraceRule};

use crate::assembly::{Assembly, Build, index_flow, source_flow, stage_flow};
use crate::engine::Engine;
use crate::entering::{Entering, Entry, STREAM};
use crate::fault::PlanError;
use crate::limits::check;
use crate::options::Options;
use crate::position::{Position, ResumeError};
use crate::running::Running;
use crate::source::{Groups, Index};
use crate::stage::{Kind, Source, Stage};
use crate::tracker::Tracker;

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
    /// Where its runs go on, if not at the beginning.
    position: Option<Position>,
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
    /// Where it can be entered, unless it is computed by position.
    pub(crate) entering: Entering,
    /// What decides its order.
    pub(crate) decides: String,
    /// Tells nodes that two pipelines share from those that look alike.
    pub(crate) number: u64,
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
        let mut nodes = vec![node.clone()];
        let head = match source.into_index() {
            Ok(index) => {
                nodes[0].by_position = true;
                nodes[0].decides = format!("{} items", index.len());
                Head::Index(index)
            }
            Err(source) => Head::Flow(source_flow(source, node)),
        };
        Pipeline { head, nodes, problems, settings: RunSettings::default(), position: None }
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
        node.entering = stage.entering().ordered(node.options.ordered);
        node.decides = stage.decides(self.groups_for(&stage));
        self.number(&mut node);
        if self.position.is_some() {
            self.problems.push(PlanError::Resumed(node.id.clone()));
        }
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
        let Pipeline { nodes, problems, settings, position, .. } = self;
        Pipeline { head, nodes, problems, settings, position }
    }

    /// The groups that come into `stage`, if it needs them.
    fn groups_for<S: Stage<In = T>>(&self, stage: &S) -> Option<&Groups> {
        match &self.head {
            Head::Index(index) if stage.needs_groups() => index.groups(),
            _ => None,
        }
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
        let had = self.position.as_ref().map_or(0, Position::items);
        match &self.head {
            Head::Index(index) => Some(index.len().saturating_sub(had)),
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

    /// Holds the items of the run to so many bytes of host memory together, see
    /// [`RunSettings::memory`].
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let run = Pipeline::from(source::iter("sizes", (0..100).map(|_| 1 << 20)))
    ///     .then(cpu::map("make", |size: usize| Ok::<_, Never>(vec![0_u8; size])))
    ///     .memory(8 << 20)
    ///     .run()?;
    /// let memory = run.drain()?.memory.unwrap();
    /// assert!(memory.peak <= memory.most && memory.above == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.memory = Some(bytes);
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

    /// How a run of it goes on from a position in the middle.
    pub fn entry(&self) -> Entry {
        Entry::of(&self.nodes)
    }

    /// Goes on from `position`, which was taken from a run of the same plan: its run yields what is
    /// left, and its fingerprint goes on from that of the position. It comes last, right before
    /// [`run`](Self::run). Workers, buffers and what is said about failures may be others than
    /// before.
    ///
    /// # Errors
    /// What decides which items come, and in what order, is not as it was, or depends on timing.
    pub fn resume(self, position: &Position) -> Result<Self, ResumeError> {
        if let Entry::Never { stage, why } = self.entry() {
            return Err(ResumeError::Never { stage, why });
        }
        position.fits(&self.nodes)?;
        Ok(Pipeline { position: Some(position.clone()), ..self })
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
    /// The first of the plan's [problems](Self::problems), a stage that is not
    /// [ready](Stage::ready), or that the machine gave no threads.
    pub fn run(self) -> Result<Running<T>, PlanError> {
        if let Some(problem) = self.problems.first() {
            return Err(problem.clone());
        }
        let cores = self.settings.core_budget();
        let threads = self.settings.io_threads.unwrap_or(cores.min(4));
        let refused = |error: std::io::Error| PlanError::Machine(error.to_string());
        let (engine, runtime) =
            Engine::new(self.settings.clone(), threads.max(1)).map_err(refused)?;
        let entry = self.entry();
        let start = || Position::start(&self.settings.name, &self.nodes);
        let position = self.position.unwrap_or_else(start);
        let first = position.begin(&entry);
        let finished = position.is_finished();
        let tracker = Tracker::new(position, &self.nodes, &entry);
        let mut assembly = Assembly::new(Arc::clone(&engine), cores, first);
        let you = assembly.you();
        let build = match self.head {
            Head::Flow(build) => build,
            Head::Index(index) => index_flow(index, self.nodes[0].clone()),
        };
        // Nothing is built of a run of which nothing is left.
        let inlet = (!finished).then(|| build(&mut assembly, &you));
        let begun = assembly.begin();
        if let Err(error) = engine.keep(runtime) {
            engine.cancel.cancel();
            return Err(refused(error));
        }
        begun?;
        Ok(Running::new(engine, inlet, tracker))
    }

    /// The parts for a stage that joins several pipelines.
    pub(crate) fn into_parts(mut self) -> (Build<T>, Vec<Node>, Vec<PlanError>, RunSettings) {
        if self.position.is_some() {
            let last = self.nodes.last().map_or_else(String::new, |node| node.id.clone());
            self.problems.push(PlanError::Resumed(last));
        }
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
        Pipeline { head: Head::Flow(build), nodes, problems, settings, position: None }
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
    let (entering, decides) = (STREAM, String::new());
    Node { id, kind, options, yields, by_position, makes_calls, entering, decides, number }
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
