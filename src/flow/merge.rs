//! Several pipelines in one: as items come, in turn, or one after the other.

use std::future::poll_fn;
use std::task::Poll;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::entering::Entering;
use crate::item::Item;
use crate::join::{Join, SEVERAL, joined};
use crate::link::{Inlet, Outlet};
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::stage::Stop;

/// The items of all `pipelines` as they come, in no order between pipelines.
pub fn merge<T: Send + 'static>(pipelines: impl IntoIterator<Item = Pipeline<T>>) -> Pipeline<T> {
    together(Together::Arrival, pipelines, Options::default())
}

/// One item of each pipeline in turn. Those that end drop out; the order is the same every time.
pub fn interleave<T: Send + 'static>(
    pipelines: impl IntoIterator<Item = Pipeline<T>>,
) -> Pipeline<T> {
    together(Together::Turns, pipelines, Options::default())
}

/// All items of the first pipeline, then all of the next. They all run from the start: what comes
/// early waits in its buffers.
pub fn concat<T: Send + 'static>(pipelines: impl IntoIterator<Item = Pipeline<T>>) -> Pipeline<T> {
    together(Together::Sequence, pipelines, Options::default())
}

/// In which order the items of several pipelines come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Together {
    /// As they come.
    #[default]
    Arrival,
    /// One of each in turn.
    Turns,
    /// All of the first, then all of the next.
    Sequence,
}

impl Together {
    /// Where a run can go on behind it.
    pub(crate) const fn entering(self) -> Entering {
        match self {
            Together::Arrival => Entering::Never(
                "takes items as they come: let it take turns (`order: turns`, `flow::interleave`)",
            ),
            Together::Turns | Together::Sequence => SEVERAL,
        }
    }
}

/// The items of all `pipelines` in the order `how`; of the options, `id` and `buffer` apply.
pub(crate) fn together<T: Send + 'static>(
    how: Together,
    pipelines: impl IntoIterator<Item = Pipeline<T>>,
    options: Options,
) -> Pipeline<T> {
    match how {
        Together::Arrival => joined("merge", options, pipelines, Merge),
        Together::Turns => joined("interleave", options, pipelines, Interleave),
        Together::Sequence => joined("concat", options, pipelines, Concat),
    }
}

struct Merge;
struct Interleave;
struct Concat;

impl<T: Send + 'static> Join<T> for Merge {
    const ENTERING: Entering = Together::Arrival.entering();

    async fn run(self, inlets: &mut [Inlet<T>], outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut open: Vec<usize> = (0..inlets.len()).collect();
        let mut turn = 0;
        while !open.is_empty() {
            turn += 1;
            let (place, item) = any(inlets, &open, turn).await;
            match item? {
                Some(item) => outlet.send_item(item).await?,
                None => _ = open.remove(place),
            }
        }
        Ok(())
    }
}

impl<T: Send + 'static> Join<T> for Interleave {
    async fn run(self, inlets: &mut [Inlet<T>], outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut open: Vec<usize> = (0..inlets.len()).collect();
        while !open.is_empty() {
            let mut place = 0;
            while let Some(&branch) = open.get(place) {
                match inlets[branch].recv_item().await? {
                    Some(item) => {
                        outlet.send_item(of_branch(item, branch)).await?;
                        place += 1;
                    }
                    None => _ = open.remove(place),
                }
            }
        }
        Ok(())
    }
}

impl<T: Send + 'static> Join<T> for Concat {
    async fn run(self, inlets: &mut [Inlet<T>], outlet: &mut Outlet<T>) -> Result<(), Stop> {
        for (branch, inlet) in inlets.iter_mut().enumerate() {
            while let Some(item) = inlet.recv_item().await? {
                outlet.send_item(of_branch(item, branch)).await?;
            }
        }
        Ok(())
    }
}

/// Items of different branches must not share an id.
fn of_branch<T>(item: Item<T>, branch: usize) -> Item<T> {
    Item { id: item.id.child(branch as u64), ..item }
}

/// The next item of any open inlet, beginning the search at `turn` so that none is left out.
async fn any<T: Send + 'static>(
    inlets: &mut [Inlet<T>],
    open: &[usize],
    turn: usize,
) -> (usize, Result<Option<Item<T>>, Stop>) {
    // The waits are kept from poll to poll: one that was dropped after its wake-up came would take
    // the wake-up with it.
    let mut waits: Vec<_> = inlets
        .iter_mut()
        .enumerate()
        .filter(|(branch, _)| open.contains(branch))
        .map(|(branch, inlet)| (branch, Box::pin(inlet.recv_item())))
        .collect();
    poll_fn(|context| {
        for place in (0..waits.len()).map(|i| (i + turn) % open.len()) {
            let (branch, wait) = &mut waits[place];
            if let Poll::Ready(item) = wait.as_mut().poll(context) {
                let item = item.map(|item| item.map(|item| of_branch(item, *branch)));
                return Poll::Ready((place, item));
            }
        }
        Poll::Pending
    })
    .await
}
