//! The receiving end of a link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Burst;
use super::fill::{Core, End};
use crate::fault::Fault;
use crate::item::{Item, ItemId};
use crate::site::Site;
use crate::stage::Stop;
use crate::trace::State;

/// The receiving side of a link, as the engine's loop uses it: never waits.
pub(crate) struct Tap<T> {
    pub(super) rx: flume::Receiver<Burst<T>>,
    pub(super) core: Arc<Core>,
}

/// What a [`Tap`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Some,
    Nothing,
    Ended,
}

impl<T> Tap<T> {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Takes all bursts there are into `hand`. Their room stays taken until it is released.
    pub(crate) fn take(&self, hand: &mut VecDeque<Item<T>>) -> Arrival {
        // Read before the queue is: what was sent before the sender left is then surely seen.
        let left = self.core.fill.lock().sender_left;
        let before = hand.len();
        for burst in self.rx.drain() {
            match burst {
                Burst::One(item) => hand.push_back(item),
                Burst::Many(items) => hand.extend(items),
            }
        }
        match (hand.len() > before, left) {
            (true, _) => Arrival::Some,
            (false, true) => Arrival::Ended,
            (false, false) => Arrival::Nothing,
        }
    }

    /// Waits until something may have arrived or the sender has left. Cancel-safe.
    pub(crate) async fn arrival(&self) {
        loop {
            {
                let mut fill = self.core.fill.lock();
                if !self.rx.is_empty() || fill.sender_left {
                    return;
                }
                fill.receiver_waits = true;
            }
            self.core.arrived.notified().await;
        }
    }

    /// The same as a future that owns the tap.
    pub(crate) async fn arrived(self) {
        self.arrival().await;
    }

    /// How the sender ended: `Ok` if everything owed was sent.
    pub(crate) fn ending(&self) -> Result<(), Stop> {
        match self.core.end.get() {
            Some(End::Done) => Ok(()),
            Some(End::Fault(fault)) => Err(Stop::Upstream(fault.clone())),
            // A sender that vanished without a word was cancelled with the run.
            Some(End::Cancelled) | None => Err(Stop::Cancelled),
        }
    }
}

/// The end of a link from which a stage receives.
pub struct Inlet<T> {
    pub(super) hand: VecDeque<Item<T>>,
    pub(super) tap: Tap<T>,
    pub(super) site: Arc<Site>,
    pub(super) last: Option<ItemId>,
}

impl<T: Send + 'static> Inlet<T> {
    /// The next item, or `None` once the stage before has sent everything owed. Cancel-safe.
    ///
    /// # Errors
    /// [`Stop::Upstream`] when a stage before this one failed, after the items that precede the
    /// failure: return it. A fault never looks like an end.
    pub async fn recv(&mut self) -> Result<Option<T>, Stop> {
        Ok(self.recv_item().await?.map(|item| item.value))
    }

    /// The same end at the place of another stage.
    pub(crate) fn at(mut self, site: &Arc<Site>) -> Self {
        self.site = Arc::clone(site);
        self
    }

    /// The id of the item received last.
    pub fn last_id(&self) -> Option<ItemId> {
        self.last
    }

    pub(crate) async fn recv_item(&mut self) -> Result<Option<Item<T>>, Stop> {
        if self.hand.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        let item = self.hand.pop_front().expect("filled above");
        self.tap.core.release(1, item.bytes);
        self.site.meter.received(item.id);
        self.last = Some(item.id);
        self.site.lineage.set(item.id);
        Ok(Some(item))
    }

    /// Waits until an item is in the hand; `false` at the end. Cancel-safe.
    async fn fill(&mut self) -> Result<bool, Stop> {
        let mut waited = false;
        let found = loop {
            match self.tap.take(&mut self.hand) {
                Arrival::Some => break Ok(true),
                Arrival::Ended => break self.tap.ending().map(|()| false),
                Arrival::Nothing => {
                    if !std::mem::replace(&mut waited, true) {
                        self.site.meter.enter(State::Starved);
                    }
                    self.tap.arrival().await;
                }
            }
        };
        if matches!(found, Ok(true)) {
            self.site.meter.enter(State::Working);
        }
        found
    }

    /// The next item if it is there. `Err` is the end: with the reason unless all is well.
    pub(crate) fn try_recv(&mut self) -> Result<Option<Item<T>>, Option<Stop>> {
        if self.hand.is_empty() {
            match self.tap.take(&mut self.hand) {
                Arrival::Some => {}
                Arrival::Nothing => return Ok(None),
                Arrival::Ended => return Err(self.tap.ending().err()),
            }
        }
        let item = self.hand.pop_front().expect("found or filled above");
        self.tap.core.release(1, item.bytes);
        Ok(Some(item))
    }

    /// Whether the sender has left and nothing of what it sent is still to be received.
    pub(crate) fn has_ended(&self) -> bool {
        self.hand.is_empty() && self.tap.core.fill.lock().sender_left && self.tap.rx.is_empty()
    }

    /// How the stage before ended, if it has and nothing is left of what it sent.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.tap.core.end.get() {
            Some(End::Fault(fault)) => Some(fault.clone()),
            _ => None,
        }
    }

    /// Waits until something may have arrived or the sender has left. Cancel-safe.
    pub(crate) async fn arrival(&self) {
        self.tap.arrival().await;
    }

    /// The receiving side for the engine's loop, which shares it among workers.
    pub(crate) fn tap(&self) -> Tap<T> {
        Tap { rx: self.tap.rx.clone(), core: Arc::clone(&self.tap.core) }
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        let core = &self.tap.core;
        let bytes = {
            let fill = core.fill.lock();
            core.gone.cancel();
            fill.bytes
        };
        // Nothing more is sent, and what was never received is gone with this end.
        if let Some(budget) = &core.budget {
            budget.give(bytes);
        }
        core.room.notify_one();
        // A channel outlives its receiver as long as a sender does: empty it, so that every buffer
        // is back in its pool now.
        let held = self.hand.drain(..).count();
        let queued: usize = self
            .tap
            .rx
            .drain()
            .map(|burst| match burst {
                Burst::One(_) => 1,
                Burst::Many(items) => items.len(),
            })
            .sum();
        self.site.meter.abandoned.fetch_add((held + queued) as u64, Relaxed);
    }
}

impl<T> std::fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inlet").field("stage", &self.site.meter.id).finish_non_exhaustive()
    }
}
