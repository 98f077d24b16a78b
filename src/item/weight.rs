//! How many bytes an item keeps, and what people call it. Knows the types that hold their data
//! elsewhere; for all others the weight is their size, unless the stage was told how to weigh.

use std::any::Any;

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
    let held = if let Some(v) = any.downcast_ref::<Vec<u8>>() {
        v.capacity()
    } else if let Some(v) = any.downcast_ref::<bytes::Bytes>() {
        v.len()
    } else if let Some(v) = any.downcast_ref::<String>() {
        v.capacity()
    } else if let Some(v) = any.downcast_ref::<Vec<f32>>() {
        v.capacity() * 4
    } else {
        0
    };
    (size_of::<T>() + held) as u64
}

/// What people call `value`, if its type has names.
#[inline]
pub(crate) fn label<T: 'static>(value: &T) -> Option<String> {
    let _: &dyn Any = value;
    None
}
