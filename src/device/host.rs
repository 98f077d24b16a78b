//! The host as a device: its memory is a pool of its own, its copies are plain ones.

use std::sync::Arc;

use super::{Device, DeviceBatch, DeviceTensor, Lane, Memory};
use crate::fault::Result;
use crate::item::{Batch, Buffer, Pool};
use crate::stage::Worker;

/// The device of machines that have none.
pub fn host() -> Arc<dyn Device> {
    Arc::new(Host { memory: Pool::default() })
}

#[derive(Debug)]
struct Host {
    memory: Pool,
}

impl Device for Host {
    fn name(&self) -> &str {
        "host"
    }

    fn open_lane(&self, _: &Worker) -> Result<Box<dyn Lane>> {
        Ok(Box::new(HostLane { memory: self.memory.clone(), name: Arc::from(self.name()) }))
    }
}

struct HostLane {
    memory: Pool,
    name: Arc<str>,
}

impl Lane for HostLane {
    fn upload(&mut self, batch: Batch) -> Result<DeviceBatch> {
        let (tensors, windows) = batch.into_parts();
        let copy = |tensor: crate::item::Tensor| {
            let mut memory = self.memory.take(tensor.bytes().len());
            memory.copy_from_slice(tensor.bytes());
            DeviceTensor::new(tensor.spec().clone(), Box::new(HostMemory(memory)))
        };
        let tensors = tensors.into_iter().map(copy).collect();
        Ok(DeviceBatch::new(Arc::clone(&self.name), tensors, windows))
    }
}

struct HostMemory(Buffer);

impl Memory for HostMemory {
    fn as_host(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.0);
        Ok(())
    }
}
