//! Stages that change how many items there are or their order. Each runs in one task; over a source
//! that is computed by position most of them cost nothing at all.

mod batch;
mod join;
mod merge;
mod permutation;
mod repeat;
mod shard;
mod shuffle;
mod take;
mod tee;

pub use batch::{Batch, Unbatch, batch, unbatch};
pub use join::zip;
pub(crate) use join::zip_with;
pub(crate) use merge::{Together, together};
pub use merge::{concat, interleave, merge};
pub use permutation::Permutation;
pub use repeat::{Repeat, repeat};
pub use shard::{Shard, Uneven, shard};
pub use shuffle::{Shuffle, shuffle};
pub use take::{Skip, Take, skip, take};
pub use tee::tee;

use crate::options::Ordered;
use crate::work::{Staged, Work};

/// `stage` with its output in input order, others running at most `window` items ahead: the same
/// as `stage.window(window)`. Order is the default; this is for stages that were made elsewhere.
pub fn ordered<W: Work>(stage: Staged<W>, window: usize) -> Staged<W> {
    stage.ordered(Ordered::Window(Some(window)))
}
