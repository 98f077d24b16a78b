//! How long a GPU is waited for, and what is done about one that does not answer.
//!
//! Memory that such a GPU may still read or write is left to it: neither used again nor freed, as freeing
//! waits for the GPU. Once it answers again it is used as before; what was left to it stays lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Context, Event};
use crate::device::cuda::error::CudaError;

/// How long what a GPU was told may take while a run goes on, unless
/// [`wait_at_most`](crate::device::cuda::Cuda::wait_at_most) said otherwise: long, as others may use the
/// GPU.
pub const ANSWER_RUNNING: Duration = Duration::from_secs(600);
/// How long it may take once the run ends.
pub const ANSWER_ENDING: Duration = Duration::from_secs(10);

/// How long a GPU is waited for, and what it was asked in vain.
pub(super) struct Answer {
    running_ns: AtomicU64,
    ending_ns: AtomicU64,
    /// An event that did not happen, and how long it was waited for. It keeps the GPU open.
    missing: Mutex<Option<(Arc<Event>, Duration)>>,
}

impl Default for Answer {
    fn default() -> Self {
        let (running_ns, ending_ns, missing) = Default::default();
        let answer = Answer { running_ns, ending_ns, missing };
        answer.wait_at_most(ANSWER_RUNNING, ANSWER_ENDING);
        answer
    }
}

impl Answer {
    pub(super) fn wait_at_most(&self, running: Duration, ending: Duration) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.running_ns.store(ns(running), Relaxed);
        self.ending_ns.store(ns(ending), Relaxed);
    }

    /// Whether who has waited for so long, and for so long since the end of the run, waits on.
    pub(super) fn is_patient(&self, waited: Duration, ending: Option<Duration>) -> bool {
        let within =
            |time: Duration, most: &AtomicU64| time <= Duration::from_nanos(most.load(Relaxed));
        within(waited, &self.running_ns)
            && ending.is_none_or(|ending| within(ending, &self.ending_ns))
    }
}

impl Context {
    /// Whether the GPU has answered, as far as is known: only then may memory be freed.
    pub(super) fn answers(&self) -> bool {
        self.check_answers().is_ok()
    }

    /// Whether what the GPU has may be freed now: it answers, and the driver takes the call.
    pub(super) fn may_free(&self) -> bool {
        self.answers() && self.bind().is_ok()
    }

    /// The same as [`answers`](Self::answers), as an error.
    pub(in crate::device::cuda) fn check_answers(&self) -> Result<(), CudaError> {
        let mut missing = self.answer.missing.lock();
        let Some((event, waited)) = &*missing else { return Ok(()) };
        match event.happened() {
            Ok(true) => {}
            // Then it does nothing any more.
            Err(error) if error.is_final() => {}
            Ok(false) | Err(_) => return Err(self.no_answer(*waited)),
        }
        let late = missing.take();
        drop(missing);
        drop(late);
        Ok(())
    }

    /// `event` has not happened for so long that nobody waits on.
    pub(super) fn give_up(&self, event: &Arc<Event>, waited: Duration) -> CudaError {
        let mut missing = self.answer.missing.lock();
        let (_, waited) = missing.get_or_insert_with(|| (Arc::clone(event), waited));
        self.no_answer(*waited)
    }

    fn no_answer(&self, waited: Duration) -> CudaError {
        CudaError::NoAnswer { gpu: self.name(), waited }
    }
}
