//! Batches on a device.

use std::fmt;
use std::sync::Arc;

use super::Device;
use super::cuda::CudaMemory;
use super::transform::NotHere;
use crate::fault::Result;
use crate::item::{Buffer, Element, OtherLength, Pool, Spec, Tensor};
use crate::running::Claim;
use crate::store::zarr::Window;
use crate::trace::Receipt;

/// Memory on a device that holds a tensor's elements.
pub trait Memory: Send + Sync + 'static {
    /// How many bytes it holds.
    fn bytes(&self) -> usize;

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
    ///
    /// # Errors
    /// The memory holds fewer bytes than `spec` says, or more.
    pub fn new(spec: Spec, memory: Box<dyn Memory>) -> Result<Self, OtherLength> {
        spec.check_length(memory.bytes())?;
        Ok(DeviceTensor { spec, memory })
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
    pub(super) fn into_host(self) -> Result<Tensor> {
        let DeviceTensor { spec, memory } = self;
        match memory.into_host() {
            Some(data) => Ok(Tensor::from_parts(spec, data)?),
            None => Err(NotHere { tensor: spec, device: "host".to_owned() }.into()),
        }
    }

    /// A copy in host memory from `pool`. Waits for it.
    ///
    /// # Errors
    /// The device failed, or the pool has no memory to give.
    pub fn to_host(&self, pool: &Pool) -> Result<Tensor> {
        let mut tensor = Tensor::try_take(pool, self.spec.clone())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::DType;

    struct Held(Vec<u8>);

    impl Memory for Held {
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
            // Shorter than it said.
            Some(Pool::default().take(1))
        }
    }

    fn tensor(shape: &[u64], held: usize) -> Result<DeviceTensor, OtherLength> {
        let dims = shape.iter().map(|_| Arc::from("n")).collect();
        let (name, shape) = (Arc::from("x"), Arc::from(shape));
        DeviceTensor::new(
            Spec { name, dtype: DType::F32, dims, shape },
            Box::new(Held(vec![0; held])),
        )
    }

    #[test]
    fn a_tensor_is_as_long_as_its_memory() {
        assert!(tensor(&[3, 2], 24).is_ok());
        let error = tensor(&[3, 2], 20).expect_err("too short").to_string();
        assert!(
            error.contains("`x: f32[n 3, n 2]` has 24 bytes, but its memory holds 20"),
            "{error}"
        );
        assert!(tensor(&[3, 2], 28).is_err());
        // Counted in 64 bits these are none.
        assert!(tensor(&[1 << 62, 4], 0).is_err());
        assert!(tensor(&[1 << 32, 1 << 32, 1 << 32], 0).is_err());
        assert!(tensor(&[3, 0], 0).is_ok());
    }

    #[test]
    fn memory_that_said_another_length_makes_no_tensor() {
        let error = tensor(&[3, 2], 24).expect("as it says").into_host().expect_err("1 byte");
        assert!(error.to_string().contains("its memory holds 1"), "{error}");
    }
}
