//! What may start: input is taken as far as workers, order, room and limits allow, in bursts.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{BURST_ITEMS, Floor, Resting, Slot, Started, Watch};
use crate::item::{Item, label};
use crate::link::Arrival;
use crate::stage::Kind;
use crate::work::Work;
use crate::work::generator::Generator;
use crate::work::rules::{Limit, Rules};
use crate::work::worker::{Entry, Hand};

/// Calls shorter than this travel in bursts of about this length, so that handing over and waking
/// up are paid per burst.
const BURST: Duration = Duration::from_micros(50);

impl<W: Work> Floor<W> {
    /// The next items for `worker`, if any may start.
    pub(in crate::work) fn take(
        &mut self,
        worker: usize,
        rules: &Rules,
        now: Instant,
    ) -> Option<VecDeque<Entry<W::In>>> {
        if self.input.is_empty() {
            self.pull();
        }
        if self.tap.core().is_unwanted() {
            self.leave_behind();
        }
        let front = self.input.front()?.seq;
        let stopping = match (&self.fault, self.window) {
            (Some((at, _)), Some(_)) => front > *at,
            (fault, _) => fault.is_some(),
        };
        let held = self.running + self.resting.len() + self.ready.len();
        if stopping || held >= self.workers || self.ahead(front) {
            return None;
        }
        let n = match self.burst(rules) {
            0 => return None,
            n if self.affords(worker, n) => n,
            n if n > 1 && self.affords(worker, 1) => 1,
            _ => return None,
        };
        if let Some(limiter) = &mut self.limiter {
            self.limited_until = limiter.take(now).err();
            if self.limited_until.is_some() {
                let bytes = self.input.iter().take(n).map(|entry| entry.bytes).sum();
                self.put_down(worker, bytes);
                self.balance();
                return None;
            }
        }
        let hand: VecDeque<_> = self.input.drain(..n).collect();
        if self.window.is_some() {
            let end = hand.back().map_or(0, |entry| entry.seq + 1 - self.head) as usize;
            if self.slots.len() < end {
                self.slots.resize_with(end, Slot::default);
            }
        }
        if let (Some(limit), false, Some(entry)) =
            (rules.limit(None, now), rules.kind == Kind::Io, hand.front())
        {
            self.watch(worker, entry, limit, rules, now);
        }
        self.meter.items_in.fetch_add(n as u64, Relaxed);
        self.tap.core().free_room(n, hand.iter().map(|entry| entry.bytes).sum());
        self.hands[worker] = n;
        self.running += 1;
        Some(hand)
    }

    /// Whether `seq` is too far ahead of the oldest unfinished item: by the window's length, or
    /// because those between already hold as many bytes as the buffer may.
    pub(in crate::work) fn ahead(&self, seq: u64) -> bool {
        let is_full = || seq != self.head && self.waiting_bytes >= self.feed.core().bytes_max();
        self.window.is_some_and(|window| seq >= self.head + window || is_full())
    }

    /// How many items the next burst has; 0 if others have in hand all that there is room for.
    /// Items beyond one for each worker start only if there is room behind the stage for what they
    /// yield.
    fn burst(&self, rules: &Rules) -> usize {
        let in_hand = self.hands.iter().sum::<usize>();
        let by_time = if rules.single || self.mean_ns == 0.0 {
            1
        } else {
            (BURST.as_nanos() as f64 / self.mean_ns).clamp(1.0, BURST_ITEMS) as usize
        };
        if by_time == 1 && in_hand == self.running {
            return 1;
        }
        let share = self.input.len().div_ceil(self.idle.len().max(1));
        let room = (self.workers + self.feed.core().free(self.mean_bytes as u64))
            .saturating_sub(in_hand + self.ready.len() + self.resting.len());
        // Items that others hold may be missing between those of the input.
        let in_window = self.window.map_or(usize::MAX, |window| {
            self.input.partition_point(|entry| entry.seq < self.head + window)
        });
        by_time.min(share).min(room).min(in_window).min(self.input.len())
    }

    fn watch(
        &mut self,
        worker: usize,
        entry: &Entry<W::In>,
        limit: Limit,
        rules: &Rules,
        now: Instant,
    ) {
        // A call that will be made again is judged when it returns: its thread is busy until then.
        if rules.retry.as_ref().is_some_and(|retry| entry.attempt <= retry.max) {
            return;
        }
        self.watches.push(Watch {
            worker,
            seq: entry.seq,
            id: entry.id,
            name: label(&entry.value),
            attempt: entry.attempt,
            deadline: now + limit.left,
            said: limit.said,
        });
    }

    /// The run was asked to stop, and what no call has begun can be computed again. Items that were
    /// given back stay: in order, others behind them have begun.
    fn leave_behind(&mut self) {
        let begun = self.window.map_or(0, |_| self.head + self.slots.len() as u64);
        let mut left = self.input.split_off(self.input.partition_point(|entry| entry.seq < begun));
        let bytes = left.iter().map(|entry| entry.bytes).sum();
        self.tap.core().release(left.len(), bytes);
        self.meter.abandoned.fetch_add(left.len() as u64, Relaxed);
        self.unwanted.append(&mut left);
    }

    fn pull(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if self.tap.take(&mut self.arriving) == Arrival::Ended {
            self.ended = Some(self.tap.ending());
        }
        for Item { id, bytes, value } in self.arriving.drain(..) {
            self.input.push_back(Entry {
                seq: self.arrived,
                id,
                attempt: 1,
                began: None,
                bytes,
                value,
            });
            self.arrived += 1;
        }
    }

    /// Sends rested and idle workers to work, as far as anything can start.
    pub(in crate::work) fn schedule(&mut self, rules: &Rules, now: Instant) -> Started<W> {
        let mut started = Vec::new();
        self.ask_anew();
        let mut i = 0;
        while i < self.resting.len() {
            // There are more than there shall be, and others have not come back yet.
            if self.running >= self.workers {
                break;
            }
            if self.resting[i].until.is_some_and(|until| until <= now)
                && let Some(limiter) = &mut self.limiter
                && let Err(at) = limiter.take(now)
            {
                // Another try is another call: it pays the rate like the first.
                self.resting[i].until = Some(at);
            }
            let go = match (&self.resting[i].hand, self.resting[i].until) {
                (_, Some(until)) => until <= now,
                (&Hand::More(Generator { seq, id, .. }), None) => self.allowed(seq, id) > 0,
                (Hand::Burst(_), None) => true,
            };
            if go {
                let Resting { worker, kept, hand, .. } = self.resting.swap_remove(i);
                if let Hand::Burst(burst) = &hand
                    && rules.kind != Kind::Io
                    && let Some(entry) = burst.front()
                    && let Some(limit) = rules.limit(entry.began, now)
                {
                    self.watch(worker, entry, limit, rules, now);
                }
                self.hands[worker] = 1;
                self.running += 1;
                started.push((worker, kept, hand));
            } else {
                i += 1;
            }
        }
        while let Some(&worker) = self.idle.last() {
            let Some(hand) = self.take(worker, rules, now) else {
                break;
            };
            self.idle.pop();
            started.push((worker, self.states[worker].take(), Hand::Burst(hand)));
        }
        started
    }
}
