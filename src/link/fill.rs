//! How full a link is, who waits at it, and how it ended: what its two ends share beside the channel.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::fault::Fault;
use crate::options::Buffer;
use crate::trace::BufferStats;

/// One that waits for room or for items is woken no later than this after there are some.
const WAKE_DELAY: Duration = Duration::from_millis(1);

/// How the sending end of a link came to its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Everything owed was sent.
    Done,
    /// A stage at or before the sender failed, after the items sent so far.
    Fault(Fault),
    /// The run was cancelled.
    Cancelled,
}

/// What both ends share beside the channel: the bounds, who waits, and how it ended.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) bounds: Buffer,
    pub(crate) fill: Mutex<Fill>,
    pub(crate) arrived: Notify,
    pub(crate) room: Notify,
    pub(crate) gone: CancellationToken,
    pub(crate) end: OnceLock<End>,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Once this is cancelled, what waits here is for nobody: it can be computed again.
    pub(crate) stop: Option<CancellationToken>,
    /// Where what waits here counts, if the run's memory is bounded.
    pub(crate) budget: Option<Arc<Budget>>,
}

#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) items: usize,
    pub(crate) bytes: u64,
    /// Items that were ever sent.
    pub(crate) passed: u64,
    pub(crate) receiver_waits: bool,
    pub(crate) sender_waits: bool,
    /// A sender, or a receiver, that waits will be woken a little later.
    pub(crate) sender_is_due: bool,
    pub(crate) receiver_is_due: bool,
    pub(crate) sender_left: bool,
    pub(crate) since: Instant,
    pub(crate) started: Instant,
    pub(crate) item_ns: u128,
    pub(crate) full_ns: u64,
    pub(crate) empty_ns: u64,
}

impl Fill {
    pub(crate) fn advance(&mut self, full: bool, now: Instant) {
        let ns = now.saturating_duration_since(self.since).as_nanos() as u64;
        self.item_ns += u128::from(ns) * self.items as u128;
        if self.items == 0 {
            self.empty_ns += ns;
        } else if full {
            self.full_ns += ns;
        }
        self.since = now;
    }
}

impl Core {
    /// How many of the items whose weights follow fit at once, at least `1` if the link is empty.
    pub(crate) fn fitting(
        &self,
        fill: &Fill,
        mut weights: impl Iterator<Item = u64>,
        most: usize,
    ) -> usize {
        let (mut n, mut bytes) = (0, fill.bytes);
        while n < most && fill.items + n < self.bounds.items {
            let Some(weight) = weights.next() else { break };
            let alone = fill.items + n == 0;
            bytes = bytes.saturating_add(weight);
            if bytes > self.bounds.bytes && !alone {
                break;
            }
            n += 1;
        }
        n
    }

    pub(crate) fn full(&self, fill: &Fill) -> bool {
        fill.items >= self.bounds.items || fill.bytes >= self.bounds.bytes
    }

    /// The bound in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bounds.bytes
    }

    /// Items that fit for certain if each weighs `each` bytes.
    pub(crate) fn free(&self, each: u64) -> usize {
        let fill = self.fill.lock();
        let by_items = self.bounds.items.saturating_sub(fill.items);
        let by_bytes = self.bounds.bytes.saturating_sub(fill.bytes) / each.max(1);
        by_items.min(usize::try_from(by_bytes).unwrap_or(usize::MAX))
    }

    /// `items` items of `bytes` bytes in all were received: neither their room nor their memory is
    /// taken any more.
    pub(crate) fn release(self: &Arc<Self>, items: usize, bytes: u64) {
        self.free_room(items, bytes);
        if let Some(budget) = &self.budget {
            budget.give(bytes);
        }
    }

    /// The calls on `items` items of `bytes` bytes in all have started: their room is free again, and
    /// the receiver accounts for their memory.
    ///
    /// Waking a sender costs more than moving an item. So a sender that waits is woken once a
    /// quarter of the buffer is free, or after a millisecond if it does not come to that.
    pub(crate) fn free_room(self: &Arc<Self>, items: usize, bytes: u64) {
        if items == 0 {
            return;
        }
        let mut fill = self.fill.lock();
        let full = self.full(&fill);
        fill.advance(full, Instant::now());
        fill.items -= items;
        fill.bytes -= bytes;
        if !fill.sender_waits {
            return;
        }
        // Items that were taken back may fill it above its bound.
        let free = self.bounds.items.saturating_sub(fill.items);
        if free * 4 >= self.bounds.items {
            fill.sender_waits = false;
            drop(fill);
            self.room.notify_one();
        } else if !fill.sender_is_due {
            fill.sender_is_due = true;
            drop(fill);
            self.later(|core| {
                let mut fill = core.fill.lock();
                fill.sender_is_due = false;
                if std::mem::take(&mut fill.sender_waits) {
                    drop(fill);
                    core.room.notify_one();
                }
            });
        }
    }

    pub(crate) fn later(self: &Arc<Self>, wake: fn(&Core)) {
        let core = Arc::clone(self);
        // It ends by itself, or with the runtime.
        self.runtime.spawn(async move {
            tokio::time::sleep(WAKE_DELAY).await;
            wake(&core);
        });
    }

    /// Wakes a receiver that waits although there are items.
    pub(crate) fn nudge(&self) {
        let mut fill = self.fill.lock();
        if fill.items > 0 && std::mem::take(&mut fill.receiver_waits) {
            drop(fill);
            self.arrived.notify_one();
        }
    }

    /// So many items were taken back, with what was accounted for them: they wait again, even above
    /// the bound.
    pub(crate) fn charge(&self, items: usize, bytes: u64) {
        let mut fill = self.fill.lock();
        fill.items += items;
        fill.bytes += bytes;
    }

    /// Whether an item of `weight` bytes fits.
    pub(crate) fn has_room(&self, weight: u64) -> bool {
        let fill = self.fill.lock();
        self.fitting(&fill, std::iter::once(weight), 1) == 1
    }

    /// Waits until an item of `weight` bytes fits, or the receiver has left. Cancel-safe.
    pub(crate) async fn room(&self, weight: u64) {
        loop {
            {
                let mut fill = self.fill.lock();
                let fits = self.fitting(&fill, std::iter::once(weight), 1) == 1;
                if fits || self.gone.is_cancelled() {
                    return;
                }
                fill.sender_waits = true;
            }
            self.room.notified().await;
        }
    }

    /// Whether what waits in it is for nobody any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.stop.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Returns once what waits in it is for nobody any more. Cancel-safe.
    pub(crate) async fn unwanted(&self) {
        match &self.stop {
            Some(stop) => stop.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether anything waits in it.
    pub(crate) fn holds(&self) -> bool {
        self.fill.lock().items > 0
    }

    /// Items that were ever sent.
    pub(crate) fn passed(&self) -> u64 {
        self.fill.lock().passed
    }

    /// Cancelled once the receiver has left.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Records how the sender ended; the first word counts.
    pub(crate) fn finish(&self, end: End) {
        // The first word counts: a stage that already told its fault cannot take it back.
        self.end.get_or_init(|| end);
    }

    pub(crate) fn stats(&self, now: Instant) -> BufferStats {
        let mut fill = self.fill.lock();
        let full = self.full(&fill);
        fill.advance(full, now);
        let ns = now.saturating_duration_since(fill.started).as_nanos().max(1) as f64;
        BufferStats {
            items: fill.items,
            bytes: fill.bytes,
            items_max: self.bounds.items,
            bytes_max: self.bounds.bytes,
            items_mean: fill.item_ns as f64 / ns,
            full_share: fill.full_ns as f64 / ns,
            empty_share: fill.empty_ns as f64 / ns,
        }
    }
}
