//! Zarr: windows, the chunks that hold them, and their values. Reads v3 (regular chunks, sharded or
//! not, with or without consolidated metadata) and v2; writes v3.

mod aligning;
mod cache;
mod calendar;
mod chain;
mod coordinate;
mod cut;
mod cutting;
mod dataset;
mod decode;
mod disjoint;
mod error;
mod fetch;
mod index_cache;
mod keep;
mod meta;
mod nearest;
mod picks;
mod plan;
mod request;
mod shard;
mod spec;
mod unpack;
mod variable;
mod windows;
mod write;

pub(crate) use dataset::CACHE;
pub(crate) use decode::decode_as;
pub use decode::{decode, decode_normalized};
pub use error::{DecodeError, ZarrError};
pub use fetch::{Encoded, Windows, fetch};
pub(crate) use keep::find_mask;
pub use plan::{Plan, PlannedVariable, advice, mixing, plan};
pub use spec::{
    Align, Also, ByDim, Disk, Edge, Edges, Extents, Keep, Labels, Offsets, Span, Split, Tolerance,
    WindowsSpec,
};
pub(crate) use windows::label_of;
pub use windows::{Window, windows};
pub use write::{
    Codec, CodecName, Incomplete, Overlap, Ranks, Write, WriteError, WriteSpec, WriteStats,
    Written, write,
};
pub(crate) use write::{WRITE_ENTERING, can_write};
