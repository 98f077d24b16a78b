//! Puts the stages of a plan together inside a run: their links, their tasks, and how each tells its
//! end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::Instrument as _;

use crate::engine::Engine;
use crate::fault::{Fault, PlanError};
use crate::limits::{self, WORKERS_MAX};
use crate::link::End;
use crate::link::{Inlet, Outlet, link};
use crate::options::Options;
use crate::pipeline::Node;
use crate::site::Site;
use crate::source::Index;
use crate::stage::{Kind, Source, Stage, Stop};
use crate::trace::{Meter, stage_ended};

/// Builds the stages of a plan inside a run and returns the end of the last one.
pub(crate) type Build<T> = Box<dyn FnOnce(&mut Assembly, &Arc<Site>) -> Inlet<T> + Send>;

/// A run while its stages are put together.
pub(crate) struct Assembly {
    pub(crate) engine: Arc<Engine>,
    pub(crate) cores: usize,
    /// New ids of stages whose pipelines are being joined with others, innermost last.
    pub(crate) renamed: Vec<BTreeMap<String, String>>,
    /// Where a source begins whose items are computed by position.
    first: u64,
    /// They begin once all stages are ready.
    tasks: Vec<BoxFuture<'static, ()>>,
    /// The first stage that is not.
    refused: Option<PlanError>,
}

impl Assembly {
    pub(crate) fn new(engine: Arc<Engine>, cores: usize, first: u64) -> Self {
        let (renamed, tasks, refused) = (Vec::new(), Vec::new(), None);
        Assembly { engine, cores, renamed, first, tasks, refused }
    }

    /// Lets the stages run, unless one of them is not ready: then nothing was read.
    pub(crate) fn begin(self) -> Result<(), PlanError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        self.tasks.into_iter().for_each(|task| drop(self.engine.spawn(task)));
        Ok(())
    }

    /// Asks a stage whether it is ready.
    fn ask<S: Stage>(&mut self, stage: &S, id: &str) {
        if self.refused.is_some() {
            return;
        }
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| stage.ready()));
        let fault = match answer {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Fault::error(error),
            Err(panic) => Fault::panic(panic),
        };
        let fault = fault.at(id);
        self.refused = Some(PlanError::NotReady(fault.to_string()));
    }

    /// The consumer's place, which shows in no table.
    pub(crate) fn you(&self) -> Arc<Site> {
        let (you, engine) = (Arc::clone(&self.engine.you), Arc::clone(&self.engine));
        Arc::new(Site::new(you, Options::default(), engine))
    }

    /// How many workers a stage that starts with so many may be given while it runs.
    fn places(&self, kind: Kind, workers: usize) -> usize {
        let places = match kind {
            Kind::Io => (4 * workers).max(64),
            Kind::Cpu => (4 * workers).max(2 * self.cores),
            Kind::Source | Kind::Device | Kind::Flow => 4 * workers,
        };
        places.min(WORKERS_MAX).max(workers)
    }

    /// A link from the stage at `from` to the one at `to`.
    fn link<T: Send + 'static>(&self, from: &Arc<Site>, to: &Arc<Site>) -> (Outlet<T>, Inlet<T>) {
        let (outlet, inlet) = link(from.options.buffer.unwrap_or_default(), from, to);
        self.engine.metered(&from.meter, outlet.core(), &to.meter);
        from.open_account();
        (outlet, inlet)
    }

    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }
}

pub(crate) fn source_flow<S: Source>(source: S, node: Node) -> Build<S::Item> {
    Box::new(move |assembly, to| {
        let slot = Deferred::new(assembly, node);
        let (mut outlet, inlet) = slot.link(assembly, to);
        let site = slot.site;
        assembly.spawn(async move {
            let stop = site.engine.stop.clone();
            let gone = outlet.core().gone().clone();
            let run = async {
                tokio::select! {
                    biased;
                    result = source.run(&mut outlet) => result,
                    () = stop.cancelled() => Ok(()),
                }
            };
            let result = guarded(&site, gone, run).await;
            record(&site, &outlet, result);
        });
        inlet
    })
}

pub(crate) fn index_flow<T: Send + 'static>(index: Index<T>, node: Node) -> Build<T> {
    Box::new(move |assembly, to| {
        let source = crate::source::Indexed::new(node.id.clone(), index).beginning(assembly.first);
        source_flow(source, node)(assembly, to)
    })
}

pub(crate) fn stage_flow<S: Stage>(before: Build<S::In>, stage: S, node: Node) -> Build<S::Out> {
    Box::new(move |assembly, to| {
        // The site is made after those before it, so that reports have the pipeline's order.
        let slot = Deferred::new(assembly, node);
        assembly.ask(&stage, &slot.site.meter.id);
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
        let workers = limits::workers(node.kind, &node.options, assembly.cores);
        let start = assembly.engine.started();
        let id = assembly
            .renamed
            .iter()
            .rev()
            .fold(node.id, |id, renamed| renamed.get(&id).cloned().unwrap_or(id));
        let mut meter = Meter::new(id, node.kind, workers, start);
        if node.makes_calls {
            meter = meter.with_places(assembly.places(node.kind, workers));
        }
        meter.options = node.options.to_string();
        meter.rate.clone_from(&node.options.rate);
        if let Some(trace) = assembly.engine.trace() {
            meter.trace(trace.calls());
        }
        let meter = Arc::new(meter);
        let engine = Arc::clone(&assembly.engine);
        let mut site = Site::new(meter, node.options, engine);
        site.by_position = node.kind == Kind::Source && node.by_position;
        Deferred { site: Arc::new(site) }
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
    let stage = AssertUnwindSafe(stage.instrument(site.span().clone())).catch_unwind();
    let result = tokio::select! {
        biased;
        () = site.engine.cancel.cancelled() => Err(Stop::Cancelled),
        () = gone.cancelled() => Err(Stop::Downstream),
        result = stage => result.unwrap_or_else(|panic| Err(Stop::Failed(Fault::panic(panic)))),
    };
    stage_ended(site.span(), &site.meter, &result);
    result
}

/// Records how a stage stopped, before its ends are dropped.
pub(crate) fn record<T: Send + 'static>(site: &Site, outlet: &Outlet<T>, result: Result<(), Stop>) {
    if matches!(site.meter.kind, Kind::Source | Kind::Flow) {
        site.meter.leave();
    }
    let end = match result {
        Ok(()) => End::Done,
        Err(Stop::Failed(fault)) => End::Fault(fault.at(&site.meter.id)),
        Err(Stop::Upstream(fault)) => End::Fault(fault),
        Err(Stop::Cancelled) => End::Cancelled,
        // Nobody is there to read it.
        Err(Stop::Downstream) => End::Done,
    };
    outlet.core().finish(end);
}
