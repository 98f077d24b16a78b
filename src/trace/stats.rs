//! The figures of a run as plain data: a snapshot of what the meters hold. Knows nothing of how
//! they are measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::device::DeviceStats;
use super::stall::Stall;
use crate::stage::Kind;

/// What a run has done so far, or in all once it has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunStats {
    /// The pipeline's name.
    pub name: String,
    /// Wall time since the run started, until it ended.
    pub elapsed: Duration,
    /// How the run ended; `None` while it goes on.
    pub ended: Option<Ended>,
    /// Items that the consumer received.
    pub items: u64,
    /// Bytes that the consumer received, by the items' weights.
    pub bytes: u64,
    /// The order fingerprint: a hash of the ids that the consumer received, in order, with those that it
    /// received in the runs that this one goes on from.
    pub fingerprint: u64,
    /// Items that it received in those runs.
    #[serde(default)]
    pub before: u64,
    /// How long the consumer waited for items: the only number that costs money.
    pub waited: Duration,
    /// Items that the sources gave.
    pub read: u64,
    /// Items that `on_error: skip` left out, in all stages.
    pub skipped: u64,
    /// Items that were under way when the run stopped early.
    pub abandoned: u64,
    /// Items that came to a stage of single calls and of which nothing is known once the run has
    /// ended: neither sent on, skipped, filtered, failed nor abandoned. 0, or a defect of ours.
    pub unaccounted: u64,
    /// The stages in order, sources first.
    pub stages: Vec<StageStats>,
    /// What the run waited for when nothing moved for a while.
    pub stalls: Vec<Stall>,
    /// What the whole process used since the run began; where the system says so.
    pub process: Option<Process>,
    /// What its items took of the memory that they may take together, if that was bounded.
    #[serde(default)]
    pub memory: Option<MemoryStats>,
}

/// What the items of a run took of the host memory that they may take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Bytes that they may take.
    pub most: u64,
    /// Bytes that they take now.
    pub held: u64,
    /// The most that they took at a time, in bytes.
    pub peak: u64,
    /// How often an item was let in above the bound because nothing else could move.
    pub above: u64,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Memory in use, in bytes (resident set).
    pub rss: u64,
    /// The most that was in use at a time.
    pub rss_max: u64,
    /// Time on cores, all threads together.
    pub cpu: Duration,
    /// Page faults that needed no reading.
    pub minor_faults: u64,
    /// Cores that it may use.
    pub cores: usize,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The source ended and everything owed was delivered.
    Finished,
    /// It was asked to stop, and everything under way was delivered.
    Stopped,
    /// A stage failed.
    Failed,
    /// It was cancelled or dropped.
    Cancelled,
}

impl Ended {
    /// The same as a word.
    pub fn word(self) -> &'static str {
        match self {
            Ended::Finished => "finished",
            Ended::Stopped => "stopped",
            Ended::Failed => "failed",
            Ended::Cancelled => "cancelled",
        }
    }
}

/// What one stage has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageStats {
    /// The stage's id.
    pub id: String,
    /// The stage's kind.
    pub kind: Kind,
    /// How many workers it has.
    pub workers: usize,
    /// How many it shall have: fewer than it has while some that are to leave finish their calls.
    pub workers_set: usize,
    /// Items that it took.
    pub items_in: u64,
    /// Items that it sent.
    pub items_out: u64,
    /// Bytes that it sent, by the items' weights.
    pub bytes_out: u64,
    /// The workers' time by state; it adds up to the workers over the run's elapsed time: `workers` x
    /// `elapsed`, unless their number was changed.
    pub states: States,
    /// How much of the time in the state limit it was the run's memory that held the workers.
    #[serde(default)]
    pub memory: Duration,
    /// The share of the working time that was spent on a core, 0 to 1; sampled, cpu stages only.
    pub on_core: Option<f64>,
    /// The share of the working time in which it had something to compute and there was no core, 0 to
    /// 1; sampled, cpu stages only, where the system says so.
    pub no_core: Option<f64>,
    /// Service times: how long calls took, without any wait for input, room or a limit.
    pub service: Service,
    /// How many calls took up to so many nanoseconds, in steps of a factor of 1.5.
    pub histogram: Vec<(u64, u64)>,
    /// Calls made, retries included.
    pub attempts: u64,
    /// Calls that were made again after an error.
    pub retries: u64,
    /// Calls that ended in an error, a panic or a timeout.
    pub errors: u64,
    /// Items left out because of `on_error: skip`.
    pub skipped: u64,
    /// Items for which a call yielded nothing: it filtered them out, or ends the flow.
    pub filtered: u64,
    /// Items that this stage held, or had waiting before it, when the run stopped early.
    pub abandoned: u64,
    /// What its calls asked for outside the process.
    pub traffic: Traffic,
    /// What its lanes did on their device.
    pub device: DeviceStats,
    /// Its slowest calls, the slowest first.
    pub slowest: Vec<Slow>,
    /// Its failed calls by kind.
    pub failures: Vec<Failures>,
    /// What was said about how it runs: `workers 8, retry 5`.
    pub options: String,
    /// Calls that may start in a second, if it has a rate; one of bytes is turned into calls by the mean
    /// of what they yielded so far.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// The buffer behind the stage.
    pub buffer: BufferStats,
}

impl RunStats {
    /// The share of the time that the consumer waited, 0 to 1; 0 before any time has passed.
    pub fn waited_share(&self) -> f64 {
        let share = self.waited.as_secs_f64() / self.elapsed.as_secs_f64();
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// What was done since `earlier`, a snapshot of the same run. Percentiles, buffers, stalls and the
    /// slowest calls stay those of the whole run.
    pub fn since(&self, earlier: &RunStats) -> RunStats {
        let mut since = self.clone();
        since.elapsed = self.elapsed.saturating_sub(earlier.elapsed);
        since.items -= earlier.items.min(self.items);
        since.bytes -= earlier.bytes.min(self.bytes);
        since.waited = self.waited.saturating_sub(earlier.waited);
        since.read -= earlier.read.min(self.read);
        since.skipped -= earlier.skipped.min(self.skipped);
        since.abandoned -= earlier.abandoned.min(self.abandoned);
        since.process = self.process.zip(earlier.process).map(|(now, then)| now.since(&then));
        for (stage, earlier) in since.stages.iter_mut().zip(&earlier.stages) {
            stage.subtract(earlier);
        }
        since
    }
}

impl StageStats {
    /// The share of its time in which the run's memory held the workers, 0 to 1.
    pub fn memory_share(&self) -> f64 {
        let total = self.states.total().as_secs_f64();
        if total > 0.0 { (self.memory.as_secs_f64() / total).min(1.0) } else { 0.0 }
    }

    fn subtract(&mut self, earlier: &StageStats) {
        let pairs = [
            (&mut self.items_in, earlier.items_in),
            (&mut self.items_out, earlier.items_out),
            (&mut self.bytes_out, earlier.bytes_out),
            (&mut self.attempts, earlier.attempts),
            (&mut self.retries, earlier.retries),
            (&mut self.errors, earlier.errors),
            (&mut self.skipped, earlier.skipped),
            (&mut self.filtered, earlier.filtered),
            (&mut self.abandoned, earlier.abandoned),
            (&mut self.traffic.requests, earlier.traffic.requests),
            (&mut self.traffic.bytes, earlier.traffic.bytes),
            (&mut self.traffic.throttled, earlier.traffic.throttled),
            (&mut self.traffic.retries_refused, earlier.traffic.retries_refused),
            (&mut self.traffic.fetched, earlier.traffic.fetched),
            (&mut self.traffic.used, earlier.traffic.used),
        ];
        for (now, then) in pairs {
            *now -= then.min(*now);
        }
        self.device = self.device.since(&earlier.device);
        let (now, then) = (&mut self.states, &earlier.states);
        now.working = now.working.saturating_sub(then.working);
        now.starved = now.starved.saturating_sub(then.starved);
        now.blocked = now.blocked.saturating_sub(then.blocked);
        now.turn = now.turn.saturating_sub(then.turn);
        now.limit = now.limit.saturating_sub(then.limit);
        now.ended = now.ended.saturating_sub(then.ended);
        self.memory = self.memory.saturating_sub(earlier.memory);
        let (now, then) = (&mut self.service, &earlier.service);
        now.total_ns = now.total_ns.saturating_sub(then.total_ns);
        now.count = now.count.saturating_sub(then.count);
        now.mean_ns = now.total_ns.checked_div(now.count).unwrap_or(0);
    }

    /// Items a second that this stage would deliver if it were never starved, blocked or held for its
    /// turn: its workers over its mean service time, and not more than its rate. Infinite before the
    /// first call, if it has no rate.
    pub fn could_do_per_s(&self) -> f64 {
        self.unlimited_per_s().min(self.rate_per_s.unwrap_or(f64::INFINITY))
    }

    /// The same if it had no rate.
    pub(super) fn unlimited_per_s(&self) -> f64 {
        self.workers as f64 * 1e9 / self.service.mean_ns as f64
    }
}

/// Worker time by state. Every worker is always in exactly one, until its stage has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct States {
    /// In the stage's code.
    pub working: Duration,
    /// Waiting for input.
    pub starved: Duration,
    /// Holding a finished item for which the buffer has no room.
    pub blocked: Duration,
    /// Waiting for an earlier item: the reorder window is full.
    pub turn: Duration,
    /// Held by a rate limit, a retry pause or another limit.
    pub limit: Duration,
    /// In none of them: a source, or a stage without calls, has ended while the run went on.
    #[serde(default)]
    pub ended: Duration,
}

impl States {
    /// Working, starved, blocked, turn and limit as shares of the total, 0 to 1. They add up to 1
    /// less the share after the stage's end, or are all 0 before any time has passed.
    pub fn shares(&self) -> [f64; 5] {
        let all = [self.working, self.starved, self.blocked, self.turn, self.limit];
        let total = self.total().as_secs_f64();
        all.map(|d| if total > 0.0 { d.as_secs_f64() / total } else { 0.0 })
    }

    /// The share after the stage's end, 0 to 1.
    pub fn ended_share(&self) -> f64 {
        let total = self.total().as_secs_f64();
        if total > 0.0 { self.ended.as_secs_f64() / total } else { 0.0 }
    }

    /// The share in which the workers held up the run, 0 to 1: working + turn + limit.
    pub fn busy(&self) -> f64 {
        let [working, _, _, turn, limit] = self.shares();
        working + turn + limit
    }

    /// The total of the five and of the time after the stage's end.
    pub fn total(&self) -> Duration {
        self.working + self.starved + self.blocked + self.turn + self.limit + self.ended
    }
}

/// Service times of a stage's calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Service {
    /// Calls measured.
    pub count: u64,
    /// How long all of them took, exact.
    #[serde(default)]
    pub total_ns: u64,
    /// Mean, exact.
    pub mean_ns: u64,
    /// Median, to two digits.
    pub p50_ns: u64,
    /// 90th percentile, to two digits.
    pub p90_ns: u64,
    /// 99th percentile, to two digits.
    pub p99_ns: u64,
    /// The longest call, to two digits.
    pub max_ns: u64,
}

/// What the calls of a stage asked for outside the process, see [`request`](super::request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Bytes that came back.
    pub bytes: u64,
    /// How often the answer was to ask less.
    pub throttled: u64,
    /// How often a request that had failed was not made again because the store's retry budget was
    /// spent.
    #[serde(default)]
    pub retries_refused: u64,
    /// Bytes of the chunks that were fetched, decoded.
    #[serde(default)]
    pub fetched: u64,
    /// Bytes of the windows that they were fetched for.
    #[serde(default)]
    pub used: u64,
}

impl Traffic {
    /// Decoded bytes that were fetched for each byte that a window uses, as
    /// [`Plan::amplification`](crate::zarr::Plan::amplification) foretells it; `None` where no windows
    /// were fetched.
    pub fn amplification(&self) -> Option<f64> {
        (self.used > 0).then(|| self.fetched as f64 / self.used as f64)
    }
}

/// A call that took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// The item.
    pub item: String,
    /// What people call it, if its type has names.
    pub name: Option<String>,
    /// How long the call took, in nanoseconds.
    pub ns: u64,
    /// Which call on the item it was, from 1.
    pub attempt: u32,
    /// When it began, in nanoseconds from the run's start.
    pub at_ns: u64,
}

/// Calls that failed in the same way; texts that differ only in numbers count as the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The first one's error.
    pub error: String,
    /// How many there were.
    pub count: u64,
    /// The first one's item.
    pub example: String,
}

/// How full the buffer behind a stage is and was.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BufferStats {
    /// Items in it now.
    pub items: usize,
    /// Bytes in it now.
    pub bytes: u64,
    /// Its bound in items.
    pub items_max: usize,
    /// Its bound in bytes; one item always fits.
    pub bytes_max: u64,
    /// Items in it, averaged over time.
    pub items_mean: f64,
    /// Share of the time that it was full, 0 to 1.
    pub full_share: f64,
    /// Share of the time that it was empty, 0 to 1.
    pub empty_share: f64,
}
