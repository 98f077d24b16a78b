//! A stage made of calls, as it is declared: the work, its name and its options.

use std::fmt;
use std::time::Duration;

use super::{Work, drive};
use crate::entering::Entering;
use crate::fault::BoxError;
use crate::link::{Inlet, Outlet};
use crate::options::{Buffer, OnError, Options, Ordered, Rate, Retry, Workers};
use crate::stage::{Kind, Stage, Stop};

/// How a copy of an item is made for another try.
pub(crate) type Copy<In> = fn(&In) -> In;
pub(crate) type Weigh<Out> = Box<dyn Fn(&Out) -> u64 + Send + Sync>;

/// A stage made of calls on single items: what [`io::map`](crate::io::map) and its siblings
/// return. Its methods say how it runs.
pub struct Staged<W: Work> {
    name: String,
    pub(crate) work: W,
    options: Options,
    pub(crate) copy: Option<Copy<W::In>>,
    pub(crate) weigh: Option<Weigh<W::Out>>,
}

impl<W: Work> Staged<W> {
    /// The stage `name`, whose calls are `work`.
    pub fn new(name: impl Into<String>, work: W) -> Self {
        Staged { name: name.into(), work, options: Options::default(), copy: None, weigh: None }
    }

    fn set(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Its id in errors and reports, if not its name.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.set(|o| o.id = Some(id.into()))
    }

    /// How many items are worked on at once.
    pub fn workers(self, workers: impl Into<Workers>) -> Self {
        self.set(|o| o.workers = Some(workers.into()))
    }

    /// How much finished output may wait behind it.
    pub fn buffer(self, buffer: impl Into<Buffer>) -> Self {
        self.set(|o| o.buffer = Some(buffer.into()))
    }

    /// Items leave in the order in which they came, and others may run `items` ahead of the
    /// oldest unfinished one.
    pub fn window(self, items: usize) -> Self {
        self.set(|o| o.ordered = Some(Ordered::Window(Some(items))))
    }

    /// Whether items leave in the order in which they came: `true`, `false`, or with a window.
    pub fn ordered(self, ordered: impl Into<Ordered>) -> Self {
        let ordered = ordered.into();
        self.set(|o| o.ordered = Some(ordered))
    }

    /// Items leave as they finish.
    pub fn unordered(self) -> Self {
        self.ordered(false)
    }

    /// How long one call may take. The clock covers the call alone, never a wait for room. A call
    /// that takes longer counts as failed: it is retried, skipped or fails the run, as said.
    ///
    /// An io call is dropped when its time is up. A cpu or device call cannot be interrupted: its
    /// item is given up, its worker is free again when the call returns.
    pub fn timeout(self, limit: Duration) -> Self {
        self.set(|o| o.timeout = Some(limit))
    }

    /// How long all calls on an item may take, from the start of the first, with the pauses between them.
    /// A call is given up at that time as at its timeout, and none is made again behind it.
    pub fn deadline(self, limit: Duration) -> Self {
        self.set(|o| o.deadline = Some(limit))
    }

    /// How fast calls may start.
    pub fn rate(self, rate: Rate) -> Self {
        self.set(|o| o.rate = Some(rate))
    }

    /// What an item that failed for good does to the run.
    pub fn on_error(self, on_error: OnError) -> Self {
        self.set(|o| o.on_error = Some(on_error))
    }

    /// How many bytes an item that it yields keeps, for types that hold data elsewhere.
    pub fn weigh(mut self, bytes: impl Fn(&W::Out) -> u64 + Send + Sync + 'static) -> Self {
        self.weigh = Some(Box::new(bytes));
        self
    }

    /// All options at once.
    pub fn options(mut self, options: Options) -> Self {
        self.options = self.options.overridden_by(options);
        self
    }

    /// Items can be given to a call again, so that options from elsewhere may ask for `retry`.
    pub fn retryable(mut self) -> Self
    where
        W::In: Clone,
    {
        self.copy = Some(W::In::clone);
        self
    }

    /// Failed calls are made again with a copy of the item.
    pub fn retry(self, retry: Retry) -> Self
    where
        W::In: Clone,
    {
        self.retryable().set(|o| o.retry = Some(retry))
    }
}

impl<W: Work> Stage for Staged<W> {
    type In = W::In;
    type Out = W::Out;

    fn name(&self) -> &str {
        &self.name
    }

    async fn run(self, inlet: &mut Inlet<W::In>, outlet: &mut Outlet<W::Out>) -> Result<(), Stop> {
        drive(self, inlet, outlet).await
    }

    fn kind(&self) -> Kind {
        self.work.kind()
    }

    fn ready(&self) -> Result<(), BoxError> {
        self.work.ready()
    }

    fn options(&self) -> Options {
        self.options.clone()
    }

    fn makes_calls(&self) -> bool {
        true
    }

    fn can_retry(&self) -> bool {
        self.copy.is_some()
    }

    fn entering(&self) -> Entering {
        if self.work.yields_many() { Entering::Many } else { Entering::One }
    }
}

impl<W: Work> fmt::Debug for Staged<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("name", &self.name)
            .field("kind", &self.work.kind())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
