//! What an item went through: when it, or what it is made of, entered and left each stage, and what
//! its consumer waited for.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Meter;
use super::log::{CallRecord, Log, Passed};
use super::text::duration;
use crate::item::ItemId;

/// What one delivered item went through. Times count from the run's start.
///
/// A run remembers the last thousand calls of each stage; steps that are longer ago are left out, as
/// are those before a stage that joins several pipelines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The item.
    pub item: String,
    /// When it was delivered.
    pub delivered: Duration,
    /// How long the consumer had waited for it.
    pub waited: Duration,
    /// The stages it went through, in order.
    pub steps: Vec<Step>,
    /// What took the most of the time that the consumer waited.
    pub cause: Option<WaitCause>,
}

/// An item's way through one stage; of a batch, the way of all its items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The stage's id.
    pub stage: String,
    /// How many of its items the stage worked on.
    pub items: usize,
    /// When the first call began, or the item was received.
    pub entered: Duration,
    /// When the last call ended, if the stage makes calls.
    pub finished: Option<Duration>,
    /// When it was sent on.
    pub left: Option<Duration>,
    /// Calls on one item, at most.
    pub attempts: u32,
    /// The item of the longest call.
    pub slowest: Option<String>,
    /// Memory that the calls yielded, in bytes.
    pub bytes: u64,
}

/// Where an item was while its consumer waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitCause {
    /// The stage's id.
    pub stage: String,
    /// Where in the stage.
    pub at: Whereabouts,
    /// How long, of the time that the consumer waited.
    pub time: Duration,
}

/// Where an item is in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whereabouts {
    /// Not given yet.
    Before,
    /// In the buffer before it.
    Queued,
    /// In a call, or in a pause between two.
    Called,
    /// Finished, and waiting for its turn or for room.
    Held,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |time: Duration| duration(time.as_nanos() as u64);
        write!(f, "item {} came after a wait of {}", self.item, ns(self.waited))?;
        let Some(WaitCause { stage, at, time }) = &self.cause else { return Ok(()) };
        let time = ns(*time);
        match at {
            Whereabouts::Before => write!(f, ", {time} of it before `{stage}` gave it"),
            Whereabouts::Queued => write!(f, ", {time} of it waiting for `{stage}`"),
            Whereabouts::Held => write!(f, ", {time} of it in `{stage}`, finished"),
            Whereabouts::Called => {
                write!(f, ", {time} of it in `{stage}`")?;
                let step = self.steps.iter().find(|step| step.stage == *stage);
                match step {
                    Some(Step { slowest: Some(item), attempts: n @ 2.., .. }) => {
                        write!(f, " (item {item}, {n} attempts)")
                    }
                    Some(Step { slowest: Some(item), .. }) if *item != self.item => {
                        write!(f, " (item {item})")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The receipt of the item `id`, which the consumer waited for from `wait.0` to `wait.1`. `stages`
/// are those that it went through, sources first.
pub(crate) fn receipt(stages: &[&Meter], id: ItemId, wait: (u64, u64)) -> Receipt {
    let mut back = Back { wanted: BTreeSet::from([id.position()]), last: id.position() };
    let ways: Vec<(Step, Leg)> =
        stages.iter().rev().filter_map(|meter| back.through(meter, wait.1)).collect();
    let (steps, legs): (Vec<_>, Vec<_>) = ways.into_iter().rev().unzip();
    let delivered = Duration::from_nanos(wait.1);
    let waited = Duration::from_nanos(wait.1.saturating_sub(wait.0));
    Receipt { item: id.to_string(), delivered, waited, cause: cause(&steps, &legs, wait), steps }
}

/// The way back from an item through the stages.
struct Back {
    /// Positions in the source of what the item is made of.
    wanted: BTreeSet<u64>,
    /// The one of them that came last, which the others had to wait for.
    last: u64,
}

/// The way through a stage of the one item that the others waited for, in nanoseconds.
#[derive(Clone, Copy)]
struct Leg {
    entered: u64,
    finished: u64,
    left: u64,
}

impl Back {
    /// Goes back through a stage.
    fn through(&mut self, meter: &Meter, until_ns: u64) -> Option<(Step, Leg)> {
        let log = meter.log.lock();
        let is_wanted = |id: ItemId| self.wanted.contains(&id.position());
        let sent = log.sent.iter().rev().find(|sent| is_wanted(sent.id) && sent.at_ns <= until_ns);
        let left = sent.map(|sent| sent.at_ns);
        let until = left.unwrap_or(until_ns);
        let calls = log.calls.iter().filter(|call| is_wanted(call.id) && call.from_ns <= until);
        let calls: Vec<CallRecord> = calls.copied().collect();
        if calls.is_empty() {
            let members = members(&log, &self.wanted);
            let received = log.received.iter().filter(|item| item.at_ns <= until);
            let received: Vec<Passed> =
                received.filter(|item| members.contains(&item.id.position())).copied().collect();
            self.wanted = members;
            return self.without_calls(&meter.id, &received, left, until);
        }
        let of_last = |call: &&CallRecord| call.id.position() == self.last;
        let leg = Leg {
            entered: calls.iter().filter(of_last).map(|c| c.from_ns).min().unwrap_or(until),
            finished: calls.iter().filter(of_last).map(|c| c.until_ns()).max().unwrap_or(until),
            left: log
                .sent
                .iter()
                .rev()
                .find(|s| s.id.position() == self.last)
                .map_or(until, |s| s.at_ns),
        };
        Some((of_calls(&meter.id, &calls, left), leg))
    }

    fn without_calls(
        &mut self,
        stage: &str,
        received: &[Passed],
        left: Option<u64>,
        until: u64,
    ) -> Option<(Step, Leg)> {
        let first = received.iter().map(|item| item.at_ns).min().or(left)?;
        let last = received.iter().max_by_key(|item| item.at_ns);
        self.last = last.map_or(self.last, |item| item.id.position());
        let entered = last.map_or(first, |item| item.at_ns);
        let step = Step {
            stage: stage.to_owned(),
            items: received.len().max(1),
            entered: Duration::from_nanos(first),
            finished: None,
            left: left.map(Duration::from_nanos),
            attempts: 0,
            slowest: None,
            bytes: 0,
        };
        Some((step, Leg { entered, finished: entered, left: until }))
    }
}

/// What groups among `wanted` are made of; what is no group stays what it is.
fn members(log: &Log, wanted: &BTreeSet<u64>) -> BTreeSet<u64> {
    let groups = log.groups.iter().rev().filter(|(group, _)| wanted.contains(&group.position()));
    let members: BTreeSet<u64> =
        groups.flat_map(|(_, members)| members.iter().map(|id| id.position())).collect();
    if members.is_empty() { wanted.clone() } else { members }
}

fn of_calls(stage: &str, calls: &[CallRecord], left: Option<u64>) -> Step {
    let items: BTreeSet<_> = calls.iter().map(|call| call.id).collect();
    let longest = calls.iter().max_by_key(|call| call.ns);
    Step {
        stage: stage.to_owned(),
        items: items.len(),
        entered: Duration::from_nanos(calls.iter().map(|c| c.from_ns).min().unwrap_or(0)),
        finished: calls.iter().map(CallRecord::until_ns).max().map(Duration::from_nanos),
        left: left.map(Duration::from_nanos),
        attempts: calls.iter().map(|call| call.attempt).max().unwrap_or(1),
        slowest: longest.map(|call| call.id.to_string()),
        bytes: calls.iter().map(|call| call.bytes).sum(),
    }
}

/// Where the item was for most of the time from `wait.0` to `wait.1`.
fn cause(steps: &[Step], legs: &[Leg], (from, to): (u64, u64)) -> Option<WaitCause> {
    let mut parts = Vec::new();
    let mut before = None;
    for (step, leg) in steps.iter().zip(legs) {
        let (at, since) = match before {
            Some(left) => (Whereabouts::Queued, left),
            None => (Whereabouts::Before, 0),
        };
        parts.push((step, at, since, leg.entered));
        parts.push((step, Whereabouts::Called, leg.entered, leg.finished));
        parts.push((step, Whereabouts::Held, leg.finished, leg.left));
        before = Some(leg.left);
    }
    let overlap = |start: u64, end: u64| end.min(to).saturating_sub(start.max(from));
    let parts = parts.into_iter().map(|(step, at, start, end)| (overlap(start, end), step, at));
    let (time, step, at) = parts.max_by_key(|(time, ..)| *time)?;
    let (stage, time) = (step.stage.clone(), Duration::from_nanos(time));
    (!time.is_zero()).then_some(WaitCause { stage, at, time })
}
