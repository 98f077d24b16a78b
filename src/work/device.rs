//! Calls on a device. Each worker is a lane: a thread of its own, on which its state is made and
//! all its calls run.

use super::calls::With;
use super::{Staged, Work};
use crate::fault::{BoxError, Result};
use crate::stage::{Kind, Worker};

/// A stage that makes one item of each.
pub fn map<In, Out, F, E>(name: impl Into<String>, f: F) -> Staged<impl Work<In = In, Out = Out>>
where
    In: Send + 'static,
    Out: Send + 'static,
    F: Fn(In) -> Result<Out, E> + Send + Sync + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().map(name, move |(), _, item| f(item))
}

/// A stage that passes the items for which `f` says true.
pub fn filter<T, F, E>(name: impl Into<String>, f: F) -> Staged<impl Work<In = T, Out = T>>
where
    T: Send + 'static,
    F: Fn(&T) -> Result<bool, E> + Send + Sync + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().filter(name, move |(), _, item| f(item))
}

/// A stage that makes many items of each, as there is room for them.
pub fn flat_map<In, Out, F, Many, E, E2>(
    name: impl Into<String>,
    f: F,
) -> Staged<impl Work<In = In, Out = Out>>
where
    In: Send + 'static,
    Out: Send + 'static,
    F: Fn(In) -> Result<Many, E> + Send + Sync + 'static,
    Many: IntoIterator<Item = Result<Out, E2>, IntoIter: Send + 'static>,
    E: Into<BoxError> + 'static,
    E2: Into<BoxError> + 'static,
{
    stateless().flat_map(name, move |(), _, item| f(item))
}

/// A stage that ends the flow: `f` takes each item and nothing goes on.
pub fn for_each<In, F, E>(name: impl Into<String>, f: F) -> Staged<impl Work<In = In, Out = ()>>
where
    In: Send + 'static,
    F: Fn(In) -> Result<(), E> + Send + Sync + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().for_each(name, move |(), _, item| f(item))
}

/// A device stage whose lanes each have a state, made by `start` on the lane's thread: a stream, a
/// loaded kernel.
pub fn with<S, E>(start: impl Fn(&Worker) -> Result<S, E> + Send + Sync + 'static) -> With<S>
where
    S: Send + 'static,
    E: Into<BoxError>,
{
    With::new(Kind::Device, start)
}

fn stateless() -> With<()> {
    with(|_| Ok::<_, BoxError>(()))
}
