//! Calls that compute. They run on the stage's own pool of threads; data-parallel work inside a
//! call (rayon's iterators) runs on that pool too.

use super::calls::With;
use super::{Staged, Work};
use crate::fault::{BoxError, Result};
use crate::stage::{Kind, Worker};

/// A stage that makes one item of each.
///
/// ```
/// use forebay::prelude::*;
///
/// fn parse(text: &str) -> Result<u32, std::num::ParseIntError> {
///     text.parse()
/// }
///
/// let run = Pipeline::from(source::iter("texts", ["1", "2", "x"]))
///     .then(cpu::map("parse", parse))
///     .run()?;
/// let items: Vec<_> = run.collect();
/// let fault = items[2].as_ref().unwrap_err();
/// assert_eq!(
///     fault.to_string(),
///     "stage `parse` failed on item 2: invalid digit found in string"
/// );
/// assert!(fault.downcast_ref::<std::num::ParseIntError>().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// A stage that makes many items of each. What `f` gives is iterated as there is room for the
/// items, and they leave in its order.
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

/// A cpu stage whose workers each have a state, made by `start` before the worker's first call:
/// a scratch buffer, a random generator, a model.
///
/// ```
/// use forebay::prelude::*;
///
/// let stage = cpu::with(|_worker: &Worker| Ok::<_, Never>(Vec::<u64>::new()))
///     .finish(|seen, reason| {
///         assert!(!seen.is_empty());
///         assert_eq!(reason, Finish::Finished);
///     })
///     .map("remember", |seen, call, x: u64| {
///         seen.push(call.id().position());
///         Ok::<_, Never>(x)
///     });
/// Pipeline::from(source::iter("numbers", 0..9_u64)).then(stage.workers(1)).run()?.drain()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with<S, E>(start: impl Fn(&Worker) -> Result<S, E> + Send + Sync + 'static) -> With<S>
where
    S: Send + 'static,
    E: Into<BoxError>,
{
    With::new(Kind::Cpu, start)
}

fn stateless() -> With<()> {
    with(|_| Ok::<_, BoxError>(()))
}
