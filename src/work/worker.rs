//! What a worker does: calls, one after the other, until nothing can start.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::FutureExt as _;

use super::cpu_clock::{thread_delay, thread_time};
use super::desk::{Desk, Return};
use super::floor::Done;
use super::generator::{Generator, run_generator};
use super::kept::Kept;
use super::{Call, Work, Yield};
use crate::fault::{Fault, FaultKind};
use crate::item::{ItemId, label};
use crate::options::RetryOn;
use crate::stage::Kind;
use crate::trace::{CallRecord, CallSpan};

/// A worker goes on by itself for so long; then others on its thread get a turn.
pub(super) const SHIFT: Duration = Duration::from_millis(1);
/// An io call that holds its thread for longer than this is reported by name.
const HELD: Duration = Duration::from_millis(10);
/// Below this service time the processor clock is read for every 64th burst only.
const LONG_NS: u64 = 100_000;

/// An item before its call.
pub(super) struct Entry<In> {
    /// Its place in the order of the stage's input.
    pub(super) seq: u64,
    pub(super) id: ItemId,
    pub(super) attempt: u32,
    /// When the first call on it began, once there was one.
    pub(super) began: Option<Instant>,
    pub(super) bytes: u64,
    pub(super) value: In,
}

/// What a worker has in hand.
pub(super) enum Hand<W: Work> {
    Burst(VecDeque<Entry<W::In>>),
    More(Generator<W>),
}

/// What a worker's burst took.
#[derive(Default)]
pub(super) struct Wage {
    pub(super) calls: u64,
    pub(super) ns: u64,
    pub(super) bytes: u64,
}

/// Works on `hand` and on all that the desk hands out after it.
pub(super) async fn work<W: Work>(
    desk: Arc<Desk<W>>,
    worker: usize,
    mut kept: Option<Kept<W>>,
    mut hand: Hand<W>,
) {
    let mut shift = Instant::now();
    loop {
        let brought = match hand {
            Hand::Burst(burst) => run_burst(&desk, worker, &mut kept, burst).await,
            Hand::More(generator) => {
                run_generator(&desk, worker, &mut kept, generator, Vec::new()).await
            }
        };
        let Some(next) = desk.turn(worker, &mut kept, brought) else {
            return;
        };
        hand = next;
        let now = Instant::now();
        if now - shift > SHIFT {
            match desk.rules.kind {
                Kind::Io => tokio::task::yield_now().await,
                // A thread that helps with a call's inner parallel work may have picked this
                // worker up meanwhile: it must get back to that call soon.
                Kind::Cpu => return desk.spawn(worker, kept, hand),
                _ => {}
            }
            shift = now;
        }
    }
}

/// Calls for each item of `burst`.
async fn run_burst<W: Work>(
    desk: &Arc<Desk<W>>,
    worker: usize,
    kept: &mut Option<Kept<W>>,
    mut burst: VecDeque<Entry<W::In>>,
) -> Return<W> {
    let meter = &desk.site.meter;
    let mut brought =
        Return { done: Vec::new(), back: VecDeque::new(), rest: None, wage: Wage::default() };
    brought.done.reserve(burst.len());
    let mut calls = Vec::with_capacity(burst.len());
    let attempts = meter.attempts.fetch_add(burst.len() as u64, Relaxed);
    let sampled = desk.rules.kind == Kind::Cpu && (burst.len() == 1 || attempts.is_multiple_of(64));
    let on_core = sampled.then(thread_time);
    let delayed = (sampled && attempts.is_multiple_of(8)).then(thread_delay).flatten();
    let start = Instant::now();
    let mut from = start;
    while let Some(entry) = burst.pop_front() {
        if desk.is_closed() {
            break;
        }
        let (seq, id, attempt) = (entry.seq, entry.id, entry.attempt);
        let outcome =
            run_call(desk, worker, kept, entry, &mut brought.done, &mut burst, from).await;
        let now = Instant::now();
        let ns = (now - from).as_nanos() as u64;
        let (bytes, failed) = match &outcome {
            Outcome::Done(Done::One(item)) => (item.bytes, false),
            Outcome::Done(Done::Skipped | Done::Fault(_)) | Outcome::Again(..) => (0, true),
            Outcome::Done(Done::Nothing) | Outcome::Many(_) => (0, false),
        };
        let from_ns = meter.since_start(from);
        let worker_no = worker as u32;
        let call = CallRecord { id, worker: worker_no, attempt, from_ns, ns, bytes, failed };
        meter.note_if_slow(&call);
        calls.push(call);
        brought.wage.bytes += bytes;
        brought.wage.ns += ns;
        brought.wage.calls += 1;
        from = now;
        if ns > HELD.as_nanos() as u64 {
            desk.suspect.store(true, Relaxed);
        }
        match outcome {
            Outcome::Done(done) => brought.done.push((seq, done)),
            Outcome::Again(entry, until) => {
                let hand = Hand::Burst(VecDeque::from([entry]));
                brought.rest = Some((hand, Some(until)));
                break;
            }
            Outcome::Many(generator) => {
                meter.served(&calls);
                return run_generator(desk, worker, kept, generator, brought.done).await;
            }
        }
        // Calls turned out longer than the burst was made for: others may take the rest.
        if !burst.is_empty() && now - start > SHIFT {
            break;
        }
    }
    // Unless it pauses before another try.
    if brought.rest.is_none() {
        meter.under_way[worker].end();
    }
    if !burst.is_empty() {
        meter.attempts.fetch_sub(burst.len() as u64, Relaxed);
    }
    if let Some(before) = on_core
        && (burst.len() > 1 || brought.wage.ns > LONG_NS || attempts.is_multiple_of(64))
    {
        let core = thread_time().saturating_sub(before).as_nanos() as u64;
        meter.on_core(core, brought.wage.ns);
    }
    if let Some((before, now)) = delayed.zip(delayed.and_then(|_| thread_delay())) {
        meter.delayed(now.saturating_sub(before).as_nanos() as u64, brought.wage.ns);
    }
    meter.served(&calls);
    brought.back = burst;
    brought
}

enum Outcome<W: Work> {
    Done(Done<W::Out>),
    Again(Entry<W::In>, Instant),
    Many(Generator<W>),
}

/// One call. If it waits, what was done before it goes to the desk, and so do the items of `burst`,
/// for others.
async fn run_call<W: Work>(
    desk: &Arc<Desk<W>>,
    worker: usize,
    kept: &mut Option<Kept<W>>,
    entry: Entry<W::In>,
    done: &mut Vec<(u64, Done<W::Out>)>,
    burst: &mut VecDeque<Entry<W::In>>,
    from: Instant,
) -> Outcome<W> {
    let Entry { seq, id, attempt, began, bytes, value } = entry;
    let name = label(&value);
    let again = desk.rules.retry.as_ref().filter(|retry| attempt <= retry.max);
    let copy = again.and(desk.copy).map(|copy| copy(&value));
    let meter = &desk.site.meter;
    meter.under_way[worker].begin(seq, id, attempt, name.as_ref(), meter.since_start(from));
    let call = Call { worker: &desk.workers[worker], id, attempt };
    let limit = desk.rules.limit(began, from);
    let began = began.unwrap_or(from);
    let span = CallSpan::new(desk.site.span(), &call, name.as_deref());
    let result = {
        let result = async {
            let state = match kept {
                Some(kept) => &mut kept.state,
                None => {
                    let state = desk.work.start(call.worker).await?;
                    let (work, reason) = (Arc::clone(&desk.work), Arc::clone(&desk.reason));
                    &mut kept.insert(Kept::new(state, work, reason)).state
                }
            };
            let state = state.as_mut().expect("a state leaves only when it is dropped");
            desk.work.call(state, &call, value).await
        };
        let mut result = pin!(AssertUnwindSafe(result).catch_unwind());
        if desk.rules.kind == Kind::Io {
            let mut first = Some(from);
            let watched = poll_fn(|context| {
                let polled = first.take().unwrap_or_else(Instant::now);
                let on_core = desk.suspect.load(Relaxed).then(thread_time);
                let poll = span.in_scope(|| result.as_mut().poll(context));
                // Calls that end at once are looked at when their time is taken anyway.
                if poll.is_pending() || on_core.is_some() {
                    report_if_held(desk, polled, on_core);
                }
                if poll.is_pending() && (!burst.is_empty() || !done.is_empty()) {
                    meter.attempts.fetch_sub(burst.len() as u64, Relaxed);
                    desk.hand_in(worker, done, burst);
                }
                poll
            });
            match limit {
                Some(limit) => tokio::time::timeout(limit.left, watched).await.ok(),
                None => Some(watched.await),
            }
        } else {
            let called = poll_fn(|context| span.in_scope(|| result.as_mut().poll(context)));
            Some(called.await).filter(|_| limit.is_none_or(|limit| from.elapsed() <= limit.left))
        }
    };
    let fault = match result {
        Some(Ok(Ok(Yield::One(out)))) => return Outcome::Done(Done::One(desk.weighed(id, out))),
        Some(Ok(Ok(Yield::Nothing))) => return Outcome::Done(Done::Nothing),
        Some(Ok(Ok(Yield::Many(rest)))) => {
            return Outcome::Many(Generator { seq, id, name, made: 0, rest });
        }
        Some(Ok(Err(error))) => Fault::error(error),
        Some(Err(panic)) => Fault::panic(panic),
        None => Fault::timeout(limit.map_or(Duration::ZERO, |limit| limit.said)),
    };
    let fault = fault.on(id, name, attempt);
    meter.failed(&fault);
    if fault.kind() == FaultKind::Panic
        && let Some(kept) = kept.take()
    {
        kept.discard();
    }
    let (Some(retry), Some(value)) = (again.filter(|retry| worth_another(&fault, retry.on)), copy)
    else {
        return Outcome::Done(desk.judge_call(seq, fault, &span));
    };
    let most = retry.backoff.saturating_mul(1 << (attempt - 1).min(20));
    let pause = most.min(retry.backoff_max).mul_f64(fastrand::f64());
    let until = Instant::now() + pause;
    if !desk.rules.in_time(began, until) {
        let fault = fault.noting("and its deadline leaves no time for another try".to_owned());
        return Outcome::Done(desk.judge_call(seq, fault, &span));
    }
    meter.retries.fetch_add(1, Relaxed);
    meter.under_way[worker].pause(meter.since_start(Instant::now()));
    span.retried(&meter.id, &fault, pause);
    let began = Some(began);
    Outcome::Again(Entry { seq, id, attempt: attempt + 1, began, bytes, value }, until)
}

fn worth_another(fault: &Fault, on: RetryOn) -> bool {
    match (on, fault.kind()) {
        (_, FaultKind::Panic | FaultKind::Cancelled) => false,
        (RetryOn::Any, _) | (_, FaultKind::Timeout) => true,
        (RetryOn::Timeouts, _) => false,
        (RetryOn::When(passing), _) => std::error::Error::source(fault).is_some_and(passing),
    }
}

/// An io call that computes keeps every other task of its thread waiting.
///
/// A long poll may also be one whose thread had no core. So the first makes the stage suspect, and
/// from then on the thread's own time says what it was.
fn report_if_held<W: Work>(desk: &Desk<W>, since: Instant, on_core: Option<Duration>) {
    if since.elapsed() <= HELD {
        return;
    }
    match on_core {
        None => desk.suspect.store(true, Relaxed),
        Some(before) => {
            let held = thread_time().saturating_sub(before);
            if held > HELD {
                desk.site.engine.report_held(&desk.site.meter.id, held);
            }
        }
    }
}
