//! Pipelines side by side.

use crate::fault::{BoxError, Fault};
use crate::item::Item;
use crate::join::{Join, Join2, joined, joined2};
use crate::link::{Inlet, Outlet};
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::stage::Stop;

/// Pairs of the n-th items of both pipelines, until one of them ends. A pair has the id of its
/// left item.
pub fn zip<A, B>(left: Pipeline<A>, right: Pipeline<B>) -> Pipeline<(A, B)>
where
    A: Send + 'static,
    B: Send + 'static,
{
    joined2("zip", left, right, Zip)
}

/// The n-th items of all pipelines made one by `pair`, until one of them ends. It has the id of the
/// item of the first; of the options, `id` and `buffer` apply.
pub(crate) fn zip_with<T: Send + 'static>(
    pipelines: impl IntoIterator<Item = Pipeline<T>>,
    options: Options,
    pair: impl Fn(Vec<T>) -> Result<T, BoxError> + Send + 'static,
) -> Pipeline<T> {
    joined("zip", options, pipelines, ZipWith(pair))
}

struct Zip;

impl<A: Send + 'static, B: Send + 'static> Join2<A, B> for Zip {
    type Out = (A, B);

    async fn run(
        self,
        left: &mut Inlet<A>,
        right: &mut Inlet<B>,
        outlet: &mut Outlet<(A, B)>,
    ) -> Result<(), Stop> {
        while let Some(a) = left.recv_item().await? {
            let Some(b) = right.recv_item().await? else { break };
            let item = Item { id: a.id, bytes: a.bytes + b.bytes, value: (a.value, b.value) };
            outlet.send_item(item).await?;
        }
        Ok(())
    }
}

struct ZipWith<F>(F);

impl<T, F> Join<T> for ZipWith<F>
where
    T: Send + 'static,
    F: Fn(Vec<T>) -> Result<T, BoxError> + Send + 'static,
{
    async fn run(self, inlets: &mut [Inlet<T>], outlet: &mut Outlet<T>) -> Result<(), Stop> {
        loop {
            let (mut first, mut values) = (None, Vec::with_capacity(inlets.len()));
            for inlet in inlets.iter_mut() {
                let Some(item) = inlet.recv_item().await? else { return Ok(()) };
                first.get_or_insert(item.id);
                values.push(item.value);
            }
            let Some(id) = first else { return Ok(()) };
            let paired = (self.0)(values);
            let value =
                paired.map_err(|error| Stop::Failed(Fault::error(error).on(id, None, 1)))?;
            outlet.send_item(Item::new(id, value)).await?;
        }
    }
}
