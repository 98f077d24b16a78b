//! The share of one rank.

use std::marker::PhantomData;

use crate::link::{Inlet, Outlet};
use crate::source::{Groups, Index};
use crate::stage::{Stage, Stop};

/// What happens to items that do not divide among the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Uneven {
    /// The last few items are left out, fewer than there are ranks.
    #[default]
    Drop,
    /// The last ranks get the first items of all once more, fewer than there are ranks.
    Pad,
    /// Every item goes to one rank: the first ranks get one more than the others. For what ranks do not do
    /// in step, such as evaluation.
    Keep,
}

impl Uneven {
    /// How many of `all` items the rank `rank` of `world` gets.
    pub(crate) fn share(self, all: u64, rank: u64, world: u64) -> u64 {
        match self {
            Uneven::Keep => all / world + u64::from(rank < all % world),
            Uneven::Drop => all / world,
            Uneven::Pad => all.div_ceil(world),
        }
    }

    /// The first of those.
    pub(crate) fn start(self, all: u64, rank: u64, world: u64) -> u64 {
        let of_others = rank * self.share(all, rank, world);
        match self {
            // Those before it have one more each, as far as that goes.
            Uneven::Keep if rank >= all % world => of_others + all % world,
            _ => of_others,
        }
    }
}

/// The share of one rank, see [`shard`].
#[derive(Debug)]
pub struct Shard<T> {
    rank: u64,
    world: u64,
    uneven: Uneven,
    items: PhantomData<fn(T)>,
}

/// The items of the rank `rank` of `world`. Every rank gets equally many, whatever there are
/// (unless [`Uneven::Keep`] is said), so that none waits for another at the end of an epoch. Behind a shuffle with the same seed on every
/// rank the shares are random and disjoint; each is a run of neighbours in that order, so that ranks
/// do not read each other's chunks.
///
/// It needs a source whose items are computed by position.
///
/// # Panics
/// If `rank` is not below `world`.
pub fn shard<T>(rank: u64, world: u64) -> Shard<T> {
    assert!(rank < world, "the ranks of a world of {world} are 0 to {}", world.saturating_sub(1));
    Shard { rank, world, uneven: Uneven::Drop, items: PhantomData }
}

impl<T> Shard<T> {
    /// What happens to items that do not divide among the ranks.
    pub fn uneven(self, uneven: Uneven) -> Self {
        Shard { uneven, ..self }
    }
}

impl<T: Send + 'static> Stage for Shard<T> {
    type In = T;
    type Out = T;

    fn name(&self) -> &str {
        "shard"
    }

    fn decides(&self, _: Option<&Groups>) -> String {
        let Shard { rank, world, uneven, .. } = self;
        format!("rank {rank} of {world}, uneven {uneven:?}").to_lowercase()
    }

    fn needs_index(&self) -> bool {
        true
    }

    async fn run(self, _: &mut Inlet<T>, _: &mut Outlet<T>) -> Result<(), Stop> {
        // The plan is refused before it comes to this.
        Err(Stop::failed("a stream can't be shared out among ranks"))
    }

    fn index(self, input: Index<T>) -> Result<Index<T>, (Self, Index<T>)> {
        let all = input.len();
        let share = self.uneven.share(all, self.rank, self.world);
        let start = self.uneven.start(all, self.rank, self.world);
        Ok(input.select(share, move |i| (start + i) % all))
    }
}
