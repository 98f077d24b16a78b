//! The driver of NVIDIA's GPUs: what we use of it, each thing with its owner and its end.
//!
//! The folder is the only one of this path that calls the driver. Everything here can be called from any
//! thread, makes the context current on that thread first, and turns every failure into an error:
//! a driver that is not there, or too old to have a function, is found by [`Context::open`].
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

mod answer;
#[cfg(feature = "cufile")]
mod direct;
#[cfg(not(feature = "cufile"))]
#[path = "driver/direct_absent.rs"]
mod direct;
mod lent;
mod meaning;
mod memory;
mod module;
mod stream;

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::error::CudaError;
use answer::Answer;
pub use answer::{ANSWER_ENDING, ANSWER_RUNNING};
pub(super) use direct::DirectFile;
pub(super) use lent::Lent;
pub(super) use memory::{Block, Pinned};
pub(super) use module::Grid;
pub use module::{Argument, Module};
pub use stream::Stream;
pub(super) use stream::{End, Event};

/// The oldest driver that serves, as it counts versions: 12.0.
const OLDEST: i32 = 12_000;

/// Where files are read directly they are read in multiples of so many bytes.
pub(super) const DIRECT_UNIT: u64 = 4096;

/// Functions of the driver that are called below. One that a driver lacks would be a panic.
const FUNCTIONS: [&str; 32] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// How many GPUs there are.
pub(super) fn count() -> Result<usize, CudaError> {
    // SAFETY: only looks for the library, and for functions in it.
    unsafe {
        if !sys::is_culib_present() {
            return Err(CudaError::NoDriver);
        }
        let library = sys::culib();
        for name in FUNCTIONS {
            if library.get::<*const c_void>(name.as_bytes()).is_err() {
                return Err(CudaError::DriverLacks { function: name });
            }
        }
    }
    match result::init() {
        Ok(()) => {}
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        Err(error) => return Err(CudaError::NoStart { why: text(error) }),
    }
    let mut version = 0;
    // SAFETY: writes a number to where it is told.
    let told = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    told.result().map_err(|error| failed("asking for the driver's version", error))?;
    if version < OLDEST {
        return Err(CudaError::DriverTooOld { found: version, needed: OLDEST });
    }
    let count = result::device::get_count().map_err(|error| failed("counting the GPUs", error))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// One GPU, and this process's memory and work on it.
pub(super) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    /// What the GPU is called by its maker.
    pub(super) model: String,
    /// Its memory, in bytes.
    pub(super) memory_bytes: u64,
    /// What its processors can do: 90 is compute capability 9.0.
    pub(super) capability: i32,
    answer: Answer,
}

// SAFETY: the driver may be called from all threads; each call first makes the context current.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let count = count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let device = result::device::get(ordinal as i32)
            .map_err(|error| failed("asking for the GPU", error))?;
        let model = result::device::get_name(device)
            .map_err(|error| failed("asking for the GPU's name", error))?;
        // SAFETY: the device is the driver's own.
        let memory = unsafe { result::device::total_mem(device) };
        let memory = memory.map_err(|error| failed("asking for the GPU's memory", error))?;
        let capability = capability(device)?;
        // SAFETY: as above; released once, when this is dropped.
        let raw = unsafe { result::primary_ctx::retain(device) };
        let raw = raw.map_err(|error| failed("opening the GPU", error))?;
        let (memory_bytes, answer) = (memory as u64, Answer::default());
        Ok(Arc::new(Context { device, raw, model, memory_bytes, capability, answer }))
    }

    /// What people call the GPU: `cuda:0`.
    pub(super) fn name(&self) -> String {
        format!("cuda:{}", self.device)
    }

    /// Memory of the GPU that nobody uses, in bytes.
    pub(super) fn free_bytes(&self) -> Result<u64, CudaError> {
        self.bind()?;
        let (free, _) =
            result::mem_get_info().map_err(|error| failed("asking for free memory", error))?;
        Ok(free as u64)
    }

    /// See [`Cuda::wait_at_most`](super::Cuda::wait_at_most).
    pub(super) fn wait_at_most(&self, running: Duration, ending: Duration) {
        self.answer.wait_at_most(running, ending);
    }

    fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained for as long as this is there.
        unsafe { result::ctx::set_current(self.raw) }
            .map_err(|error| failed("making the GPU current", error))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; what lives in it holds a reference on this.
        ended("closing the GPU", unsafe { result::primary_ctx::release(self.device) });
    }
}

fn capability(device: sys::CUdevice) -> Result<i32, CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let number = |attribute| {
        // SAFETY: the device is the driver's own.
        let number = unsafe { result::device::get_attribute(device, attribute) };
        number.map_err(|error| failed("asking for the GPU's compute capability", error))
    };
    Ok(number(MAJOR)? * 10 + number(MINOR)?)
}

fn failed(doing: &'static str, error: DriverError) -> CudaError {
    CudaError::Failed { doing, why: text(error), is_final: meaning::is_final(error) }
}

/// What the driver calls an error, and what that means.
fn text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let says = error.error_string().map(|says| says.to_string_lossy().into_owned());
    let text = match (name, says) {
        (Ok(name), Ok(says)) => format!("{says} ({name})"),
        _ => format!("error {}", error.0 as u32),
    };
    match meaning::meaning(error) {
        Some(meaning) => format!("{text}: {meaning}"),
        None => text,
    }
}

/// The end of something can't be refused; a failed GPU says so at the next thing asked of it.
fn ended(doing: &'static str, result: Result<(), DriverError>) {
    if let Err(error) = result {
        tracing::debug!(error = text(error), "{doing} failed");
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("model", &self.model).finish_non_exhaustive()
    }
}
