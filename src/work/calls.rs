//! Calls that run on a thread, shared by the kinds cpu and device: a plain function on one item,
//! with a state that the worker keeps.

use std::marker::PhantomData;

use super::{Call, Finish, Staged, Work, Yield};
use crate::fault::{BoxError, Result};
use crate::stage::{Kind, Worker};

type Start<S> = Box<dyn Fn(&Worker) -> Result<S> + Send + Sync>;
type Ready = Box<dyn Fn() -> Result<()> + Send + Sync>;
type End<S> = Box<dyn Fn(S, Finish) + Send + Sync>;

/// How the workers of a cpu or device stage are made: see [`cpu::with`](crate::cpu::with) and
/// [`device::with`](crate::device::with).
pub struct With<S> {
    kind: Kind,
    ready: Option<Ready>,
    start: Start<S>,
    end: Option<End<S>>,
}

impl<S: Send + 'static> With<S> {
    pub(crate) fn new<E: Into<BoxError>>(
        kind: Kind,
        start: impl Fn(&Worker) -> Result<S, E> + Send + Sync + 'static,
    ) -> Self {
        let start = Box::new(move |worker: &Worker| start(worker).map_err(Into::into));
        With { kind, ready: None, start, end: None }
    }

    /// `ready` is asked once, before the run reads anything: what can be known to fail fails there.
    pub fn ready(self, ready: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        With { ready: Some(Box::new(ready)), ..self }
    }

    /// `finish` takes each worker's state back. It always runs, with the reason.
    pub fn finish(self, finish: impl Fn(S, Finish) + Send + Sync + 'static) -> Self {
        With { end: Some(Box::new(finish)), ..self }
    }

    /// A stage that makes one item of each.
    pub fn map<In, Out, F, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(&mut S, &Call<'_>, In) -> Result<Out, E> + Send + Sync + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state: &mut S, call: &Call<'_>, item| {
            match f(state, call, item) {
                Ok(out) => Ok(Yield::<_, Nothing<Out>>::One(out)),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A stage that passes the items for which `f` says true.
    pub fn filter<T, F, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = T, Out = T>>
    where
        T: Send + 'static,
        F: Fn(&mut S, &Call<'_>, &T) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state: &mut S, call: &Call<'_>, item| {
            match f(state, call, &item) {
                Ok(true) => Ok(Yield::<_, Nothing<T>>::One(item)),
                Ok(false) => Ok(Yield::Nothing),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A stage that makes many items of each. What `f` gives is iterated as there is room for the
    /// items, and they leave in its order.
    pub fn flat_map<In, Out, F, Many, E, E2>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        F: Fn(&mut S, &Call<'_>, In) -> Result<Many, E> + Send + Sync + 'static,
        Many: IntoIterator<Item = Result<Out, E2>, IntoIter: Send + 'static>,
        E: Into<BoxError> + 'static,
        E2: Into<BoxError> + 'static,
    {
        self.stage(name, true, move |state: &mut S, call: &Call<'_>, item| {
            match f(state, call, item) {
                Ok(many) => Ok(Yield::Many(many.into_iter().map(|item| item.map_err(Into::into)))),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A stage that ends the flow: `f` takes each item and nothing goes on.
    pub fn for_each<In, F, E>(
        self,
        name: impl Into<String>,
        f: F,
    ) -> Staged<impl Work<In = In, Out = ()>>
    where
        In: Send + 'static,
        F: Fn(&mut S, &Call<'_>, In) -> Result<(), E> + Send + Sync + 'static,
        E: Into<BoxError> + 'static,
    {
        self.stage(name, false, move |state: &mut S, call: &Call<'_>, item| {
            match f(state, call, item) {
                Ok(()) => Ok(Yield::<(), Nothing<()>>::Nothing),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn stage<In, Out, Rest, F>(
        self,
        name: impl Into<String>,
        many: bool,
        call: F,
    ) -> Staged<impl Work<In = In, Out = Out>>
    where
        In: Send + 'static,
        Out: Send + 'static,
        Rest: Iterator<Item = Result<Out>> + Send + 'static,
        F: Fn(&mut S, &Call<'_>, In) -> Result<Yield<Out, Rest>> + Send + Sync + 'static,
    {
        Staged::new(name, Calls { with: self, many, call, types: PhantomData })
    }
}

/// The rest of a call that never yields many.
type Nothing<Out> = std::iter::Empty<Result<Out>>;

struct Calls<S, F, In, Out> {
    with: With<S>,
    many: bool,
    call: F,
    types: PhantomData<fn(In) -> Out>,
}

impl<S, F, In, Out, Rest> Work for Calls<S, F, In, Out>
where
    S: Send + 'static,
    In: Send + 'static,
    Out: Send + 'static,
    Rest: Iterator<Item = Result<Out>> + Send + 'static,
    F: Fn(&mut S, &Call<'_>, In) -> Result<Yield<Out, Rest>> + Send + Sync + 'static,
{
    type In = In;
    type Out = Out;
    type State = S;
    type Rest = Rest;

    fn kind(&self) -> Kind {
        self.with.kind
    }

    fn ready(&self) -> Result<()> {
        self.with.ready.as_ref().map_or(Ok(()), |ready| ready())
    }

    async fn start(&self, worker: &Worker) -> Result<S> {
        (self.with.start)(worker)
    }

    async fn call(&self, state: &mut S, call: &Call<'_>, item: In) -> Result<Yield<Out, Rest>> {
        (self.call)(state, call, item)
    }

    async fn more(&self, _: &mut S, rest: &mut Rest) -> Result<Option<Out>> {
        rest.next().transpose()
    }

    fn finish(&self, state: S, reason: Finish) {
        if let Some(end) = &self.with.end {
            end(state, reason);
        }
    }

    fn yields_many(&self) -> bool {
        self.many
    }
}

impl<S> std::fmt::Debug for With<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("With").field("kind", &self.kind).finish_non_exhaustive()
    }
}
