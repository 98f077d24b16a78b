//! What a change would give: the next ceiling above the one that limits a run now.

use serde::{Deserialize, Serialize};

use super::verdict::Cause;
use super::{RunStats, StageStats};
use crate::stage::Kind;

/// What a change is expected to give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The change: `one more worker`.
    pub change: String,
    /// What would then be delivered, in items a second as the consumer counts them.
    pub items_per_s: f64,
    /// The same over what is delivered now.
    pub factor: f64,
}

impl Gain {
    /// The same in the items that each of what is delivered holds.
    pub(super) fn times(self, items: f64) -> Self {
        Gain { items_per_s: self.items_per_s * items, ..self }
    }
}

/// What the likeliest changes at `stage` (the consumer, if there is none) would give.
///
/// Every stage has a ceiling: its workers over the mean time of its calls, for each item delivered.
/// What is delivered is the lowest ceiling, less what the order of things costs; a change lifts one
/// ceiling until the next lowest is reached.
pub(super) fn gains(stats: &RunStats, stage: Option<&StageStats>, cause: Cause) -> Vec<Gain> {
    let seconds = stats.elapsed.as_secs_f64();
    let now = stats.items as f64 / seconds;
    let of_consumer = now / (1.0 - stats.waited_share()).max(1e-9);
    let others = stats.stages.iter().filter(|other| stage.is_none_or(|s| s.id != other.id));
    let lowest = others.map(|other| ceiling(other, stats)).fold(f64::INFINITY, f64::min);
    let Some(stage) = stage else {
        return gain("half the time in your own loop", now, of_consumer, 2.0, lowest);
    };
    let next = lowest.min(of_consumer);
    let own = ceiling_of(stage, stats, stage.unlimited_per_s());
    if !own.is_finite() {
        return Vec::new();
    }
    let more = (stage.workers as f64 + helps(stats, stage)) / stage.workers as f64;
    match cause {
        Cause::Working => {
            let rate = stage.rate_per_s.unwrap_or(f64::INFINITY);
            let next = next.min(ceiling_of(stage, stats, rate));
            [
                gain("one more worker", now, own, more, next),
                gain("half the time of a call", now, own, 2.0, next),
            ]
            .concat()
        }
        // Nothing but the limit keeps it from its ceiling.
        Cause::Limit => gain("no rate limit", now, now, own / now, next),
        Cause::Turn => gain("a window that is large enough", now, now, own / now, next),
        _ => Vec::new(),
    }
}

/// How much of a worker one more worker would be: one that computes needs a core that is free.
fn helps(stats: &RunStats, stage: &StageStats) -> f64 {
    let Some(process) = stats.process.filter(|_| stage.kind == Kind::Cpu) else { return 1.0 };
    let used = process.cpu.as_secs_f64() / stats.elapsed.as_secs_f64();
    let free = (process.cores as f64 - used).clamp(0.0, 1.0);
    if free < 0.25 { 0.0 } else { free }
}

/// Items that a stage lets the consumer have in a second, at most.
fn ceiling(stage: &StageStats, stats: &RunStats) -> f64 {
    ceiling_of(stage, stats, stage.could_do_per_s())
}

/// The same of a stage that makes so many calls a second.
fn ceiling_of(stage: &StageStats, stats: &RunStats, per_s: f64) -> f64 {
    if stage.service.count == 0 || stats.items == 0 {
        return f64::INFINITY;
    }
    let calls_an_item = stage.service.count as f64 / stats.items as f64;
    per_s / calls_an_item
}

fn gain(change: &str, now: f64, own: f64, lifts: f64, next: f64) -> Vec<Gain> {
    // The share of its ceiling that it reaches today it will reach of the next one too.
    let reached = (now / own.min(next)).min(1.0);
    let items_per_s = (own * lifts).min(next) * reached;
    if !items_per_s.is_finite() || items_per_s <= now {
        return Vec::new();
    }
    vec![Gain { change: change.to_owned(), items_per_s, factor: items_per_s / now }]
}
