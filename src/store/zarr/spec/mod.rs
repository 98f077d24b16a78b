//! Which variables are read and how they are cut into windows, as Rust code or a definition says it.

mod align;
mod by_dim;
mod entries;
mod split;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

pub use align::{Align, Tolerance};
pub use by_dim::{ByDim, Extents, Offsets};
pub use entries::{Labels, Span};
pub use split::Split;

use crate::item::DType;
use crate::store::{StoreOptions, redacted};

/// Which variables, and how they are cut into windows.
///
/// Dimensions that are not named are read whole. Windows are enumerated in row-major order of the
/// dimensions as they are written: the last one runs fastest. What does not fill a window at the
/// end of a dimension is left out, unless `edges` says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowsSpec {
    /// The variables to read, each of which becomes a tensor of the batch.
    pub variables: Vec<String>,
    /// The window's extent in each dimension that is cut, such as `{ time: 2 }`.
    #[serde(default)]
    pub window: Extents,
    /// How far apart windows begin. Default: the window's extent.
    #[serde(default)]
    pub stride: Extents,
    /// How many entries neighbouring windows share; the other way to say `stride`.
    #[serde(default)]
    pub overlap: Extents,
    /// More windows that belong to each sample, by name, such as
    /// `{ target: { offset: { time: 2 }, window: { time: 1 } } }`. Their tensors are named
    /// `target/t2m`. Only samples all of whose windows lie within the data are read.
    #[serde(default)]
    pub also: BTreeMap<String, Also>,
    /// What happens where a window reaches beyond the data: `drop` (no such window), `pad`, `short`
    /// or `wrap`, for all dimensions that are cut or by dimension. Default: `drop`.
    #[serde(default)]
    pub edges: Edges,
    /// The entries of a dimension that are read, by position, such as `{ time: 0..8760 }`: the
    /// others are as if they were not there.
    #[serde(default)]
    pub range: BTreeMap<String, Span>,
    /// The entries of a dimension that are read, by its coordinates, such as
    /// `{ time: 2019-01-01..2019-12-31, latitude: -60..60 }`, both ends included.
    #[serde(default)]
    pub select: BTreeMap<String, Labels>,
    /// One of the contiguous parts that a dimension is split into, such as
    /// `{ by: time, train: 0.8, valid: 0.2, take: train }`. No window reaches over a border.
    #[serde(default)]
    pub split: Option<Split>,
    /// Keeps the windows in which a variable has values that are wanted, such as
    /// `{ variable: lsm, min: 0.5, share: 0.3 }`: those of which land makes 30 % or more. The
    /// variable is read before the windows, which are counted without the others.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// The type of all tensors. Default: the type in which they are stored, or that they are
    /// unpacked to.
    #[serde(default)]
    pub dtype: Option<DType>,
    /// Bytes of chunks that may be kept because another window that is on its way will want them, in
    /// this epoch or the next. Default: 512 MiB. A chunk that is wanted once is never kept.
    #[serde(default)]
    pub cache: Option<u64>,
    /// Keeps what was read on local disk, for the epochs and runs to come. Not used for a store on
    /// this machine. The chunks of the store must not change while its metadata stays the same.
    #[serde(default)]
    pub disk: Option<Disk>,
}

/// A cache on local disk, which any number of processes may share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Bytes that it has at most. What was used longest ago makes room.
    pub bytes: u64,
    /// Its folder. Default: `chunks` in `$FOREBAY_CACHE`, else in `$XDG_CACHE_HOME/forebay`, else in
    /// `~/.cache/forebay`.
    #[serde(default)]
    pub path: Option<PathBuf>,
}

/// Another window of a sample.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// Its variables. Default: those of the sample.
    #[serde(default)]
    pub variables: Vec<String>,
    /// The URL of another store that they lie in. Its dimensions are aligned with those of the sample
    /// by their coordinates, and only what both have is read, unless `align` says otherwise.
    #[serde(default)]
    pub store: Option<String>,
    /// Options of that store.
    #[serde(default)]
    pub options: StoreOptions,
    /// How the entries of that store are found: `exact`, at the coordinates of the sample's store,
    /// or `nearest`: for each entry of the sample's window the one whose coordinate is nearest (of
    /// two as near the lower one). Its tensors then have the extents of the sample's, with entries
    /// of a coarser store repeated, as `sel(method="nearest")` of xarray gives them: they can be
    /// stacked with the others as channels. Default: `exact`.
    #[serde(default)]
    pub align: Align,
    /// How far away the nearest coordinate may be, by dimension: `{ time: 3h, latitude: 0.25 }`.
    /// Default: as far as neighbours in that store are from each other.
    #[serde(default)]
    pub tolerance: ByDim<Tolerance>,
    /// Its extents, where they are not those of the sample's window.
    #[serde(default)]
    pub window: Extents,
    /// How far behind the sample's window it begins, such as `{ time: 2 }`; before it, if negative.
    #[serde(default)]
    pub offset: Offsets,
}

// By hand: options may be secrets.
impl fmt::Debug for Also {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Also { variables, store, options, align, tolerance, window, offset } = self;
        f.debug_struct("Also")
            .field("variables", variables)
            .field("store", &store.as_deref().map(redacted))
            .field("options", &options.keys())
            .field("align", align)
            .field("tolerance", tolerance)
            .field("window", window)
            .field("offset", offset)
            .finish()
    }
}

/// Which windows are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The variable that decides. It has no dimensions that the windows do not have.
    pub variable: String,
    /// The least value that is wanted. Default: any; but never NaN, if there is a `min` or a `max`.
    #[serde(default)]
    pub min: Option<f64>,
    /// The largest value that is wanted.
    #[serde(default)]
    pub max: Option<f64>,
    /// The share of a window's values that must be wanted, more than 0. Default: 1, all of them.
    #[serde(default = "all")]
    pub share: f64,
}

fn all() -> f64 {
    1.0
}

/// What happens where a window reaches beyond the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// There is no such window.
    #[default]
    Drop,
    /// It is filled up with NaN, or with the fill value where there is no NaN.
    Pad,
    /// It has fewer entries, and can share a batch with others of its extents only.
    Short,
    /// It goes on at the other end, as longitudes do.
    Wrap,
}

/// What happens at the edges: one rule for all dimensions that are cut, or one by dimension, where
/// those that are not named drop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Edges {
    /// In all dimensions.
    All(Edge),
    /// By dimension.
    Each(BTreeMap<String, Edge>),
}

impl Edges {
    pub(in crate::store::zarr) fn of(&self, dim: &str) -> Edge {
        match self {
            Edges::All(edge) => *edge,
            Edges::Each(edges) => edges.get(dim).copied().unwrap_or_default(),
        }
    }

    /// The dimensions that are named.
    pub(in crate::store::zarr) fn dims(&self) -> impl Iterator<Item = &String> {
        let each = match self {
            Edges::All(_) => None,
            Edges::Each(edges) => Some(edges.keys()),
        };
        each.into_iter().flatten()
    }
}

impl Default for Edges {
    fn default() -> Self {
        Edges::All(Edge::Drop)
    }
}

impl<'de> Deserialize<'de> for Edges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Edges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("drop, pad, short or wrap, or one of them by dimension")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Edges, E> {
                Edge::deserialize(de::value::StrDeserializer::new(text)).map(Edges::All)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Edges, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                BTreeMap::deserialize(map).map(Edges::Each)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Edges {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Edges".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Edge>();
        json_schema!({ "anyOf": [one, { "type": "object", "additionalProperties": one }] })
    }
}
