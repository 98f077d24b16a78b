//! How many bytes an item keeps, and what people call it. Knows the types that hold their data
//! elsewhere; for all others the weight is their size, unless the stage was told how to weigh.

use std::any::{Any, TypeId};

use super::Batch;
use crate::device::DeviceBatch;
use crate::running::Claim;
use crate::store::zarr::{Encoded, Window};

/// A name that people know an item by, such as the key of a chunk.
pub trait Label {
    /// The name, made only when something is said about the item.
    fn label(&self) -> String;
}

/// The memory that `value` keeps, in bytes, as far as we know its type.
#[inline]
pub(crate) fn weight<T: 'static>(value: &T) -> u64 {
    // Every comparison is between constants once monomorphised: this costs nothing for other types.
    let any: &dyn Any = value;
    let held = if let Some(batch) = any.downcast_ref::<Batch>() {
        batch.bytes()
    } else if let Some(batch) = any.downcast_ref::<DeviceBatch>() {
        batch.bytes()
    } else if let Some(encoded) = any.downcast_ref::<Encoded>() {
        encoded.bytes()
    } else if let Some(v) = any.downcast_ref::<Vec<u8>>() {
        v.capacity() as u64
    } else if let Some(v) = any.downcast_ref::<bytes::Bytes>() {
        v.len() as u64
    } else if let Some(v) = any.downcast_ref::<String>() {
        v.capacity() as u64
    } else if let Some(v) = any.downcast_ref::<Vec<f32>>() {
        v.capacity() as u64 * 4
    } else {
        0
    };
    // The data itself where there is any, so that bytes in reports are bytes of data.
    if held > 0 { held } else { size_of::<T>() as u64 }
}

/// Whether values of this type are in memory of the host.
#[inline]
pub(crate) fn is_on_host<T: 'static>() -> bool {
    let id = TypeId::of::<T>();
    id != TypeId::of::<DeviceBatch>() && id != TypeId::of::<Vec<DeviceBatch>>()
}

/// Whether values of this type tell what they went through.
#[inline]
pub(crate) fn takes_claim<T: 'static>() -> bool {
    let id = TypeId::of::<T>();
    id == TypeId::of::<Batch>() || id == TypeId::of::<DeviceBatch>()
}

/// Lets `value` tell what it went through, if its type can.
pub(crate) fn give_claim<T: 'static>(value: &mut T, claim: Claim) {
    let any: &mut dyn Any = value;
    if let Some(batch) = any.downcast_mut::<Batch>() {
        batch.claim = Some(claim);
    } else if let Some(batch) = any.downcast_mut::<DeviceBatch>() {
        batch.claim = Some(claim);
    }
}

/// What people call `value`, if its type has names.
#[inline]
pub(crate) fn label<T: 'static>(value: &T) -> Option<String> {
    let any: &dyn Any = value;
    let label: &dyn Label = if let Some(window) = any.downcast_ref::<Window>() {
        window
    } else if let Some(windows) = any.downcast_ref::<Vec<Window>>() {
        windows
    } else if let Some(encoded) = any.downcast_ref::<Encoded>() {
        encoded
    } else {
        any.downcast_ref::<Batch>()?
    };
    Some(label.label())
}

impl Label for Batch {
    fn label(&self) -> String {
        crate::store::zarr::label_of(self.windows())
    }
}
