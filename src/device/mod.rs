//! Devices: where batches go, and how they get there. `host` is the device of machines without a
//! GPU; it copies like one, on its own thread. `cuda` is NVIDIA's.

mod batch;
pub mod cuda;
mod dlpack;
mod file;
mod host;
mod kernel;
mod stages;
mod transform;

use std::fmt;
use std::sync::Arc;

pub use batch::{DeviceBatch, DeviceTensor, Memory};
pub use cuda::CudaError;
pub use dlpack::Dlpack;
pub use file::FilePart;
pub use host::host;
pub(crate) use kernel::other_dtype;
pub use kernel::{Kernel, NoVariable, OtherDType};
pub use stages::{cast, crop, download, flip, kernel, normalize, read, upload};
pub use transform::{NotHere, Transform};

use crate::fault::Result;
use crate::item::{Batch, Pool};
use crate::stage::Worker;
pub use crate::work::device::{filter, flat_map, for_each, map, with};

/// A device that batches can be copied to.
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// What people call it: `host`, `cuda:0`.
    fn name(&self) -> &str;

    /// Memory of the host from which it copies at full speed: what decodes for it takes its buffers
    /// here, and then nothing is copied between the decoder and the device.
    fn host_pool(&self) -> &Pool;

    /// Opens a lane; called on the lane's own thread.
    ///
    /// # Errors
    /// The device refused.
    fn open_lane(&self, worker: &Worker) -> Result<Box<dyn Lane>>;

    /// The device, if it is a GPU of NVIDIA.
    fn as_cuda(&self) -> Option<&cuda::Cuda> {
        None
    }
}

/// How many batches a lane has under way on its device: while one is copied, the next waits there.
pub(crate) const UNDER_WAY: usize = 2;

/// What one device worker works with: its own queue of copies and kernels.
pub trait Lane: Send + 'static {
    /// Copies a batch to the device. The batch's memory goes back to its pool once it was read.
    ///
    /// # Errors
    /// The device has no memory left, or failed.
    fn upload(&mut self, batch: Batch) -> Result<DeviceBatch>;

    /// Reads a tensor from a file to the device: the host reads it, unless the device can.
    ///
    /// # Errors
    /// The file can't be read, or the device failed.
    fn read(&mut self, part: &FilePart, pool: &Pool) -> Result<DeviceBatch> {
        self.upload(part.to_host(pool)?)
    }

    /// Changes a batch that is there.
    ///
    /// # Errors
    /// The batch can't be changed so, or the device failed.
    fn transform(&mut self, batch: DeviceBatch, how: &Transform) -> Result<DeviceBatch>;

    /// Copies a batch back, into memory of the device's [`host_pool`](Device::host_pool).
    ///
    /// # Errors
    /// The device failed.
    fn download(&mut self, batch: DeviceBatch) -> Result<Batch>;
}

/// The best device of this machine: its first GPU, or the host where there is none.
pub fn auto() -> Arc<dyn Device> {
    match cuda::open(0) {
        Ok(cuda) => cuda,
        Err(CudaError::NoDriver) => host(),
        Err(error) => {
            tracing::warn!("batches stay on the host, as {error}");
            host()
        }
    }
}

/// The device of a name: `auto`, `host`, `cuda` (the first GPU) or `cuda:1`.
///
/// # Errors
/// There is no such device.
pub fn named(name: &str) -> Result<Arc<dyn Device>> {
    let ordinal = match name {
        "auto" => return Ok(auto()),
        "host" => return Ok(host()),
        "cuda" => Some(0),
        _ => name.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    match ordinal {
        Some(ordinal) => Ok(cuda::open(ordinal)?),
        None => {
            Err(format!("there is no device `{name}`: write `auto`, `host` or `cuda:0`").into())
        }
    }
}
