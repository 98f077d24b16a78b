//! What a stage measures while it runs. Always on, never fails, holds no item.
//!
//! State changes are made under one short lock per burst of items, so that at any instant the time
//! of the five states adds up to workers x elapsed exactly.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::stats::{BufferStats, Service, StageStats, States};
use crate::stage::Kind;

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

/// One stage's meter.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) workers: usize,
    clock: Mutex<Clock>,
    service: Mutex<ServiceTimes>,
    pub(crate) items_in: AtomicU64,
    pub(crate) items_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    core_ns: AtomicU64,
    core_of_ns: AtomicU64,
}

#[derive(Debug)]
struct Clock {
    census: Census,
    ns: [u64; 5],
    since: Instant,
    /// The run has ended: what workers still do is no part of it.
    stopped: bool,
}

#[derive(Debug)]
struct ServiceTimes {
    histogram: Histogram<u64>,
    total_ns: u64,
}

impl Meter {
    pub(crate) fn new(id: String, kind: Kind, workers: usize, start: Instant) -> Self {
        let mut census = [0; 5];
        census[State::Starved as usize] = workers as u32;
        // An hour covers any call worth a percentile; longer ones count as an hour.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 2)
            .expect("the bounds and the precision are valid constants");
        Meter {
            id,
            kind,
            workers,
            clock: Mutex::new(Clock { census, ns: [0; 5], since: start, stopped: false }),
            service: Mutex::new(ServiceTimes { histogram, total_ns: 0 }),
            items_in: AtomicU64::new(0),
            items_out: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            core_ns: AtomicU64::new(0),
            core_of_ns: AtomicU64::new(0),
        }
    }

    /// From now on the workers are distributed as `census` says.
    pub(crate) fn set(&self, census: Census, now: Instant) {
        debug_assert_eq!(census.iter().sum::<u32>() as usize, self.workers);
        let mut clock = self.clock.lock();
        if clock.census != census {
            clock.advance(now);
            clock.census = census;
        }
    }

    /// The only worker of a single-task stage enters `state`.
    pub(crate) fn enter(&self, state: State) {
        let mut census = [0; 5];
        census[state as usize] = 1;
        self.set(census, Instant::now());
    }

    /// Takes the service times of a burst of calls.
    pub(crate) fn served(&self, times_ns: &[u64]) {
        let mut service = self.service.lock();
        for &ns in times_ns {
            service.total_ns += ns;
            service.histogram.saturating_record(ns.max(1));
        }
    }

    /// Of `wall_ns` of working time, `core_ns` were spent on a core.
    pub(crate) fn on_core(&self, core_ns: u64, wall_ns: u64) {
        self.core_ns.fetch_add(core_ns.min(wall_ns), Relaxed);
        self.core_of_ns.fetch_add(wall_ns, Relaxed);
    }

    /// The figures, with the time in each state as [`together`] gave it.
    pub(crate) fn figures(&self, ns: [Duration; 5], buffer: BufferStats) -> StageStats {
        let service = {
            let s = self.service.lock();
            let count = s.histogram.len();
            Service {
                count,
                mean_ns: s.total_ns.checked_div(count).unwrap_or(0),
                p50_ns: s.histogram.value_at_quantile(0.5),
                p90_ns: s.histogram.value_at_quantile(0.9),
                p99_ns: s.histogram.value_at_quantile(0.99),
                max_ns: s.histogram.max(),
            }
        };
        let of = self.core_of_ns.load(Relaxed);
        StageStats {
            id: self.id.clone(),
            kind: self.kind,
            workers: self.workers,
            items_in: self.items_in.load(Relaxed),
            items_out: self.items_out.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            states: States {
                working: ns[State::Working as usize],
                starved: ns[State::Starved as usize],
                blocked: ns[State::Blocked as usize],
                turn: ns[State::Turn as usize],
                limit: ns[State::Limit as usize],
            },
            on_core: (of > 0).then(|| self.core_ns.load(Relaxed) as f64 / of as f64),
            service,
            attempts: self.attempts.load(Relaxed),
            retries: self.retries.load(Relaxed),
            errors: self.errors.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            buffer,
        }
    }
}

/// Advances the clocks of all `meters` to one time, now or a little later, and gives it with the
/// states of each; at the end of a run it also stops them there.
///
/// The times of a state change and of its recording differ a little, so one clock may be ahead of
/// another thread's now: without this the shares would not add up.
pub(crate) fn together<'a>(
    meters: impl Iterator<Item = &'a Meter>,
    stop: bool,
) -> (Instant, Vec<[Duration; 5]>) {
    let mut clocks: Vec<_> = meters.map(|meter| meter.clock.lock()).collect();
    let at = clocks.iter().map(|clock| clock.since).fold(Instant::now(), Instant::max);
    let states = clocks.iter_mut().map(|clock| {
        clock.advance(at);
        clock.stopped |= stop;
        clock.ns.map(Duration::from_nanos)
    });
    let states = states.collect();
    (at, states)
}

/// What measuring costs on this machine for each item and stage: everything that a stage records
/// of a small item in a burst of 16, on a meter that belongs to no run.
pub fn measuring_cost() -> Duration {
    const BURST: usize = 16;
    const BURSTS: u32 = 20_000;
    let start = Instant::now();
    let meter = Meter::new("measured".to_owned(), Kind::Cpu, 2, start);
    let mut times = Vec::with_capacity(BURST);
    for _ in 0..BURSTS {
        times.clear();
        let mut from = Instant::now();
        meter.attempts.fetch_add(BURST as u64, Relaxed);
        meter.set([1, 1, 0, 0, 0], from);
        for _ in 0..BURST {
            let now = Instant::now();
            times.push((now - from).as_nanos() as u64);
            from = now;
        }
        meter.served(&times);
        meter.items_in.fetch_add(BURST as u64, Relaxed);
        meter.items_out.fetch_add(BURST as u64, Relaxed);
        meter.bytes_out.fetch_add(BURST as u64, Relaxed);
        meter.set([0, 2, 0, 0, 0], from);
    }
    start.elapsed() / (BURSTS * BURST as u32)
}

impl Clock {
    fn advance(&mut self, now: Instant) {
        if self.stopped {
            return;
        }
        let ns = now.saturating_duration_since(self.since).as_nanos() as u64;
        for (total, workers) in self.ns.iter_mut().zip(self.census) {
            *total += ns * u64::from(workers);
        }
        self.since = self.since.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_add_up_to_workers_times_elapsed() {
        let start = Instant::now();
        let meter = Meter::new("m".into(), Kind::Cpu, 3, start);
        let at = |ms| start + Duration::from_millis(ms);
        meter.set([1, 2, 0, 0, 0], at(10));
        meter.set([1, 0, 1, 1, 0], at(30));
        meter.clock.lock().advance(at(100));
        let ns = meter.clock.lock().ns.map(Duration::from_nanos);
        let stats = meter.figures(ns, BufferStats::default());
        assert_eq!(stats.states.working, Duration::from_millis(90));
        assert_eq!(stats.states.starved, Duration::from_millis(30 + 40));
        assert_eq!(stats.states.blocked, Duration::from_millis(70));
        assert_eq!(stats.states.total(), Duration::from_millis(300));
    }

    #[test]
    fn a_clock_that_steps_back_is_ignored() {
        let start = Instant::now() + Duration::from_secs(1);
        let meter = Meter::new("m".into(), Kind::Cpu, 1, start);
        meter.set([1, 0, 0, 0, 0], start - Duration::from_millis(500));
        meter.clock.lock().advance(start + Duration::from_secs(1));
        let ns = meter.clock.lock().ns.map(Duration::from_nanos);
        let stats = meter.figures(ns, BufferStats::default());
        assert_eq!(stats.states.working, Duration::from_secs(1));
    }
}
