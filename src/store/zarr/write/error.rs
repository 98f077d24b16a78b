//! What can be wrong with what is to be written.

use crate::store::StoreError;
use crate::store::zarr::ZarrError;

/// Batches that cannot be written as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store can't be written or read.
    // Not `transparent`, which would hide the store's error from those who ask for the cause.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The source's metadata or coordinates can't be read.
    #[error("{0}")]
    Source(#[from] ZarrError),
    /// Nothing can be written there.
    #[error(
        "nothing can be written to `{store}`: {why}; write to a path, file://, memory://, s3://, gs:// \
         or az://"
    )]
    ReadOnly {
        /// The store's URL.
        store: String,
        /// Why.
        why: String,
    },
    /// An argument can't be meant.
    #[error("{0}")]
    Argument(String),
    /// A tensor can't be written.
    #[error("the tensor `{tensor}` can't be written: {why}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// What is wrong and what would do.
        why: String,
    },
    /// There is something else already.
    #[error(
        "`{name}` is in `{store}` already, with {what} {there} instead of {here}: give a store of its \
         own, or the same settings to go on with what was begun"
    )]
    Exists {
        /// The array.
        name: String,
        /// The store's URL.
        store: String,
        /// What differs.
        what: String,
        /// What there is.
        there: String,
        /// What would be written.
        here: String,
    },
    /// Batches of another source.
    #[error(
        "a batch comes from another source than the first one: write each source in a pipeline of its \
         own"
    )]
    OtherSource,
    /// Too many chunks wait for windows.
    #[error(
        "{chunks} chunks wait for windows, and one more is more than the {memory} bytes that they may \
         take: {why}"
    )]
    Memory {
        /// Chunks that wait.
        chunks: u64,
        /// Bytes that they may take.
        memory: u64,
        /// What would do.
        why: String,
    },
    /// Two ranks would write one chunk.
    #[error("two ranks would write the chunk `{chunk}`: {why}")]
    Shared {
        /// The chunk's key.
        chunk: String,
        /// Which windows, and what would do.
        why: String,
    },
    /// Windows did not come.
    #[error(
        "{chunks} chunks are not written, because windows that belong to them did not come, such as \
         {missing} of the {windows} of `{chunk}`: let all windows through, or write `incomplete: write` \
         to write them with the fill value for what is missing"
    )]
    Incomplete {
        /// Chunks that are not written.
        chunks: u64,
        /// The key of one of them.
        chunk: String,
        /// Its windows that did not come.
        missing: u64,
        /// Windows that touch it.
        windows: u64,
    },
    /// A chunk can't be encoded.
    #[error("the chunk `{chunk}` can't be encoded: {why}")]
    Encode {
        /// The chunk's key.
        chunk: String,
        /// Why.
        why: String,
    },
}
