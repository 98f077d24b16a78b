//! Async calls that wait: requests, timers, locks. They run as tasks on the run's I/O runtime,
//! which does nothing else; a call that computes for long belongs in [`cpu`](crate::cpu).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};

use super::{Call, Finish, Staged, Work, Yield};
use crate::fault::{BoxError, Result};
use crate::item::ItemId;
use crate::stage::{Kind, Worker};

/// What an async call can know beside its item.
#[derive(Clone, Debug)]
pub struct Context {
    /// The worker that makes the call.
    pub worker: Worker,
    /// The item's id.
    pub id: ItemId,
    /// Which call on this item it is, from 1.
    pub attempt: u32,
}

type Items<Out> = Pin<Box<dyn Stream<Item = Result<Out>> + Send>>;
type Starting<S> = Pin<Box<dyn Future<Output = Result<S>> + Send>>;
type Start<S> = Box<dyn Fn(Worker) -> Starting<S> + Send + Sync>;
type End<S> = Box<dyn Fn(Arc<S>, Finish) + Send + Sync>;

/// A stage that makes one item of each: `f` is an async function.
///
/// ```
/// use forebay::prelude::*;
/// # async fn get(key: String) -> std::io::Result<Vec<u8>> { Ok(key.into_bytes()) }
///
/// let keys = ["a".to_owned(), "b".to_owned()];
/// let run = Pipeline::from(source::iter("keys", keys))
///     .then(io::map("get", get).workers(64).retry(Retry::times(3)))
///     .run()?;
/// assert_eq!(run.map(|bytes| bytes.map(|b| b.len())).sum::<Result<usize, _>>()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map<In, Out, F, Fut, E>(
    name: impl Into<String>,
    f: F,
) -> Staged<impl Work<In = In, Out = Out>>
where
    In: Send + 'static,
    Out: Send + 'static,
    F: Fn(In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().map(name, move |_, _, item| f(item))
}

/// A stage that passes the items for which `f`, an async function, says true.
pub fn filter<T, F, Fut, E>(name: impl Into<String>, f: F) -> Staged<impl Work<In = T, Out = T>>
where
    T: Clone + Send + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<bool, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().filter(name, move |_, _, item| f(item))
}

/// A stage that makes many items of each: `f` is an async function that gives a stream. The stream
/// is polled as there is room for its items, and they leave in its order.
pub fn flat_map<In, Out, F, Fut, Many, E, E2>(
    name: impl Into<String>,
    f: F,
) -> Staged<impl Work<In = In, Out = Out>>
where
    In: Send + 'static,
    Out: Send + 'static,
    F: Fn(In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Many, E>> + Send + 'static,
    Many: Stream<Item = Result<Out, E2>> + Send + 'static,
    E: Into<BoxError> + 'static,
    E2: Into<BoxError> + 'static,
{
    stateless().flat_map(name, move |_, _, item| f(item))
}

/// A stage that ends the flow: `f`, an async function, takes each item and nothing goes on.
pub fn for_each<In, F, Fut, E>(
    name: impl Into<String>,
    f: F,
) -> Staged<impl Work<In = In, Out = ()>>
where
    In: Send + 'static,
    F: Fn(In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    stateless().for_each(name, move |_, _, item| f(item))
}

/// How the workers of an io stage are made; see [`with`].
pub struct With<S> {
    start: Start<S>,
    end: Option<End<S>>,
}

/// An io stage whose workers each have a state, made by `start` before the worker's first call:
/// a connection, a buffer, a counter.
///
/// ```
/// use forebay::prelude::*;
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// let stage = io::with(async |_worker: Worker| Ok::<_, Never>(AtomicU64::new(0)))
///     .finish(|_calls, reason| assert_eq!(reason, Finish::Finished))
///     .map("count", async |calls: Arc<AtomicU64>, _: io::Context, x: u64| {
///         calls.fetch_add(1, Ordering::Relaxed);
///         Ok::<_, Never>(x)
///     });
/// let stats = Pipeline::from(source::iter("numbers", 0..10_u64)).then(stage).run()?.drain()?;
/// assert_eq!(stats.items, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with<S, F, Fut, E>(start: F) -> With<S>
where
    S: Send + Sync + 'static,
    F: Fn(Worker) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let start: Start<S> = Box::new(move |worker| {
        let state = start(worker);
        Box::pin(async move { state.await.map_err(Into::into) })
    });
    With { start, end: None }
}

fn stateless() -> With<()> {
    with(|_| std::future::ready(Ok::<_, BoxError>(())))
}

impl<S: Send + Sync + 'static> With<S> {
    /// `finish` takes each worker's state back. It always runs, with the reason.
    pub fn finish(self, finish: impl Fn(Arc<S>, Finish) + Send + Sync + 'static) -> Self {
        With { end: Some(Box::new(finish)), ..self }
    }

    /// Like [`map`](fn@map), with the worker's state and the call's context.
    pub fn map<In, Out, F, Fut, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(Arc<S>, Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state, context, item| {
            let call = f(state, context, item);
            async move { Ok(Yield::One(call.await.map_err(Into::into)?)) }
        })
    }

    /// Like [`filter`](fn@filter), with the worker's state and the call's context.
    pub fn filter<T, F, Fut, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = T, Out = T>>
    where
        T: Clone + Send + 'static,
        F: Fn(Arc<S>, Context, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state, context, item: T| {
            let call = f(state, context, item.clone());
            async move {
                let pass = call.await.map_err(Into::into)?;
                Ok(if pass { Yield::One(item) } else { Yield::Nothing })
            }
        })
    }

    /// Like [`flat_map`](fn@flat_map), with the worker's state and the call's context.
    pub fn flat_map<In, Out, F, Fut, Many, E, E2>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(Arc<S>, Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Many, E>> + Send + 'static,
        Many: Stream<Item = Result<Out, E2>> + Send + 'static,
        E: Into<BoxError> + 'static,
        E2: Into<BoxError> + 'static,
    {
        self.stage(name, true, move |state, context, item| {
            let call = f(state, context, item);
            async move {
                let many = call.await.map_err(Into::into)?;
                let many: Items<Out> = Box::pin(many.map(|item| item.map_err(Into::into)));
                Ok(Yield::Many(many))
            }
        })
    }

    /// Like [`for_each`](fn@for_each), with the worker's state and the call's context.
    pub fn for_each<In, F, Fut, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = ()>>
    where
        In: Send + 'static,
        F: Fn(Arc<S>, Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state, context, item| {
            let call = f(state, context, item);
            async move { call.await.map(|()| Yield::Nothing).map_err(Into::into) }
        })
    }

    fn stage<In, Out, F, Fut>(
        self,
        name: impl Into<String>,
        many: bool,
        call: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(Arc<S>, Context, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Yield<Out, Items<Out>>>> + Send + 'static,
    {
        Staged::new(name, Calls { with: self, many, call, types: PhantomData })
    }
}

struct Calls<S, F, In, Out> {
    with: With<S>,
    many: bool,
    call: F,
    types: PhantomData<fn(In) -> Out>,
}

impl<S, F, Fut, In, Out> Work for Calls<S, F, In, Out>
where
    S: Send + Sync + 'static,
    In: Send + 'static,
    Out: Send + 'static,
    F: Fn(Arc<S>, Context, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Yield<Out, Items<Out>>>> + Send + 'static,
{
    type In = In;
    type Out = Out;
    type State = Arc<S>;
    type Rest = Items<Out>;

    fn kind(&self) -> Kind {
        Kind::Io
    }

    async fn start(&self, worker: &Worker) -> Result<Arc<S>> {
        (self.with.start)(worker.clone()).await.map(Arc::new)
    }

    async fn call(
        &self,
        state: &mut Arc<S>,
        call: &Call<'_>,
        item: In,
    ) -> Result<Yield<Out, Items<Out>>> {
        let Call { worker, id, attempt } = *call;
        let context = Context { worker: worker.clone(), id, attempt };
        (self.call)(Arc::clone(state), context, item).await
    }

    async fn more(&self, _: &mut Arc<S>, rest: &mut Items<Out>) -> Result<Option<Out>> {
        rest.next().await.transpose()
    }

    fn finish(&self, state: Arc<S>, reason: Finish) {
        if let Some(end) = &self.with.end {
            end(state, reason);
        }
    }

    fn yields_many(&self) -> bool {
        self.many
    }
}

impl<S> fmt::Debug for With<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}
