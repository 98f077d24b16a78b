//! A run under way: an iterator and a stream of what comes out of its end.

mod claim;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub(crate) use claim::Claim;
use futures::Stream;

use crate::engine::Engine;
use crate::fault::{Fault, WorkersError};
use crate::item::{Fingerprint, Item, ItemId, give_claim, takes_claim};
use crate::link::Inlet;
use crate::position::Position;
use crate::stage::Stop;
use crate::trace::{Ended, Receipt, RunStats, Series};
use crate::tracker::Tracker;
use crate::work::block_on;

/// How long a dropped run may hold up its owner. What then still runs, because a call can't be
/// interrupted, ends by itself.
const DROP_WAIT: Duration = Duration::from_millis(25);

/// A run: an [`Iterator`] and a [`Stream`] of `Result<T, Fault>`.
///
/// The items end normally only if every stage ended well. A failure is yielded once, after the
/// items that precede it, and is the last thing yielded.
///
/// Dropping it cancels: calls that wait are dropped, calls that compute finish unseen.
pub struct Running<T: Send + 'static> {
    engine: Arc<Engine>,
    inlet: Option<Inlet<T>>,
    /// The stream's wait for an arrival, kept between polls.
    arrival: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    last: Option<ItemId>,
    /// When the consumer began to wait for the last item and when it had it, from the run's start in
    /// nanoseconds; `None` if the item was there.
    wait: Option<(u64, u64)>,
    tracker: Tracker,
}

impl<T: Send + 'static> Running<T> {
    /// `inlet` is there unless nothing is left to be done.
    pub(crate) fn new(engine: Arc<Engine>, inlet: Option<Inlet<T>>, tracker: Tracker) -> Self {
        let (items, fingerprint) = (tracker.position().items(), tracker.position().fingerprint());
        engine.consumer.before.store(items, Relaxed);
        engine.consumer.fingerprint.store(fingerprint.value(), Relaxed);
        if inlet.is_none() {
            engine.end(Ended::Finished);
        }
        if let (Some(budget), Some(inlet)) = (&engine.budget, &inlet) {
            budget.ends_in(inlet.tap().core());
        }
        Running { engine, inlet, arrival: None, last: None, wait: None, tracker }
    }

    /// The place behind the item yielded last, from which another run can go on: see
    /// [`Pipeline::resume`](crate::pipeline::Pipeline::resume). A program that works on an item
    /// later than it takes it keeps the item's position beside it.
    ///
    /// It does not move any more once the run was asked to stop and a stage groups items of a
    /// stream, or keeps some back: what then comes is not what an unbroken run would have.
    pub fn position(&self) -> Position {
        self.tracker.position().clone()
    }

    /// Wants no more items: what is before the consumer ends, and the run has finished.
    pub(crate) fn leave(&mut self) {
        if self.inlet.is_some() {
            self.end(None);
        }
    }

    /// Asks the sources to stop. What is under way is still delivered, and then the items end. Items
    /// that are computed by position and wait for their first call are not under way.
    pub fn stop(&self) {
        self.engine.stop.cancel();
    }

    /// The figures so far.
    pub fn stats(&self) -> RunStats {
        self.engine.stats()
    }

    /// A handle for other threads: progress displays, signal handlers.
    pub fn handle(&self) -> Handle {
        Handle { engine: Arc::clone(&self.engine) }
    }

    /// The id of the item yielded last.
    pub fn last_id(&self) -> Option<ItemId> {
        self.last
    }

    /// What the item yielded last went through, and what was waited for. A [`Batch`](crate::item::Batch)
    /// keeps its own: see [`Batch::receipt`](crate::item::Batch::receipt).
    pub fn receipt(&self) -> Option<Receipt> {
        self.claim().map(|claim| claim.receipt())
    }

    fn claim(&self) -> Option<Claim> {
        let now = self.engine.you.since_start(Instant::now());
        let wait = self.wait.unwrap_or((now, now));
        Some(Claim { engine: Arc::clone(&self.engine), id: self.last?, wait })
    }

    /// The next item, for async code: the same as the stream's `next`, which is also the name of
    /// the iterator's.
    pub async fn recv(&mut self) -> Option<Result<T, Fault>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Takes everything that is left and [closes](Self::close), whether it ended well or not.
    ///
    /// # Errors
    /// The run's failure.
    pub fn drain(mut self) -> Result<RunStats, Fault> {
        let fault = self.by_ref().find_map(Result::err);
        let stats = self.close();
        fault.map_or(Ok(stats), Err)
    }

    /// Ends the run and returns when nothing of it is left: no task, thread or socket. A run that
    /// has not finished is cancelled.
    ///
    /// A call that computes can't be interrupted; it is waited for.
    pub fn close(mut self) -> RunStats {
        self.shut();
        self.engine.wait_until_gone(None);
        self.engine.stats()
    }

    fn shut(&mut self) {
        self.engine.end(Ended::Cancelled);
        self.engine.cancel.cancel();
        self.arrival = None;
        self.inlet = None;
    }

    fn deliver(&mut self, item: Item<T>) -> T {
        let consumer = &self.engine.consumer;
        consumer.items.fetch_add(1, Relaxed);
        consumer.bytes.fetch_add(item.bytes, Relaxed);
        let mut fingerprint = consumer.fingerprint();
        fingerprint.push(item.id);
        consumer.fingerprint.store(fingerprint.value(), Relaxed);
        self.last = Some(item.id);
        self.tracker.delivered(item.id, fingerprint, self.engine.stop.is_cancelled());
        if let Some(wait) = self.wait {
            self.engine.consumer_waited(item.id, wait);
        }
        let mut value = item.value;
        if takes_claim::<T>()
            && let Some(claim) = self.claim()
        {
            give_claim(&mut value, claim);
        }
        value
    }

    /// The end of the items, with the failure if there was one.
    fn end(&mut self, stop: Option<Stop>) -> Option<Fault> {
        self.arrival = None;
        self.inlet = None;
        let (how, fault) = match stop {
            None if self.engine.stop.is_cancelled() => (Ended::Stopped, None),
            None | Some(Stop::Downstream) => (Ended::Finished, None),
            Some(Stop::Failed(fault) | Stop::Upstream(fault)) => (Ended::Failed, Some(fault)),
            Some(Stop::Cancelled) => match self.engine.failure() {
                Some(fault) => (Ended::Failed, Some(fault)),
                None => (Ended::Cancelled, Some(Fault::cancelled())),
            },
        };
        if let Some(fault) = &fault {
            self.engine.tell(fault);
        }
        self.engine.end(how);
        fault
    }

    fn wait_begins(&self) -> Instant {
        let now = Instant::now();
        let ns = (now - self.engine.started()).as_nanos() as u64;
        self.engine.consumer.waiting_since_ns.store(ns + 1, Relaxed);
        if let Some(budget) = &self.engine.budget {
            budget.consumer(true);
        }
        now
    }

    fn wait_ends(&mut self) {
        let consumer = &self.engine.consumer;
        let since = consumer.waiting_since_ns.swap(0, Relaxed);
        if since > 0 {
            if let Some(budget) = &self.engine.budget {
                budget.consumer(false);
            }
            let now = self.engine.started().elapsed().as_nanos() as u64;
            consumer.waited_ns.fetch_add(now.saturating_sub(since - 1), Relaxed);
            let since = self.wait.map_or(since - 1, |(first, _)| first);
            self.wait = Some((since, now));
        }
    }

    /// What is there without waiting: an item, the end, or nothing yet.
    fn now(&mut self) -> Poll<Option<Result<T, Fault>>> {
        loop {
            let Some(inlet) = &mut self.inlet else {
                return Poll::Ready(None);
            };
            match inlet.try_recv() {
                Ok(Some(item)) => match self.tracker.had(item.id) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(Some(Ok(self.deliver(item)))),
                    Err(fault) => return Poll::Ready(self.end(Some(Stop::Failed(fault))).map(Err)),
                },
                Ok(None) => return Poll::Pending,
                Err(None) if !self.engine.stop.is_cancelled() => {
                    let end = self.tracker.ended().err().map(Stop::Failed);
                    return Poll::Ready(self.end(end).map(Err));
                }
                Err(end) => return Poll::Ready(self.end(end).map(Err)),
            }
        }
    }
}

// Nothing in it is pinned in place: the wait is in a box of its own.
impl<T: Send + 'static> Unpin for Running<T> {}

impl<T: Send + 'static> Iterator for Running<T> {
    type Item = Result<T, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.wait = None;
        loop {
            if let Poll::Ready(next) = self.now() {
                return next;
            }
            self.wait_begins();
            if let Some(inlet) = &self.inlet {
                block_on(inlet.arrival());
            }
            self.wait_ends();
        }
    }
}

impl<T: Send + 'static> Stream for Running<T> {
    type Item = Result<T, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.arrival.is_none() {
            self.wait = None;
        }
        loop {
            if let Poll::Ready(next) = self.now() {
                return Poll::Ready(next);
            }
            if self.arrival.is_none()
                && let Some(inlet) = &self.inlet
            {
                let arrival = Box::pin(inlet.tap().arrived());
                self.wait_begins();
                self.arrival = Some(arrival);
            }
            let Some(arrival) = &mut self.arrival else {
                return Poll::Ready(None);
            };
            if arrival.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.arrival = None;
            self.wait_ends();
        }
    }
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        self.shut();
        self.engine.wait_until_gone(Some(DROP_WAIT));
    }
}

impl<T: Send + 'static> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("name", &self.engine.name).finish_non_exhaustive()
    }
}

/// A handle on a run for other threads. It does not keep the run alive.
#[derive(Clone, Debug)]
pub struct Handle {
    engine: Arc<Engine>,
}

impl Handle {
    /// The pipeline's name.
    pub fn name(&self) -> &str {
        &self.engine.name
    }

    /// The failure that ended the run, once its consumer was told.
    pub fn fault(&self) -> Option<Fault> {
        self.engine.told()
    }

    /// Who waits for whom at this moment, from the consumer on: `you wait`, `decode starved`, `fetch
    /// item 41 called for 1.2 s`.
    pub fn waits(&self) -> Vec<String> {
        self.engine.waits()
    }

    /// The figures so far.
    pub fn stats(&self) -> RunStats {
        self.engine.stats()
    }

    /// Writes the last seconds as a trace in Chrome's JSON format, which <https://ui.perfetto.dev>
    /// opens. [`RunSettings::trace`](crate::pipeline::RunSettings::trace) says how much is
    /// remembered; without it that is the last thousand calls of each stage.
    ///
    /// # Errors
    /// `to` can't be written.
    pub fn write_trace(&self, to: &mut impl std::io::Write) -> std::io::Result<()> {
        self.engine.write_trace(to)
    }

    /// How the figures grew over time.
    pub fn series(&self) -> Series {
        self.engine.series()
    }

    /// Gives a stage that makes calls another number of workers, from now on; says how many it was to
    /// have before. Nothing else changes: neither the order nor the items.
    ///
    /// Workers that are too many finish the call that they are in, then their state, and leave;
    /// meanwhile no call starts that would be one too many.
    ///
    /// ```
    /// use forebay::prelude::*;
    ///
    /// let run = Pipeline::from(source::iter("numbers", 0..10_000_u64))
    ///     .then(io::map("ask", async |x: u64| Ok::<_, Never>(x)).workers(2))
    ///     .run()?;
    /// assert_eq!(run.handle().set_workers("ask", 8)?, 2);
    /// assert_eq!(
    ///     run.handle().set_workers("aks", 8).unwrap_err().to_string(),
    ///     "there is no stage `aks`: did you mean `ask`? Stages with workers: ask"
    /// );
    /// run.drain()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such stage, or it makes no calls, or has ended; no stage can have 0 workers, nor
    /// more than four times those it started with, 64 (io) or twice the cores (cpu), whichever is
    /// largest.
    pub fn set_workers(&self, stage: &str, workers: usize) -> Result<usize, WorkersError> {
        self.engine.set_workers(stage, workers)
    }

    /// Asks the sources to stop; what is under way is still delivered, see [`Running::stop`].
    pub fn stop(&self) {
        self.engine.stop.cancel();
    }

    /// Stops everything now: the consumer's next item is the failure "the run was cancelled".
    pub fn cancel(&self) {
        self.engine.cancel.cancel();
    }

    /// The order fingerprint so far.
    pub fn fingerprint(&self) -> Fingerprint {
        self.engine.consumer.fingerprint()
    }

    /// The io stages that computed for more than 10 ms at a time on the I/O runtime, and for how
    /// long at most: their work belongs in a cpu stage.
    pub fn held(&self) -> std::collections::BTreeMap<String, Duration> {
        self.engine.held()
    }
}
