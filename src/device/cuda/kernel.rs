//! Kernels: ours, made ahead as PTX, and those that users write, compiled when they are first used.

use std::sync::Arc;

use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::driver::{Context, Module};
use super::error::CudaError;
use crate::device::transform::Kernel;

/// Ours, as PTX: those of the device stages, and two for measurements.
pub const KERNELS: &str = include_str!("../kernels/kernels.ptx");

/// Threads of a block of our kernels.
pub(super) const BLOCK: u32 = 256;

/// A user's kernel on one GPU.
pub(super) fn compiled(context: &Arc<Context>, kernel: &Kernel) -> Result<Module, CudaError> {
    kernel.check()?;
    Module::load(context, &to_ptx(kernel)?)
}

/// The kernel's PTX: as it is given, or compiled from CUDA source by NVRTC, which needs no GPU.
fn to_ptx(kernel: &Kernel) -> Result<String, CudaError> {
    let wrong = |why: String| CudaError::Kernel { name: kernel.name.clone(), why };
    if kernel.source.trim_start().starts_with("//") && kernel.source.contains(".entry") {
        return Ok(kernel.source.clone());
    }
    if !compiler_is_there() {
        return Err(wrong(
            "its source needs NVIDIA's compiler NVRTC (libnvrtc.so), which was not found: install it \
             (`pip install nvidia-cuda-nvrtc-cu12` and add its `lib` to LD_LIBRARY_PATH), or give PTX"
                .to_owned(),
        ));
    }
    let options = CompileOptions { arch: Some("compute_70"), ..CompileOptions::default() };
    match compile_ptx_with_opts(&kernel.source, options) {
        Ok(ptx) => Ok(ptx.to_src()),
        Err(CompileError::CompileError { log, .. }) => {
            Err(wrong(format!("its source does not compile:\n{}", log.to_string_lossy())))
        }
        Err(error) => Err(wrong(format!("its source does not compile: {error}"))),
    }
}

/// Without this question a missing compiler would be a panic.
#[expect(unsafe_code, reason = "looking for a library runs what it does when it is loaded")]
fn compiler_is_there() -> bool {
    // SAFETY: only NVIDIA's library has that name.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}
