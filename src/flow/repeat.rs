//! The same items again, for as many epochs as asked for.

use std::marker::PhantomData;

use parking_lot::Mutex;

use crate::link::{Inlet, Outlet};
use crate::source::{Groups, Index};
use crate::stage::{Stage, Stop};

/// The same items again, see [`repeat`].
#[derive(Debug)]
pub struct Repeat<T> {
    times: u64,
    items: PhantomData<fn(T)>,
}

/// Gives all items `times` times over: so many epochs. Behind a [`shuffle`](super::shuffle) each
/// epoch has an order of its own, and what was grouped before stays within its epoch.
///
/// It needs a source whose items are computed by position: a stream can't be read again.
pub fn repeat<T>(times: u64) -> Repeat<T> {
    Repeat { times, items: PhantomData }
}

impl<T: Send + 'static> Stage for Repeat<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "repeat"
    }

    fn decides(&self, _: Option<&Groups>) -> String {
        format!("{} times", self.times)
    }

    fn needs_index(&self) -> bool {
        true
    }

    async fn run(self, _: &mut Inlet<T>, _: &mut Outlet<T>) -> Result<(), Stop> {
        // The plan is refused before it comes to this.
        Err(Stop::failed("a stream can't be read again"))
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let len = input.len();
        // The epoch that was asked for last; items are asked for in order, so mostly this one.
        let now = Mutex::new((0, input.clone()));
        Ok(Index::new(len.saturating_mul(self.times), move |i| {
            let (epoch, place) = (i / len, i % len);
            let items = {
                let mut now = now.lock();
                if now.0 != epoch {
                    *now = (epoch, input.epoch(epoch));
                }
                now.1.clone()
            };
            items.get(place)
        }))
    }
}
