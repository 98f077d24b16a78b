//! A run's figures for programs. Its schema is versioned: fields are added, never changed.

use serde::{Deserialize, Serialize};

use super::verdict::{Cause, verdict};
use super::{
    BufferStats, Delivered, DeviceStats, Ended, Failures, Gain, MemoryStats, Process, RunStats,
    Slow, StageStats, Stall, Traffic,
};
use crate::item::{Fingerprint, PoolStats};
use crate::stage::Kind;

/// The version of this schema.
const SCHEMA: u32 = 1;

/// A run's figures. Shares are 0 to 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// The version of this schema.
    pub schema: u32,
    /// The pipeline's name.
    pub pipeline: String,
    /// How the run ended.
    pub ended: Option<Ended>,
    /// The failure, if it failed.
    pub error: Option<String>,
    /// Windows, or other single items, delivered.
    pub items: u64,
    /// Batches delivered; 0 if single items were.
    pub batches: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// Items delivered a second.
    pub items_per_s: f64,
    /// The order fingerprint, from the first item of the first run if this one went on from others.
    pub fingerprint: String,
    /// What the consumer had received in those others: items, or batches.
    #[serde(default)]
    pub before: u64,
    /// The share of the time that the consumer waited.
    pub waited_share: f64,
    /// Items that the sources gave.
    #[serde(default)]
    pub read: u64,
    /// Items left out after errors, in all stages.
    pub skipped: u64,
    /// Items that were under way when the run stopped early.
    pub abandoned: u64,
    /// Items of which nothing is known: 0, or a defect of ours.
    #[serde(default)]
    pub unaccounted: u64,
    /// The bottleneck.
    pub verdict: VerdictReport,
    /// The stages in order.
    pub stages: Vec<StageReport>,
    /// The pools that data was read and decoded into.
    pub buffers: BufferReport,
    /// What the run waited for when nothing moved.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// What the process used.
    #[serde(default)]
    pub process: Option<ProcessReport>,
    /// What the items took of the host memory that they may take together, if that was bounded.
    #[serde(default)]
    pub memory: Option<MemoryStats>,
}

/// What the process used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The most memory at a time, in bytes.
    pub rss_max: u64,
    /// Time on cores over the run's time and the cores there are, 0 to 1.
    pub cpu_share: f64,
    /// Cores.
    pub cores: usize,
    /// Page faults that needed no reading.
    pub minor_faults: u64,
}

/// The bottleneck.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictReport {
    /// The stage's id, or `you`.
    pub stage: Option<String>,
    /// What limits it.
    pub cause: Cause,
    /// The same as a sentence.
    pub sentence: String,
    /// What to try.
    #[serde(default)]
    pub advice: Option<String>,
    /// What the likeliest change would give.
    #[serde(default)]
    pub gain: Option<Gain>,
}

/// A stage's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageReport {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// Its workers.
    pub workers: usize,
    /// How many it shall have, once those that are to leave have finished their calls.
    #[serde(default)]
    pub workers_set: usize,
    /// The time of its workers in all, in seconds, of which the shares are.
    #[serde(default)]
    pub worker_s: f64,
    /// Items that it took.
    #[serde(default)]
    pub items_in: u64,
    /// Items that it sent.
    pub items: u64,
    /// Bytes that it sent.
    pub bytes: u64,
    /// Shares of worker time in the five states; with `ended` they add up to 1.
    pub working: f64,
    /// See `working`.
    pub starved: f64,
    /// See `working`.
    pub blocked: f64,
    /// See `working`.
    pub turn: f64,
    /// See `working`.
    pub limit: f64,
    /// The part of `limit` in which it was the run's memory that held the workers.
    #[serde(default)]
    pub memory: f64,
    /// The share after the end of a source, or of a stage without calls.
    #[serde(default)]
    pub ended: f64,
    /// The share of the working time on a core; cpu stages only.
    pub on_core: Option<f64>,
    /// The share of the working time in which there was no core for it.
    #[serde(default)]
    pub no_core: Option<f64>,
    /// Items a second that it would deliver if nothing held it; null before its first call.
    pub could_do_per_s: Option<f64>,
    /// Service times in milliseconds.
    pub service_ms: ServiceReport,
    /// How many calls took up to so many milliseconds.
    #[serde(default)]
    pub histogram: Vec<(f64, u64)>,
    /// Calls made.
    #[serde(default)]
    pub attempts: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls made again.
    pub retries: u64,
    /// Items left out.
    pub skipped: u64,
    /// The buffer behind it.
    #[serde(default)]
    pub buffer: BufferStats,
    /// What its calls asked for outside the process, if they said.
    #[serde(default)]
    pub traffic: Option<Traffic>,
    /// What its lanes did on their device, if it has some.
    #[serde(default)]
    pub device: Option<DeviceStats>,
    /// Calls that may start in a second, if it has a rate.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// Its slowest calls.
    #[serde(default)]
    pub slowest: Vec<SlowReport>,
    /// Its failed calls by kind.
    #[serde(default)]
    pub failures: Vec<Failures>,
    /// What was said about how it runs.
    #[serde(default)]
    pub options: String,
}

/// A call that took long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlowReport {
    /// The item.
    pub item: String,
    /// What people call it.
    pub name: Option<String>,
    /// How long it took.
    pub ms: f64,
    /// Which call on the item it was, from 1.
    pub attempt: u32,
    /// When it began, in seconds from the run's start.
    pub at_s: f64,
}

/// Service times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Mean.
    #[serde(default)]
    pub mean: f64,
}

/// What the buffer pools did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BufferReport {
    /// Buffers lent that were recycled.
    pub pool_hits: u64,
    /// Buffers lent that had to be allocated.
    pub pool_misses: u64,
}

impl RunReport {
    /// The figures of a run, with what its consumer and its pools know.
    pub fn new(
        stats: &RunStats,
        delivered: Delivered,
        pools: impl IntoIterator<Item = PoolStats>,
        error: Option<String>,
    ) -> Self {
        let seconds = stats.elapsed.as_secs_f64();
        let verdict = verdict(stats);
        // What the consumer takes at a time may be a batch.
        let items_a_time = delivered.items as f64 / stats.items.max(1) as f64;
        let mut buffers = BufferReport { pool_hits: 0, pool_misses: 0 };
        for pool in pools {
            buffers.pool_hits += pool.hits;
            buffers.pool_misses += pool.misses;
        }
        RunReport {
            schema: SCHEMA,
            pipeline: stats.name.clone(),
            ended: stats.ended,
            error,
            items: delivered.items,
            batches: delivered.batches,
            bytes: stats.bytes,
            seconds,
            items_per_s: delivered.items as f64 / seconds,
            fingerprint: Fingerprint::from(stats.fingerprint).to_string(),
            before: stats.before,
            waited_share: stats.waited_share(),
            read: stats.read,
            skipped: stats.skipped,
            abandoned: stats.abandoned,
            unaccounted: stats.unaccounted,
            verdict: VerdictReport {
                stage: verdict.stage,
                cause: verdict.cause,
                sentence: verdict.sentence,
                advice: verdict.advice,
                gain: verdict.gains.into_iter().next().map(|gain| gain.times(items_a_time)),
            },
            stages: stats.stages.iter().map(stage).collect(),
            buffers,
            stalls: stats.stalls.clone(),
            process: stats.process.map(|process| of_process(&process, seconds)),
            memory: stats.memory,
        }
    }
}

fn of_process(process: &Process, seconds: f64) -> ProcessReport {
    let Process { rss_max, cpu, minor_faults, cores, .. } = *process;
    let cpu_share = cpu.as_secs_f64() / (seconds * cores as f64);
    ProcessReport { rss_max, cpu_share, cores, minor_faults }
}

fn stage(stage: &StageStats) -> StageReport {
    let [working, starved, blocked, turn, limit] = stage.states.shares();
    let ms = |ns: u64| ns as f64 / 1e6;
    StageReport {
        id: stage.id.clone(),
        kind: stage.kind,
        workers: stage.workers,
        workers_set: stage.workers_set,
        worker_s: stage.states.total().as_secs_f64(),
        items_in: stage.items_in,
        items: stage.items_out,
        bytes: stage.bytes_out,
        working,
        starved,
        blocked,
        turn,
        limit,
        memory: stage.memory_share(),
        ended: stage.states.ended_share(),
        on_core: stage.on_core,
        no_core: stage.no_core,
        could_do_per_s: Some(stage.could_do_per_s()).filter(|rate| rate.is_finite()),
        service_ms: ServiceReport {
            p50: ms(stage.service.p50_ns),
            p90: ms(stage.service.p90_ns),
            p99: ms(stage.service.p99_ns),
            max: ms(stage.service.max_ns),
            mean: ms(stage.service.mean_ns),
        },
        histogram: stage.histogram.iter().map(|&(ns, count)| (ms(ns), count)).collect(),
        attempts: stage.attempts,
        errors: stage.errors,
        retries: stage.retries,
        skipped: stage.skipped,
        buffer: stage.buffer,
        traffic: Some(stage.traffic).filter(|traffic| *traffic != Traffic::default()),
        device: Some(stage.device).filter(|device| *device != DeviceStats::default()),
        rate_per_s: stage.rate_per_s,
        slowest: stage.slowest.iter().map(slow).collect(),
        failures: stage.failures.clone(),
        options: stage.options.clone(),
    }
}

fn slow(slow: &Slow) -> SlowReport {
    SlowReport {
        item: slow.item.clone(),
        name: slow.name.clone(),
        ms: slow.ns as f64 / 1e6,
        attempt: slow.attempt,
        at_s: slow.at_ns as f64 / 1e9,
    }
}
