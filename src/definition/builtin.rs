//! The built-in operators, one line each.

use std::any::TypeId;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::any::{Order, Same};
use super::catalog::Catalog;
use super::effects;
use super::flow::{Flow, Misfit};
use super::values::{DiskCache, Size};
use crate::item::{Batch, DType};
use crate::ops::{Pick, Stats};
use crate::options::Options;
use crate::stage::Kind;
use crate::store::zarr::{
    Also, Codec, Edges, Extents, Incomplete, Keep, Labels, Overlap, Ranks, Span, Split, Window,
    WindowsSpec, WriteSpec,
};
use crate::store::{Store, zarr};
use crate::{cpu, device, flow, io, ops};

/// Windows into the variables of a Zarr store, enumerated in row-major order of `window`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZarrWindows {
    /// The store's URL: a path, file://, s3://, gs://, az://, http(s)://, memory:// or sample://.
    store: String,
    /// Options of the store, such as `{ region: eu-west-1, skip_signature: "true" }`.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// The variables to read.
    variables: Vec<String>,
    /// The window's extent in each dimension that is cut, such as `{ time: 2 }`.
    #[serde(default)]
    window: Extents,
    /// How far apart windows begin. Default: the window's extent.
    #[serde(default)]
    stride: Extents,
    /// How many entries neighbouring windows share.
    #[serde(default)]
    overlap: Extents,
    /// More windows of each sample, by name: `{ target: { offset: { time: 2 }, window: { time: 1 } } }`.
    #[serde(default)]
    also: BTreeMap<String, Also>,
    /// What happens where a window reaches beyond the data: `drop`, `pad`, `short` or `wrap`; or one
    /// of them by dimension, such as `{ longitude: wrap }`. Default: `drop`.
    #[serde(default)]
    edges: Edges,
    /// The entries of a dimension that are read, by position, such as `{ time: 0..8760 }`.
    #[serde(default)]
    range: BTreeMap<String, Span>,
    /// The entries of a dimension that are read, by coordinates, both ends included, such as
    /// `{ time: 2019-01-01..2019-12-31, latitude: -60..60 }`.
    #[serde(default)]
    select: BTreeMap<String, Labels>,
    /// One contiguous part of a dimension: `{ by: time, train: 0.8, valid: 0.2, take: train }`.
    #[serde(default)]
    split: Option<Split>,
    /// Keeps the windows in which a variable has values that are wanted:
    /// `{ variable: lsm, min: 0.5, share: 0.3 }`, those of which land makes 30 % or more.
    #[serde(default)]
    keep: Option<Keep>,
    /// The type of all tensors, such as `f32` or `bf16`. Default: the type in which they are stored,
    /// or that they are unpacked to.
    #[serde(default)]
    dtype: Option<DType>,
    /// How much of the chunks may be kept because another window that is on its way will want them,
    /// such as `2GiB`. Default: 512MiB. A chunk that is wanted once is never kept.
    #[serde(default)]
    cache: Option<Size>,
    /// Keeps what was read on local disk, for the epochs and runs to come: `50GiB`, or
    /// `{ bytes: 50GiB, path: /scratch/chunks }`. Not used for a store on this machine.
    #[serde(default)]
    disk: Option<DiskCache>,
}

impl ZarrWindows {
    fn into_spec(self) -> WindowsSpec {
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
struct ZarrFetch {}

/// Decodes chunks into a batch of tensors.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZarrDecode {}

/// Writes batches at the place of their windows into a Zarr v3 store, and passes them on. Chunks that
/// are there already stay, so that a second run goes on where the first one ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZarrWrite {
    /// The store's URL: a path, file://, memory://, s3://, gs:// or az://. It is made if need be.
    store: String,
    /// Options of the store, such as `{ region: eu-west-1 }`.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// The tensors that are written. Default: all of a batch.
    #[serde(default)]
    variables: Vec<String>,
    /// For tensors that the source does not have, one of its tensors at whose place they belong, such
    /// as `{ wind: u10 }`.
    #[serde(default)]
    like: BTreeMap<String, String>,
    /// The extents of chunks in the dimensions in which they are not the source's: `{ time: 1 }`.
    #[serde(default)]
    chunks: Extents,
    /// `zstd`, `blosc`, `gzip` or `none`, or with a level: `{ name: zstd, level: 9 }`. Default: `zstd`.
    #[serde(default)]
    codec: Codec,
    /// What is written where windows overlap: their `mean`, or a mean with weights that rise from a
    /// window's edge to its middle, `hann` or `triangle`. Default: `mean`.
    #[serde(default)]
    overlap: Overlap,
    /// What happens to chunks for which windows are missing at the end: `fail`, or `write` with the fill
    /// value in their place. Default: `fail`.
    #[serde(default)]
    incomplete: Incomplete,
    /// How much chunks may take while windows are missing, such as `2GiB`. Default: 4GiB.
    #[serde(default)]
    memory: Option<Size>,
    /// This rank among those that write the store, as in the step `shard`: `{ rank: 0, world: 4 }`.
    #[serde(default)]
    shard: Option<Ranks>,
}

/// Random order; the whole of it where items are computed by position.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shuffle {
    /// `full`; `chunks`, which keeps windows of the same chunks together so that each chunk is read
    /// once; or for a stream how many items wait to be drawn (1024). Default: `full`.
    #[serde(default)]
    by: ShuffleBy,
    /// With `by: chunks`, how many groups of chunks are mixed at a time. Default: as many as half
    /// of the cache holds.
    #[serde(default)]
    groups: Option<std::num::NonZeroU64>,
    /// Permutes blocks of so many neighbours and the items within each, instead of `by`.
    #[serde(default)]
    block: Option<std::num::NonZeroU64>,
    /// The seed. Default: a function of the run's seed and the stage's id.
    #[serde(default)]
    seed: Option<u64>,
}

/// The share of one rank; every rank gets equally many items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shard {
    /// This process's rank, from 0.
    rank: u64,
    /// How many ranks there are.
    world: std::num::NonZeroU64,
    /// What happens to items that do not divide: `drop` or `pad`.
    #[serde(default)]
    uneven: flow::Uneven,
}

/// Groups items; the last group is what is left.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupBy {
    /// How many items make a group.
    size: std::num::NonZeroUsize,
    /// Whether a last group that is not full is left out.
    #[serde(default)]
    drop_last: bool,
}

/// The first items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Take {
    /// How many.
    items: u64,
}

/// All but the first items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Skip {
    /// How many are left out.
    items: u64,
}

/// All items several times over; needs items that are computed by position.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Repeat {
    /// How many times.
    times: u64,
}

/// Brings each variable to mean 0 and deviation 1.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Normalize {
    /// `auto` (the store's attributes `mean` and `std`), or `{ t2m: { mean: 278.6, std: 21.2 } }`.
    #[serde(default)]
    stats: Stats,
}

/// Casts all variables to a type of floating point.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cast {
    /// The type: f16, bf16, f32 or f64.
    to: DType,
}

/// Copies batches to a device. What decodes for it then takes its memory from where the device copies
/// by itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Upload {
    /// Which device: `auto` (the first GPU, or the host where there is none), `host`, `cuda:0`.
    #[serde(default = "auto")]
    device: String,
}

fn auto() -> String {
    "auto".to_owned()
}

/// Cuts a box out of all variables.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Crop {
    /// The entries kept of a dimension, such as `{ latitude: 0..256 }`.
    ranges: BTreeMap<String, Span>,
}

/// Turns dimensions around.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Flip {
    /// Which, such as `[latitude]`.
    dims: Vec<String>,
}

/// Copies batches back to the host.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Download {}

/// How a shuffle mixes.
#[derive(Clone, Copy, Default)]
enum ShuffleBy {
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

pub(super) fn catalog() -> Catalog {
    Catalog::empty()
        .source("zarr.windows", |args: ZarrWindows, context| {
            let store = Store::open_with(&args.store, &args.options)?;
            context.report_pool(store.pool());
            Ok(zarr::windows(&store, &args.into_spec())?)
        })
        .asked(|mut args: ZarrWindows, asked| {
            let (store, options) = (std::mem::take(&mut args.store), args.options.clone());
            effects::windows(&store, &options, args.into_spec(), asked.online)
        })
        .same("shuffle", |args: Shuffle, context| {
            let seed = args.seed.unwrap_or(context.seed);
            let how = match (args.by, args.block, args.groups) {
                (ShuffleBy::Full, Some(items), None) => Order::Blocks(items.get()),
                (_, Some(_), _) => {
                    return Err("give `block` alone, without `by` or `groups`".into());
                }
                (ShuffleBy::Chunks, None, groups) => Order::Chunks(groups.map(|n| n.get())),
                (_, None, Some(_)) => return Err("`groups` goes with `by: chunks`".into()),
                (ShuffleBy::Full, None, None) => Order::Full,
                (ShuffleBy::Buffer(items), None, None) => Order::Buffer(items),
            };
            Ok(Same::Shuffle { seed, how })
        })
        .flows(|args: Shuffle, before| match (args.by, args.block, args.groups) {
            (ShuffleBy::Full, Some(_), None) => Ok(before.clone()),
            (_, Some(_), _) => Err(Misfit::new("`block` stands alone, without `by` or `groups`")
                .at(["block"])
                .help("leave the others out")),
            (ShuffleBy::Full | ShuffleBy::Buffer(_), None, Some(_)) => {
                Err(Misfit::new("`groups` goes with `by: chunks`").at(["groups"]))
            }
            (ShuffleBy::Buffer(items), ..) if !before.by_position => Ok(Flow {
                held: before.bytes.map(|b| b.saturating_mul(items as u64)),
                ..before.clone()
            }),
            (ShuffleBy::Full, ..) if !before.by_position => {
                Ok(Flow { held: before.bytes.map(|b| b.saturating_mul(1024)), ..before.clone() })
            }
            _ => Ok(before.clone()),
        })
        .main("by")
        .same("shard", |args: Shard, _| {
            let Shard { rank, world, uneven } = args;
            if rank >= world.get() {
                return Err(format!("rank {rank} of {world}: the first rank is 0").into());
            }
            Ok(Same::Shard { rank, world: world.get(), uneven })
        })
        .flows(|args: Shard, before| {
            let (rank, world) = (args.rank, args.world.get());
            if rank >= world {
                let misfit = Misfit::new(format!("there is no rank {rank} of {world}"));
                return Err(misfit.at(["rank"]).help(format!("ranks are 0 to {}", world - 1)));
            }
            Ok(Flow { items: before.items.map(|n| n.div_ceil(world)), ..before.clone() })
        })
        .same("take", |args: Take, _| Ok(Same::Take(args.items)))
        .flows(|args: Take, before| Ok(before.at_most(args.items)))
        .main("items")
        .same("skip", |args: Skip, _| Ok(Same::Skip(args.items)))
        .flows(|args: Skip, before| {
            let items = before.items.map(|n| n.saturating_sub(args.items));
            Ok(Flow { items, ..before.clone() })
        })
        .main("items")
        .same("repeat", |args: Repeat, _| Ok(Same::Repeat(args.times)))
        .flows(|args: Repeat, before| {
            let items = before.items.map(|n| n.saturating_mul(args.times));
            Ok(Flow { items, ..before.clone() })
        })
        .main("times")
        .batch::<Window>()
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Vec<Window>>).retryable())
        })
        .flows(|_: ZarrFetch, before| Ok(effects::fetch(before)))
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Window>).retryable())
        })
        .flows(|_: ZarrFetch, before| Ok(effects::fetch(before)))
        .stage("zarr.decode", Kind::Cpu, |_: ZarrDecode, context| {
            Ok(cpu::map("decode", zarr::decode(&context.pool)))
        })
        .flows(|_: ZarrDecode, before| Ok(effects::decode(before)))
        .allocates()
        .stage("zarr.write", Kind::Io, |args: ZarrWrite, _| {
            let store = Store::open_with(&args.store, &args.options)?;
            let spec = WriteSpec {
                variables: args.variables,
                like: args.like,
                chunks: args.chunks,
                codec: args.codec,
                overlap: args.overlap,
                incomplete: args.incomplete,
                memory: args.memory.map(|Size(bytes)| bytes),
                shard: args.shard,
            };
            Ok(zarr::write(&store, &spec)?)
        })
        .flows(|_: ZarrWrite, before| Ok(effects::same(before)))
        .stage("tensor.normalize", Kind::Cpu, |args: Normalize, _| {
            Ok(cpu::map("normalize", ops::normalize(args.stats)))
        })
        .flows(|args: Normalize, before| effects::normalize("tensor", &args.stats, before))
        .main("stats")
        .stage("tensor.cast", Kind::Cpu, |args: Cast, context| {
            Ok(cpu::map::<Batch, _, _, _>("cast", ops::cast(args.to, &context.pool)))
        })
        .flows(|args: Cast, before| effects::cast("tensor", args.to, before))
        .main("to")
        .allocates()
        .stage("tensor.crop", Kind::Cpu, |args: Crop, context| {
            Ok(cpu::map::<Batch, _, _, _>("crop", ops::crop(args.ranges, &context.pool)))
        })
        .flows(|args: Crop, before| effects::pick(Pick::Crop(&args.ranges), before))
        .main("ranges")
        .allocates()
        .stage("tensor.flip", Kind::Cpu, |args: Flip, context| {
            Ok(cpu::map::<Batch, _, _, _>("flip", ops::flip(args.dims, &context.pool)))
        })
        .flows(|args: Flip, before| effects::pick(Pick::Flip(&args.dims), before))
        .main("dims")
        .allocates()
        .stage("device.upload", Kind::Device, |args: Upload, _| {
            Ok(device::upload(&device::named(&args.device)?))
        })
        .flows(|_: Upload, before| Ok(effects::same(before)))
        .options(on_device())
        .main("device")
        .stage("device.normalize", Kind::Device, |args: Normalize, _| {
            Ok(device::normalize(args.stats))
        })
        .flows(|args: Normalize, before| effects::normalize("device", &args.stats, before))
        .options(on_device())
        .main("stats")
        .stage("device.cast", Kind::Device, |args: Cast, _| Ok(device::cast(args.to)))
        .flows(|args: Cast, before| effects::cast("device", args.to, before))
        .options(on_device())
        .main("to")
        .stage("device.crop", Kind::Device, |args: Crop, _| Ok(device::crop(args.ranges)))
        .flows(|args: Crop, before| effects::pick(Pick::Crop(&args.ranges), before))
        .options(on_device())
        .main("ranges")
        .stage("device.flip", Kind::Device, |args: Flip, _| Ok(device::flip(args.dims)))
        .flows(|args: Flip, before| effects::pick(Pick::Flip(&args.dims), before))
        .options(on_device())
        .main("dims")
        .stage("device.kernel", Kind::Device, |args: device::Kernel, _| {
            args.check()?;
            Ok(device::kernel(args))
        })
        .flows(|_: device::Kernel, before| Ok(effects::same(before)))
        .options(on_device())
        .stage("device.download", Kind::Device, |_: Download, _| Ok(device::download()))
        .flows(|_: Download, before| Ok(effects::same(before)))
}

/// Few batches wait behind a stage on a device.
fn on_device() -> Options {
    Options { buffer: Some(2.into()), ..Options::default() }
}

impl Catalog {
    /// Lets `batch` and `unbatch` take items of type `T`.
    pub fn batch<T: Send + 'static>(self) -> Self {
        self.stage("batch", Kind::Flow, |args: GroupBy, _| {
            let batch = flow::batch::<T>(args.size.get());
            Ok(if args.drop_last { batch.drop_last() } else { batch })
        })
        .main("size")
        .flows(|args: GroupBy, before| {
            let stacks = TypeId::of::<T>() == TypeId::of::<Window>();
            let group = before.grouped(args.size.get() as u64, args.drop_last, stacks);
            Ok(Flow { held: group.bytes.filter(|_| !before.by_position), ..group })
        })
        .stage("unbatch", Kind::Flow, |_: Unbatch, _| Ok(flow::unbatch::<T>()))
        .flows(|_: Unbatch, before| {
            Ok(before.ungrouped(TypeId::of::<T>() == TypeId::of::<Window>()))
        })
    }
}

/// Takes groups apart.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Unbatch {}
