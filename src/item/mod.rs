//! What flows through a pipeline: items with an identity and a weight, and the data they carry.

mod batch;
mod buffer;
mod id;
mod memory;
mod number;
mod spec;
mod tensor;
mod weight;

pub use batch::{Batch, BesideError};
pub(crate) use buffer::size_class;
pub use buffer::{Buffer, Pool, PoolStats};
pub(crate) use id::mix;
pub use id::{Fingerprint, ItemId};
pub use memory::HostMemory;
pub(crate) use number::{Number, for_type};
pub use spec::{DType, Element, OtherLength, Spec};
pub use tensor::Tensor;
pub use weight::Label;
pub(crate) use weight::{give_claim, is_on_host, label, takes_claim, weight};

/// One item under way: its value, where it came from and how much memory it keeps.
#[derive(Debug)]
pub(crate) struct Item<T> {
    pub(crate) id: ItemId,
    pub(crate) bytes: u64,
    pub(crate) value: T,
}

impl<T: 'static> Item<T> {
    pub(crate) fn new(id: ItemId, value: T) -> Self {
        let bytes = weight(&value);
        Item { id, bytes, value }
    }
}
