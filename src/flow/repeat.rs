//! The same items again, for as many epochs as asked for.

use std::marker::PhantomData;

use crate::link::{Inlet, Outlet};
use crate::source::Index;
use crate::stage::{Stage, Stop};

/// The same items again, see [`repeat`].
#[derive(Debug)]
pub struct Repeat<T> {
    times: u64,
    items: PhantomData<fn(T)>,
}

/// Gives all items `times` times over. It needs a source whose items are computed by position: a
/// stream can't be read again.
pub fn repeat<T>(times: u64) -> Repeat<T> {
    Repeat { times, items: PhantomData }
}

impl<T: Send + 'static> Stage for Repeat<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "repeat"
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
        Ok(input.select(len.saturating_mul(self.times), move |i| i % len))
    }
}
