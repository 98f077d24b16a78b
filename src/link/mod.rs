//! A bounded channel between two stages and its two ends. The only module that names flume.
//!
//! A link is bounded in items and in bytes, whichever is reached first; one item always fits. What
//! counts is what left the sender and whose call has not started in the receiver, so items that the
//! receiver has merely taken into its hand still fill the buffer. Small items travel in bursts: a
//! sender hands over all that fits, a receiver takes all there is, and a waiting end is woken once.
//!
//! No future here owns an item: ends wait for *room* or for *arrival* and then move items without
//! awaiting. A wait that is cancelled therefore loses nothing, neither an item nor a wake-up.

mod fill;
mod inlet;
mod outlet;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use fill::{Core, End};
pub use inlet::Inlet;
pub(crate) use inlet::{Arrival, Tap};
pub(crate) use outlet::Feed;
pub use outlet::Outlet;

use crate::item::{Item, is_on_host};
use crate::options::Buffer;
use crate::site::Site;
use fill::Fill;

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
            passed: 0,
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
        stop: from.by_position.then(|| from.engine.stop.clone()),
        budget: from.engine.budget.clone().filter(|_| is_on_host::<T>()),
    });
    let feed = Feed { tx, core: Arc::clone(&core), meter: Arc::clone(&from.meter) };
    let tap = Tap { rx, core };
    (
        Outlet { feed, site: Arc::clone(from), parent: None, sent: 0 },
        Inlet { hand: VecDeque::new(), tap, site: Arc::clone(to), last: None },
    )
}

/// A burst of items on its way.
enum Burst<T> {
    One(Item<T>),
    Many(Vec<Item<T>>),
}
