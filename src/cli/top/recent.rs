//! What a run did between two reports, as figures of their own: the rates and the bottleneck of now,
//! not of all the time since its start.

use std::time::Duration;

use crate::trace::{RunReport, RunStats, Service, StageReport, StageStats, States, Traffic};

/// The figures between `before` and `now`.
pub(super) fn between(before: &RunReport, now: &RunReport) -> RunStats {
    let waited = |report: &RunReport| report.waited_share * report.seconds;
    let stage =
        |stage: &StageReport| since(before.stages.iter().find(|other| other.id == stage.id), stage);
    RunStats {
        name: now.pipeline.clone(),
        elapsed: seconds(now.seconds - before.seconds),
        ended: now.ended,
        items: now.items.saturating_sub(before.items),
        bytes: now.bytes.saturating_sub(before.bytes),
        fingerprint: 0,
        before: 0,
        waited: seconds(waited(now) - waited(before)),
        read: now.read.saturating_sub(before.read),
        skipped: now.skipped.saturating_sub(before.skipped),
        abandoned: 0,
        unaccounted: 0,
        stages: now.stages.iter().map(stage).collect(),
        stalls: Vec::new(),
        process: None,
        memory: now.memory,
    }
}

fn since(before: Option<&StageReport>, now: &StageReport) -> StageStats {
    let count = |of: fn(&StageReport) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let state = |of: fn(&StageReport) -> f64| {
        let worked = |stage: &StageReport| of(stage) * stage.worker_s;
        seconds(worked(now) - before.map_or(0.0, worked))
    };
    let traffic = |of: fn(&Traffic) -> u64| {
        let asked = |stage: &StageReport| stage.traffic.as_ref().map_or(0, of);
        asked(now).saturating_sub(before.map_or(0, asked))
    };
    let ns = |ms: f64| (ms * 1e6) as u64;
    let calls = count(calls);
    let spent = |stage: &StageReport| stage.service_ms.mean * self::calls(stage) as f64;
    let mean = match calls {
        // Nothing is known of now but what was before.
        0 => now.service_ms.mean,
        calls => (spent(now) - before.map_or(0.0, spent)).max(0.0) / calls as f64,
    };
    StageStats {
        id: now.id.clone(),
        kind: now.kind,
        workers: now.workers,
        workers_set: now.workers_set,
        items_in: count(|stage| stage.items_in),
        items_out: count(|stage| stage.items),
        bytes_out: count(|stage| stage.bytes),
        states: States {
            working: state(|stage| stage.working),
            starved: state(|stage| stage.starved),
            blocked: state(|stage| stage.blocked),
            turn: state(|stage| stage.turn),
            limit: state(|stage| stage.limit),
            ended: state(|stage| stage.ended),
        },
        memory: state(|stage| stage.memory),
        on_core: now.on_core,
        no_core: now.no_core,
        service: Service {
            count: self::calls(now),
            total_ns: ns(mean) * self::calls(now),
            mean_ns: ns(mean),
            p50_ns: ns(now.service_ms.p50),
            p90_ns: ns(now.service_ms.p90),
            p99_ns: ns(now.service_ms.p99),
            max_ns: ns(now.service_ms.max),
        },
        histogram: Vec::new(),
        attempts: count(|stage| stage.attempts),
        retries: count(|stage| stage.retries),
        errors: now.errors,
        skipped: now.skipped,
        filtered: 0,
        abandoned: 0,
        traffic: Traffic {
            requests: traffic(|traffic| traffic.requests),
            bytes: traffic(|traffic| traffic.bytes),
            throttled: traffic(|traffic| traffic.throttled),
            retries_refused: traffic(|traffic| traffic.retries_refused),
            fetched: traffic(|traffic| traffic.fetched),
            used: traffic(|traffic| traffic.used),
        },
        device: now
            .device
            .unwrap_or_default()
            .since(&before.and_then(|stage| stage.device).unwrap_or_default()),
        slowest: Vec::new(),
        failures: Vec::new(),
        options: now.options.clone(),
        rate_per_s: now.rate_per_s,
        buffer: now.buffer,
    }
}

/// The calls that were timed.
fn calls(stage: &StageReport) -> u64 {
    stage.histogram.iter().map(|(_, count)| count).sum()
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}
