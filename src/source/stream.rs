//! Items of an async stream.

use std::fmt;

use futures::{Stream, StreamExt as _};

use crate::fault::{BoxError, Result};
use crate::link::Outlet;
use crate::stage::{Source, Stop};

/// A source of the items of a stream; what [`stream`] and [`try_stream`] return.
pub struct FromStream<S> {
    name: String,
    items: S,
}

/// A source of the items of `items`, polled on the run's I/O runtime.
pub fn stream<S>(
    name: impl Into<String>,
    items: S,
) -> FromStream<impl Stream<Item = Result<S::Item>> + Send + 'static>
where
    S: Stream<Item: Send + 'static> + Send + 'static,
{
    FromStream { name: name.into(), items: items.map(Ok) }
}

/// A source of the items of `items`, whose first error is the source's failure.
pub fn try_stream<S, T, E>(
    name: impl Into<String>,
    items: S,
) -> FromStream<impl Stream<Item = Result<T>> + Send + 'static>
where
    S: Stream<Item = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<BoxError> + 'static,
{
    FromStream { name: name.into(), items: items.map(|item| item.map_err(Into::into)) }
}

impl<S, T> Source for FromStream<S>
where
    S: Stream<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    type Item = T;

    fn name(&self) -> &str {
        &self.name
    }

    async fn run(self, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut items = std::pin::pin!(self.items);
        while let Some(item) = items.next().await {
            outlet.send(item.map_err(Stop::failed)?).await?;
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }
}

impl<S> fmt::Debug for FromStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromStream").field("name", &self.name).finish_non_exhaustive()
    }
}
