//! Where items come from.

mod chosen;
mod groups;
mod index;
mod iter;
mod stream;

pub use groups::{GroupOrder, Groups};
pub use index::{Index, Indexed, index, list};
pub use iter::{Iter, iter, try_iter};
pub use stream::{FromStream, stream, try_stream};
