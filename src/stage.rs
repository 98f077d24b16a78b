//! The trait everything follows from: a stage turns a flow of `In` into a flow of `Out`.
//!
//! Invariant: nothing here or in the other files of the engine (`pipeline`, `link`, `running`,
//! `fault`, `work`, `flow`) knows of Zarr, object stores, YAML or CUDA.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::entering::Entering;
use crate::fault::{BoxError, Fault};
use crate::link::{Inlet, Outlet};
use crate::options::Options;
use crate::source::{Groups, Index};
use crate::trace::{DeviceMeter, Meter};

/// Turns a flow of `In` into a flow of `Out`.
///
/// A stage is an async function from an inlet to an outlet. The engine owns both ends: it records
/// how the stage stopped before it drops them, so a fault never looks like an end.
///
/// Most stages are calls on single items and need no `impl`: see [`io`](crate::io),
/// [`cpu`](crate::cpu) and [`device`](crate::device). Implement this for stages that change how
/// many items there are or their order.
///
/// ```
/// use forebay::prelude::*;
///
/// /// Passes every second item.
/// struct EverySecond;
///
/// impl Stage for EverySecond {
///     type In = u64;
///     type Out = u64;
///
///     fn name(&self) -> &str {
///         "every_second"
///     }
///
///     async fn run(self, inlet: &mut Inlet<u64>, outlet: &mut Outlet<u64>) -> Result<(), Stop> {
///         let mut pass = true;
///         while let Some(item) = inlet.recv().await? {
///             if pass {
///                 outlet.send(item).await?;
///             }
///             pass = !pass;
///         }
///         Ok(())
///     }
/// }
///
/// let run = Pipeline::from(source::iter("numbers", 0..6)).then(EverySecond).run()?;
/// let items: Vec<u64> = run.collect::<Result<_, _>>()?;
/// assert_eq!(items, [0, 2, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage",
    label = "not a stage",
    note = "make it one: `cpu::map(\"name\", …)` if it computes, `io::map(\"name\", async …)` if it \
            waits, `device::map(\"name\", …)` for a device; its result is an `Ok` or an `Err`"
)]
pub trait Stage: Send + 'static {
    /// What comes in.
    type In: Send + 'static;
    /// What goes out.
    type Out: Send + 'static;

    /// The stage's name; its id unless the options say another.
    fn name(&self) -> &str;

    /// Runs until the inlet ends. `Ok` means that everything owed was sent; returning is stopping.
    ///
    /// The future is dropped when the run is cancelled or when nobody wants more items.
    fn run(
        self,
        inlet: &mut Inlet<Self::In>,
        outlet: &mut Outlet<Self::Out>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// The stage's kind.
    fn kind(&self) -> Kind {
        Kind::Flow
    }

    /// Asked once, before the run reads anything: what can be known to fail fails here. It may take a
    /// while, and waits on the thread that calls [`run`](crate::pipeline::Pipeline::run).
    ///
    /// # Errors
    /// The stage can't begin; then the run doesn't either.
    fn ready(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// What was said about how it runs.
    fn options(&self) -> Options {
        Options::default()
    }

    /// Whether the options about calls (`workers`, `ordered`, `retry`, `timeout`, `rate`,
    /// `on_error`) mean something to this stage.
    fn makes_calls(&self) -> bool {
        false
    }

    /// Whether items can be given to a call a second time, as `retry` needs.
    fn can_retry(&self) -> bool {
        false
    }

    /// Whether it works only where what comes in can be computed by position.
    fn needs_index(&self) -> bool {
        false
    }

    /// Whether it works only where what comes in is grouped, as windows are that are cut from the
    /// same chunks.
    fn needs_groups(&self) -> bool {
        false
    }

    /// Where a run that goes on from a [`Position`](crate::position::Position) can enter it, if it is
    /// not computed by position. Default: at the beginning only, so that all items are made again.
    fn entering(&self) -> Entering {
        Entering::Beginning("does not say how it is entered (`Stage::entering`)")
    }

    /// What decides which items it sends and in what order, for people: `seed 42`. A run can go on
    /// from another one only if this is the same. `groups` are those of what comes in, for a stage
    /// that needs them.
    fn decides(&self, groups: Option<&Groups>) -> String {
        let _ = groups;
        String::new()
    }

    /// If what comes in can be computed by position, and what goes out then can be too, the
    /// computation: the stage then costs nothing and can be entered anywhere at once.
    ///
    /// # Errors
    /// Gives both back where that is not so.
    fn index(self, input: Index<Self::In>) -> Indexed<Self, Self::In, Self::Out>
    where
        Self: Sized,
    {
        Err((self, input))
    }
}

/// The items that a stage makes of computed ones, by position; or both given back.
pub type Indexed<S, In, Out> = Result<Index<Out>, (S, Index<In>)>;

/// Where items come from.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source",
    label = "not a source",
    note = "make it one: `source::iter(\"name\", …)` of an iterator, `source::stream(\"name\", …)` of \
            a stream, `source::index(\"name\", …)` of what is computed by position"
)]
pub trait Source: Send + 'static {
    /// What it gives.
    type Item: Send + 'static;

    /// The source's name; its id unless the options say another.
    fn name(&self) -> &str;

    /// Sends all items. `Ok` means that the source has ended; returning is stopping.
    ///
    /// The future is dropped when the run stops, at any point where it waits.
    fn run(self, outlet: &mut Outlet<Self::Item>) -> impl Future<Output = Result<(), Stop>> + Send;

    /// The items by position, if they can be computed.
    ///
    /// # Errors
    /// Gives the source back where they can't.
    fn into_index(self) -> Result<Index<Self::Item>, Self>
    where
        Self: Sized,
    {
        Err(self)
    }
}

/// What a stage is to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Gives the items.
    Source,
    /// Async calls that wait: tasks on a runtime that does nothing else.
    Io,
    /// Calls that compute: threads of the stage's own pool.
    Cpu,
    /// Calls on a device: each worker is a lane, with a thread of its own.
    Device,
    /// Changes how many items there are or their order, in one task.
    Flow,
}

impl Kind {
    /// Whether its stages make calls on single items.
    pub(crate) fn makes_calls(self) -> bool {
        matches!(self, Kind::Io | Kind::Cpu | Kind::Device)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Source => "source",
            Kind::Io => "io",
            Kind::Cpu => "cpu",
            Kind::Device => "device",
            Kind::Flow => "flow",
        })
    }
}

/// Why a stage stopped before its input ended.
#[derive(Clone, Debug)]
pub enum Stop {
    /// This stage failed.
    Failed(Fault),
    /// A stage before this one failed.
    Upstream(Fault),
    /// Nobody wants more items.
    Downstream,
    /// The run was cancelled.
    Cancelled,
}

impl Stop {
    /// This stage failed with `error`. The engine adds the stage's id.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        Stop::Failed(Fault::error(error.into()))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Failed(fault) => fault.fmt(f),
            Stop::Upstream(fault) => write!(f, "stopped because {fault}"),
            Stop::Downstream => f.write_str("nobody wants more items"),
            Stop::Cancelled => f.write_str("the run was cancelled"),
        }
    }
}

impl std::error::Error for Stop {}

/// A worker of a stage, as the function that makes its state and each call see it.
#[derive(Clone)]
pub struct Worker {
    pub(crate) meter: Arc<Meter>,
    pub(crate) index: usize,
    /// Cancelled when the run ends early.
    pub(crate) cancel: CancellationToken,
}

impl Worker {
    /// The id of the worker's stage.
    pub fn stage(&self) -> &str {
        &self.meter.id
    }

    /// Which of the stage's workers it is, from 0. No two have the same at a time. It is below
    /// [`workers`](Self::workers), unless their number was changed while the run goes on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where what its lane does on a device is counted.
    pub(crate) fn device_meter(&self) -> &DeviceMeter {
        &self.meter.device
    }

    /// Whether nobody waits for the run any more: what takes long should end.
    pub fn is_ending(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// How many workers the stage has now.
    pub fn workers(&self) -> usize {
        self.meter.workers_set.load(Relaxed)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("stage", &self.stage())
            .field("index", &self.index)
            .field("workers", &self.workers())
            .finish()
    }
}
