//! What can be wrong with a GPU.

use std::time::Duration;

/// Why a GPU can't be used, or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "this machine has no driver for NVIDIA GPUs (libcuda.so was not found): install one, or \
         write `device: auto`, which is the host where there is no GPU"
    )]
    NoDriver,
    /// The driver does not start.
    #[error("the driver for NVIDIA GPUs can't be started: {why}")]
    NoStart {
        /// What the driver says.
        why: String,
    },
    /// The driver is too old.
    #[error(
        "the driver serves CUDA {}.{}, and {}.{} or newer is needed: install a newer driver",
        .found / 1000, .found % 1000 / 10, .needed / 1000, .needed % 1000 / 10
    )]
    DriverTooOld {
        /// What it serves, as 1000 x major + 10 x minor.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// The driver lacks a function.
    #[error("the driver has no function `{function}`: install one that serves CUDA 12.0 or newer")]
    DriverLacks {
        /// The function.
        function: &'static str,
    },
    /// There is no such GPU.
    #[error("there is no GPU {ordinal}: {}", those_there(*.count))]
    NoDevice {
        /// The one asked for, from 0.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU has no memory left.
    #[error(
        "the GPU has no {bytes} bytes of memory left ({free} are free): make batches smaller, hold \
         fewer of them at a time, or lower the `buffer` of the stages on the GPU"
    )]
    OutOfMemory {
        /// How much was wanted.
        bytes: u64,
        /// How much there was.
        free: u64,
    },
    /// The system can't pin more memory.
    #[error(
        "the system could not pin {bytes} bytes of memory: lower the `buffer` or the `workers` of the \
         stages before the upload, make batches smaller, or raise the limit of locked memory (`ulimit -l`)"
    )]
    NoPinnedMemory {
        /// How much was wanted.
        bytes: u64,
    },
    /// A tensor is not on a GPU.
    #[error("`{tensor}` is not on a GPU: put `device.upload` before this stage")]
    Elsewhere {
        /// The tensor.
        tensor: String,
    },
    /// A tensor is on another GPU than what is to work on it.
    #[error(
        "memory of {memory} can't be used on a stream of {stream}: take a stream of the batch's own \
         device, or copy the batch there (`device.download`, then `device.upload`)"
    )]
    OtherGpu {
        /// The GPU that the tensor is on.
        memory: String,
        /// The other.
        stream: String,
    },
    /// A kernel can't be used.
    #[error("kernel `{name}`: {why}")]
    Kernel {
        /// The kernel.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The GPU does not do what it was told.
    #[error(
        "{gpu} has not answered for {:.1} s: memory that it may still use is left to it and lost to \
         this process; look for it in `nvidia-smi` and for `Xid` in `dmesg`, and start again",
        .waited.as_secs_f64()
    )]
    NoAnswer {
        /// The GPU.
        gpu: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The driver said no.
    #[error("the GPU failed while {doing}: {why}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// What the driver says, and what that means.
        why: String,
        /// Whether the GPU does nothing any more for this process.
        is_final: bool,
    },
}

impl CudaError {
    /// Whether the GPU does nothing any more for this process: then it uses no memory either.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, CudaError::Failed { is_final: true, .. })
    }
}

fn those_there(count: usize) -> String {
    match count {
        0 => "the driver sees none (is CUDA_VISIBLE_DEVICES set?)".to_owned(),
        1 => "the only one is `cuda:0`".to_owned(),
        n => format!("the last of {n} is `cuda:{}`", n - 1),
    }
}
