//! Items of an iterator, which runs on a thread of its own: its `next` may block or compute.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fault::{BoxError, Fault, Result};
use crate::item::{Item, ItemId};
use crate::link::Outlet;
use crate::stage::{Source, Stop};
use crate::work::block_on;

/// Items that come faster than this travel in bursts.
const BURST: Duration = Duration::from_micros(50);
/// Items in a burst, at most.
const BURST_ITEMS: usize = 256;

/// A source of the items of an iterator; what [`iter`] and [`try_iter`] return.
pub struct Iter<I> {
    name: String,
    items: I,
}

/// A source of the items of `items`.
pub fn iter<I>(
    name: impl Into<String>,
    items: I,
) -> Iter<impl Iterator<Item = Result<I::Item>> + Send + 'static>
where
    I: IntoIterator<IntoIter: Send + 'static, Item: Send + 'static>,
{
    Iter { name: name.into(), items: items.into_iter().map(Ok) }
}

/// A source of the items of `items`, whose first error is the source's failure.
pub fn try_iter<I, T, E>(
    name: impl Into<String>,
    items: I,
) -> Iter<impl Iterator<Item = Result<T>> + Send + 'static>
where
    I: IntoIterator<Item = Result<T, E>, IntoIter: Send + 'static>,
    T: Send + 'static,
    E: Into<BoxError>,
{
    Iter { name: name.into(), items: items.into_iter().map(|item| item.map_err(Into::into)) }
}

impl<I, T> Source for Iter<I>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    type Item = T;

    fn name(&self) -> &str {
        &self.name
    }

    /// The thread hands bursts over one at a time and waits for the answer that there is room for
    /// more, so it holds one item beside the buffer.
    async fn run(self, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let (burst_tx, mut burst_rx) = tokio::sync::mpsc::channel(1);
        let (room_tx, mut room_rx) = tokio::sync::mpsc::channel::<usize>(1);
        let site = Arc::clone(outlet.site());
        let thread = format!("forebay:{}", site.meter.id);
        let mut items = self.items;
        let body = move || {
            let mut next = 0;
            while let Some(room) = block_on(room_rx.recv()) {
                let mut burst = VecDeque::with_capacity(room);
                let pulling = AssertUnwindSafe(|| pull(&mut items, room, &mut next, &mut burst));
                // What was pulled before a panic is still delivered.
                let end = std::panic::catch_unwind(pulling)
                    .unwrap_or_else(|panic| Some(Err(Stop::Failed(Fault::panic(panic)))));
                let last = end.is_some();
                if block_on(burst_tx.send((burst, end))).is_err() || last {
                    return;
                }
            }
        };
        site.engine.spawn_thread(thread, body).map_err(Stop::failed)?;
        loop {
            let room = outlet.core().free(1).clamp(1, BURST_ITEMS);
            if room_tx.send(room).await.is_err() {
                return Err(Stop::failed("the iterator's thread is gone"));
            }
            let (mut queue, end) = burst_rx.recv().await.ok_or(Stop::Cancelled)?;
            outlet.send_all(&mut queue).await?;
            if let Some(end) = end {
                return end;
            }
        }
    }
}

/// Pulls items as long as they come fast and there is room; says how the iterator ended if it did.
fn pull<T: 'static>(
    items: &mut impl Iterator<Item = Result<T>>,
    room: usize,
    next: &mut u64,
    burst: &mut VecDeque<Item<T>>,
) -> Option<Result<(), Stop>> {
    let start = Instant::now();
    while burst.len() < room {
        match items.next() {
            Some(Ok(value)) => {
                burst.push_back(Item::new(ItemId::source(*next), value));
                *next += 1;
            }
            Some(Err(error)) => return Some(Err(Stop::failed(error))),
            None => return Some(Ok(())),
        }
        // The clock is read for the first items and then for every 16th.
        if (burst.len() < 4 || burst.len().is_multiple_of(16)) && start.elapsed() > BURST {
            break;
        }
    }
    None
}

impl<I> fmt::Debug for Iter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("name", &self.name).finish_non_exhaustive()
    }
}
