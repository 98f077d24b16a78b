//! Where a stage runs: what the engine gives it beside its two ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tracing::Span;

use crate::budget::{Account, Held};
use crate::engine::Engine;
use crate::item::{ItemId, is_on_host};
use crate::options::Options;
use crate::trace::{Meter, stage_span};

/// One stage's place in a run.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) meter: Arc<Meter>,
    pub(crate) options: Options,
    pub(crate) engine: Arc<Engine>,
    pub(crate) lineage: Lineage,
    /// Whether its items are computed by position: what nobody has begun is not missed.
    pub(crate) by_position: bool,
    /// What it takes of the run's memory, if that is bounded.
    account: OnceLock<Arc<Account>>,
    /// See [`span`](Site::span).
    span: OnceLock<Span>,
}

impl Site {
    pub(crate) fn new(meter: Arc<Meter>, options: Options, engine: Arc<Engine>) -> Self {
        let (lineage, account, span) = Default::default();
        Site { meter, options, engine, lineage, by_position: false, account, span }
    }

    /// Opens the stage's account once those before it have theirs.
    pub(crate) fn open_account(&self) {
        if let Some(budget) = &self.engine.budget {
            self.account.get_or_init(|| budget.open(self.meter.kind));
        }
    }

    /// The stage's account of the run's memory, if that is bounded.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.account.get()
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

/// Items that a stage of one task holds, and their bytes. Those that it still holds when it ends
/// early are counted as abandoned.
#[derive(Debug)]
pub(crate) struct Holding {
    site: Arc<Site>,
    items: usize,
    bytes: Held,
}

impl Holding {
    /// No items of type `T` yet.
    pub(crate) fn nothing<T: 'static>(site: &Arc<Site>) -> Self {
        let budget = site.engine.budget.clone().filter(|_| is_on_host::<T>());
        let bytes = Held::nothing(budget.zip(site.account().cloned()));
        Holding { site: Arc::clone(site), items: 0, bytes }
    }

    pub(crate) fn set(&mut self, items: usize, bytes: u64) {
        self.items = items;
        self.bytes.set(bytes);
    }
}

impl Holding {
    /// So many items are left, those sent on having `bytes` bytes.
    pub(crate) fn sent(&mut self, left: usize, bytes: u64) {
        self.items = left;
        self.bytes.hand_over(bytes);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.site.meter.abandoned.fetch_add(self.items as u64, Relaxed);
    }
}
