//! Two pipelines side by side.

use crate::item::Item;
use crate::join::{Join2, joined2};
use crate::link::{Inlet, Outlet};
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
