//! What a worker keeps from call to call, and how it is given back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::{Finish, Work};

/// A worker's state. Whoever drops it finishes it.
pub(super) struct Kept<W: Work> {
    pub(super) state: Option<W::State>,
    work: Arc<W>,
    reason: Arc<AtomicU8>,
}

impl<W: Work> Drop for Kept<W> {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        let reason = match self.reason.load(Relaxed) {
            0 => Finish::Finished,
            1 => Finish::Cancelled,
            _ => Finish::Failed,
        };
        let finish = AssertUnwindSafe(|| self.work.finish(state, reason));
        if std::panic::catch_unwind(finish).is_err() {
            tracing::error!("a finish function panicked");
        }
    }
}

impl<W: Work> Kept<W> {
    pub(super) fn new(state: W::State, work: Arc<W>, reason: Arc<AtomicU8>) -> Self {
        Kept { state: Some(state), work, reason }
    }

    /// The worker leaves, and its state with it.
    pub(super) fn finish(mut self) {
        self.reason = Arc::new(AtomicU8::new(Finish::Finished as u8));
    }

    /// After a panic the state may be broken: it is finished as failed and made anew.
    pub(super) fn discard(mut self) {
        self.reason = Arc::new(AtomicU8::new(Finish::Failed as u8));
    }
}

impl<W: Work> std::fmt::Debug for Kept<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
