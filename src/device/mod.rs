//! Devices: where batches go, and how they get there. `host` is the device of machines without a
//! GPU; it copies like one, on its own thread.

mod batch;
mod host;

use std::fmt;
use std::sync::Arc;

pub use batch::{DeviceBatch, DeviceTensor, Memory};
pub use host::host;

use crate::fault::{BoxError, Result};
use crate::item::Batch;
use crate::stage::Worker;
pub use crate::work::device::{filter, flat_map, for_each, map, with};
use crate::work::{Staged, Work};

/// A device that batches can be copied to.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// What people call it: `host`, `cuda:0`.
    fn name(&self) -> &str;

    /// Opens a lane; called on the lane's own thread.
    ///
    /// # Errors
    /// The device refused.
    fn open_lane(&self, worker: &Worker) -> Result<Box<dyn Lane>>;
}

/// What one device worker works with: its own queue of copies.
pub trait Lane: Send + 'static {
    /// Copies a batch to the device. The batch's memory goes back to its pool once it was read.
    ///
    /// # Errors
    /// The device has no memory left, or failed.
    fn upload(&mut self, batch: Batch) -> Result<DeviceBatch>;
}

/// The best device of this machine.
pub fn auto() -> Arc<dyn Device> {
    host()
}

/// A device stage that copies batches to `device`. Behind it wait two batches unless told
/// otherwise: while one is used the next is there, and the one after it is being copied.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// fn train(batches: Pipeline<Batch>) -> Result<(), Box<dyn std::error::Error>> {
///     for batch in batches.then(device::upload(&device::auto()).buffer(2)).run()? {
///         let batch: DeviceBatch = batch?;
///         println!("{} windows on {}", batch.len(), batch.device());
///     }
///     Ok(())
/// }
/// ```
pub fn upload(
    device: &Arc<dyn Device>,
) -> Staged<impl Work<In = Batch, Out = DeviceBatch> + use<>> {
    let device = Arc::clone(device);
    with(move |worker: &Worker| device.open_lane(worker))
        .map("upload", |lane: &mut Box<dyn Lane>, _, batch| {
            lane.upload(batch).map_err(|error: BoxError| error)
        })
        .buffer(2)
}
