//! What cpu stages do to tensors.

mod cast;
mod normalize;

pub use cast::{CastError, cast};
pub use normalize::{MeanStd, NormalizeError, Stats, normalize};
