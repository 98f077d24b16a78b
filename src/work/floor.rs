//! What a stage has under way: the input it holds, the order it owes, who works and who rests.
//! Plain state, changed only under the desk's lock.

mod census;
mod crew;
mod memory;
mod start;

pub(super) use memory::Memory;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Work;
use super::kept::Kept;
use super::rate::Limiter;
use super::worker::{Entry, Hand, Wage};
use crate::fault::Fault;
use crate::item::{Item, ItemId};
use crate::link::{Feed, Tap};
use crate::options::Rate;
use crate::stage::Stop;
use crate::trace::Meter;

/// Items in a burst, at most.
const BURST_ITEMS: f64 = 256.0;

/// What became of an item.
pub(super) enum Done<Out> {
    One(Item<Out>),
    Nothing,
    /// It failed and is left out.
    Skipped,
    Fault(Fault),
}

/// Calls that take less than this are worth fewer wake-ups.
const TINY_NS: f64 = 5_000.0;

/// An item that was started and not yet sent on, in the order of the input.
struct Slot<Out> {
    items: VecDeque<Item<Out>>,
    done: bool,
    fault: Option<Fault>,
}

impl<Out> Default for Slot<Out> {
    fn default() -> Self {
        Slot { items: VecDeque::new(), done: false, fault: None }
    }
}

/// A worker that will go on: after a pause, or when there is room for more of what it makes.
pub(super) struct Resting<W: Work> {
    pub(super) worker: usize,
    pub(super) kept: Option<Kept<W>>,
    pub(super) hand: Hand<W>,
    pub(super) until: Option<Instant>,
}

/// An item that is given up at its deadline.
pub(super) struct Overdue {
    pub(super) seq: u64,
    pub(super) fault: Fault,
}

/// A call that is given up at its deadline.
struct Watch {
    worker: usize,
    seq: u64,
    id: ItemId,
    name: Option<String>,
    attempt: u32,
    deadline: Instant,
    /// The limit that was said.
    said: Duration,
}

pub(super) struct Floor<W: Work> {
    tap: Tap<W::In>,
    feed: Feed<W::Out>,
    arriving: VecDeque<Item<W::In>>,
    input: VecDeque<Entry<W::In>>,
    /// Input that was left behind when the run was asked to stop. Dropped without the lock.
    unwanted: VecDeque<Entry<W::In>>,
    arrived: u64,
    ended: Option<Result<(), Stop>>,
    /// The sequence number of the first slot.
    head: u64,
    /// Bytes of finished items whose turn has not come.
    waiting_bytes: u64,
    slots: VecDeque<Slot<W::Out>>,
    ready: VecDeque<Item<W::Out>>,
    /// How many workers there shall be.
    pub(super) workers: usize,
    /// How far ahead of the oldest unfinished item others may run; `None` is out of order.
    pub(super) window: Option<u64>,
    /// How many workers there are: more than there shall be, until some have finished their calls.
    pub(super) hired: usize,
    /// The places of workers that have left.
    free: BTreeSet<usize>,
    pub(super) idle: Vec<usize>,
    pub(super) states: Vec<Option<Kept<W>>>,
    /// Items in each worker's hand, 0 if it does not work.
    pub(super) hands: Vec<usize>,
    running: usize,
    pub(super) resting: Vec<Resting<W>>,
    fault: Option<(u64, Fault)>,
    watches: Vec<Watch>,
    late: HashSet<u64>,
    limiter: Option<Limiter>,
    limited_until: Option<Instant>,
    mean_ns: f64,
    mean_bytes: f64,
    loop_waits_for_room: bool,
    loop_waits_for_input: bool,
    loop_waits_for_memory: bool,
    memory: Option<Memory>,
    meter: Arc<Meter>,
}

/// What was left on the floor when the stage closed; dropped without the lock.
pub(super) struct Left<W: Work> {
    pub(super) count: usize,
    _input: VecDeque<Entry<W::In>>,
    _unwanted: VecDeque<Entry<W::In>>,
    _slots: VecDeque<Slot<W::Out>>,
    _ready: VecDeque<Item<W::Out>>,
    _hands: Vec<Hand<W>>,
}

type Started<W> = Vec<(usize, Option<Kept<W>>, Hand<W>)>;

impl<W: Work> Floor<W> {
    pub(super) fn new(
        tap: Tap<W::In>,
        feed: Feed<W::Out>,
        workers: usize,
        window: Option<u64>,
        rate: Option<&Rate>,
        memory: Option<Memory>,
        meter: Arc<Meter>,
    ) -> Self {
        Floor {
            tap,
            feed,
            arriving: VecDeque::new(),
            input: VecDeque::new(),
            unwanted: VecDeque::new(),
            arrived: 0,
            ended: None,
            head: 0,
            waiting_bytes: 0,
            slots: VecDeque::new(),
            ready: VecDeque::new(),
            workers,
            window,
            hired: workers,
            free: BTreeSet::new(),
            idle: (0..workers).rev().collect(),
            states: (0..workers).map(|_| None).collect(),
            hands: vec![0; workers],
            running: 0,
            resting: Vec::new(),
            fault: None,
            watches: Vec::new(),
            late: HashSet::new(),
            limiter: rate.map(|rate| Limiter::new(rate, Instant::now())),
            limited_until: None,
            mean_ns: 0.0,
            mean_bytes: 0.0,
            loop_waits_for_room: false,
            loop_waits_for_input: false,
            loop_waits_for_memory: false,
            memory,
            meter,
        }
    }

    /// `worker` comes back to the desk.
    pub(super) fn leave(&mut self, worker: usize, wage: &Wage, now: Instant) {
        self.running -= 1;
        self.hands[worker] = 0;
        if !self.watches.is_empty() {
            self.watches.retain(|watch| watch.worker != worker);
        }
        if wage.calls > 0 {
            let mean = wage.ns as f64 / wage.calls as f64;
            let weight = if self.mean_ns == 0.0 { 1.0 } else { 0.25 };
            self.mean_ns += (mean.max(1.0) - self.mean_ns) * weight;
            let bytes = wage.bytes as f64 / wage.calls as f64;
            self.mean_bytes += (bytes - self.mean_bytes) * weight;
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.paid(wage.bytes, now);
        }
    }

    /// Takes what became of the item `seq`; gives it back if it was given up before.
    pub(super) fn put(&mut self, seq: u64, done: Done<W::Out>) -> Option<Done<W::Out>> {
        if !self.late.is_empty() && self.late.remove(&seq) {
            return Some(done);
        }
        self.settle(seq, done)
    }

    /// The item `seq` has become `done`.
    pub(super) fn settle(&mut self, seq: u64, done: Done<W::Out>) -> Option<Done<W::Out>> {
        self.learn(match &done {
            Done::One(item) => Some(item.bytes),
            _ => None,
        });
        if self.window.is_none() {
            match done {
                Done::One(item) => {
                    self.keep(item.bytes);
                    self.ready.push_back(item);
                }
                Done::Nothing => _ = self.meter.filtered.fetch_add(1, Relaxed),
                Done::Skipped => _ = self.meter.skipped.fetch_add(1, Relaxed),
                Done::Fault(fault) if self.fault.is_none() => self.fault = Some((seq, fault)),
                // One failure is told.
                Done::Fault(_) => _ = self.meter.abandoned.fetch_add(1, Relaxed),
            }
            return None;
        }
        let Some(slot) = seq.checked_sub(self.head).and_then(|i| self.slots.get_mut(i as usize))
        else {
            return Some(done);
        };
        slot.done = true;
        match done {
            Done::One(item) => {
                self.waiting_bytes += item.bytes;
                let bytes = item.bytes;
                slot.items.push_back(item);
                self.keep(bytes);
            }
            Done::Nothing => _ = self.meter.filtered.fetch_add(1, Relaxed),
            Done::Skipped => _ = self.meter.skipped.fetch_add(1, Relaxed),
            Done::Fault(fault) => {
                slot.fault = Some(fault.clone());
                if self.fault.as_ref().is_none_or(|(at, _)| seq < *at) {
                    self.fault = Some((seq, fault));
                }
            }
        }
        None
    }

    /// Takes some of the items of a call that yields many.
    pub(super) fn add(&mut self, seq: u64, items: &mut VecDeque<Item<W::Out>>) {
        let bytes = items.iter().map(|item| item.bytes).sum::<u64>();
        if let Some(largest) = items.iter().map(|item| item.bytes).max() {
            self.learn(Some(largest));
        }
        if self.window.is_none() {
            self.ready.append(items);
        } else if let Some(slot) = self.slots.get_mut((seq - self.head) as usize) {
            self.waiting_bytes += bytes;
            slot.items.append(items);
        } else {
            return;
        }
        self.keep(bytes);
        self.balance();
    }

    /// How many items the call `id`, on the item `seq`, may make now if it yields many.
    pub(super) fn allowed(&mut self, seq: u64, id: ItemId) -> usize {
        match self.allowance(seq) {
            0 => 0,
            n => n.min(self.afforded(id)),
        }
    }

    /// The same as far as room and turn go.
    fn allowance(&self, seq: u64) -> usize {
        let first = self.window.is_none() || seq == self.head;
        if first {
            let held = if self.window.is_none() { self.workers } else { 1 };
            if self.ready.len() >= held {
                return 0;
            }
            return self.feed.core().free(self.mean_bytes as u64).clamp(1, BURST_ITEMS as usize);
        }
        // Its turn has not come: each worker may fill its share of the window.
        let share = self.window.unwrap_or(1) as usize / self.workers;
        let held = self.slots.get((seq - self.head) as usize).map_or(0, |slot| slot.items.len());
        share.max(1).saturating_sub(held)
    }

    /// Puts items that were taken and not started where they belong: another worker may have given
    /// back later ones before. The oldest unfinished item must never wait behind others.
    pub(super) fn give_back(&mut self, back: &mut VecDeque<Entry<W::In>>) {
        if back.is_empty() {
            return;
        }
        self.meter.items_in.fetch_sub(back.len() as u64, Relaxed);
        self.tap.core().charge(back.len(), back.iter().map(|entry| entry.bytes).sum());
        while let Some(entry) = back.pop_back() {
            let place = self.input.partition_point(|other| other.seq < entry.seq);
            self.input.insert(place, entry);
        }
    }

    /// Whether more will be delivered within a few microseconds of any time.
    fn calls_are_tiny(&self) -> bool {
        self.mean_ns > 0.0 && self.mean_ns < TINY_NS
    }

    /// Wakes those who wait for what was delivered.
    pub(super) fn nudge(&self) {
        if self.calls_are_tiny() {
            self.feed.core().nudge();
        }
    }

    /// Moves what is finished, in turn, towards the link as far as there is room.
    /// The caller `goes_on` if it will deliver again or nudge.
    pub(super) fn deliver(&mut self, goes_on: bool) {
        if self.window.is_some() {
            while let Some(slot) = self.slots.front_mut() {
                self.waiting_bytes -= slot.items.iter().map(|item| item.bytes).sum::<u64>();
                if slot.items.len() == 1 {
                    self.ready.extend(slot.items.pop_front());
                } else {
                    self.ready.append(&mut slot.items);
                }
                if !slot.done || slot.fault.is_some() {
                    break;
                }
                self.slots.pop_front();
                self.head += 1;
            }
        }
        let goes_on = goes_on && self.calls_are_tiny();
        let sent = self.feed.push(&mut self.ready, goes_on);
        self.hand_over(sent);
    }

    /// The calls whose time is up; what they still yield is for nobody.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let due = self.watches.extract_if(.., |watch| watch.deadline <= now);
        let due: Vec<_> = (due.map(|watch| {
            let Watch { seq, id, name, attempt, said, .. } = watch;
            Overdue { seq, fault: Fault::timeout(said).on(id, name, attempt) }
        }))
        .collect();
        self.late.extend(due.iter().map(|overdue| overdue.seq));
        due
    }

    /// Whether the worker of the item `seq` says what its failed call does to the run: not if the item
    /// was given up at its deadline. If so, it is no longer watched: an item is judged once.
    pub(super) fn claim(&mut self, seq: u64) -> bool {
        self.watches.retain(|watch| watch.seq != seq);
        !self.late.contains(&seq)
    }

    /// A worker vanished in the middle of a call.
    pub(super) fn break_down(&mut self, fault: Fault) {
        self.fault = Some((self.head, fault.clone()));
        if let Some(slot) = self.slots.front_mut() {
            slot.fault = Some(fault);
        }
    }
}
