//! How long the workers of a stage were in each state.

use std::time::Instant;

/// The five states of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Working,
    Starved,
    Blocked,
    Turn,
    Limit,
}

/// How many workers are in each state, indexed by [`State`].
pub(crate) type Census = [u32; 5];

/// Counts the time of a stage's workers by state.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) census: Census,
    pub(super) ns: [u64; 5],
    /// Workers of a stage that has ended, and how long they are gone.
    pub(super) gone: u32,
    pub(super) gone_ns: u64,
    pub(super) since: Instant,
    /// The run has ended: what workers still do is no part of it.
    pub(super) stopped: bool,
}

impl Clock {
    /// Begins at `since`, with workers as `census` says.
    pub(super) fn new(census: Census, since: Instant) -> Self {
        Clock { census, ns: [0; 5], gone: 0, gone_ns: 0, since, stopped: false }
    }

    /// Counts the time until `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.stopped {
            return;
        }
        let ns = now.saturating_duration_since(self.since).as_nanos() as u64;
        for (total, workers) in self.ns.iter_mut().zip(self.census) {
            *total += ns * u64::from(workers);
        }
        self.gone_ns += ns * u64::from(self.gone);
        self.since = self.since.max(now);
    }
}
