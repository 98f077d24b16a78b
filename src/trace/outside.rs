//! What a call waits for outside this process, such as the answer of a store. Said by the code that
//! waits, so that a stalled run can tell whom it waits for, and a report what was asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use super::Meter;
use super::log::RequestRecord;

tokio::task_local! {
    /// The stage and worker that the code at hand works for.
    static HERE: Here;
}

#[derive(Clone, Debug)]
struct Here {
    meter: Arc<Meter>,
    worker: usize,
}

/// What a stage's calls wait for, and what they have asked for so far.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    open: Mutex<Open>,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) retries_refused: AtomicU64,
    pub(crate) fetched: AtomicU64,
    pub(crate) used: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    waits: BTreeMap<u64, Wait>,
}

/// One wait.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) what: String,
    pub(crate) worker: usize,
    pub(crate) since: Instant,
}

impl Outside {
    /// The waits of `worker`, longest first.
    pub(crate) fn of(&self, worker: usize) -> Option<Wait> {
        self.open.lock().waits.values().find(|wait| wait.worker == worker).cloned()
    }
}

/// Runs `work` for a worker of a stage: requests that it makes are counted there.
pub(crate) async fn working_for<F: Future>(meter: Arc<Meter>, worker: usize, work: F) -> F::Output {
    HERE.scope(Here { meter, worker }, work).await
}

/// Says that the call at hand asks somebody outside this process for something: `what` is for
/// people, such as `GET storage.example.com/t2m/c/0/0`; keep secrets out of it. The request ends when
/// the value is dropped. Says nothing where no call of a stage is under way.
///
/// ```
/// use forebay::prelude::*;
/// use forebay::trace;
///
/// async fn ask(x: u64) -> Result<u64, Never> {
///     let mut request = trace::request(|| format!("GET example.com/{x}"));
///     // ... the answer comes ...
///     request.received(8);
///     Ok(x)
/// }
/// let numbers = Pipeline::from(source::iter("numbers", 0..3_u64));
/// let stats = numbers.then(io::map("ask", ask)).run()?.drain()?;
/// let traffic = stats.stages[1].traffic;
/// assert_eq!((traffic.requests, traffic.bytes), (3, 24));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the request ends when this is dropped"]
pub fn request(what: impl FnOnce() -> String) -> Request {
    let here = HERE.try_with(Here::clone).ok();
    Request(here.map(|here| {
        let outside = &here.meter.outside;
        outside.requests.fetch_add(1, Relaxed);
        let mut open = outside.open.lock();
        open.next += 1;
        let number = open.next;
        let wait = Wait { what: what(), worker: here.worker, since: Instant::now() };
        open.waits.insert(number, wait);
        drop(open);
        Asked { here, number, bytes: 0 }
    }))
}

/// Says that whom the call at hand asks wants to be asked less.
pub fn throttled() {
    if let Ok(here) = HERE.try_with(Here::clone) {
        here.meter.outside.throttled.fetch_add(1, Relaxed);
        tracing::debug!(target: "forebay::item", stage = here.meter.id, "asked to ask less");
    }
}

/// Says that the call at hand did not ask again for what failed: too much is asked again already.
pub(crate) fn retry_refused() {
    if let Ok(here) = HERE.try_with(Here::clone) {
        here.meter.outside.retries_refused.fetch_add(1, Relaxed);
    }
}

/// Says that the call at hand brought so many bytes, as they are once they are decoded.
pub(crate) fn fetched(bytes: u64) {
    if let Ok(here) = HERE.try_with(Here::clone) {
        here.meter.outside.fetched.fetch_add(bytes, Relaxed);
    }
}

/// Says that what the call at hand yields uses so many of the bytes that were brought.
pub(crate) fn used(bytes: u64) {
    if let Ok(here) = HERE.try_with(Here::clone) {
        here.meter.outside.used.fetch_add(bytes, Relaxed);
    }
}

/// A request under way, see [`request`].
#[derive(Debug)]
pub struct Request(Option<Asked>);

#[derive(Debug)]
struct Asked {
    here: Here,
    number: u64,
    bytes: u64,
}

impl Request {
    /// So many bytes came, or were taken by what was written to.
    pub fn received(&mut self, bytes: u64) {
        if let Some(asked) = &mut self.0 {
            asked.bytes += bytes;
            asked.here.meter.outside.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(Asked { here: Here { meter, worker }, number, bytes }) = self.0.take() else {
            return;
        };
        let wait = meter.outside.open.lock().waits.remove(&number);
        if let Some(Wait { what, since, .. }) = wait
            && meter.is_traced()
        {
            let from_ns = meter.since_start(since);
            let ns = since.elapsed().as_nanos() as u64;
            let worker = worker as u32;
            meter.log.lock().request(RequestRecord { what, worker, from_ns, ns, bytes });
        }
    }
}
