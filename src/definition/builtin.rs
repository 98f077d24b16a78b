//! The built-in operators, one line each.

mod arguments;

use std::any::TypeId;

use super::any::{AnyPipeline, FlowType, Order, Same};
use super::catalog::Catalog;
use super::effects;
use super::flow::{Flow, Misfit};
use super::joined;
use crate::item::Batch;
use crate::join::SEVERAL;
use crate::ops::Pick;
use crate::options::Options;
use crate::stage::{Kind, Stage as _};
use crate::store::zarr::Window;
use crate::store::{Store, zarr};
use crate::{cpu, device, flow, io, ops};
use arguments::{
    Cast, Crop, Download, Flip, GroupBy, Merge, Normalize, Rename, Repeat, Shard, Shuffle,
    ShuffleBy, Skip, Take, Unbatch, Upload, ZarrDecode, ZarrFetch, ZarrWindows, ZarrWrite, Zip,
};

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
        .enters(|_: Shuffle| flow::shuffle::<Window>(0).entering())
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
            let items = before.items.map(|n| args.uneven.share(n, rank, world));
            Ok(Flow { items, ..before.clone() })
        })
        .same("take", |args: Take, _| Ok(Same::Take(args.items)))
        .flows(|args: Take, before| Ok(before.at_most(args.items)))
        .enters(|_: Take| flow::take::<Window>(0).entering())
        .main("items")
        .same("skip", |args: Skip, _| Ok(Same::Skip(args.items)))
        .flows(|args: Skip, before| {
            let items = before.items.map(|n| n.saturating_sub(args.items));
            Ok(Flow { items, ..before.clone() })
        })
        .enters(|_: Skip| flow::skip::<Window>(0).entering())
        .main("items")
        .same("repeat", |args: Repeat, _| Ok(Same::Repeat(args.times)))
        .flows(|args: Repeat, before| {
            let items = before.items.map(|n| n.saturating_mul(args.times));
            Ok(Flow { items, ..before.clone() })
        })
        .main("times")
        .join("merge", None, |args: Merge, all, options| {
            AnyPipeline::together(all, args.order, options)
        })
        .asked(|args: Merge, asked| joined::merge(&args.sources, asked.branches))
        .enters(|args: Merge| args.order.entering())
        .main("sources")
        .join("zip", Some(FlowType::of::<Batch>()), |_: Zip, all, options| {
            let all = all.into_iter().filter_map(|one| one.downcast::<Batch>().ok());
            AnyPipeline::new(flow::zip_with(all, options, |all| Ok(Batch::beside(all)?)))
        })
        .asked(|args: Zip, asked| joined::zip(&args.sources, asked.branches))
        .enters(|_: Zip| SEVERAL)
        .main("sources")
        .batch::<Window>()
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Vec<Window>>).retryable())
        })
        .flows(|_: ZarrFetch, before| Ok(effects::fetch(before)))
        .retryable()
        .stage("zarr.fetch", Kind::Io, |_: ZarrFetch, _| {
            Ok(io::map("fetch", zarr::fetch::<Window>).retryable())
        })
        .flows(|_: ZarrFetch, before| Ok(effects::fetch(before)))
        .retryable()
        .stage("zarr.decode", Kind::Cpu, |args: ZarrDecode, context| {
            Ok(cpu::map("decode", zarr::decode_as(&context.pool, args.normalize)))
        })
        .flows(|args: ZarrDecode, before| effects::decode(args.normalize.as_ref(), before))
        .allocates()
        .stage("zarr.write", Kind::Io, |args: ZarrWrite, _| {
            let store = Store::open_with(&args.store, &args.options)?;
            Ok(zarr::write(&store, &args.into_spec())?)
        })
        .flows(|mut args: ZarrWrite, before| {
            let (store, options) = (std::mem::take(&mut args.store), args.options.clone());
            effects::write(&store, &options, &args.into_spec(), before)
        })
        .enters(|_: ZarrWrite| zarr::WRITE_ENTERING)
        .stage("tensor.normalize", Kind::Cpu, |args: Normalize, _| {
            Ok(cpu::map("normalize", ops::normalize(args.stats)))
        })
        .flows(|args: Normalize, before| effects::normalize(&effects::TENSOR, &args.stats, before))
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
        .flows(|args: Crop, before| effects::pick(&Pick::Crop(args.ranges), before))
        .main("ranges")
        .allocates()
        .stage("tensor.flip", Kind::Cpu, |args: Flip, context| {
            Ok(cpu::map::<Batch, _, _, _>("flip", ops::flip(args.dims, &context.pool)))
        })
        .flows(|args: Flip, before| effects::pick(&Pick::Flip(args.dims), before))
        .main("dims")
        .allocates()
        .stage("tensor.rename", Kind::Cpu, |args: Rename, _| {
            Ok(cpu::map::<Batch, _, _, _>("rename", ops::rename(args.names)))
        })
        .flows(|args: Rename, before| effects::rename(&args.names, before))
        .main("names")
        .stage("device.upload", Kind::Device, |args: Upload, _| {
            Ok(device::upload(&device::named(&args.device)?))
        })
        .copies_to(|args: Upload| device::named(&args.device))
        .flows(|args: Upload, before| effects::upload(&args.device, before))
        .options(on_device())
        .main("device")
        .stage("device.normalize", Kind::Device, |args: Normalize, _| {
            Ok(device::normalize(args.stats))
        })
        .flows(|args: Normalize, before| effects::normalize(&effects::DEVICE, &args.stats, before))
        .options(on_device())
        .main("stats")
        .stage("device.cast", Kind::Device, |args: Cast, _| Ok(device::cast(args.to)))
        .flows(|args: Cast, before| effects::cast("device", args.to, before))
        .options(on_device())
        .main("to")
        .stage("device.crop", Kind::Device, |args: Crop, _| Ok(device::crop(args.ranges)))
        .flows(|args: Crop, before| effects::pick(&Pick::Crop(args.ranges), before))
        .options(on_device())
        .main("ranges")
        .stage("device.flip", Kind::Device, |args: Flip, _| Ok(device::flip(args.dims)))
        .flows(|args: Flip, before| effects::pick(&Pick::Flip(args.dims), before))
        .options(on_device())
        .main("dims")
        .stage("device.kernel", Kind::Device, |args: device::Kernel, _| {
            args.check()?;
            Ok(device::kernel(args))
        })
        .flows(|args: device::Kernel, before| effects::kernel(&args, before))
        .options(on_device())
        .stage("device.download", Kind::Device, |_: Download, _| Ok(device::download()))
        .flows(|_: Download, before| Ok(effects::download(before)))
        .others_are_not_retryable()
        .calls_are_maps()
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
            if before.mixed && stacks {
                return Err(Misfit::new("windows of several sources can't share a batch")
                    .help("put `batch` into each of the sources, before they flow together"));
            }
            let group = before.grouped(args.size.get() as u64, args.drop_last, stacks);
            Ok(Flow { held: group.bytes.filter(|_| !before.by_position), ..group })
        })
        .enters(|args: GroupBy| flow::batch::<T>(args.size.get()).entering())
        .stage("unbatch", Kind::Flow, |_: Unbatch, _| Ok(flow::unbatch::<T>()))
        .flows(|_: Unbatch, before| {
            Ok(before.ungrouped(TypeId::of::<T>() == TypeId::of::<Window>()))
        })
        .enters(|_: Unbatch| flow::unbatch::<T>().entering())
    }
}
