//! What can be wrong with a Zarr store, or with what is asked of it.

use crate::nearest::nearest;
use crate::store::StoreError;

/// A Zarr store that cannot be read as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ZarrError {
    /// The store itself can't be read.
    // Not `transparent`, which would hide the store's error from those who ask for the cause.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// There is no Zarr group.
    #[error(
        "there is no Zarr group at `{0}`: neither `zarr.json` nor `.zmetadata` nor `.zgroup` was \
         found; give the folder that holds the variables"
    )]
    NoGroup(String),
    /// The URL leads to a single array.
    #[error("`{0}` is a single array: give the group that holds it, and its name as a variable")]
    IsArray(String),
    /// No variable was named.
    #[error("no variable is named: `variables` needs one at least{0}")]
    NoVariables(String),
    /// There is no such variable.
    #[error("there is no variable `{name}` in `{store}`{hint}")]
    NoVariable {
        /// The variable asked for.
        name: String,
        /// The store's URL.
        store: String,
        /// What there is instead.
        hint: String,
    },
    /// A variable's metadata can't be read.
    #[error("the metadata of `{name}` can't be read: {why}")]
    Metadata {
        /// The variable, or the file that holds the metadata.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A variable is of a kind that is not read yet.
    #[error("`{name}` can't be read: {why}")]
    Unsupported {
        /// The variable.
        name: String,
        /// What is not supported.
        why: String,
    },
    /// Two variables disagree about a dimension.
    #[error("`{dim}` has {a} entries in `{one}` and {b} in `{other}`: read them in two pipelines")]
    DimLength {
        /// The dimension.
        dim: String,
        /// A variable.
        one: String,
        /// Its length there.
        a: u64,
        /// Another variable.
        other: String,
        /// Its length there.
        b: u64,
    },
    /// The coordinates of two stores do not fit.
    #[error("`{dim}` of `{one}` and of `{other}` can't be aligned: {why}")]
    Align {
        /// The dimension.
        dim: String,
        /// The sample's store.
        one: String,
        /// The other store.
        other: String,
        /// The first coordinates that differ.
        why: String,
    },
    /// Another window of a sample can't be had.
    #[error("`also` can't have the window `{name}`: {why}")]
    Also {
        /// Its name.
        name: String,
        /// What is wrong and what would do.
        why: String,
    },
    /// Another window of a sample has a name that can't be used.
    #[error("`also` can't have a window `{0}`: give it a name of its own without `/`")]
    PartName(String),
    /// Two tensors would have the same name.
    #[error(
        "two tensors of a batch would be named `{0}`: name each variable once, and windows of `also` otherwise"
    )]
    TwoTensors(String),
    /// There is no folder for a cache on disk.
    #[error(
        "there is no folder for the cache on disk: give its `path`, or set FOREBAY_CACHE or HOME"
    )]
    NoCache,
    /// Windows can't be chosen by a mask.
    #[error("windows can't be kept by `{variable}`: {why}")]
    Keep {
        /// The mask.
        variable: String,
        /// What is wrong and what would do.
        why: String,
    },
    /// A chunk of a coordinate or of a mask can't be decoded.
    #[error("{0}")]
    Chunk(#[from] DecodeError),
    /// A window names a dimension that no variable has.
    #[error("no variable has a dimension `{dim}`{hint}")]
    NoDim {
        /// The dimension.
        dim: String,
        /// What there is instead.
        hint: String,
    },
    /// Windows of a batch come from several sources.
    #[error(
        "windows of several sources can't share a batch: make batches of each before they flow together"
    )]
    Mixed,
    /// A window does not fit.
    #[error("the window in `{dim}` {why}")]
    Window {
        /// The dimension.
        dim: String,
        /// What is wrong and what would do.
        why: String,
    },
}

/// A chunk that can't be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunk `{key}` can't be decoded: {why}")]
pub struct DecodeError {
    /// The chunk's key.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

/// ": did you mean `x`?", or what there is.
pub(super) fn hint(name: &str, known: &[String]) -> String {
    let names: Vec<_> = known.iter().map(String::as_str).collect();
    match nearest(name, &names) {
        Some(other) => format!(": did you mean `{other}`?"),
        None if known.is_empty() => String::new(),
        None => {
            let shown = known.iter().take(20).map(|name| format!("`{name}`"));
            let more = if known.len() > 20 { ", ..." } else { "" };
            format!(": there are {}{more}", shown.collect::<Vec<_>>().join(", "))
        }
    }
}
