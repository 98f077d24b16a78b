//! The sending end of a link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::Burst;
use super::fill::Core;
use crate::budget::{Budget, Full, Want};
use crate::item::{Item, ItemId};
use crate::site::{Holding, Site};
use crate::stage::{Kind, Stop};
use crate::trace::{Meter, State};

/// The sending side of a link, as the engine's loop uses it: never waits.
pub(crate) struct Feed<T> {
    pub(super) tx: flume::Sender<Burst<T>>,
    pub(super) core: Arc<Core>,
    /// The sender's.
    pub(super) meter: Arc<Meter>,
}

impl<T> Feed<T> {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Sends as many items from the front of `queue` as fit now; says how many bytes they have. Those
    /// were accounted for by the sender, and are by the link from now on.
    ///
    /// A sender that `goes_on` will send more at once, or [nudge](Core::nudge): until a quarter of
    /// the buffer is full it need not wake the receiver, which costs more than moving an item.
    pub(crate) fn push(&self, queue: &mut VecDeque<Item<T>>, goes_on: bool) -> u64 {
        if queue.is_empty() {
            return 0;
        }
        let mut fill = self.core.fill.lock();
        // Asked under the lock: what is sent before the receiver leaves is seen when it does.
        if self.core.gone.is_cancelled() {
            return 0;
        }
        let n = self.core.fitting(&fill, queue.iter().map(|i| i.bytes), queue.len());
        if n == 0 {
            return 0;
        }
        let now = Instant::now();
        let bytes = queue.iter().take(n).map(|i| i.bytes).sum::<u64>();
        let full = self.core.full(&fill);
        fill.advance(full, now);
        fill.items += n;
        fill.bytes += bytes;
        fill.passed += n as u64;
        self.meter.sent(queue.iter().take(n).map(|item| item.id), bytes, now);
        let burst = if n == 1 {
            Burst::One(queue.pop_front().expect("n is at most the queue's length"))
        } else if n == queue.len() {
            Burst::Many(std::mem::take(queue).into())
        } else {
            Burst::Many(queue.drain(..n).collect())
        };
        // Sent under the lock: a receiver that finds nothing and says that it waits is then surely
        // seen here. It fails only when the receiver has left, and hands the burst back.
        let refused = self.tx.try_send(burst);
        let may_wait = goes_on && fill.items * 4 < self.core.bounds.items;
        let wake = !may_wait && std::mem::take(&mut fill.receiver_waits);
        let is_due = fill.receiver_waits && !std::mem::replace(&mut fill.receiver_is_due, true);
        drop(fill);
        drop(refused);
        if wake {
            self.core.arrived.notify_one();
        } else if is_due {
            self.core.later(|core| {
                core.fill.lock().receiver_is_due = false;
                core.nudge();
            });
        }
        bytes
    }
}

/// The end of a link into which a stage sends.
pub struct Outlet<T> {
    pub(super) feed: Feed<T>,
    pub(super) site: Arc<Site>,
    pub(super) parent: Option<ItemId>,
    pub(super) sent: u64,
}

impl<T: Send + 'static> Outlet<T> {
    /// Sends one item, waiting while the buffer is full.
    ///
    /// The first item sent after a receive has the id of the item received; further ones are its
    /// children. Items of a source are numbered from 0.
    ///
    /// # Errors
    /// [`Stop::Downstream`] once nobody wants more items, [`Stop::Cancelled`] when the run is
    /// asked to stop: return it.
    ///
    /// Cancel-safe in the sense that nothing is sent twice, but a cancelled send drops its item:
    /// never put it into a `select!`.
    pub async fn send(&mut self, value: T) -> Result<(), Stop> {
        let id = self.next_id();
        self.send_item(Item::new(id, value)).await
    }

    /// The id that the next item sent will have.
    pub fn next_id(&mut self) -> ItemId {
        match self.site.lineage.last() {
            Some(parent) => {
                if self.parent != Some(parent) {
                    self.parent = Some(parent);
                    self.sent = 0;
                }
                self.sent += 1;
                if self.sent == 1 { parent } else { parent.child(self.sent - 2) }
            }
            None => {
                self.sent += 1;
                ItemId::source(self.sent - 1)
            }
        }
    }

    /// Sends an item with an id of the caller's.
    pub(crate) async fn send_item(&mut self, item: Item<T>) -> Result<(), Stop> {
        let mut one = VecDeque::with_capacity(1);
        one.push_back(item);
        self.send_all(&mut one).await
    }

    /// Sends all of `queue` in order, in bursts as large as the room allows.
    pub(crate) async fn send_all(&mut self, queue: &mut VecDeque<Item<T>>) -> Result<(), Stop> {
        let is_source = self.site.meter.kind == Kind::Source;
        if is_source && let Some(budget) = self.feed.core.budget.clone() {
            return self.send_within(queue, &budget).await;
        }
        // What a source holds was not read yet.
        let mut held = (!is_source).then(|| Holding::nothing::<T>(&self.site));
        if let (Some(held), true) = (&mut held, self.feed.core.budget.is_some()) {
            held.set(queue.len(), queue.iter().map(|item| item.bytes).sum());
        }
        loop {
            let gone = self.feed.core.gone.is_cancelled();
            let sent = self.feed.push(queue, false);
            if let Some(held) = &mut held {
                held.sent(queue.len(), sent);
            }
            let Some(next) = queue.front() else {
                return Ok(());
            };
            if gone {
                return Err(Stop::Downstream);
            }
            self.site.meter.enter(State::Blocked);
            self.feed.core.room(next.bytes).await;
            self.site.meter.enter(State::Working);
        }
    }

    /// Sends what a source gives one by one, as it fits into the memory of the run.
    async fn send_within(
        &mut self,
        queue: &mut VecDeque<Item<T>>,
        budget: &Arc<Budget>,
    ) -> Result<(), Stop> {
        let site = Arc::clone(&self.site);
        let Some(account) = site.account() else {
            return Err(Stop::failed("a source without an account of the run's memory"));
        };
        let mut one = VecDeque::with_capacity(1);
        while let Some(item) = queue.pop_front() {
            let (id, bytes) = (item.id, item.bytes);
            one.push_back(item);
            loop {
                if self.feed.core.gone.is_cancelled() {
                    return Err(Stop::Downstream);
                }
                if !self.feed.core.has_room(bytes) {
                    site.meter.enter(State::Blocked);
                    budget.moves(account, false);
                    self.feed.core.room(bytes).await;
                    continue;
                }
                let want = Want { is_early: self.feed.core.holds(), id };
                let Err(Full { again }) = budget.take(account, bytes, want) else {
                    break;
                };
                let is_early = want.is_early;
                site.meter.enter(if is_early { State::Blocked } else { State::Limit });
                site.meter.held_by_memory(Some(u32::from(!is_early)), Instant::now());
                budget.moves(account, false);
                let again = async {
                    match again {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = account.freed.notified() => {}
                    () = again => {}
                    () = self.feed.core.gone.cancelled() => {}
                }
            }
            budget.moves(account, true);
            site.meter.enter(State::Working);
            site.meter.held_by_memory(Some(0), Instant::now());
            // There was room, and nobody else sends.
            if self.feed.push(&mut one, !queue.is_empty()) < bytes {
                budget.give(bytes);
                return Err(Stop::Downstream);
            }
        }
        self.feed.core.nudge();
        Ok(())
    }

    /// Returns once nobody wants more items. Cancel-safe.
    pub async fn closed(&self) {
        self.feed.core.gone.cancelled().await;
    }

    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.feed.core
    }

    /// The sending side for the engine's loop, which shares it among workers. This end keeps the
    /// link's record but sends no more.
    pub(crate) fn feed(&self) -> Feed<T> {
        let Feed { tx, core, meter } = &self.feed;
        Feed { tx: tx.clone(), core: Arc::clone(core), meter: Arc::clone(meter) }
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        if let (Some(budget), Some(account)) = (&self.feed.core.budget, self.site.account()) {
            budget.forget(account);
            budget.moves(account, false);
        }
        self.feed.core.fill.lock().sender_left = true;
        self.feed.core.arrived.notify_one();
    }
}

impl<T> std::fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("stage", &self.site.meter.id).finish_non_exhaustive()
    }
}
