//! Batches on a device.

use std::fmt;
use std::sync::Arc;

use super::Device;
use super::cuda::CudaMemory;
use super::transform::NotHere;
use crate::fault::Result;
use crate::item::{Buffer, Element, Pool, Spec, Tensor};
use crate::running::Claim;
use crate::store::zarr::Window;
use crate::trace::Receipt;

/// Memory on a device that holds a tensor's elements.
pub trait Memory: Send + Sync + 'static {
    /// The bytes, if the device's memory is the host's.
    fn as_host(&self) -> Option<&[u8]>;

    /// Copies the bytes into `to`, which is as long.
    ///
    /// # Errors
    /// The device failed.
    fn download(&self, to: &mut [u8]) -> Result<()>;

    /// The memory, if it is that of an NVIDIA GPU.
    fn as_cuda(&self) -> Option<&CudaMemory> {
        None
    }

    /// The memory, if it is that of an NVIDIA GPU.
    fn as_cuda_mut(&mut self) -> Option<&mut CudaMemory> {
        None
    }

    /// The memory as a buffer, if it is the host's.
    fn into_host(self: Box<Self>) -> Option<Buffer> {
        None
    }
}

/// A tensor on a device.
pub struct DeviceTensor {
    spec: Spec,
    memory: Box<dyn Memory>,
}

impl DeviceTensor {
    /// A tensor whose elements are in `memory`.
    pub fn new(spec: Spec, memory: Box<dyn Memory>) -> Self {
        DeviceTensor { spec, memory }
    }

    /// What it is.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its elements, if the device's memory is the host's.
    ///
    /// # Panics
    /// If they are not of type `T`.
    pub fn as_host<T: Element>(&self) -> Option<&[T]> {
        let Spec { name, dtype, .. } = &self.spec;
        assert!(*dtype == T::DTYPE, "`{name}` has elements of type {dtype}, not {}", T::DTYPE);
        self.memory.as_host().map(bytemuck::cast_slice)
    }

    /// Where its elements are.
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    pub(super) fn memory_mut(&mut self) -> &mut dyn Memory {
        &mut *self.memory
    }

    /// The tensor itself, if the device's memory is the host's.
    pub(super) fn into_host(self) -> Result<Tensor, NotHere> {
        let DeviceTensor { spec, memory } = self;
        match memory.into_host() {
            Some(data) => Ok(Tensor::from_parts(spec, data)),
            None => Err(NotHere { tensor: spec, device: "host".to_owned() }),
        }
    }

    /// A copy in host memory from `pool`. Waits for it.
    ///
    /// # Errors
    /// The device failed.
    pub fn to_host(&self, pool: &Pool) -> Result<Tensor> {
        let mut tensor = Tensor::take(pool, self.spec.clone());
        self.memory.download(tensor.bytes_mut())?;
        Ok(tensor)
    }
}

impl fmt::Debug for DeviceTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({})", self.spec)
    }
}

/// A batch on a device.
#[derive(Debug)]
pub struct DeviceBatch {
    device: Arc<dyn Device>,
    tensors: Vec<DeviceTensor>,
    windows: Vec<Window>,
    pub(crate) claim: Option<Claim>,
}

impl DeviceBatch {
    /// A batch of `tensors` on `device`, read from `windows`.
    pub fn new(device: Arc<dyn Device>, tensors: Vec<DeviceTensor>, windows: Vec<Window>) -> Self {
        DeviceBatch { device, tensors, windows, claim: None }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Its device, tensors and windows.
    pub fn into_parts(self) -> (Arc<dyn Device>, Vec<DeviceTensor>, Vec<Window>) {
        (self.device, self.tensors, self.windows)
    }

    /// The tensors in order.
    pub fn tensors(&self) -> &[DeviceTensor] {
        &self.tensors
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&DeviceTensor> {
        self.tensors.iter().find(|tensor| &*tensor.spec().name == name)
    }

    /// The windows that it was read from: the n-th is the n-th entry of each tensor.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How many windows it holds.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// What it went through, and what its consumer waited for: when its items entered and left each
    /// stage. Only of a batch that a run has delivered.
    pub fn receipt(&self) -> Option<Receipt> {
        self.claim.as_ref().map(Claim::receipt)
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.spec().bytes()).sum()
    }
}
