//! A tensor on a GPU that another library has.

use std::sync::Arc;

use super::driver::Stream;
use super::error::CudaError;
use super::memory::CudaMemory;
use crate::device::DeviceTensor;

/// A tensor until its taker lets go of it.
pub(crate) struct Exported {
    tensor: DeviceTensor,
    /// The stream on which the taker works.
    stream: Option<Arc<Stream>>,
}

impl Exported {
    /// Lets `stream` wait for the tensor's bytes, or else the host, and for work on them.
    pub(crate) fn new(
        tensor: DeviceTensor,
        stream: Option<Arc<Stream>>,
    ) -> Result<Self, CudaError> {
        let exported = Exported { tensor, stream };
        let memory = exported.memory()?;
        match &exported.stream {
            Some(stream) => memory.enter(stream)?,
            None => memory.arrived()?,
        }
        Ok(exported)
    }

    /// The address of its first element, and the GPU that it is on.
    pub(crate) fn place(&self) -> Result<(u64, i32), CudaError> {
        let block = self.memory()?.block();
        Ok((block.address(), block.ordinal()))
    }

    fn memory(&self) -> Result<&CudaMemory, CudaError> {
        let elsewhere = || CudaError::Elsewhere { tensor: self.tensor.spec().to_string() };
        self.tensor.memory().as_cuda().ok_or_else(elsewhere)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let (Some(stream), Ok(memory)) = (&self.stream, self.memory()) {
            memory.used_by(stream);
        }
    }
}
