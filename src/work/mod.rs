//! One call on one item, and where it runs: the trait that a kind implements, and THE loop that
//! drives every kind.
//!
//! The loop of a stage is one task. It waits for input, room, a pause to end or a worker to come
//! to rest, and then lets the [`Desk`] hand out what can start. Workers take their next items from
//! the desk themselves, so a busy stage runs without the loop. Only the loop waits on links; a
//! worker only computes, or awaits its own call.
//!
//! # What a stage holds
//!
//! With `W` workers, a buffer of `B` items behind it and a consumer that has stopped, a stage whose
//! items finish in order starts exactly `B + W` calls more than were taken from it: `B` results
//! wait in the buffer and each worker holds one. In general a stage never holds more than
//! `workers + reorder window + buffer` items. What it has not started stays in the buffer before it.

mod calls;
mod cpu_clock;
mod crew;
mod desk;
mod floor;
mod generator;
mod kept;
mod place;
mod rate;
mod rules;
mod staged;
mod worker;

pub mod cpu;
pub(crate) mod device;
pub mod io;

use std::future::Future;
use std::sync::Arc;

pub use calls::With;
pub(crate) use crew::Crew;
pub(crate) use desk::Desk;
pub(crate) use place::{Place, block_on, wait_for};
pub use staged::Staged;

use crate::fault::BoxError;
use crate::item::ItemId;
use crate::link::{Inlet, Outlet};
use crate::stage::{Kind, Stop, Worker};

/// What a kind of stage does with one item. Knows nothing of links or of other items.
pub trait Work: Send + Sync + 'static {
    /// What a call takes.
    type In: Send + 'static;
    /// What a call yields.
    type Out: Send + 'static;
    /// What a worker keeps from call to call.
    type State: Send + 'static;
    /// What is left of a call that yields many items.
    type Rest: Send + 'static;

    /// Where calls run.
    fn kind(&self) -> Kind;

    /// Asked once, before the run reads anything: see [`Stage::ready`](crate::stage::Stage::ready).
    ///
    /// # Errors
    /// The stage can't begin.
    fn ready(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes a worker's state before its first call, and again after a panic.
    fn start(&self, worker: &Worker) -> impl Future<Output = Result<Self::State, BoxError>> + Send;

    /// One call on one item.
    fn call(
        &self,
        state: &mut Self::State,
        call: &Call<'_>,
        item: Self::In,
    ) -> impl Future<Output = Result<Yield<Self::Out, Self::Rest>, BoxError>> + Send;

    /// The next item of a call that yields many; `None` once there are no more.
    fn more(
        &self,
        state: &mut Self::State,
        rest: &mut Self::Rest,
    ) -> impl Future<Output = Result<Option<Self::Out>, BoxError>> + Send;

    /// Takes a worker's state back. Always runs, once for every state made.
    fn finish(&self, state: Self::State, reason: Finish);

    /// Whether a call can yield many items.
    fn yields_many(&self) -> bool {
        false
    }
}

/// What one call yields.
#[derive(Debug)]
pub enum Yield<Out, Rest> {
    /// One item.
    One(Out),
    /// None: it was filtered out, or the stage ends the flow.
    Nothing,
    /// Many, one after the other, as there is room for them.
    Many(Rest),
}

/// What a call can know beside its item.
#[derive(Debug)]
pub struct Call<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) id: ItemId,
    pub(crate) attempt: u32,
}

impl Call<'_> {
    /// The worker that makes the call.
    pub fn worker(&self) -> &Worker {
        self.worker
    }

    /// The item's id.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// Which call on this item it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The stage's input ended, or it has fewer workers from now on.
    Finished,
    /// The run stopped early, or nobody wanted more items.
    Cancelled,
    /// The stage failed, or this worker's call panicked.
    Failed,
}

/// THE loop: drives the calls of one stage until its input ends.
pub(crate) async fn drive<W: Work>(
    staged: Staged<W>,
    inlet: &mut Inlet<W::In>,
    outlet: &mut Outlet<W::Out>,
) -> Result<(), Stop> {
    let place = Place::new(staged.work.kind(), outlet.site())
        .map_err(|error| Stop::failed(format!("could not start its workers: {error}")))?;
    if !staged.work.yields_many() {
        let site = outlet.site();
        site.engine.accounted(&site.meter, inlet.tap().core());
    }
    let desk = Desk::new(staged, place, inlet, outlet);
    desk.enlist();
    let (arriving, leaving) = (inlet.tap(), Arc::clone(outlet.core()));
    // Whatever ends this future, even being dropped, closes the desk.
    let open = desk::Open::new(&desk);
    let mut stopping = false;
    let result = loop {
        // Whatever is ready at once: those who cancel this future get their turn.
        tokio::task::coop::consume_budget().await;
        if leaving.gone().is_cancelled() {
            break Err(Stop::Downstream);
        }
        let view = desk.step();
        if let Some(result) = view.finished {
            break result;
        }
        tokio::select! {
            () = desk.changed() => {}
            () = arriving.arrival(), if view.wants_input => {}
            () = leaving.room(view.wants_room.unwrap_or(0)), if view.wants_room.is_some() => {}
            () = arriving.core().unwanted(), if !stopping => stopping = true,
            () = desk.memory_freed(), if view.wants_memory => {}
            () = sleep_until(view.timer), if view.timer.is_some() => {}
        }
    };
    let reason = match result {
        Ok(()) => Finish::Finished,
        Err(Stop::Failed(_) | Stop::Upstream(_)) => Finish::Failed,
        Err(Stop::Downstream | Stop::Cancelled) => Finish::Cancelled,
    };
    open.close(reason);
    desk.finished().await;
    result
}

async fn sleep_until(at: Option<std::time::Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at.into()).await;
    }
}
