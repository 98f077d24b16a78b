//! What a stage measures while it runs. Always on, never fails, holds no item.
//!
//! State changes are made under one short lock per burst of items, so that at any instant the time
//! of the five states adds up exactly to the workers over the time that has passed.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::clock::{Census, Clock, State};
use super::device::DeviceMeter;
use super::log::{CallRecord, Log};
use super::outside::Outside;
use super::series::StageSample;
use super::stats::{BufferStats, StageStats, States, Traffic};
use super::under_way::UnderWay;
use crate::fault::Fault;
use crate::item::ItemId;
use crate::options::Rate;
use crate::stage::Kind;

/// One stage's meter.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// How many workers it shall have; those that are to leave finish their calls first.
    pub(crate) workers_set: AtomicUsize,
    /// What was said about how the stage runs, for reports.
    pub(crate) options: String,
    pub(crate) rate: Option<Rate>,
    start: Instant,
    clock: Mutex<Clock>,
    pub(super) log: Mutex<Log>,
    slow_ns: AtomicU64,
    traced: AtomicBool,
    /// What each worker is at, for as many as there may ever be; none if it makes no calls.
    pub(crate) under_way: Box<[UnderWay]>,
    pub(super) outside: Outside,
    pub(crate) device: DeviceMeter,
    pub(crate) items_in: AtomicU64,
    pub(crate) items_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) skipped: AtomicU64,
    /// Items for which a call yielded nothing.
    pub(crate) filtered: AtomicU64,
    /// 1 if the stage failed on an item.
    pub(crate) gave_up: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    core_ns: AtomicU64,
    core_of_ns: AtomicU64,
    delay_ns: AtomicU64,
    delay_of_ns: AtomicU64,
    by_memory: Mutex<ByMemory>,
}

/// How long the run's memory has held workers, and how many it holds since when.
#[derive(Debug)]
struct ByMemory {
    time: Duration,
    workers: u32,
    since: Instant,
}

impl Meter {
    pub(crate) fn new(id: String, kind: Kind, workers: usize, start: Instant) -> Self {
        let mut census = [0; 5];
        // A source has nothing to wait for.
        let first = if kind == Kind::Source { State::Working } else { State::Starved };
        census[first as usize] = workers as u32;
        Meter {
            id,
            kind,
            workers_set: AtomicUsize::new(workers),
            options: String::new(),
            rate: None,
            start,
            clock: Mutex::new(Clock::new(census, start)),
            log: Mutex::new(Log::new()),
            slow_ns: AtomicU64::new(0),
            traced: AtomicBool::new(false),
            under_way: Box::default(),
            outside: Outside::default(),
            device: DeviceMeter::default(),
            items_in: AtomicU64::new(0),
            items_out: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            gave_up: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            core_ns: AtomicU64::new(0),
            core_of_ns: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            delay_of_ns: AtomicU64::new(0),
            by_memory: Mutex::new(ByMemory { time: Duration::ZERO, workers: 0, since: start }),
        }
    }

    /// The same for a stage that makes calls, with `places` workers at most.
    pub(crate) fn with_places(mut self, places: usize) -> Self {
        self.under_way = (0..places).map(|_| UnderWay::default()).collect();
        self
    }

    /// From now on the workers are as many and distributed as `census` says.
    pub(crate) fn set(&self, census: Census, now: Instant) {
        let mut clock = self.clock.lock();
        if clock.census != census && clock.gone == 0 {
            clock.advance(now);
            clock.census = census;
        }
    }

    /// The stage has ended: its workers are in no state any more.
    pub(crate) fn leave(&self) {
        let mut clock = self.clock.lock();
        clock.advance(Instant::now());
        clock.gone += std::mem::take(&mut clock.census).iter().sum::<u32>();
    }

    /// Whether the stage has ended.
    pub(crate) fn has_left(&self) -> bool {
        self.clock.lock().gone > 0
    }

    /// How many workers are in each state now.
    pub(crate) fn census(&self) -> Census {
        self.clock.lock().census
    }

    /// How many workers there are, those included that finish their last call.
    pub(crate) fn workers(&self) -> usize {
        let clock = self.clock.lock();
        (clock.census.iter().sum::<u32>() + clock.gone) as usize
    }

    /// A number that grows whenever anything is done.
    pub(crate) fn progress(&self) -> u64 {
        let Outside { requests, bytes, .. } = &self.outside;
        let counters =
            [&self.items_in, &self.items_out, &self.attempts, &self.errors, requests, bytes];
        counters.into_iter().map(|counter| counter.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// What became of the items that came in, of a stage that sends at most one for each.
    pub(crate) fn accounted(&self) -> u64 {
        let Meter { items_out, skipped, filtered, gave_up, abandoned, .. } = self;
        let fates = [items_out, skipped, filtered, gave_up, abandoned];
        fates.into_iter().map(|fate| fate.load(Relaxed)).sum()
    }

    /// The figures that are kept over time, with the time in each state as [`together`] gave it.
    pub(crate) fn sample(&self, (states, _): Times, buffer: &BufferStats) -> StageSample {
        let (service, calls) = self.log.lock().served_so_far();
        StageSample {
            states,
            items: self.items_out.load(Relaxed),
            service,
            calls,
            buffer_items: buffer.items as u64,
            buffer_bytes: buffer.bytes,
        }
    }

    /// The only worker of a single-task stage enters `state`.
    pub(crate) fn enter(&self, state: State) {
        let mut census = [0; 5];
        census[state as usize] = 1;
        self.set(census, Instant::now());
    }

    /// Nanoseconds from the run's start to `at`.
    pub(crate) fn since_start(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Remembers so many calls from now on, and what they ask for.
    pub(crate) fn trace(&self, most: usize) {
        self.log.lock().remember(most);
        self.traced.store(true, Relaxed);
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.traced.load(Relaxed)
    }

    /// Takes a burst of calls.
    pub(crate) fn served(&self, calls: &[CallRecord]) {
        self.log.lock().served(calls);
    }

    /// Keeps the name of a call's item if the call was slow.
    pub(crate) fn note_if_slow(&self, call: &CallRecord) {
        if call.ns <= self.slow_ns.load(Relaxed) {
            return;
        }
        let name = self.under_way[call.worker as usize].name();
        let mut log = self.log.lock();
        log.slow(call, name);
        self.slow_ns.store(log.slow_ns(), Relaxed);
    }

    /// A call failed.
    pub(crate) fn failed(&self, fault: &Fault) {
        self.errors.fetch_add(1, Relaxed);
        self.log.lock().failed(fault);
    }

    /// Items of so many bytes in all left the stage.
    pub(crate) fn sent(
        &self,
        ids: impl ExactSizeIterator<Item = ItemId>,
        bytes: u64,
        now: Instant,
    ) {
        self.items_out.fetch_add(ids.len() as u64, Relaxed);
        self.bytes_out.fetch_add(bytes, Relaxed);
        self.log.lock().sent(ids, self.since_start(now));
    }

    /// A stage that makes no calls received an item.
    pub(crate) fn received(&self, id: ItemId) {
        self.items_in.fetch_add(1, Relaxed);
        self.log.lock().received(id, self.since_start(Instant::now()));
    }

    /// The item `id` was made of `members`.
    pub(crate) fn grouped(&self, id: ItemId, members: Vec<ItemId>) {
        self.log.lock().grouped(id, members);
    }

    /// Of `wall_ns` of working time, `core_ns` were spent on a core.
    pub(crate) fn on_core(&self, core_ns: u64, wall_ns: u64) {
        self.core_ns.fetch_add(core_ns.min(wall_ns), Relaxed);
        self.core_of_ns.fetch_add(wall_ns, Relaxed);
    }

    /// For `delay_ns` of `wall_ns` of working time there was no core.
    pub(crate) fn delayed(&self, delay_ns: u64, wall_ns: u64) {
        self.delay_ns.fetch_add(delay_ns.min(wall_ns), Relaxed);
        self.delay_of_ns.fetch_add(wall_ns, Relaxed);
    }

    /// Of the workers in the state limit, the run's memory holds so many. Gives for how long it has
    /// held workers.
    pub(crate) fn held_by_memory(&self, workers: Option<u32>, now: Instant) -> Duration {
        let held = &mut *self.by_memory.lock();
        held.time += now.saturating_duration_since(held.since) * held.workers;
        held.since = held.since.max(now);
        held.workers = workers.unwrap_or(held.workers);
        held.time
    }

    /// The figures, with the time in each state as [`together`] gave it.
    pub(crate) fn figures(&self, (ns, ended): Times, buffer: BufferStats) -> StageStats {
        let (service, histogram, slowest, failures) = {
            let log = self.log.lock();
            (log.service(), log.histogram(), log.slowest(), log.failures())
        };
        let share = |part: &AtomicU64, of: &AtomicU64| {
            let of = of.load(Relaxed);
            (of > 0).then(|| part.load(Relaxed) as f64 / of as f64)
        };
        StageStats {
            id: self.id.clone(),
            kind: self.kind,
            workers: self.workers(),
            workers_set: self.workers_set.load(Relaxed),
            items_in: self.items_in.load(Relaxed),
            items_out: self.items_out.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            states: States {
                working: ns[State::Working as usize],
                starved: ns[State::Starved as usize],
                blocked: ns[State::Blocked as usize],
                turn: ns[State::Turn as usize],
                limit: ns[State::Limit as usize],
                ended,
            },
            memory: self.held_by_memory(None, Instant::now()).min(ns[State::Limit as usize]),
            on_core: share(&self.core_ns, &self.core_of_ns),
            no_core: share(&self.delay_ns, &self.delay_of_ns),
            service,
            histogram,
            attempts: self.attempts.load(Relaxed),
            retries: self.retries.load(Relaxed),
            errors: self.errors.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            filtered: self.filtered.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            traffic: Traffic {
                requests: self.outside.requests.load(Relaxed),
                bytes: self.outside.bytes.load(Relaxed),
                throttled: self.outside.throttled.load(Relaxed),
                retries_refused: self.outside.retries_refused.load(Relaxed),
                fetched: self.outside.fetched.load(Relaxed),
                used: self.outside.used.load(Relaxed),
            },
            device: self.device.figures(),
            slowest,
            failures,
            options: self.options.clone(),
            rate_per_s: self.rate_per_s(),
            buffer,
        }
    }

    /// How many calls may start in a second.
    fn rate_per_s(&self) -> Option<f64> {
        let Rate { requests_per_s, bytes_per_s, .. } = self.rate.as_ref()?;
        let each = self.bytes_out.load(Relaxed) as f64 / self.items_out.load(Relaxed) as f64;
        let by_bytes = bytes_per_s.map(|per_s| per_s / each).filter(|rate| rate.is_finite());
        let rates = [*requests_per_s, by_bytes];
        rates.into_iter().flatten().min_by(f64::total_cmp)
    }
}

/// The time of the workers in each state, and after the stage's end.
pub(crate) type Times = ([Duration; 5], Duration);

/// Advances the clocks of all `meters` to one time, now or a little later, and gives it with the
/// states of each; at the end of a run it also stops them there.
///
/// The times of a state change and of its recording differ a little, so one clock may be ahead of
/// another thread's now: without this the shares would not add up.
pub(crate) fn together<'a>(
    meters: impl Iterator<Item = &'a Meter>,
    stop: bool,
) -> (Instant, Vec<Times>) {
    let mut clocks: Vec<_> = meters.map(|meter| meter.clock.lock()).collect();
    let at = clocks.iter().map(|clock| clock.since).fold(Instant::now(), Instant::max);
    let states = clocks.iter_mut().map(|clock| {
        clock.advance(at);
        clock.stopped |= stop;
        (clock.ns.map(Duration::from_nanos), Duration::from_nanos(clock.gone_ns))
    });
    let states = states.collect();
    (at, states)
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
        let stats = meter.figures((ns, Duration::ZERO), BufferStats::default());
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
        let stats = meter.figures((ns, Duration::ZERO), BufferStats::default());
        assert_eq!(stats.states.working, Duration::from_secs(1));
    }
}
