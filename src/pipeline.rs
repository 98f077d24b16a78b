//! The plan: a source and a chain of stages. Inert until it is run.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::FutureExt as _;

use crate::engine::Engine;
use crate::fault::{Fault, PlanError};
use crate::link::{End, Inlet, Outlet, link};
use crate::options::{Options, Workers};
use crate::running::Running;
use crate::site::{Lineage, Site};
use crate::source::Index;
use crate::stage::{Kind, Source, Stage, Stop};
use crate::trace::Meter;

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

/// Builds the stages of a plan inside a run and returns the end of the last one.
pub(crate) type Build<T> = Box<dyn FnOnce(&mut Assembly, &Arc<Site>) -> Inlet<T> + Send>;

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
    /// Tells nodes that two pipelines share from those that look alike.
    number: u64,
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
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings { name: "pipeline".to_owned(), cores: None, io_threads: None }
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
        check(&node, false, false, &mut problems);
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
        self.number(&mut node);
        check(&node, stage.makes_calls(), stage.can_retry(), &mut self.problems);
        let head = match self.head {
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
            Engine::new(self.settings.name.clone(), threads.max(1)).map_err(refused)?;
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
    Node { id, kind, options, yields: type_name::<T>(), by_position: false, number }
}

/// The id for `node` among `nodes`; none if it was given one that is taken.
fn free_id(nodes: &[Node], node: &Node) -> Option<String> {
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
    stage.needs_index().then(|| PlanError::NeedsIndex(node.id.clone()))
}

/// Adds what keeps `node` from running.
fn check(node: &Node, makes_calls: bool, can_retry: bool, problems: &mut Vec<PlanError>) {
    let Options { id: _, workers, buffer, ordered, retry, timeout, rate, on_error } = &node.options;
    let stage = || node.id.clone();
    let mut zero = |what, hint| problems.push(PlanError::Zero { stage: stage(), what, hint });
    if *workers == Some(Workers::Count(0)) {
        zero("workers", ", or `auto`");
    }
    if buffer.is_some_and(|buffer| buffer.items == 0) {
        zero("buffer.items", "");
    }
    if buffer.is_some_and(|buffer| buffer.bytes == 0) {
        zero("buffer.bytes", "; one item always fits");
    }
    if *ordered == Some(crate::options::Ordered::Window(Some(0))) {
        zero("ordered.window", ", or `ordered: false`");
    }
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        zero("timeout", "; leave it out for no limit");
    }
    let mut range = |what, value: String, range| {
        problems.push(PlanError::Range { stage: stage(), what, value, range });
    };
    match *workers {
        Some(Workers::Count(n)) if n > WORKERS_MAX => {
            range("workers", n.to_string(), "at most 65536");
        }
        Some(Workers::Share(share)) if !(share > 0.0 && share <= 1.0) => {
            range("workers", format!("{}%", share * 100.0), "a share above 0 % up to 100 %");
        }
        _ => {}
    }
    if let Some(buffer) = buffer
        && buffer.items > BUFFER_ITEMS_MAX
    {
        range("buffer.items", buffer.items.to_string(), "at most 16777216");
    }
    if let Some(rate) = rate {
        for (what, value) in
            [("rate.requests", rate.requests_per_s), ("rate.bytes", rate.bytes_per_s)]
        {
            if let Some(value) = value
                && !(value.is_finite() && value > 1e-9)
            {
                range(what, format!("{value}/s"), "more than 0 a second");
            }
        }
    }
    let mut not_applicable = |what, because| {
        problems.push(PlanError::NotApplicable { stage: stage(), what, because });
    };
    if !makes_calls {
        let because = "which runs in one task and makes no calls";
        let said = [
            ("workers", workers.is_some()),
            ("ordered", ordered.is_some()),
            ("retry", retry.is_some()),
            ("timeout", timeout.is_some()),
            ("rate", rate.is_some()),
            ("on_error", on_error.is_some()),
        ];
        for (what, _) in said.into_iter().filter(|(_, said)| *said) {
            not_applicable(what, because);
        }
    } else if retry.is_some() && !can_retry {
        not_applicable(
            "retry",
            "whose items can't be copied for another try: add `.retryable()` where the stage is made",
        );
    }
}

/// Above this a number of workers is surely a mistake.
const WORKERS_MAX: usize = 65_536;
/// Above this a number of items is surely a mistake.
const BUFFER_ITEMS_MAX: usize = 1 << 24;

// ------------------------------------------------------------------------------------ building

/// A run while its stages are put together.
pub(crate) struct Assembly {
    engine: Arc<Engine>,
    cores: usize,
    /// New ids of stages whose pipelines are being joined with others, innermost last.
    renamed: Vec<BTreeMap<String, String>>,
}

impl Assembly {
    /// The consumer's place, which shows in no table.
    fn you(&self) -> Arc<Site> {
        Arc::new(Site {
            meter: Arc::clone(&self.engine.you),
            options: Options::default(),
            engine: Arc::clone(&self.engine),
            lineage: Lineage::default(),
        })
    }

    fn workers(&self, node: &Node) -> usize {
        let auto = match node.kind {
            Kind::Io => 16,
            Kind::Cpu => self.cores,
            Kind::Source | Kind::Device | Kind::Flow => 1,
        };
        match node.options.workers {
            None | Some(Workers::Auto) => auto,
            Some(Workers::Count(n)) => n,
            Some(Workers::Share(share)) => ((self.cores as f64 * share).ceil() as usize).max(1),
        }
    }

    /// A link from the stage at `from` to the one at `to`.
    fn link<T: Send + 'static>(&self, from: &Arc<Site>, to: &Arc<Site>) -> (Outlet<T>, Inlet<T>) {
        let (outlet, inlet) = link(from.options.buffer.unwrap_or_default(), from, to);
        self.engine.metered(&from.meter, outlet.core());
        (outlet, inlet)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn(task);
    }
}

fn source_flow<S: Source>(source: S, node: Node) -> Build<S::Item> {
    Box::new(move |assembly, to| {
        let slot = Deferred::new(assembly, node);
        let (mut outlet, inlet) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let stop = site.engine.stop.clone();
            let result = tokio::select! {
                biased;
                result = guarded(&site, outlet.core().gone().clone(), async {
                    source.run(&mut outlet).await
                }) => result,
                () = stop.cancelled() => Ok(()),
            };
            record(&site, &outlet, result);
        });
        inlet
    })
}

fn index_flow<T: Send + 'static>(index: Index<T>, node: Node) -> Build<T> {
    source_flow(crate::source::Indexed::new(node.id.clone(), index), node)
}

fn stage_flow<S: Stage>(before: Build<S::In>, stage: S, node: Node) -> Build<S::Out> {
    Box::new(move |assembly, to| {
        // The site is made after those before it, so that reports have the pipeline's order.
        let slot = Deferred::new(assembly, node);
        let inlet = before(assembly, &slot.site);
        let (outlet, next) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(run_stage(site, stage, inlet, outlet));
        next
    })
}

/// A stage's place that enters the reports only when those before it have.
pub(crate) struct Deferred {
    pub(crate) site: Arc<Site>,
}

impl Deferred {
    pub(crate) fn new(assembly: &Assembly, node: Node) -> Self {
        let workers = assembly.workers(&node);
        let start = assembly.engine.started();
        let id = assembly
            .renamed
            .iter()
            .rev()
            .fold(node.id, |id, renamed| renamed.get(&id).cloned().unwrap_or(id));
        let meter = Arc::new(Meter::new(id, node.kind, workers, start));
        let engine = Arc::clone(&assembly.engine);
        let lineage = Lineage::default();
        Deferred { site: Arc::new(Site { meter, options: node.options, engine, lineage }) }
    }

    pub(crate) fn link<T: Send + 'static>(
        &self,
        assembly: &Assembly,
        to: &Arc<Site>,
    ) -> (Outlet<T>, Inlet<T>) {
        assembly.link(&self.site, to)
    }
}

async fn run_stage<S: Stage>(
    site: Arc<Site>,
    stage: S,
    mut inlet: Inlet<S::In>,
    mut outlet: Outlet<S::Out>,
) {
    let gone = outlet.core().gone().clone();
    let result = guarded(&site, gone, async { stage.run(&mut inlet, &mut outlet).await }).await;
    // A stage that swallowed its inlet's fault must not make it look like an end.
    let result = match (result, inlet.fault()) {
        (Ok(()), Some(fault)) if inlet.has_ended() => Err(Stop::Upstream(fault)),
        (result, _) => result,
    };
    record(&site, &outlet, result);
}

/// Runs a stage's own code: it ends when the run is cancelled or nobody wants more, and a panic
/// in it is its fault.
pub(crate) async fn guarded(
    site: &Site,
    gone: tokio_util::sync::CancellationToken,
    stage: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let stage = AssertUnwindSafe(stage).catch_unwind();
    tokio::select! {
        biased;
        () = site.engine.cancel.cancelled() => Err(Stop::Cancelled),
        () = gone.cancelled() => Err(Stop::Downstream),
        result = stage => result.unwrap_or_else(|panic| Err(Stop::Failed(Fault::panic(panic)))),
    }
}

/// Records how a stage stopped, before its ends are dropped.
pub(crate) fn record<T: Send + 'static>(site: &Site, outlet: &Outlet<T>, result: Result<(), Stop>) {
    let end = match result {
        Ok(()) => End::Done,
        Err(Stop::Failed(fault)) => {
            let fault = fault.at(&site.meter.id);
            tracing::debug!(target: "forebay::stage", stage = %site.meter.id, %fault, "failed");
            End::Fault(fault)
        }
        Err(Stop::Upstream(fault)) => End::Fault(fault),
        Err(Stop::Cancelled) => End::Cancelled,
        // Nobody is there to read it.
        Err(Stop::Downstream) => End::Done,
    };
    outlet.core().finish(end);
}

// ------------------------------------------------------------------------------------- joining

/// What becomes of several pipelines of one type.
pub(crate) trait Join<T>: Send + 'static {
    fn run(
        self,
        inlets: &mut [Inlet<T>],
        outlet: &mut Outlet<T>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// What becomes of two pipelines of different types.
pub(crate) trait Join2<A, B>: Send + 'static {
    type Out: Send + 'static;

    fn run(
        self,
        left: &mut Inlet<A>,
        right: &mut Inlet<B>,
        outlet: &mut Outlet<Self::Out>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// The parts of the pipelines that are being joined.
#[derive(Default)]
struct Splice {
    nodes: Vec<Node>,
    problems: Vec<PlanError>,
    settings: Option<RunSettings>,
}

impl Splice {
    fn take<T: Send + 'static>(&mut self, pipeline: Pipeline<T>) -> Build<T> {
        let (build, nodes, problems, settings) = pipeline.into_parts();
        self.problems.extend(problems);
        self.settings.get_or_insert(settings);
        let mut renamed = BTreeMap::new();
        for mut node in nodes {
            if self.nodes.iter().any(|other| other.number == node.number) {
                continue;
            }
            match free_id(&self.nodes, &node) {
                Some(id) if id != node.id => {
                    renamed.insert(std::mem::replace(&mut node.id, id.clone()), id);
                }
                Some(_) => {}
                None => self.problems.push(PlanError::Duplicate(node.id.clone())),
            }
            self.nodes.push(node);
        }
        Box::new(move |assembly, to| {
            assembly.renamed.push(renamed);
            let inlet = build(assembly, to);
            assembly.renamed.pop();
            inlet
        })
    }

    fn finish<T: Send + 'static>(
        mut self,
        name: &str,
        build: impl FnOnce(&mut Assembly, &Arc<Site>, Node) -> Inlet<T> + Send + 'static,
    ) -> Pipeline<T> {
        let mut node = node::<T>(name, Kind::Flow, Options::default());
        node.id = free_id(&self.nodes, &node).expect("a node without a given id finds one");
        self.nodes.push(node.clone());
        let build: Build<T> = Box::new(move |assembly, to| build(assembly, to, node));
        Pipeline::from_parts(build, self.nodes, self.problems, self.settings.unwrap_or_default())
    }
}

/// Joins pipelines of one type.
pub(crate) fn joined<T: Send + 'static>(
    name: &str,
    pipelines: impl IntoIterator<Item = Pipeline<T>>,
    join: impl Join<T>,
) -> Pipeline<T> {
    let mut splice = Splice::default();
    let builds: Vec<_> = pipelines.into_iter().map(|pipeline| splice.take(pipeline)).collect();
    splice.finish(name, move |assembly, to, node| {
        let slot = Deferred::new(assembly, node);
        let mut inlets: Vec<_> =
            builds.into_iter().map(|build| build(assembly, &slot.site)).collect();
        let (mut outlet, next) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let gone = outlet.core().gone().clone();
            let run = async { join.run(&mut inlets, &mut outlet).await };
            let result = guarded(&site, gone, run).await;
            record(&site, &outlet, result);
        });
        next
    })
}

/// Joins two pipelines of different types.
pub(crate) fn joined2<A, B, J>(
    name: &str,
    left: Pipeline<A>,
    right: Pipeline<B>,
    join: J,
) -> Pipeline<J::Out>
where
    A: Send + 'static,
    B: Send + 'static,
    J: Join2<A, B>,
{
    let mut splice = Splice::default();
    let (left, right) = (splice.take(left), splice.take(right));
    splice.finish(name, move |assembly, to, node| {
        let slot = Deferred::new(assembly, node);
        let (mut left, mut right) = (left(assembly, &slot.site), right(assembly, &slot.site));
        let (mut outlet, next) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let gone = outlet.core().gone().clone();
            let run = async { join.run(&mut left, &mut right, &mut outlet).await };
            let result = guarded(&site, gone, run).await;
            record(&site, &outlet, result);
        });
        next
    })
}
