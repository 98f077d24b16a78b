//! Where a stage runs: what the engine gives it beside its two ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tracing::Span;

use crate::engine::Engine;
use crate::item::ItemId;
use crate::options::Options;
use crate::trace::{Meter, stage_span};

/// One stage's place in a run.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) meter: Arc<Meter>,
    pub(crate) options: Options,
    pub(crate) engine: Arc<Engine>,
    pub(crate) lineage: Lineage,
    /// See [`span`](Site::span).
    span: OnceLock<Span>,
}

impl Site {
    pub(crate) fn new(meter: Arc<Meter>, options: Options, engine: Arc<Engine>) -> Self {
        let (lineage, span) = Default::default();
        Site { meter, options, engine, lineage, span }
    }

    /// The stage's span, for anyone's subscriber. It ends with the stage, which alone keeps its site.
    ///
    /// It is made by the stage's own task, not by who runs the pipeline: calls on other threads see
    /// the same subscriber as that task.
    pub(crate) fn span(&self) -> &Span {
        self.span.get_or_init(|| stage_span(&self.meter, &self.engine.name))
    }
}

/// The id of the item that a single-task stage received last, from which those of the items it
/// sends derive. Written and read by that one task.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    some: AtomicU64,
    position: AtomicU64,
    path: AtomicU64,
}

impl Lineage {
    pub(crate) fn set(&self, id: ItemId) {
        let (position, path) = id.parts();
        self.position.store(position, Relaxed);
        self.path.store(path, Relaxed);
        self.some.store(1, Relaxed);
    }

    pub(crate) fn last(&self) -> Option<ItemId> {
        (self.some.load(Relaxed) != 0)
            .then(|| ItemId::from_parts(self.position.load(Relaxed), self.path.load(Relaxed)))
    }
}

/// Items that a stage of one task holds. Those that it still holds when it ends early are counted
/// as abandoned.
#[derive(Debug)]
pub(crate) struct Holding {
    site: Arc<Site>,
    items: usize,
}

impl Holding {
    pub(crate) fn nothing(site: &Arc<Site>) -> Self {
        Holding { site: Arc::clone(site), items: 0 }
    }

    pub(crate) fn set(&mut self, items: usize) {
        self.items = items;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.site.meter.abandoned.fetch_add(self.items as u64, Relaxed);
    }
}
