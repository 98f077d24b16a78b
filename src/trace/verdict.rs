//! Which stage is the bottleneck, and why, in one sentence.
//!
//! The rule: the bottleneck is the stage with the largest share of working + turn + limit; the
//! consumer competes with the share of time that it did not wait. Within 10 points the run is
//! balanced. When cpu stages work but are not on a core, the cores are short.

use serde::{Deserialize, Serialize};

use super::gain::{Gain, gains};
use super::text::{count, duration, percent};
use super::{RunStats, StageStats};
use crate::stage::Kind;

/// Shares closer than this to the largest one count as equal.
const BALANCED: f64 = 0.10;
/// A cpu stage that works for this share of its time or less on a core is short of cores ...
const SHORT_OF_CORES: f64 = 0.70;
/// ... if it works at least this much.
const BUSY: f64 = 0.40;

/// A stage of whose calls one in so many is made again has a problem of its own.
const RETRIES_MANY: u64 = 5;

/// A cpu stage that had no core for this share of its working time lacks them.
const NO_CORE: f64 = 0.15;

/// The name of the consumer where stages are named.
pub const YOU: &str = "you";

/// The bottleneck of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The id of the stage, or `you` for the consumer; `None` if nothing can be said yet.
    pub stage: Option<String>,
    /// What limits it.
    pub cause: Cause,
    /// The same as a sentence.
    pub sentence: String,
    /// What to try, if there is something to try.
    pub advice: Option<String>,
    /// What the likeliest changes would give.
    pub gains: Vec<Gain>,
}

/// What limits a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The stage's calls take the time.
    Working,
    /// Finished items wait for earlier ones.
    Turn,
    /// A rate limit holds it.
    Limit,
    /// The memory that the run's items may take together is used up.
    Memory,
    /// Its calls fail and are made again.
    Retries,
    /// The store that it asks wants to be asked less.
    Throttled,
    /// The cpu stages work, but not on a core: there are too few.
    Cores,
    /// The consumer is slower than the pipeline.
    Consumer,
    /// Several are equally busy.
    Balanced,
    /// Too little has happened.
    Unknown,
}

/// Names the bottleneck of a run.
pub fn verdict(stats: &RunStats) -> Verdict {
    let elapsed = stats.elapsed.as_secs_f64();
    if stats.items == 0 || elapsed <= 0.0 {
        return unknown("nothing has come out of the pipeline yet");
    }
    let you = 1.0 - stats.waited_share();
    let mut all: Vec<(f64, Option<&StageStats>)> =
        stats.stages.iter().map(|stage| (stage.states.busy(), Some(stage))).collect();
    all.push((you, None));
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (most, first) = all[0];
    if most < 0.05 {
        return unknown("no stage is busy: the source gives items more slowly than they are used");
    }
    if let Some(short) = short_of_cores(stats, first) {
        return short;
    }
    if let Some(&(next, second)) = all.get(1)
        && most - next < BALANCED
        && next > BUSY
    {
        return balanced((most, first), (next, second));
    }
    match first {
        Some(stage) => {
            let verdict = of_stage(stage);
            let gains = match verdict.advice {
                Some(_) => gains(stats, Some(stage), verdict.cause),
                None => Vec::new(),
            };
            Verdict { gains, ..verdict }
        }
        None => Verdict {
            stage: Some(YOU.to_owned()),
            cause: Cause::Consumer,
            sentence: format!(
                "Limit: you — the pipeline is ahead of its reader, which waited {} of the time",
                percent(1.0 - you)
            ),
            advice: None,
            gains: gains(stats, None, Cause::Consumer),
        },
    }
}

fn unknown(why: &str) -> Verdict {
    let (cause, sentence) = (Cause::Unknown, format!("No limit found: {why}"));
    Verdict { stage: None, cause, sentence, advice: None, gains: Vec::new() }
}

fn short_of_cores(stats: &RunStats, first: Option<&StageStats>) -> Option<Verdict> {
    let first = first.filter(|stage| stage.kind == Kind::Cpu)?;
    let is_short = |stage: &&StageStats| {
        stage.kind == Kind::Cpu
            && stage.states.shares()[0] >= BUSY
            && stage.on_core.is_some_and(|on| {
                // Off a core it may also wait for something else, and longer than for a core.
                let lacks = |no: f64| no >= NO_CORE && no >= 1.0 - on - no;
                on <= SHORT_OF_CORES && stage.no_core.is_none_or(lacks)
            })
    };
    let short: Vec<_> = stats.stages.iter().filter(is_short).collect();
    if !short.iter().any(|stage| stage.id == first.id) {
        return None;
    }
    let names: Vec<_> = short.iter().map(|stage| format!("`{}`", stage.id)).collect();
    let working: Vec<_> = short.iter().map(|s| percent(s.states.shares()[0])).collect();
    let on_core: Vec<_> = short.iter().filter_map(|s| s.on_core).map(percent).collect();
    let is = if short.len() == 1 { "is" } else { "are" };
    Some(Verdict {
        stage: Some(first.id.clone()),
        cause: Cause::Cores,
        sentence: format!(
            "Limit: the cores are short — {} {is} working {} of the time, but only {} of that \
             on a core",
            and(&names),
            and(&working),
            and(&on_core),
        ),
        advice: Some("use fewer cpu workers in all, or a machine with more cores".to_owned()),
        gains: Vec::new(),
    })
}

fn balanced(first: (f64, Option<&StageStats>), second: (f64, Option<&StageStats>)) -> Verdict {
    let name = |stage: Option<&StageStats>| stage.map_or(YOU, |stage| &stage.id).to_owned();
    let told = |(share, stage): (f64, Option<&StageStats>)| {
        format!("{} ({})", name(stage), percent(share))
    };
    Verdict {
        stage: Some(name(first.1)),
        cause: Cause::Balanced,
        sentence: format!("Balanced: {} and {} are equally busy", told(first), told(second)),
        advice: None,
        gains: Vec::new(),
    }
}

fn of_stage(stage: &StageStats) -> Verdict {
    let [working, starved, _, turn, limit] = stage.states.shares();
    let StageStats { id, kind, workers, service, .. } = stage;
    let (median, p99) = (duration(service.p50_ns), duration(service.p99_ns));
    let (cause, why, advice) = if turn >= working && turn >= limit {
        (
            Cause::Turn,
            format!(
                "finished items wait {} of the time for earlier ones (median call {median}, \
                 99th percentile {p99})",
                percent(turn)
            ),
            "a larger `ordered: { window: ... }`, or `ordered: false` if the order is free",
        )
    } else if stage.retries * RETRIES_MANY >= stage.attempts.max(1) {
        (
            Cause::Retries,
            format!(
                "{} of its {} calls failed and were made again; it works {} of the time and pauses {}",
                count(stage.retries),
                count(stage.attempts),
                percent(working),
                percent(limit),
            ),
            "look at its errors; fewer `workers` or a lower `rate` if the store is overloaded",
        )
    } else if limit >= working && stage.memory_share() * 2.0 > limit {
        let why =
            format!("the run's memory is used up and holds it {} of the time", percent(limit));
        (Cause::Memory, why, "a larger `memory` of the run; or smaller items, buffers or windows")
    } else if limit >= working {
        let why = format!("its rate limit holds it {} of the time", percent(limit));
        (Cause::Limit, why, "a higher `rate`")
    } else if stage.traffic.throttled > 0 {
        (
            Cause::Throttled,
            format!(
                "the store said {} times that it is asked too much; calls take {} of the time (median \
                 {median}, 99th percentile {p99})",
                count(stage.traffic.throttled),
                percent(working),
            ),
            "fewer `workers` or a `rate` below what the store allows; more buckets or prefixes",
        )
    } else {
        let (does, advice) = match kind {
            Kind::Io => ("waiting for answers", "more `workers`, as long as the store keeps up"),
            Kind::Cpu if stage.on_core.is_some_and(|share| share < 0.5) => (
                "in calls that wait instead of computing",
                "make it an io stage if it reads or sends; or more `workers`",
            ),
            Kind::Cpu => ("computing", "more `workers` or cores, or less to compute"),
            Kind::Device => ("busy on the device", "less to do there, or a faster device"),
            Kind::Source => ("making items", "a faster source"),
            Kind::Flow => ("moving items", "larger items"),
        };
        let who = match workers {
            1 => "its worker is".to_owned(),
            2 => "both workers are".to_owned(),
            n => format!("all {n} workers are"),
        };
        let calls = if service.count == 0 {
            String::new()
        } else {
            format!(" (median {median}, 99th percentile {p99})")
        };
        (Cause::Working, format!("{who} {does} {} of the time{calls}", percent(working)), advice)
    };
    // More of it is no use to a stage that mostly waits for input, such as at the end of a run.
    let starves = cause == Cause::Working && starved > 0.5;
    Verdict {
        stage: Some(id.clone()),
        cause,
        sentence: format!("Limit: {id} — {why}"),
        advice: (!starves).then(|| advice.to_owned()),
        gains: Vec::new(),
    }
}

fn and(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::States;

    fn stage(id: &str, kind: Kind, shares: [u64; 5]) -> StageStats {
        let ms = shares.map(|share| Duration::from_millis(share * 10));
        let [working, starved, blocked, turn, limit] = ms;
        let meter = crate::trace::Meter::new(id.into(), kind, 1, std::time::Instant::now());
        let stats = meter.figures(Default::default(), Default::default());
        StageStats {
            states: States { working, starved, blocked, turn, limit, ended: Duration::ZERO },
            ..stats
        }
    }

    fn run(waited: u64, stages: Vec<StageStats>) -> RunStats {
        RunStats {
            name: "test".into(),
            elapsed: Duration::from_secs(1),
            ended: None,
            items: 10,
            bytes: 10,
            fingerprint: 0,
            before: 0,
            waited: Duration::from_millis(waited * 10),
            read: 10,
            skipped: 0,
            abandoned: 0,
            unaccounted: 0,
            stages,
            stalls: Vec::new(),
            process: None,
            memory: None,
        }
    }

    /// Pipelines with a known culprit.
    #[test]
    fn the_rule_names_the_culprit() {
        use Kind::{Cpu, Device, Io};
        let cases = [
            // I/O bound.
            (90, [100, 0, 0, 0, 0], [30, 70, 0, 0, 0], [10, 90, 0, 0, 0], "io", Cause::Working),
            // CPU bound.
            (90, [20, 3, 77, 0, 0], [99, 1, 0, 0, 0], [10, 90, 0, 0, 0], "cpu", Cause::Working),
            // Device bound.
            (90, [20, 0, 80, 0, 0], [30, 0, 70, 0, 0], [98, 2, 0, 0, 0], "dev", Cause::Working),
            // Consumer bound.
            (2, [20, 0, 80, 0, 0], [30, 0, 70, 0, 0], [10, 2, 88, 0, 0], "you", Cause::Consumer),
            // Ordered I/O with stragglers and a small window.
            (90, [17, 0, 0, 83, 0], [60, 40, 0, 0, 0], [10, 90, 0, 0, 0], "io", Cause::Turn),
            // A rate limit.
            (90, [9, 0, 0, 0, 91], [40, 60, 0, 0, 0], [60, 40, 0, 0, 0], "io", Cause::Limit),
        ];
        for (waited, io, cpu, dev, culprit, cause) in cases {
            let stages =
                vec![stage("io", Io, io), stage("cpu", Cpu, cpu), stage("dev", Device, dev)];
            let verdict = verdict(&run(waited, stages));
            assert_eq!((verdict.stage.as_deref(), verdict.cause), (Some(culprit), cause));
        }
    }

    #[test]
    fn equally_busy_stages_are_balanced() {
        let stages =
            vec![stage("a", Kind::Io, [95, 5, 0, 0, 0]), stage("b", Kind::Cpu, [90, 5, 5, 0, 0])];
        let verdict = verdict(&run(90, stages));
        assert_eq!(verdict.cause, Cause::Balanced);
        assert_eq!(verdict.sentence, "Balanced: a (95 %) and b (90 %) are equally busy");
    }

    #[test]
    fn cpu_stages_that_work_off_a_core_are_short_of_cores() {
        let mut stages = vec![
            stage("decode", Kind::Cpu, [91, 9, 0, 0, 0]),
            stage("augment", Kind::Cpu, [70, 30, 0, 0, 0]),
        ];
        stages[0].on_core = Some(0.35);
        stages[1].on_core = Some(0.23);
        let verdict = verdict(&run(95, stages));
        assert_eq!(verdict.cause, Cause::Cores);
        assert_eq!(
            verdict.sentence,
            "Limit: the cores are short — `decode` and `augment` are working 91 % and 70 % of the \
             time, but only 35 % and 23 % of that on a core"
        );
    }

    #[test]
    fn a_stage_that_waits_longer_for_something_else_is_not_short_of_cores() {
        let cause = |no_core: f64| {
            let mut stages = vec![stage("read", Kind::Cpu, [96, 4, 0, 0, 0])];
            (stages[0].on_core, stages[0].no_core) = (Some(0.02), Some(no_core));
            verdict(&run(97, stages)).cause
        };
        assert_eq!((cause(0.45), cause(0.53)), (Cause::Working, Cause::Cores));
    }
}
