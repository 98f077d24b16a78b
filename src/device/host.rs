//! The host as a device: its memory is a pool of its own, its copies are plain ones.

use std::sync::Arc;
use std::time::Instant;

use super::transform::{Transform, applies};
use super::{Device, DeviceBatch, DeviceTensor, Lane, Memory};
use crate::fault::Result;
use crate::item::{Batch, Buffer, Pool, Tensor};
use crate::ops;
use crate::stage::Worker;

/// The device of machines that have none.
pub fn host() -> Arc<dyn Device> {
    Arc::new(Host { here: Pool::default(), there: Pool::default() })
}

#[derive(Clone, Debug)]
struct Host {
    here: Pool,
    /// Its memory as a device.
    there: Pool,
}

impl Device for Host {
    fn name(&self) -> &str {
        "host"
    }

    fn host_pool(&self) -> &Pool {
        &self.here
    }

    fn open_lane(&self, worker: &Worker) -> Result<Box<dyn Lane>> {
        Ok(Box::new(HostLane { device: Arc::new(self.clone()), worker: worker.clone() }))
    }
}

struct HostLane {
    device: Arc<Host>,
    worker: Worker,
}

impl HostLane {
    fn put(&self, batch: Batch) -> Result<DeviceBatch> {
        let (tensors, windows) = batch.into_parts();
        let put = |tensor: Tensor| {
            let (spec, data) = tensor.into_parts();
            DeviceTensor::new(spec, Box::new(HostMemory(data)))
        };
        let tensors = tensors.into_iter().map(put).collect::<Result<_, _>>()?;
        let device: Arc<Host> = Arc::clone(&self.device);
        Ok(DeviceBatch::new(device, tensors, windows))
    }
}

impl Lane for HostLane {
    fn upload(&mut self, batch: Batch) -> Result<DeviceBatch> {
        let (begun, bytes) = (Instant::now(), batch.bytes());
        let (tensors, windows) = batch.into_parts();
        let copy = |tensor: Tensor| {
            let mut copy = Tensor::take(&self.device.there, tensor.spec().clone());
            copy.bytes_mut().copy_from_slice(tensor.bytes());
            copy
        };
        let there = Batch::new(tensors.into_iter().map(copy).collect(), windows);
        self.worker.device_meter().copied(begun.elapsed(), bytes);
        self.put(there)
    }

    fn transform(&mut self, batch: DeviceBatch, how: &Transform) -> Result<DeviceBatch> {
        applies(how, batch.tensors().iter().map(DeviceTensor::spec))?;
        let batch = self.download(batch)?;
        let begun = Instant::now();
        let pool = &self.device.there;
        let done = match how {
            Transform::Normalize(stats) => ops::normalize(stats.clone())(batch)?,
            Transform::Cast(to) => ops::cast(*to, pool)(batch)?,
            Transform::Pick(pick) => ops::picked(batch, pick, pool)?,
            Transform::Kernel(kernel) => {
                let name = &kernel.name;
                return Err(format!(
                    "kernel `{name}` needs a GPU, and the batch is on the host: write `device: cuda:0` \
                     at `device.upload`, or do it in a cpu stage"
                )
                .into());
            }
        };
        self.worker.device_meter().ran(begun.elapsed());
        self.put(done)
    }

    fn download(&mut self, batch: DeviceBatch) -> Result<Batch> {
        let (_, tensors, windows) = batch.into_parts();
        let tensors = tensors.into_iter().map(DeviceTensor::into_host);
        Ok(Batch::new(tensors.collect::<Result<_>>()?, windows))
    }
}

struct HostMemory(Buffer);

impl Memory for HostMemory {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn as_host(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.0);
        Ok(())
    }

    fn into_host(self: Box<Self>) -> Option<Buffer> {
        Some(self.0)
    }
}
