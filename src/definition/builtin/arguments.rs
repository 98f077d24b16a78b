//! What the built-in operators are told: their doc comments are the help of `forebay ops`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::definition::values::{DiskCache, Size};
use crate::flow::{self, Together};
use crate::item::DType;
use crate::ops::Stats;
use crate::store::zarr::{
    Also, Codec, Edges, Extents, Incomplete, Keep, Labels, Overlap, Ranks, Span, Split,
    WindowsSpec, WriteSpec,
};

/// Windows into the variables of a Zarr store, enumerated in row-major order of `window`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ZarrWindows {
    /// The store's URL: a path, file://, s3://, gs://, az://, http(s)://, memory:// or sample://.
    pub(super) store: String,
    /// Options of the store, such as `{ region: eu-west-1, skip_signature: "true" }`.
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
    /// The variables to read.
    pub(super) variables: Vec<String>,
    /// The window's extent in each dimension that is cut, such as `{ time: 2 }`.
    #[serde(default)]
    pub(super) window: Extents,
    /// How far apart windows begin. Default: the window's extent.
    #[serde(default)]
    pub(super) stride: Extents,
    /// How many entries neighbouring windows share.
    #[serde(default)]
    pub(super) overlap: Extents,
    /// More windows of each sample, by name: `{ target: { offset: { time: 2 }, window: { time: 1 } } }`.
    #[serde(default)]
    pub(super) also: BTreeMap<String, Also>,
    /// What happens where a window reaches beyond the data: `drop`, `pad`, `short` or `wrap`; or one
    /// of them by dimension, such as `{ longitude: wrap }`. Default: `drop`.
    #[serde(default)]
    pub(super) edges: Edges,
    /// The entries of a dimension that are read, by position, such as `{ time: 0..8760 }`.
    #[serde(default)]
    pub(super) range: BTreeMap<String, Span>,
    /// The entries of a dimension that are read, by coordinates, both ends included, such as
    /// `{ time: 2019-01-01..2019-12-31, latitude: -60..60 }`.
    #[serde(default)]
    pub(super) select: BTreeMap<String, Labels>,
    /// One contiguous part of a dimension: `{ by: time, train: 0.8, valid: 0.2, take: train }`.
    #[serde(default)]
    pub(super) split: Option<Split>,
    /// Keeps the windows in which a variable has values that are wanted:
    /// `{ variable: lsm, min: 0.5, share: 0.3 }`, those of which land makes 30 % or more.
    #[serde(default)]
    pub(super) keep: Option<Keep>,
    /// The type of all tensors, such as `f32` or `bf16`. Default: the type in which they are stored,
    /// or that they are unpacked to.
    #[serde(default)]
    pub(super) dtype: Option<DType>,
    /// How much of the chunks may be kept because another window that is on its way will want them,
    /// such as `2GiB`. Default: 512MiB. A chunk that is wanted once is never kept.
    #[serde(default)]
    pub(super) cache: Option<Size>,
    /// Keeps what was read on local disk, for the epochs and runs to come: `50GiB`, or
    /// `{ bytes: 50GiB, path: /scratch/chunks }`. Not used for a store on this machine.
    #[serde(default)]
    pub(super) disk: Option<DiskCache>,
}

impl ZarrWindows {
    pub(super) fn into_spec(self) -> WindowsSpec {
        WindowsSpec {
            variables: self.variables,
            window: self.window,
            stride: self.stride,
            overlap: self.overlap,
            also: self.also,
            edges: self.edges,
            range: self.range,
            select: self.select,
            split: self.split,
            keep: self.keep,
            dtype: self.dtype,
            cache: self.cache.map(|Size(bytes)| bytes),
            disk: self.disk.map(|DiskCache(disk)| disk),
        }
    }
}

/// Fetches the encoded chunks of windows, each chunk once.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ZarrFetch {}

/// Decodes chunks into a batch of tensors.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ZarrDecode {
    /// Brings each variable to mean 0 and deviation 1 on the way, which is cheaper than
    /// `tensor.normalize` behind it: `auto` (the store's attributes `mean` and `std`), or
    /// `{ t2m: { mean: 278.6, std: 21.2 } }`. Default: values stay as they are.
    #[serde(default)]
    pub(super) normalize: Option<Stats>,
}

/// Writes batches at the place of their windows into a Zarr v3 store, and passes them on. Chunks that
/// are there already stay, so that a second run goes on where the first one ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ZarrWrite {
    /// The store's URL: a path, file://, memory://, s3://, gs:// or az://. It is made if need be.
    pub(super) store: String,
    /// Options of the store, such as `{ region: eu-west-1 }`.
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
    /// The tensors that are written. Default: all of a batch.
    #[serde(default)]
    pub(super) variables: Vec<String>,
    /// For tensors that the source does not have, one of its tensors at whose place they belong, such
    /// as `{ wind: u10 }`.
    #[serde(default)]
    pub(super) like: BTreeMap<String, String>,
    /// The extents of chunks in the dimensions in which they are not the source's: `{ time: 1 }`.
    #[serde(default)]
    pub(super) chunks: Extents,
    /// `zstd`, `blosc`, `gzip` or `none`, or with a level: `{ name: zstd, level: 9 }`. Default: `zstd`.
    #[serde(default)]
    pub(super) codec: Codec,
    /// What is written where windows overlap: their `mean`, or a mean with weights that rise from a
    /// window's edge to its middle, `hann` or `triangle`. Default: `mean`.
    #[serde(default)]
    pub(super) overlap: Overlap,
    /// What happens to chunks for which windows are missing at the end: `fail`, or `write` with the fill
    /// value in their place. Default: `fail`.
    #[serde(default)]
    pub(super) incomplete: Incomplete,
    /// How much chunks may take while windows are missing, such as `2GiB`. Default: 4GiB.
    #[serde(default)]
    pub(super) memory: Option<Size>,
    /// This rank among those that write the store, as in the step `shard`: `{ rank: 0, world: 4 }`.
    #[serde(default)]
    pub(super) shard: Option<Ranks>,
}

impl ZarrWrite {
    pub(super) fn into_spec(self) -> WriteSpec {
        WriteSpec {
            variables: self.variables,
            like: self.like,
            chunks: self.chunks,
            codec: self.codec,
            overlap: self.overlap,
            incomplete: self.incomplete,
            memory: self.memory.map(|Size(bytes)| bytes),
            shard: self.shard,
        }
    }
}

/// Random order; the whole of it where items are computed by position.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Shuffle {
    /// `full`; `chunks`, which keeps windows of the same chunks together so that each chunk is read
    /// once; or for a stream how many items wait to be drawn (1024). Default: `full`.
    #[serde(default)]
    pub(super) by: ShuffleBy,
    /// With `by: chunks`, how many groups of chunks are mixed at a time. Default: as many as half
    /// of the cache holds.
    #[serde(default)]
    pub(super) groups: Option<std::num::NonZeroU64>,
    /// Permutes blocks of so many neighbours and the items within each, instead of `by`.
    #[serde(default)]
    pub(super) block: Option<std::num::NonZeroU64>,
    /// The seed. Default: a function of the run's seed and the stage's id.
    #[serde(default)]
    pub(super) seed: Option<u64>,
}

/// The share of one rank; every rank gets equally many items, unless `uneven` says `keep`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Shard {
    /// This process's rank, from 0.
    pub(super) rank: u64,
    /// How many ranks there are.
    pub(super) world: std::num::NonZeroU64,
    /// What happens to items that do not divide: `drop`, `pad`, or `keep`, with which the first ranks get
    /// one more than the others.
    #[serde(default)]
    pub(super) uneven: flow::Uneven,
}

/// Groups items; the last group is what is left.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupBy {
    /// How many items make a group.
    pub(super) size: std::num::NonZeroUsize,
    /// Whether a last group that is not full is left out.
    #[serde(default)]
    pub(super) drop_last: bool,
}

/// The first items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Take {
    /// How many.
    pub(super) items: u64,
}

/// All but the first items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Skip {
    /// How many are left out.
    pub(super) items: u64,
}

/// All items several times over; needs items that are computed by position.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Repeat {
    /// How many times.
    pub(super) times: u64,
}

/// Brings each variable to mean 0 and deviation 1.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Normalize {
    /// `auto` (the store's attributes `mean` and `std`), or `{ t2m: { mean: 278.6, std: 21.2 } }`.
    #[serde(default)]
    pub(super) stats: Stats,
}

/// Casts all variables to a type of floating point.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cast {
    /// The type: f16, bf16, f32 or f64.
    pub(super) to: DType,
}

/// Copies batches to a device. What decodes for it then takes its memory from where the device copies
/// by itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Upload {
    /// Which device: `auto` (the first GPU, or the host where there is none), `host`, `cuda:0`.
    #[serde(default = "auto")]
    pub(super) device: String,
}

fn auto() -> String {
    "auto".to_owned()
}

/// Cuts a box out of all variables.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Crop {
    /// The entries kept of a dimension, such as `{ latitude: 0..256 }`.
    pub(super) ranges: BTreeMap<String, Span>,
}

/// Turns dimensions around.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Flip {
    /// Which, such as `[latitude]`.
    pub(super) dims: Vec<String>,
}

/// Copies batches back to the host.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Download {}

/// How a shuffle mixes.
#[derive(Clone, Copy, Default)]
pub(super) enum ShuffleBy {
    #[default]
    Full,
    Chunks,
    Buffer(usize),
}

impl<'de> Deserialize<'de> for ShuffleBy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ShuffleBy;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`full`, `chunks` or a number of items")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ShuffleBy, E> {
                match text {
                    "full" => Ok(ShuffleBy::Full),
                    "chunks" => Ok(ShuffleBy::Chunks),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_u64<E: serde::de::Error>(self, items: u64) -> Result<ShuffleBy, E> {
                match usize::try_from(items) {
                    Ok(items @ 1..) => Ok(ShuffleBy::Buffer(items)),
                    _ => Err(E::custom("one item at least waits to be drawn: write 1 or more")),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for ShuffleBy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ShuffleBy".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "enum": ["full", "chunks"] }, { "type": "integer", "minimum": 1 }]
        })
    }
}

/// The items of several named sources, which must be of one kind.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Merge {
    /// The names of the sources, two at least: `merge: [era5, cmip]`.
    pub(super) sources: Vec<String>,
    /// `arrival` (as they come, in another order each time), `turns` (one of each in turn) or `sequence`
    /// (all of the first, then all of the next). Default: `arrival`.
    #[serde(default)]
    pub(super) order: Together,
}

/// The n-th batches of several named sources, made one batch with the tensors of all and the windows of
/// the first; it ends with the shortest of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Zip {
    /// The names of the sources, two at least: `zip: [radar, era5]`.
    pub(super) sources: Vec<String>,
}

/// Gives tensors other names.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rename {
    /// New names by old ones, such as `{ t2m: era5_t2m }`.
    pub(super) names: BTreeMap<String, String>,
}

/// Takes groups apart.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Unbatch {}
