//! The stages that copy batches to a device and back, and work on them there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Device, DeviceBatch, FilePart, Kernel, Lane, Transform, UNDER_WAY, cuda, with};
use crate::fault::{BoxError, Result};
use crate::item::{Batch, DType};
use crate::ops::{Pick, Stats};
use crate::stage::Worker;
use crate::store::zarr::Span;
use crate::work::{Staged, With, Work};

/// A device stage that copies batches to `device`. Behind it wait two batches unless told
/// otherwise: while one is used the next is there, and the one after it is being copied.
///
/// Batches whose memory is of the device's [`host_pool`](Device::host_pool) are copied by the device
/// itself, while the host goes on: give that pool to what decodes them. A batch leaves once its copy
/// is asked for; whoever uses it on the device waits for the copy there.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// fn train(windows: Pipeline<Vec<Window>>) -> Result<(), Box<dyn std::error::Error>> {
///     let device = device::auto();
///     let batches = windows
///         .then(io::map("fetch", zarr::fetch))
///         .then(cpu::map("decode", zarr::decode(device.host_pool())))
///         .then(device::upload(&device).buffer(2))
///         .then(device::normalize(ops::Stats::Auto));
///     for batch in batches.run()? {
///         let batch: DeviceBatch = batch?;
///         println!("{} windows on {}", batch.len(), batch.device().name());
///     }
///     Ok(())
/// }
/// ```
pub fn upload(
    device: &Arc<dyn Device>,
) -> Staged<impl Work<In = Batch, Out = DeviceBatch> + use<>> {
    let device = Arc::clone(device);
    with(move |worker: &Worker| device.open_lane(worker))
        .map("upload", |lane: &mut Box<dyn Lane>, _, batch| lane.upload(batch))
        .buffer(2)
}

/// A device stage that reads tensors from files on this machine to `device`, each as a batch of its own.
///
/// With the feature `cufile` a GPU reads them itself, past the host's memory (NVIDIA's GPUDirect Storage):
/// that needs `libcufile`, the driver `nvidia-fs`, a file system that it serves, and offsets that are
/// multiples of 4,096. Where one of these is missing the host reads to pinned memory, and a warning says
/// which.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use forebay::device::FilePart;
/// use forebay::item::Spec;
/// use forebay::prelude::*;
///
/// # let folder = tempfile::tempdir()?;
/// let path: Arc<Path> = Arc::from(folder.path().join("tokens.bin"));
/// std::fs::write(&path, bytemuck::cast_slice(&[7_i32; 8192]))?;
/// let part = move |i: u64| {
///     let (dims, shape) = (Arc::from([Arc::from("token")]), Arc::from([1024]));
///     let spec = Spec { name: Arc::from("tokens"), dtype: DType::I32, dims, shape };
///     FilePart { path: Arc::clone(&path), offset: i * 4096, spec }
/// };
/// let parts = Pipeline::from(source::index("parts", Index::new(8, part)));
/// let run = parts.then(flow::shuffle(42)).then(device::read(&device::auto())).run()?;
/// assert_eq!(run.map(|batch| batch.map(|batch| batch.bytes())).sum::<Result<u64, _>>()?, 32_768);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(
    device: &Arc<dyn Device>,
) -> Staged<impl Work<In = FilePart, Out = DeviceBatch> + use<>> {
    let device = Arc::clone(device);
    // For what the host reads: one in hand and those that the device still copies.
    let pool = device.host_pool().ring(1 + UNDER_WAY);
    with(move |worker: &Worker| device.open_lane(worker))
        .map("read", move |lane: &mut Box<dyn Lane>, _, part| lane.read(&part, &pool))
        .buffer(2)
}

/// A device stage that brings each variable to mean 0 and deviation 1, where the batch is.
pub fn normalize(stats: Stats) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch>> {
    transform("normalize", with(lanes), Transform::Normalize(stats))
}

/// A device stage that casts all variables to a type of floating point, where the batch is.
pub fn cast(to: DType) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch>> {
    transform("cast", with(lanes), Transform::Cast(to))
}

/// A device stage that turns dimensions around, where the batch is.
pub fn flip(dims: Vec<String>) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch>> {
    transform("flip", with(lanes), Transform::Pick(Pick::Flip(dims)))
}

/// A device stage that cuts a box out of all tensors, where the batch is.
pub fn crop(
    ranges: BTreeMap<String, Span>,
) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch>> {
    transform("crop", with(lanes), Transform::Pick(Pick::Crop(ranges)))
}

/// A device stage that runs a kernel of one's own on a GPU. It is compiled, and what it takes is
/// compared with what it will be given, before the run reads anything.
pub fn kernel(kernel: Kernel) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch>> {
    let asked = kernel.clone();
    let lanes = with(lanes).ready(move || Ok(cuda::ready(&asked)?));
    transform("kernel", lanes, Transform::Kernel(kernel))
}

/// A device stage that copies batches back to the host.
pub fn download() -> Staged<impl Work<In = DeviceBatch, Out = Batch>> {
    with(lanes).map("download", |lanes: &mut Lanes, _, batch| lanes.of(&batch)?.download(batch))
}

fn transform(
    name: &'static str,
    with_lanes: With<Lanes>,
    how: Transform,
) -> Staged<impl Work<In = DeviceBatch, Out = DeviceBatch> + use<>> {
    with_lanes
        .map(name, move |lanes: &mut Lanes, _, batch| lanes.of(&batch)?.transform(batch, &how))
        .buffer(2)
}

/// A worker's lane on each device that batches come from.
struct Lanes {
    worker: Worker,
    open: BTreeMap<String, Box<dyn Lane>>,
}

fn lanes(worker: &Worker) -> Result<Lanes, BoxError> {
    Ok(Lanes { worker: worker.clone(), open: BTreeMap::new() })
}

impl Lanes {
    fn of(&mut self, batch: &DeviceBatch) -> Result<&mut Box<dyn Lane>> {
        let device = batch.device();
        if !self.open.contains_key(device.name()) {
            self.open.insert(device.name().to_owned(), device.open_lane(&self.worker)?);
        }
        Ok(self.open.get_mut(device.name()).expect("opened above"))
    }
}
