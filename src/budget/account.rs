//! A stage's part of the budget, and what it asks for.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::item::ItemId;

/// What one stage takes of the budget.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(super) place: usize,
    /// The largest item that it has yielded, or the most that it has kept if it makes no calls.
    pub(super) largest: AtomicU64,
    /// What it keeps now if it makes no calls.
    pub(super) kept: AtomicU64,
    /// What is left free for the stages after it, together.
    pub(super) after: AtomicU64,
    /// Whether anything is known of what it yields.
    pub(super) known: AtomicBool,
    /// Stages after it of which nothing is known.
    pub(super) unknown_after: AtomicUsize,
    /// Whether it goes on by itself: it is in a call, or waits until a certain time.
    pub(super) moving: AtomicBool,
    pub(super) wanted: Mutex<Option<Want>>,
    /// Whether it was told to ask again, and has not yet.
    pub(super) told: AtomicBool,
    /// Told when it may ask again.
    pub(crate) freed: Notify,
}

/// What a stage would go on with; the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Want {
    /// Whether something of the stage waits to be taken anyway.
    pub(crate) is_early: bool,
    /// The oldest of its items.
    pub(crate) id: ItemId,
}

/// It does not fit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// When to ask again even if nothing is given back until then.
    pub(crate) again: Option<Instant>,
}

impl Account {
    /// What a call of the stage is expected to yield, in bytes; `None` before anything is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.known.load(Relaxed).then(|| self.largest.load(Relaxed))
    }
}
