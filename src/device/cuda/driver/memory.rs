//! Memory of a GPU, and memory of the host that it copies from by itself.
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{Context, ended, failed};
use crate::device::cuda::error::CudaError;
use crate::item::HostMemory;

/// Memory on the GPU.
pub(in crate::device::cuda) struct Block {
    at: sys::CUdeviceptr,
    /// How much.
    pub(in crate::device::cuda) bytes: usize,
    context: Arc<Context>,
}

impl Block {
    pub(in crate::device::cuda) fn new(
        context: &Arc<Context>,
        bytes: usize,
    ) -> Result<Self, CudaError> {
        context.bind()?;
        // SAFETY: freed once, when this is dropped.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(at) => Ok(Block { at, bytes, context: Arc::clone(context) }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let free = context.free_bytes().unwrap_or(0);
                Err(CudaError::OutOfMemory { bytes: bytes as u64, free })
            }
            Err(error) => Err(failed("allocating memory", error)),
        }
    }

    /// Its address on the GPU.
    pub(in crate::device::cuda) fn address(&self) -> u64 {
        self.at
    }

    /// Nobody can tell when the GPU is done with it.
    pub(in crate::device::cuda) fn leave(self, why: &CudaError) {
        let (bytes, gpu) = (self.bytes, self.context.name());
        tracing::warn!("{bytes} bytes of {gpu} are lost, as it may still use them: {why}");
        std::mem::forget(self);
    }

    /// The GPU's number.
    pub(in crate::device::cuda) fn ordinal(&self) -> i32 {
        self.context.device
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.context.may_free() {
            // SAFETY: allocated once; freeing waits for all work that could use it.
            ended("freeing memory", unsafe { result::free_sync(self.at) });
        } else {
            tracing::debug!("{} bytes are left to {}", self.bytes, self.context.name());
        }
    }
}

/// Memory of the host from which the GPU copies by itself. Cached, not write-combined: decoders read
/// what they wrote.
pub(in crate::device::cuda) struct Pinned {
    at: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: memory that only its owner refers to, like a box.
unsafe impl Send for Pinned {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(in crate::device::cuda) fn new(
        context: &Arc<Context>,
        bytes: usize,
    ) -> Result<Self, CudaError> {
        context.bind()?;
        // SAFETY: freed once, when this is dropped.
        let at = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let none = CudaError::NoPinnedMemory { bytes: bytes as u64 };
        let at = match at {
            Ok(at) => NonNull::new(at.cast::<u8>()).ok_or(none)?,
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => return Err(none),
            Err(error) => return Err(failed("pinning memory", error)),
        };
        // SAFETY: the memory is as long as that. Zeroed, as the driver promises no contents.
        unsafe { at.write_bytes(0, bytes) };
        Ok(Pinned { at, bytes, context: Arc::clone(context) })
    }
}

impl HostMemory for Pinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is as long as that, initialised, and only this refers to it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.may_free() {
            // SAFETY: allocated once, and nobody refers to it any more.
            ended("unpinning memory", unsafe { result::free_host(self.at.as_ptr().cast()) });
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
