//! Why nothing moves: the chain of who waits for whom, from the consumer to the one call that all
//! wait for.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::State;
use super::text::duration;
use super::under_way::Seen;
use super::{Meter, YOU};
use crate::stage::Kind;

/// A run in which nothing has moved for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// For how long nothing had moved.
    pub after: Duration,
    /// Who is waited for: a stage's id, or `you`.
    pub stage: String,
    /// Who waits for whom, from the consumer on.
    pub chain: Vec<String>,
    /// The item that is waited for.
    pub item: Option<String>,
    /// What people call it.
    pub name: Option<String>,
    /// Which call on it is under way.
    pub attempt: u32,
    /// How old that call is.
    pub age: Duration,
    /// Whom the call waits for outside this process, such as `GET storage.example.com/t2m/c/0`.
    pub outside: Option<String>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = duration(self.after.as_nanos() as u64);
        write!(f, "nothing moved for {after}: {}", self.chain.join(" <- "))
    }
}

/// Who sends to whom.
pub(crate) struct Flow<'a> {
    pub(crate) from: &'a Meter,
    pub(crate) to: &'a Meter,
    /// Whether the buffer between them holds anything.
    pub(crate) holds: bool,
}

/// Why nothing moves in a run whose consumer waits.
pub(crate) fn stall(flows: &[Flow<'_>], now_ns: u64, after: Duration) -> Stall {
    let mut chain = vec!["you wait".to_owned()];
    let mut at = YOU;
    // A chain is no longer than the pipeline.
    for _ in 0..flows.len() {
        let into: Vec<_> = flows.iter().filter(|flow| flow.to.id == at).collect();
        // Of several, one that gives nothing.
        let Some(flow) = into.iter().find(|flow| !flow.holds).or(into.first()) else { break };
        let stage = flow.from;
        at = &stage.id;
        let told = told(stage, now_ns);
        chain.push(format!("{at} {}", told.text));
        if let Some(seen) = told.call {
            let outside = stage.outside.of(seen.worker).map(|wait| wait.what);
            let age = Duration::from_nanos(now_ns.saturating_sub(seen.since_ns));
            return Stall {
                after,
                stage: at.to_owned(),
                chain,
                item: Some(seen.id.to_string()),
                name: seen.name,
                attempt: seen.attempt,
                age,
                outside,
            };
        }
        if !told.starved {
            break;
        }
    }
    let stage = at.to_owned();
    Stall { after, stage, chain, item: None, name: None, attempt: 0, age: after, outside: None }
}

/// The consumer has had an item for so long and not asked for the next.
pub(crate) fn stall_of_consumer(after: Duration) -> Stall {
    let chain = vec![format!(
        "your own loop has not asked for the next item for {}",
        duration(after.as_nanos() as u64)
    )];
    let stage = YOU.to_owned();
    Stall { after, stage, chain, item: None, name: None, attempt: 0, age: after, outside: None }
}

struct Told {
    text: String,
    /// The call that it waits for.
    call: Option<Seen>,
    starved: bool,
}

fn told(stage: &Meter, now_ns: u64) -> Told {
    let census = stage.census();
    let calls = stage.under_way.iter().enumerate();
    let oldest = calls.filter_map(|(n, call)| call.seen(n)).min_by_key(|seen| seen.seq);
    if let Some(seen) = oldest {
        return Told {
            text: call(stage, &seen, &census, now_ns),
            call: Some(seen),
            starved: false,
        };
    }
    if stage.has_left() {
        return Told { text: "has ended".to_owned(), call: None, starved: false };
    }
    let text = match (stage.kind, most(&census)) {
        (Kind::Source, State::Working | State::Starved) => "gives nothing",
        (_, State::Working) => "works",
        (_, State::Starved) => "starved",
        (_, State::Blocked) => "has items that are not taken",
        (_, State::Turn) => "waits for its turn",
        (_, State::Limit) => "is held by a limit: its rate, or the run's memory",
    };
    let starved = stage.kind != Kind::Source && most(&census) == State::Starved;
    Told { text: text.to_owned(), call: None, starved }
}

fn call(stage: &Meter, seen: &Seen, census: &[u32; 5], now_ns: u64) -> String {
    let name = seen.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let item = format!("item {}{name}", seen.id);
    let age = duration(now_ns.saturating_sub(seen.since_ns));
    let turn = if census[State::Turn as usize] > 0 { ", which must come first," } else { "" };
    let attempt = match seen.attempt {
        0 | 1 => String::new(),
        n => format!("attempt {n}, "),
    };
    if seen.pauses {
        return format!("{item}{turn} pauses after attempt {} for {age}", seen.attempt);
    }
    match stage.outside.of(seen.worker) {
        Some(wait) => {
            let asked = duration(wait.since.elapsed().as_nanos() as u64);
            format!("{item}{turn} {attempt}called for {age}, waits {asked} for {}", wait.what)
        }
        None => format!("{item}{turn} {attempt}called for {age}"),
    }
}

/// The state that most workers are in.
fn most(census: &[u32; 5]) -> State {
    let states = [State::Working, State::Starved, State::Blocked, State::Turn, State::Limit];
    states.into_iter().max_by_key(|state| census[*state as usize]).unwrap_or(State::Starved)
}
