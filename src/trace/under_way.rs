//! What a worker is at, for those who look at a run from outside. The worker only stores: a reader
//! that comes in the middle of a change sees a mixture, which a worker that hangs never leaves.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::item::ItemId;

/// One worker's call. On cache lines of its own, because another core writes those beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct UnderWay {
    seq: AtomicU64,
    position: AtomicU64,
    path: AtomicU64,
    attempt: AtomicU32,
    /// Since when, in nanoseconds from the run's start plus one; 0 if there is none.
    since: AtomicU64,
    /// It pauses before another try.
    pauses: AtomicBool,
    named: AtomicBool,
    name: Mutex<Option<String>>,
}

/// A call under way, or a pause before the next try.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) worker: usize,
    /// The item's place in the stage's input.
    pub(crate) seq: u64,
    pub(crate) id: ItemId,
    pub(crate) name: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) since_ns: u64,
    pub(crate) pauses: bool,
}

impl UnderWay {
    /// A call begins.
    pub(crate) fn begin(
        &self,
        seq: u64,
        id: ItemId,
        attempt: u32,
        name: Option<&String>,
        now_ns: u64,
    ) {
        let (position, path) = id.parts();
        self.seq.store(seq, Relaxed);
        self.position.store(position, Relaxed);
        self.path.store(path, Relaxed);
        self.attempt.store(attempt, Relaxed);
        self.pauses.store(false, Relaxed);
        if name.is_some() || self.named.load(Relaxed) {
            self.named.store(name.is_some(), Relaxed);
            *self.name.lock() = name.cloned();
        }
        self.since.store(now_ns + 1, Relaxed);
    }

    /// It pauses before the next try.
    pub(crate) fn pause(&self, now_ns: u64) {
        self.pauses.store(true, Relaxed);
        self.since.store(now_ns + 1, Relaxed);
    }

    /// The call has ended.
    pub(crate) fn end(&self) {
        self.since.store(0, Relaxed);
    }

    /// The name of the item of the last call.
    pub(crate) fn name(&self) -> Option<String> {
        if self.named.load(Relaxed) { self.name.lock().clone() } else { None }
    }

    /// What `worker`, whose call this is, is at.
    pub(crate) fn seen(&self, worker: usize) -> Option<Seen> {
        let since_ns = self.since.load(Relaxed).checked_sub(1)?;
        Some(Seen {
            worker,
            seq: self.seq.load(Relaxed),
            id: ItemId::from_parts(self.position.load(Relaxed), self.path.load(Relaxed)),
            name: self.name(),
            attempt: self.attempt.load(Relaxed),
            since_ns,
            pauses: self.pauses.load(Relaxed),
        })
    }
}
