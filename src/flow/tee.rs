//! One pipeline for several readers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::assembly::{Assembly, Build, Deferred, guarded, record};
use crate::entering::Entering;
use crate::item::Item;
use crate::link::{Inlet, Outlet};
use crate::options::Options;
use crate::pipeline::{Pipeline, node};
use crate::stage::{Kind, Stop};

/// `branches` pipelines that each yield every item of `pipeline`, which runs once. The branch that
/// lags most holds up the others, once its buffer is full; one that stops reading is left out.
///
/// The branches belong to one run: bring them together again with [`zip`](crate::flow::zip) or
/// [`merge`](crate::flow::merge).
///
/// ```
/// use forebay::prelude::*;
///
/// let numbers = Pipeline::from(source::iter("numbers", 0..4_i32));
/// let [left, right] = flow::tee(numbers, 2).try_into().expect("two branches");
/// let squares = right.then(cpu::map("square", |x: i32| Ok::<_, Never>(x * x)));
/// let pairs: Vec<_> = flow::zip(left, squares).run()?.collect::<Result<_, _>>()?;
/// assert_eq!(pairs, [(0, 0), (1, 1), (2, 4), (3, 9)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `branches` is 0.
pub fn tee<T>(pipeline: Pipeline<T>, branches: usize) -> Vec<Pipeline<T>>
where
    T: Clone + Send + 'static,
{
    assert!(branches > 0, "a tee has one branch at least");
    let mut tee = node::<T>("tee", Kind::Flow, Options::default());
    tee.entering =
        Entering::Beginning("gives items to several branches, each of which is elsewhere");
    let (build, mut nodes, problems, settings) = pipeline.into_parts();
    nodes.push(tee.clone());
    let shared = Arc::new(Mutex::new(Shared::Plan(build)));
    (0..branches)
        .map(|branch| {
            let (shared, tee) = (Arc::clone(&shared), tee.clone());
            let build: Build<T> = Box::new(move |assembly, to| {
                let mut shared = shared.lock();
                if let Shared::Plan(_) = &*shared
                    && let Shared::Plan(before) =
                        std::mem::replace(&mut *shared, Shared::Built(Vec::new()))
                {
                    let slot = Deferred::new(assembly, tee);
                    *shared = Shared::Built(build_all(assembly, before, branches, slot));
                }
                let Shared::Built(inlets) = &mut *shared else { unreachable!("built above") };
                let inlet = inlets[branch].take();
                inlet.expect("each branch is built once, for its plan is used up").at(to)
            });
            Pipeline::from_parts(build, nodes.clone(), problems.clone(), settings.clone())
        })
        .collect()
}

/// What the branches share: the plan, until the first of them is built.
enum Shared<T> {
    Plan(Build<T>),
    Built(Vec<Option<Inlet<T>>>),
}

fn build_all<T: Clone + Send + 'static>(
    assembly: &mut Assembly,
    before: Build<T>,
    branches: usize,
    slot: Deferred,
) -> Vec<Option<Inlet<T>>> {
    let mut inlet = before(assembly, &slot.site);
    let (mut outlets, inlets): (Vec<_>, Vec<_>) = (0..branches)
        .map(|_| slot.link::<T>(assembly, &slot.site))
        .map(|(outlet, inlet)| (outlet, Some(inlet)))
        .unzip();
    let site = slot.site;
    assembly.spawn(async move {
        // Each branch may leave; when the last one has, sending finds nobody.
        let never = CancellationToken::new();
        let result = guarded(&site, never, share(&mut inlet, &mut outlets)).await;
        for outlet in &outlets {
            record(&site, outlet, result.clone());
        }
    });
    inlets
}

async fn share<T: Clone + Send + 'static>(
    inlet: &mut Inlet<T>,
    outlets: &mut [Outlet<T>],
) -> Result<(), Stop> {
    while let Some(item) = inlet.recv_item().await? {
        let mut anybody = false;
        for outlet in &mut *outlets {
            let Item { id, bytes, ref value } = item;
            match outlet.send_item(Item { id, bytes, value: value.clone() }).await {
                Ok(()) => anybody = true,
                Err(Stop::Downstream) => {}
                Err(stop) => return Err(stop),
            }
        }
        if !anybody {
            return Err(Stop::Downstream);
        }
    }
    Ok(())
}
