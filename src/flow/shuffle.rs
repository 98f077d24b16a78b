//! Random order from a seed.

use std::marker::PhantomData;

use super::permutation::Permutation;
use crate::item::mix;
use crate::link::{Inlet, Outlet};
use crate::site::Holding;
use crate::source::Index;
use crate::stage::{Stage, Stop};

/// Items of a stream that wait to be drawn, unless said otherwise.
const BUFFER: usize = 1024;

/// Random order, see [`shuffle`].
#[derive(Debug)]
pub struct Shuffle<T> {
    seed: u64,
    buffer: usize,
    items: PhantomData<fn(T)>,
}

/// Puts items in a random order that depends on `seed` and their order alone.
///
/// Over a source that is computed by position the whole of it is permuted, at no cost. Elsewhere
/// up to [`buffer`](Shuffle::buffer) items wait and one of them is drawn for each that comes.
pub fn shuffle<T>(seed: u64) -> Shuffle<T> {
    Shuffle { seed, buffer: BUFFER, items: PhantomData }
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
}

impl<T: Send + 'static> Stage for Shuffle<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "shuffle"
    }

    async fn run(self, inlet: &mut Inlet<T>, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut waiting = Vec::with_capacity(self.buffer.min(BUFFER));
        let mut drawn = 0;
        let mut draw = |n: usize| {
            drawn += 1;
            (mix(self.seed, drawn) % n as u64) as usize
        };
        let mut holding = Holding::nothing(outlet.site());
        while let Some(item) = inlet.recv_item().await? {
            waiting.push(item);
            holding.set(waiting.len().min(self.buffer));
            if waiting.len() > self.buffer {
                let item = waiting.swap_remove(draw(waiting.len()));
                outlet.send_item(item).await?;
            }
        }
        while !waiting.is_empty() {
            let item = waiting.swap_remove(draw(waiting.len()));
            holding.set(waiting.len());
            outlet.send_item(item).await?;
        }
        Ok(())
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let order = Permutation::new(input.len(), self.seed);
        Ok(input.clone().select(input.len(), move |i| order.get(i)))
    }
}
