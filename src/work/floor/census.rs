//! What a floor tells: to the loop what to wait for, to the meter in which state each worker is, and
//! at the end what was left.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Floor, Left, Resting, Slot};
use crate::fault::Fault;
use crate::stage::Stop;
use crate::trace::State;
use crate::work::Work;
use crate::work::desk::View;
use crate::work::kept::Kept;
use crate::work::worker::Hand;

impl<W: Work> Floor<W> {
    /// Whether the loop must look although workers go on.
    pub(in crate::work) fn needs_loop(&self) -> bool {
        self.fault.is_some()
            || (!self.ready.is_empty() && !self.loop_waits_for_room)
            || (self.wants_input() && !self.loop_waits_for_input)
            || (self.wants_memory().is_some() && !self.loop_waits_for_memory)
    }

    /// Whether a worker has nothing to do and nothing is there for it.
    fn wants_input(&self) -> bool {
        self.ended.is_none()
            && self.fault.is_none()
            && self.input.is_empty()
            && !self.idle.is_empty()
    }

    pub(in crate::work) fn view(&mut self, now: Instant) -> View {
        let at_fault = match (&self.fault, self.window) {
            (Some(_), Some(_)) => self.slots.front().and_then(|slot| slot.fault.clone()),
            (fault, _) => fault.as_ref().map(|(_, fault)| fault.clone()),
        };
        let empty = self.input.is_empty()
            // Workers whose item was given up owe nothing.
            && self.running == self.late.len()
            && self.resting.is_empty()
            && self.slots.is_empty()
            && self.ready.is_empty();
        let finished = match at_fault {
            Some(fault) if self.ready.is_empty() => Some(Err(Stop::Failed(fault))),
            _ if empty => self.ended.clone(),
            _ => None,
        };
        self.loop_waits_for_room = !self.ready.is_empty();
        self.loop_waits_for_input = self.wants_input();
        self.loop_waits_for_memory = self.wants_memory().is_some();
        let limited = self.limited_until.filter(|_| !self.idle.is_empty());
        let rests = self.resting.iter().filter_map(|resting| resting.until);
        let memory = self.wants_memory().and_then(|full| full.again);
        let watches = self.watches.iter().map(|watch| watch.deadline);
        View {
            finished,
            wants_input: self.loop_waits_for_input,
            wants_room: self.ready.front().map(|item| item.bytes),
            wants_memory: self.loop_waits_for_memory,
            timer: rests.chain(watches).chain(limited).chain(memory).min().map(|at| at.max(now)),
        }
    }

    /// Tells the meter in which state each worker is.
    pub(in crate::work) fn census(&mut self, now: Instant) {
        let mut census = [0; 5];
        // Behind a stage that has no memory for more there may be items that are not worked off.
        let memory = self.wants_memory().map(|_| match self.feed.core().holds() {
            true => State::Blocked,
            false => State::Limit,
        });
        let mut by_memory = 0;
        census[State::Working as usize] = self.running as u32;
        for resting in &self.resting {
            let state = match &resting.hand {
                Hand::Burst(_) => State::Limit,
                Hand::More(g) if self.window.is_some() && g.seq != self.head => State::Turn,
                Hand::More(_) => memory.unwrap_or(State::Blocked),
            };
            let is_more = matches!(resting.hand, Hand::More(_));
            by_memory += usize::from(is_more && state == State::Limit);
            census[state as usize] += 1;
        }
        let mut idle = self.idle.len();
        let blocked = idle.min(self.ready.len());
        census[State::Blocked as usize] += blocked as u32;
        idle -= blocked;
        // Of the others, as many as have input waiting are held by something; the rest starve.
        let held = idle.min(self.input.len());
        let state = match self.input.front() {
            Some(entry) if self.ahead(entry.seq) => State::Turn,
            _ if self.limited_until.is_some() => State::Limit,
            _ => memory.unwrap_or(State::Starved),
        };
        if memory == Some(State::Limit) && self.limited_until.is_none() && state == State::Limit {
            by_memory += held;
        }
        census[state as usize] += held as u32;
        census[State::Starved as usize] += (idle - held) as u32;
        let all = census.iter().sum::<u32>() as usize;
        debug_assert_eq!(all, self.hired, "every worker is in one state");
        self.meter.set(census, now);
        self.tell_memory(by_memory, now);
    }

    /// Empties the floor.
    pub(in crate::work) fn clear(&mut self) -> (Left<W>, Vec<(usize, Kept<W>)>) {
        self.close_account();
        // What was left out, filtered or sent is no longer held.
        let finished = self.slots.iter().map(|slot| match slot {
            Slot { done: true, fault: None, items } => items.len(),
            Slot { done: true, .. } => 1,
            Slot { done: false, .. } => 0,
        });
        // Nor are items that were given up, although their calls go on.
        let in_hand = self.hands.iter().sum::<usize>().saturating_sub(self.late.len());
        let started = in_hand + self.resting.len() + finished.sum::<usize>();
        // The item whose failure the stage tells was not abandoned: it failed.
        let on_item = |fault: &Fault| fault.item().is_some();
        let failed = self.slots.front().and_then(|slot| slot.fault.as_ref()).is_some_and(on_item);
        let failed_unordered = || self.fault.as_ref().is_some_and(|(_, fault)| on_item(fault));
        let gave_up = failed || self.slots.is_empty() && failed_unordered();
        self.meter.gave_up.store(gave_up.into(), Relaxed);
        let count = self.input.len() + started + self.ready.len();
        let count = count.saturating_sub(usize::from(failed));
        let resting = std::mem::take(&mut self.resting);
        let mut states: Vec<_> = std::mem::take(&mut self.states)
            .into_iter()
            .enumerate()
            .filter_map(|(worker, kept)| Some((worker, kept?)))
            .collect();
        let mut hands = Vec::new();
        for Resting { worker, kept, hand, .. } in resting {
            hands.push(hand);
            states.extend(kept.map(|kept| (worker, kept)));
        }
        let left = Left {
            count,
            _input: std::mem::take(&mut self.input),
            _unwanted: std::mem::take(&mut self.unwanted),
            _slots: std::mem::take(&mut self.slots),
            _ready: std::mem::take(&mut self.ready),
            _hands: hands,
        };
        (left, states)
    }
}
