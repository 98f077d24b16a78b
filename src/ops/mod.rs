//! What cpu stages do to tensors.

mod cast;
mod normalize;
mod pick;
mod rename;

pub(crate) use cast::cast_spec;
pub use cast::{CastError, cast};
pub use normalize::{MeanStd, NormalizeError, Stats, normalize};
pub(crate) use normalize::{Scale, not_normal};
pub use pick::{Pick, PickError, crop, flip};
pub(crate) use pick::{Picked, has_dims, picked};
pub(crate) use rename::renamed;
pub use rename::{RenameError, rename};
