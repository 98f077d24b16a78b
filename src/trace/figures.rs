//! The figures of a run as named metrics with labels, for systems that collect them over time. Knows
//! nothing of how they are sent.

mod devices;

use super::{Cause, RunStats, StageStats, verdict};
use devices::on_devices;

/// A metric: its name and one value for each set of labels.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Its name without its unit: `forebay_stage_state`.
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) sort: Sort,
    pub(crate) help: &'static str,
    pub(crate) points: Vec<Point>,
}

/// What a metric is counted in, which is the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    None,
    Bytes,
    Seconds,
}

/// How a metric's values go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// It only grows.
    Counter,
    Gauge,
    /// Always 1: its labels are what it says.
    Info,
}

/// One value.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) labels: Labels,
    pub(crate) value: Value,
}

pub(crate) type Labels = Vec<(&'static str, String)>;

/// A whole number, or seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
}

/// How long the calls of a stage took.
#[derive(Clone, Debug)]
pub(crate) struct ServiceTimes {
    pub(crate) labels: Labels,
    pub(crate) sum_s: f64,
    pub(crate) count: u64,
    /// How many calls took up to so many seconds and longer than the bucket before; the last bucket
    /// has no bound. The bounds are the same at all times.
    pub(crate) buckets: Vec<(f64, u64)>,
}

pub(crate) const SERVICE: &str = "forebay_stage_service";
pub(crate) const SERVICE_HELP: &str =
    "How long calls took, without any wait for input, room or a limit";

/// All metrics of a run but [service times](service_times).
pub(crate) fn figures(stats: &RunStats) -> Vec<Figure> {
    use Unit::{Bytes, None, Seconds};
    let counter =
        |name, unit, help, points| Figure { name, unit, sort: Sort::Counter, help, points };
    let gauge = |name, unit, help, points| Figure { name, unit, sort: Sort::Gauge, help, points };
    let whole = |read: fn(&StageStats) -> u64| -> Vec<Point> {
        stats.stages.iter().map(|stage| point(of(stage), Value::Whole(read(stage)))).collect()
    };
    let one = |value| vec![point(Labels::new(), value)];
    let mut figures = vec![
        info("forebay_run", "The run's pipeline", vec![("run", stats.name.clone())]),
        gauge(
            "forebay_run_elapsed",
            Seconds,
            "Wall time since the run started",
            one(Value::Real(stats.elapsed.as_secs_f64())),
        ),
        counter("forebay_stage_items", None, "Items that the stage took and sent", items(stats)),
        counter(
            "forebay_stage",
            Bytes,
            "Bytes that the stage sent, by the items' weights",
            whole(|stage| stage.bytes_out),
        ),
        counter(
            "forebay_stage_state",
            Seconds,
            "Worker time by state; it adds up to workers x elapsed",
            states(stats),
        ),
        gauge("forebay_stage_workers", None, "Workers", whole(|stage| stage.workers as u64)),
        counter(
            "forebay_stage_calls",
            None,
            "Calls that have ended, those made again included",
            whole(|stage| stage.service.count),
        ),
        counter(
            "forebay_stage_retries",
            None,
            "Calls that were made again after an error",
            whole(|stage| stage.retries),
        ),
        counter(
            "forebay_stage_errors",
            None,
            "Calls that ended in an error, a panic or a timeout",
            whole(|stage| stage.errors),
        ),
        counter(
            "forebay_stage_skipped",
            None,
            "Items left out after errors",
            whole(|stage| stage.skipped),
        ),
        counter(
            "forebay_stage_filtered",
            None,
            "Items for which a call yielded nothing",
            whole(|stage| stage.filtered),
        ),
        gauge(
            "forebay_buffer_items",
            None,
            "Items in the buffer behind the stage",
            whole(|stage| stage.buffer.items as u64),
        ),
        gauge(
            "forebay_buffer",
            Bytes,
            "Bytes in the buffer behind the stage",
            whole(|stage| stage.buffer.bytes),
        ),
        gauge(
            "forebay_buffer_capacity_items",
            None,
            "Items that the buffer holds at most",
            whole(|stage| stage.buffer.items_max as u64),
        ),
        gauge(
            "forebay_buffer_capacity",
            Bytes,
            "Bytes that the buffer holds at most; one item always fits",
            whole(|stage| stage.buffer.bytes_max),
        ),
        counter(
            "forebay_requests",
            None,
            "Requests of the stage's calls to what is outside the process",
            whole(|stage| stage.traffic.requests),
        ),
        counter(
            "forebay_request",
            Bytes,
            "Bytes that came back for requests",
            whole(|stage| stage.traffic.bytes),
        ),
        counter(
            "forebay_requests_throttled",
            None,
            "Answers that asked for fewer requests",
            whole(|stage| stage.traffic.throttled),
        ),
        counter(
            "forebay_retries_refused",
            None,
            "Failed requests that were not made again, as the store's retry budget was spent",
            whole(|stage| stage.traffic.retries_refused),
        ),
        counter(
            "forebay_consumer_items",
            None,
            "Items that the consumer received",
            one(Value::Whole(stats.items)),
        ),
        counter(
            "forebay_consumer",
            Bytes,
            "Bytes that the consumer received",
            one(Value::Whole(stats.bytes)),
        ),
        counter(
            "forebay_consumer_waited",
            Seconds,
            "How long the consumer waited for items",
            one(Value::Real(stats.waited.as_secs_f64())),
        ),
        counter(
            "forebay_stalls",
            None,
            "How often nothing moved for a while",
            one(Value::Whole(stats.stalls.len() as u64)),
        ),
        bottleneck(stats),
    ];
    figures.extend(on_devices(stats));
    if let Some(memory) = stats.memory {
        let gauges = [
            ("forebay_memory_most", "Host memory that the items may take together", memory.most),
            ("forebay_memory_held", "Host memory that the items take", memory.held),
        ];
        figures.extend(
            gauges.map(|(name, help, bytes)| gauge(name, Bytes, help, one(Value::Whole(bytes)))),
        );
        figures.push(counter(
            "forebay_memory_above",
            None,
            "Items let in above the bound because nothing else could move",
            one(Value::Whole(memory.above)),
        ));
    }
    if let Some(process) = stats.process {
        figures.push(gauge(
            "process_resident_memory",
            Bytes,
            "Memory of the process",
            one(Value::Whole(process.rss)),
        ));
        figures.push(counter(
            "process_cpu",
            Seconds,
            "Time of the process on cores since the run started",
            one(Value::Real(process.cpu.as_secs_f64())),
        ));
    }
    figures
}

/// How long calls took, of the stages that make calls.
pub(crate) fn service_times(stats: &RunStats) -> Vec<ServiceTimes> {
    // Steps of the stages' histograms, numbered from 1 us on: 11 us to 11 min in factors of 2.25.
    const BOUNDS: std::ops::RangeInclusive<i32> = 6..=50;
    let bound_s = |step: i32| {
        let exact = 1e-6 * 1.5_f64.powi(step);
        let digits = 10_f64.powi(2 - exact.log10().floor() as i32);
        (exact * digits).round() / digits
    };
    let times = |stage: &StageStats| {
        let mut buckets: Vec<_> = BOUNDS.step_by(2).map(|step| (bound_s(step), 0)).collect();
        buckets.push((f64::INFINITY, 0));
        for (until_ns, count) in &stage.histogram {
            let step = (*until_ns as f64 / 1e3).ln() / 1.5_f64.ln();
            let above = (step.round() as i32 - BOUNDS.start()).max(0) as usize;
            let bucket = above.div_ceil(2).min(buckets.len() - 1);
            buckets[bucket].1 += count;
        }
        let sum_s = stage.service.total_ns as f64 / 1e9;
        ServiceTimes { labels: of(stage), sum_s, count: stage.service.count, buckets }
    };
    stats.stages.iter().filter(|stage| stage.kind.makes_calls()).map(times).collect()
}

/// Service times for systems that take no histogram of a run that goes on: their sum, and quantiles.
#[cfg(feature = "otlp")]
pub(crate) fn service_quantiles(stats: &RunStats) -> [Figure; 2] {
    let calls = stats.stages.iter().filter(|stage| stage.kind.makes_calls());
    let s = |ns: u64| Value::Real(ns as f64 / 1e9);
    let sums = calls.clone().map(|stage| point(of(stage), s(stage.service.total_ns)));
    let quantiles = calls.flat_map(|stage| {
        let service = &stage.service;
        let quantiles =
            [("0.5", service.p50_ns), ("0.9", service.p90_ns), ("0.99", service.p99_ns)];
        quantiles.map(|(quantile, ns)| point(with(of(stage), "quantile", quantile), s(ns)))
    });
    [
        Figure {
            name: SERVICE,
            unit: Unit::Seconds,
            sort: Sort::Counter,
            help: SERVICE_HELP,
            points: sums.collect(),
        },
        Figure {
            name: "forebay_stage_service_quantile",
            unit: Unit::Seconds,
            sort: Sort::Gauge,
            help: "How long a call took at most, of this share of all",
            points: quantiles.collect(),
        },
    ]
}

fn point(labels: Labels, value: Value) -> Point {
    Point { labels, value }
}

fn of(stage: &StageStats) -> Labels {
    vec![("stage", stage.id.clone()), ("kind", stage.kind.to_string())]
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

fn items(stats: &RunStats) -> Vec<Point> {
    let both = stats.stages.iter().flat_map(|stage| {
        [("in", stage.items_in), ("out", stage.items_out)].map(|(direction, items)| {
            point(with(of(stage), "direction", direction), Value::Whole(items))
        })
    });
    both.collect()
}

fn states(stats: &RunStats) -> Vec<Point> {
    let all = stats.stages.iter().flat_map(|stage| {
        let states = &stage.states;
        let times = [
            ("working", states.working),
            ("starved", states.starved),
            ("blocked", states.blocked),
            ("turn", states.turn),
            ("limit", states.limit),
        ];
        times.map(|(state, time)| {
            point(with(of(stage), "state", state), Value::Real(time.as_secs_f64()))
        })
    });
    all.collect()
}

fn info(name: &'static str, help: &'static str, labels: Labels) -> Figure {
    let points = vec![point(labels, Value::Whole(1))];
    Figure { name, unit: Unit::None, sort: Sort::Info, help, points }
}

fn bottleneck(stats: &RunStats) -> Figure {
    let verdict = verdict(stats);
    let cause = match verdict.cause {
        Cause::Working => "working",
        Cause::Turn => "turn",
        Cause::Limit => "limit",
        Cause::Memory => "memory",
        Cause::Retries => "retries",
        Cause::Throttled => "throttled",
        Cause::Cores => "cores",
        Cause::Consumer => "consumer",
        Cause::Balanced => "balanced",
        Cause::Unknown => "unknown",
    };
    let labels = vec![("stage", verdict.stage.unwrap_or_default()), ("cause", cause.to_owned())];
    info("forebay_verdict", "The bottleneck of the run so far", labels)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::item::ItemId;
    use crate::stage::Kind;
    use crate::trace::{BufferStats, CallRecord, Ended, Meter};

    #[test]
    fn a_call_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for ns in [1, 900, 5_000, 20_000, 999_999, 1_500_000, 77_000_000, 2e10 as u64, 3e12 as u64]
        {
            let meter = Meter::new("m".into(), Kind::Cpu, 1, Instant::now());
            let id = ItemId::source(0);
            let call =
                CallRecord { id, worker: 0, attempt: 1, from_ns: 0, ns, bytes: 0, failed: false };
            meter.served(&[call; 3]);
            let stats = RunStats {
                name: "test".into(),
                elapsed: Default::default(),
                ended: Some(Ended::Finished),
                items: 0,
                bytes: 0,
                fingerprint: 0,
                before: 0,
                waited: Default::default(),
                read: 0,
                skipped: 0,
                abandoned: 0,
                unaccounted: 0,
                stages: vec![meter.figures(Default::default(), BufferStats::default())],
                stalls: Vec::new(),
                process: None,
                memory: None,
            };
            let times = &service_times(&stats)[0];
            let is_full = |bucket: &(f64, u64)| bucket.1 > 0;
            let at = times.buckets.iter().position(is_full).expect("it is in one");
            assert_eq!((times.count, times.buckets[at].1), (3, 3));
            let s = ns as f64 / 1e9;
            // To two digits, as calls are measured.
            assert!(s <= times.buckets[at].0 * 1.02, "{s} {times:?}");
            assert!(at == 0 || s >= times.buckets[at - 1].0 * 0.98, "{s} {times:?}");
        }
    }
}
