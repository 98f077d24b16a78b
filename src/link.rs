//! A bounded channel between two stages and its two ends. The only file that names flume.
//!
//! A link is bounded in items and in bytes, whichever is reached first; one item always fits. What
//! counts is what left the sender and whose call has not started in the receiver, so items that the
//! receiver has merely taken into its hand still fill the buffer. Small items travel in bursts: a
//! sender hands over all that fits, a receiver takes all there is, and a waiting end is woken once.
//!
//! No future here owns an item: ends wait for *room* or for *arrival* and then move items without
//! awaiting. A wait that is cancelled therefore loses nothing, neither an item nor a wake-up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::fault::Fault;
use crate::fill::{Core, End, Fill};
use crate::item::{Item, ItemId};
use crate::options::Buffer;
use crate::site::{Holding, Site};
use crate::stage::{Kind, Stop};
use crate::trace::State;

/// A new link with the two ends that `from` and `to` hold.
pub(crate) fn link<T: Send + 'static>(
    bounds: Buffer,
    from: &Arc<Site>,
    to: &Arc<Site>,
) -> (Outlet<T>, Inlet<T>) {
    // A burst holds at least one item, so there are never more bursts than items.
    let (tx, rx) = flume::bounded(bounds.items);
    let now = Instant::now();
    let core = Arc::new(Core {
        bounds,
        fill: Mutex::new(Fill {
            items: 0,
            bytes: 0,
            receiver_waits: false,
            sender_waits: false,
            sender_is_due: false,
            receiver_is_due: false,
            sender_left: false,
            since: now,
            started: now,
            item_ns: 0,
            full_ns: 0,
            empty_ns: 0,
        }),
        arrived: Notify::new(),
        room: Notify::new(),
        gone: CancellationToken::new(),
        end: OnceLock::new(),
        runtime: from.engine.runtime().clone(),
    });
    let tap = Tap { rx, core: Arc::clone(&core) };
    (
        Outlet { feed: Feed { tx, core }, site: Arc::clone(from), parent: None, sent: 0 },
        Inlet { hand: VecDeque::new(), tap, site: Arc::clone(to), last: None },
    )
}

/// A burst of items on its way.
enum Burst<T> {
    One(Item<T>),
    Many(Vec<Item<T>>),
}

// ---------------------------------------------------------------------------- the sending end

/// The sending side of a link, as the engine's loop uses it: never waits.
pub(crate) struct Feed<T> {
    tx: flume::Sender<Burst<T>>,
    core: Arc<Core>,
}

impl<T> Feed<T> {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Sends as many items from the front of `queue` as fit now; says how many and their bytes.
    ///
    /// A sender that `goes_on` will send more at once, or [nudge](Core::nudge): until a quarter of
    /// the buffer is full it need not wake the receiver, which costs more than moving an item.
    pub(crate) fn push(&self, queue: &mut VecDeque<Item<T>>, goes_on: bool) -> (usize, u64) {
        if queue.is_empty() {
            return (0, 0);
        }
        let mut fill = self.core.fill.lock();
        // Asked under the lock: what is sent before the receiver leaves is seen when it does.
        if self.core.gone.is_cancelled() {
            return (0, 0);
        }
        let n = self.core.fitting(&fill, queue.iter().map(|i| i.bytes), queue.len());
        if n == 0 {
            return (0, 0);
        }
        let bytes = queue.iter().take(n).map(|i| i.bytes).sum::<u64>();
        let full = self.core.full(&fill);
        fill.advance(full, Instant::now());
        fill.items += n;
        fill.bytes += bytes;
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
        (n, bytes)
    }
}

/// The end of a link into which a stage sends.
pub struct Outlet<T> {
    feed: Feed<T>,
    site: Arc<Site>,
    parent: Option<ItemId>,
    sent: u64,
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
        // What a source holds was not read yet.
        let mut held = (self.site.meter.kind != Kind::Source).then(|| Holding::nothing(&self.site));
        loop {
            let gone = self.feed.core.gone.is_cancelled();
            let (n, bytes) = self.feed.push(queue, false);
            self.site.meter.items_out.fetch_add(n as u64, Relaxed);
            self.site.meter.bytes_out.fetch_add(bytes, Relaxed);
            if let Some(held) = &mut held {
                held.set(queue.len());
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
        Feed { tx: self.feed.tx.clone(), core: Arc::clone(&self.feed.core) }
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        self.feed.core.fill.lock().sender_left = true;
        self.feed.core.arrived.notify_one();
    }
}

// -------------------------------------------------------------------------- the receiving end

/// The receiving side of a link, as the engine's loop uses it: never waits.
pub(crate) struct Tap<T> {
    rx: flume::Receiver<Burst<T>>,
    core: Arc<Core>,
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
    hand: VecDeque<Item<T>>,
    tap: Tap<T>,
    site: Arc<Site>,
    last: Option<ItemId>,
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
        self.site.meter.items_in.fetch_add(1, Relaxed);
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
        {
            let _fill = core.fill.lock();
            core.gone.cancel();
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

impl<T> std::fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("stage", &self.site.meter.id).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inlet").field("stage", &self.site.meter.id).finish_non_exhaustive()
    }
}
