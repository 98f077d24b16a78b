//! The first items, or all but the first.

use std::marker::PhantomData;

use crate::entering::Entering;
use crate::link::{Inlet, Outlet};
use crate::source::{Groups, Index};
use crate::stage::{Stage, Stop};

/// What they say of a stream.
const COUNTS: Entering =
    Entering::Beginning("counts a stream: put it before the first stage that reads");

/// The first items, see [`take`].
#[derive(Debug)]
pub struct Take<T> {
    n: u64,
    items: PhantomData<fn(T)>,
}

/// Passes the first `n` items and then ends the flow: what comes before is stopped.
pub fn take<T>(n: u64) -> Take<T> {
    Take { n, items: PhantomData }
}

impl<T: Send + 'static> Stage for Take<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "take"
    }

    fn entering(&self) -> Entering {
        COUNTS
    }

    fn decides(&self, _: Option<&Groups>) -> String {
        format!("{} items", self.n)
    }

    async fn run(self, inlet: &mut Inlet<T>, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        for _ in 0..self.n {
            let Some(item) = inlet.recv_item().await? else { return Ok(()) };
            outlet.send_item(item).await?;
        }
        Ok(())
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let len = self.n.min(input.len());
        Ok(input.select(len, |i| i))
    }
}

/// All but the first items, see [`skip`].
#[derive(Debug)]
pub struct Skip<T> {
    n: u64,
    items: PhantomData<fn(T)>,
}

/// Leaves out the first `n` items.
pub fn skip<T>(n: u64) -> Skip<T> {
    Skip { n, items: PhantomData }
}

impl<T: Send + 'static> Stage for Skip<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "skip"
    }

    fn entering(&self) -> Entering {
        COUNTS
    }

    fn decides(&self, _: Option<&Groups>) -> String {
        format!("{} items", self.n)
    }

    async fn run(self, inlet: &mut Inlet<T>, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut left = self.n;
        while let Some(item) = inlet.recv_item().await? {
            match left.checked_sub(1) {
                Some(less) => left = less,
                None => outlet.send_item(item).await?,
            }
        }
        Ok(())
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let n = self.n;
        let len = input.len().saturating_sub(n);
        Ok(input.select(len, move |i| i + n))
    }
}
