//! What a GPU copied while it computed: when its copies and kernels ran, by its own clock.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::driver::{Event, Stream};
use super::error::CudaError;
use crate::stage::Worker;

/// How many copies and kernels back one is compared with. What is farther back had ended.
const BACK: usize = 64;

/// The copies and the kernels of one GPU, latest last.
#[derive(Default)]
pub(super) struct Timeline {
    /// What all times are counted from.
    begun: OnceLock<Arc<Event>>,
    ran: Mutex<Ran>,
}

#[derive(Default)]
struct Ran {
    copies: VecDeque<(Span, Worker)>,
    kernels: VecDeque<Span>,
}

/// From when to when, since the timeline began.
#[derive(Clone, Copy)]
struct Span {
    from: Duration,
    until: Duration,
}

impl Span {
    fn shared_with(&self, other: &Span) -> Duration {
        self.until.min(other.until).saturating_sub(self.from.max(other.from))
    }
}

impl Timeline {
    /// Lets the timeline begin with what `stream` is told next, if it has not.
    pub(super) fn begin(&self, stream: &Stream) -> Result<(), CudaError> {
        if self.begun.get().is_none() {
            // Of two that begin at once the first counts.
            let _later = self.begun.set(stream.record()?);
        }
        Ok(())
    }

    /// A copy ran for a worker. What of it was beside kernels is added to the worker's figures, now or
    /// when it is known of the kernels.
    pub(super) fn copied(
        &self,
        from: &Event,
        until: &Arc<Event>,
        worker: &Worker,
    ) -> Result<(), CudaError> {
        let span = self.span(from, until)?;
        let mut ran = self.ran.lock();
        let shared = ran.kernels.iter().map(|kernel| span.shared_with(kernel)).sum();
        worker.device_meter().overlapped(shared);
        keep(&mut ran.copies, (span, worker.clone()));
        Ok(())
    }

    /// Kernels ran.
    pub(super) fn computed(&self, from: &Event, until: &Arc<Event>) -> Result<(), CudaError> {
        let span = self.span(from, until)?;
        let mut ran = self.ran.lock();
        for (copy, worker) in &ran.copies {
            worker.device_meter().overlapped(span.shared_with(copy));
        }
        keep(&mut ran.kernels, span);
        Ok(())
    }

    fn span(&self, from: &Event, until: &Event) -> Result<Span, CudaError> {
        // Nothing orders what other lanes began with before this: its time may not be known yet.
        let from_begun = |event: &Event| match self.begun.get() {
            Some(begun) => event.since(begun),
            None => Ok(None),
        };
        let (from, until) = from_begun(from)?.zip(from_begun(until)?).unwrap_or_default();
        Ok(Span { from, until })
    }
}

fn keep<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() == BACK {
        list.pop_front();
    }
    list.push_back(entry);
}
