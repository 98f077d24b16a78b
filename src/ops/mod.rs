//! What cpu stages do to tensors.

mod cast;
mod normalize;
mod pick;

pub(crate) use cast::cast_spec;
pub use cast::{CastError, cast};
pub(crate) use normalize::not_normal;
pub use normalize::{MeanStd, NormalizeError, Stats, normalize};
pub(crate) use pick::{Pick, Picked, has_dims, picked};
pub use pick::{PickError, crop, flip};
