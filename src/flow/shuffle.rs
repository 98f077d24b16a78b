//! Random order from a seed.

use std::marker::PhantomData;

use super::permutation::Permutation;
use crate::entering::Entering;
use crate::item::mix;
use crate::link::{Inlet, Outlet};
use crate::site::Holding;
use crate::source::{GroupOrder, Groups, Index};
use crate::stage::{Stage, Stop};

/// Items of a stream that wait to be drawn, unless said otherwise.
const BUFFER: usize = 1024;

/// Random order, see [`shuffle`].
#[derive(Debug)]
pub struct Shuffle<T> {
    seed: u64,
    buffer: usize,
    how: How,
    items: PhantomData<fn(T)>,
}

/// How items that are computed by position are put in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Full,
    Groups(Option<u64>),
    Blocks(u64),
}

/// Puts items in a random order that depends on `seed` and their order alone.
///
/// Over a source that is computed by position the whole of it is permuted, at no cost. Elsewhere
/// up to [`buffer`](Shuffle::buffer) items wait and one of them is drawn for each that comes.
/// Behind it [`repeat`](super::repeat) gives each epoch an order of its own.
pub fn shuffle<T>(seed: u64) -> Shuffle<T> {
    Shuffle { seed, buffer: BUFFER, how: How::Full, items: PhantomData }
}

impl<T> Shuffle<T> {
    /// How many items of a stream wait to be drawn: the more, the better they are mixed.
    ///
    /// # Panics
    /// If `items` is 0.
    pub fn buffer(self, items: usize) -> Self {
        assert!(items > 0, "one item at least waits to be drawn");
        Shuffle { buffer: items, ..self }
    }

    /// Keeps items together that are cut from the same chunks, so that each chunk is read once:
    /// chunks come in random order, `mixed` at a time (`None`: as many as the source's cache
    /// holds), and the items of those in random order.
    ///
    /// It takes the windows themselves: what comes before it must not choose among them.
    ///
    /// A batch of `b` items then comes from `mixed * (1 - (1 - 1/mixed)^b)` chunks in the mean,
    /// chosen at random from all; with all of them mixed it is a full shuffle.
    pub fn by_chunks(self, mixed: Option<u64>) -> Self {
        Shuffle { how: How::Groups(mixed), ..self }
    }

    /// Permutes blocks of `items` neighbours, and the items within each block.
    ///
    /// # Panics
    /// If `items` is 0.
    pub fn by_blocks(self, items: u64) -> Self {
        assert!(items > 0, "a block has one item at least");
        Shuffle { how: How::Blocks(items), ..self }
    }
}

impl<T: Send + 'static> Stage for Shuffle<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "shuffle"
    }

    fn entering(&self) -> Entering {
        Entering::Beginning("mixes a stream: put it before the first stage that reads")
    }

    fn decides(&self, groups: Option<&Groups>) -> String {
        let how = match (self.how, groups) {
            (How::Full, _) if self.buffer == BUFFER => String::new(),
            (How::Full, _) => format!(", buffer {}", self.buffer),
            (How::Blocks(items), _) => format!(", blocks of {items}"),
            (How::Groups(mixed), Some(groups)) => {
                let mixed = mixed.unwrap_or(groups.mixed());
                format!(", {mixed} of {} groups at a time", groups.count())
            }
            (How::Groups(_), None) => ", by groups".to_owned(),
        };
        format!("seed {}{how}", self.seed)
    }

    fn needs_groups(&self) -> bool {
        matches!(self.how, How::Groups(_))
    }

    async fn run(self, inlet: &mut Inlet<T>, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut waiting = Vec::with_capacity(self.buffer.min(BUFFER));
        let mut drawn = 0;
        let mut draw = |n: usize| {
            drawn += 1;
            (mix(self.seed, drawn) % n as u64) as usize
        };
        let mut holding = Holding::nothing::<T>(outlet.site());
        let mut bytes = 0;
        while let Some(item) = inlet.recv_item().await? {
            bytes += item.bytes;
            waiting.push(item);
            holding.set(waiting.len().min(self.buffer), bytes);
            if waiting.len() > self.buffer {
                let item = waiting.swap_remove(draw(waiting.len()));
                bytes -= item.bytes;
                holding.set(waiting.len(), bytes);
                outlet.send_item(item).await?;
            }
        }
        while !waiting.is_empty() {
            let item = waiting.swap_remove(draw(waiting.len()));
            bytes -= item.bytes;
            holding.set(waiting.len(), bytes);
            outlet.send_item(item).await?;
        }
        Ok(())
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let Shuffle { seed, how, .. } = self;
        Ok(input.each_epoch(move |epoch, items| {
            // The first epoch's order is that of the seed itself.
            let seed = if epoch == 0 { seed } else { mix(seed, epoch) };
            shuffled(items, how, seed)
        }))
    }
}

fn shuffled<T: 'static>(items: Index<T>, how: How, seed: u64) -> Index<T> {
    let len = items.len();
    let order = match how {
        // With one item to a group there is nothing to keep together.
        How::Groups(mixed) => items
            .groups()
            .filter(|groups| groups.count() < len)
            .map(|groups| GroupOrder::new(groups, mixed.unwrap_or(groups.mixed()), seed)),
        How::Blocks(block) => Some(GroupOrder::new(&Groups::new([(len, block)]), 1, seed)),
        How::Full => None,
    };
    match order {
        Some(order) => items.select(len, move |i| order.get(i)),
        None => {
            let order = Permutation::new(len, seed);
            items.select(len, move |i| order.get(i))
        }
    }
}
