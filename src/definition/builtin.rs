//! The built-in operators, one line each.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::any::Same;
use super::catalog::Catalog;
use crate::item::{Batch, DType};
use crate::ops::Stats;
use crate::stage::Kind;
use crate::store::zarr::{Extents, Window, WindowsSpec};
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
}

/// Fetches the encoded chunks of windows, each chunk once.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZarrFetch {}

/// Decodes chunks into a batch of tensors.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZarrDecode {}

/// Random order; the whole of it where items are computed by position.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shuffle {
    /// How many items of a stream wait to be drawn. Default: 1024.
    #[serde(default)]
    buffer: Option<std::num::NonZeroUsize>,
    /// The seed. Default: a function of the run's seed and the stage's id.
    #[serde(default)]
    seed: Option<u64>,
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

/// Copies batches to a device.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Upload {
    /// Which device.
    #[serde(default)]
    device: DeviceName,
}

/// A device by name.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DeviceName {
    /// The best one of this machine.
    #[default]
    Auto,
    /// The host itself.
    Host,
}

pub(super) fn catalog() -> Catalog {
    Catalog::empty()
        .source("zarr.windows", |args: ZarrWindows, context| {
            let store = Store::open_with(&args.store, &args.options)?;
            context.report_pool(store.pool());
            let ZarrWindows { variables, window, stride, overlap, .. } = args;
            Ok(zarr::windows(&store, &WindowsSpec { variables, window, stride, overlap })?)
        })
        .same("shuffle", |args: Shuffle, context| {
            let (seed, buffer) = (args.seed.unwrap_or(context.seed), args.buffer);
            Ok(Same::Shuffle { seed, buffer: buffer.map(|n| n.get()) })
        })
        .main("buffer")
        .same("take", |args: Take, _| Ok(Same::Take(args.items)))
        .main("items")
        .same("skip", |args: Skip, _| Ok(Same::Skip(args.items)))
        .main("items")
        .same("repeat", |args: Repeat, _| Ok(Same::Repeat(args.times)))
        .main("times")
        .batch::<Window>()
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Vec<Window>>).retryable())
        })
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Window>).retryable())
        })
        .stage("zarr.decode", Kind::Cpu, |_: ZarrDecode, context| {
            Ok(cpu::map("decode", zarr::decode(&context.pool)))
        })
        .stage("tensor.normalize", Kind::Cpu, |args: Normalize, _| {
            Ok(cpu::map("normalize", ops::normalize(args.stats)))
        })
        .main("stats")
        .stage("tensor.cast", Kind::Cpu, |args: Cast, context| {
            Ok(cpu::map::<Batch, _, _, _>("cast", ops::cast(args.to, &context.pool)))
        })
        .main("to")
        .stage("device.upload", Kind::Device, |args: Upload, _| {
            let device = match args.device {
                DeviceName::Auto => device::auto(),
                DeviceName::Host => device::host(),
            };
            Ok(device::upload(&device))
        })
        .main("device")
}

impl Catalog {
    /// Lets `batch` and `unbatch` take items of type `T`.
    pub fn batch<T: Send + 'static>(self) -> Self {
        self.stage("batch", Kind::Flow, |args: GroupBy, _| {
            let batch = flow::batch::<T>(args.size.get());
            Ok(if args.drop_last { batch.drop_last() } else { batch })
        })
        .main("size")
        .stage("unbatch", Kind::Flow, |_: Unbatch, _| Ok(flow::unbatch::<T>()))
    }
}

/// Takes groups apart.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Unbatch {}
