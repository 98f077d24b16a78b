//! What a stage takes of the memory that the items of the run may take together: what its workers
//! have in hand, what they are expected to yield, and what is finished and not yet sent on.

use std::sync::Arc;
use std::time::Instant;

use super::Floor;
use crate::budget::{Account, Budget, Full, Want};
use crate::item::{ItemId, is_on_host};
use crate::site::Site;
use crate::work::Work;

/// A stage's part of the run's memory.
pub(in crate::work) struct Memory {
    budget: Arc<Budget>,
    account: Arc<Account>,
    /// Whether what comes in is in the host's memory, and so counts.
    counts_in: bool,
    /// The same of what goes out.
    counts_out: bool,
    /// What each worker has in hand and is expected to yield.
    hands: Vec<u64>,
    /// What is finished and not yet sent on.
    finished: u64,
    /// What is to be added and given back at once, so that others see no gap between the two.
    change: (u64, u64),
    /// Why nothing could start the last time.
    full: Option<Full>,
}

impl Memory {
    pub(in crate::work) fn of<W: Work>(site: &Site) -> Option<Self> {
        let (budget, account) = (site.engine.budget.clone()?, Arc::clone(site.account()?));
        let (counts_in, counts_out) = (is_on_host::<W::In>(), is_on_host::<W::Out>());
        let (hands, finished, change, full) = Default::default();
        Some(Memory { budget, account, counts_in, counts_out, hands, finished, change, full })
    }

    /// Takes what `calls` calls are expected to yield. What they have in hand, `bytes`, was counted
    /// where it waited.
    fn start(&mut self, worker: usize, calls: usize, bytes: u64, want: Want) -> bool {
        let each = if self.counts_out { self.account.expected().unwrap_or(bytes) } else { 0 };
        let yields = each.saturating_mul(calls as u64);
        if calls > 1 {
            // One at a time may still fit.
            if !self.budget.fits(&self.account, yields) {
                return false;
            }
        } else {
            self.full = self.budget.take(&self.account, yields, want).err();
            if self.full.is_some() {
                return false;
            }
        }
        if self.hands.len() <= worker {
            self.hands.resize(worker + 1, 0);
        }
        self.hands[worker] = yields + if self.counts_in { bytes } else { 0 };
        true
    }

    /// How many items a call that yields many may make before it asks again.
    fn allowance(&mut self, want: Want) -> usize {
        if !self.counts_out {
            return usize::MAX;
        }
        // Room for one item was taken when the call started.
        self.full = self.budget.take(&self.account, 0, want).err();
        match (self.full, self.account.expected()) {
            (Some(_), _) => 0,
            (None, None) => 1,
            (None, Some(each)) => {
                let more = self.budget.room(&self.account) / each.max(1);
                usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1)
            }
        }
    }
}

impl<W: Work> Floor<W> {
    /// Whether so many calls of `worker` fit into the run's memory.
    pub(super) fn affords(&mut self, worker: usize, calls: usize) -> bool {
        let is_early = self.is_early();
        let Some(memory) = &mut self.memory else {
            return true;
        };
        // What the first call yields is seen before there is another.
        let first = memory.account.expected().is_none();
        if first && (calls > 1 || self.running + self.resting.len() > 0) {
            return false;
        }
        let bytes = self.input.iter().take(calls).map(|entry| entry.bytes).sum();
        let Some(oldest) = self.input.front() else {
            return false;
        };
        let want = Want { is_early, id: oldest.id };
        memory.start(worker, calls, bytes, want)
    }

    /// Nothing waits for memory any more, unless it asks again.
    pub(super) fn ask_anew(&mut self) {
        if let Some(memory) = &mut self.memory
            && memory.full.take().is_some()
        {
            memory.budget.forget(&memory.account);
        }
    }

    /// Whether a worker waits for memory, and until when at most.
    pub(super) fn wants_memory(&self) -> Option<Full> {
        self.memory.as_ref()?.full
    }

    /// How many items the call `id` that yields many may make as far as memory goes.
    pub(super) fn afforded(&mut self, id: ItemId) -> usize {
        let is_early = self.is_early();
        let want = Want { is_early, id };
        self.memory.as_mut().map_or(usize::MAX, |memory| memory.allowance(want))
    }

    /// Whether something that the stage yielded waits to be taken.
    fn is_early(&self) -> bool {
        self.memory.is_some() && (!self.ready.is_empty() || self.feed.core().holds())
    }

    /// `worker` has put down what it had in hand, but for `bytes` that wait before the stage again.
    pub(in crate::work) fn put_down(&mut self, worker: usize, bytes: u64) {
        if let Some(memory) = &mut self.memory
            && let Some(hand) = memory.hands.get_mut(worker)
        {
            let kept = if memory.counts_in { bytes } else { 0 };
            memory.change.1 += std::mem::take(hand).saturating_sub(kept);
        }
    }

    /// Some of what `worker` has in hand waits before the stage again.
    pub(in crate::work) fn put_back(&mut self, worker: usize, bytes: u64) {
        if let Some(memory) = &mut self.memory
            && memory.counts_in
        {
            memory.hands[worker] = memory.hands[worker].saturating_sub(bytes);
        }
    }

    /// A call has yielded an item of `bytes` bytes, or none.
    pub(super) fn learn(&mut self, bytes: Option<u64>) {
        if let Some(memory) = &mut self.memory {
            memory.budget.learn(&memory.account, bytes.filter(|_| memory.counts_out).unwrap_or(0));
        }
    }

    /// Finished items of `bytes` bytes in all are kept.
    pub(super) fn keep(&mut self, bytes: u64) {
        if let Some(memory) = &mut self.memory
            && memory.counts_out
        {
            memory.finished += bytes;
            memory.change.0 += bytes;
        }
    }

    /// Finished items of `bytes` bytes in all wait in the buffer behind the stage, and count there.
    pub(super) fn hand_over(&mut self, bytes: u64) {
        if let Some(memory) = &mut self.memory
            && memory.counts_out
        {
            memory.finished -= bytes;
        }
    }

    /// Tells the budget what has changed.
    pub(in crate::work) fn balance(&mut self) {
        if let Some(memory) = &mut self.memory {
            let (more, less) = std::mem::take(&mut memory.change);
            if more > less {
                memory.budget.add(more - less);
            } else if less > 0 {
                memory.budget.give(less - more);
            }
        }
    }

    /// Tells the budget whether the stage goes on by itself, and the meter how many workers memory holds.
    pub(super) fn tell_memory(&mut self, held: usize, now: Instant) {
        let moving = self.running > 0
            || self.resting.iter().any(|resting| resting.until.is_some())
            || self.limited_until.is_some_and(|at| at > now);
        if let Some(memory) = &mut self.memory {
            memory.budget.moves(&memory.account, moving);
            self.meter.held_by_memory(Some(held as u32), now);
        }
    }

    /// Gives everything back.
    pub(super) fn close_account(&mut self) {
        self.balance();
        if let Some(memory) = &mut self.memory {
            // Of a stage that made no call nothing will be known any more.
            memory.budget.learn(&memory.account, 0);
            memory.budget.forget(&memory.account);
            memory.budget.moves(&memory.account, false);
            let hands: u64 = std::mem::take(&mut memory.hands).iter().sum();
            let held = hands + std::mem::take(&mut memory.finished);
            memory.budget.give(held);
            self.meter.held_by_memory(Some(0), Instant::now());
        }
    }
}
