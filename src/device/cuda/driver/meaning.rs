//! What the driver's errors mean, and what to do about them. Those that a user can do nothing about are not
//! here: what the driver says of them has to do.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

/// What an error means and what to do.
pub(super) fn meaning(error: DriverError) -> Option<&'static str> {
    use CUresult::*;
    Some(match error.0 {
        CUDA_ERROR_STUB_LIBRARY => {
            "the `libcuda.so` that was found is the toolkit's, which is only there to link with: take its \
             folder (`stubs`) out of LD_LIBRARY_PATH, so that the driver's own is found"
        }
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "`libcuda.so` and the driver in the kernel are of different versions: restart the machine after \
             an update of the driver; in a container take the image's own `libcuda.so` (`cuda-compat`) out \
             of LD_LIBRARY_PATH"
        }
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "`cuda-compat` stands in for a newer driver only on GPUs for data centers, and this is none: \
             take it out of LD_LIBRARY_PATH, and install a driver that serves CUDA 12.0 or newer"
        }
        CUDA_ERROR_SYSTEM_NOT_READY => {
            "what connects the GPUs of this machine has not started: look at `systemctl status \
             nvidia-fabricmanager`"
        }
        CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "another process has the GPU to itself, or it is lost: look at its processes and its compute \
             mode in `nvidia-smi`, and for `Xid` in `dmesg`"
        }
        CUDA_ERROR_INVALID_DEVICE => {
            "the GPU is not there, or not any more: look at CUDA_VISIBLE_DEVICES, for it in `nvidia-smi`, \
             and for `Xid` in `dmesg`"
        }
        CUDA_ERROR_NO_BINARY_FOR_GPU => {
            "the kernels are not for such an old GPU: compute capability 7.0 or newer is needed"
        }
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is older than the compiler of the kernels: install a newer driver, or compile them \
             with an older NVRTC"
        }
        CUDA_ERROR_ECC_UNCORRECTABLE => {
            "memory of the GPU is broken, and what was on it is lost: start again; if it comes back, look \
             at `nvidia-smi -q -d ECC` and for `Xid` in `dmesg`, and have the GPU reset or replaced"
        }
        CUDA_ERROR_NVLINK_UNCORRECTABLE => {
            "a link between GPUs failed: look at `nvidia-smi nvlink -e` and for `Xid` in `dmesg`, and start \
             again"
        }
        CUDA_ERROR_ILLEGAL_ADDRESS | CUDA_ERROR_MISALIGNED_ADDRESS => {
            "a kernel used memory that it was not given: run this under `compute-sanitizer`, and see that a \
             kernel of your own stops at the number of elements; this process can't use the GPU any more, \
             so start again"
        }
        CUDA_ERROR_LAUNCH_FAILED | CUDA_ERROR_ILLEGAL_INSTRUCTION => {
            "a kernel crashed: run a kernel of your own under `compute-sanitizer`, and look for `Xid` in \
             `dmesg`; this process can't use the GPU any more, so start again"
        }
        CUDA_ERROR_LAUNCH_TIMEOUT => {
            "a kernel took longer than the system lets a GPU with a screen: make batches smaller, or use \
             another GPU; this process can't use it any more, so start again"
        }
        CUDA_ERROR_UNKNOWN => {
            "look for `Xid` in `dmesg`, and whether `nvidia-smi` still sees the GPU; start again, and \
             restart the machine if it comes back"
        }
        _ => return None,
    })
}

/// Whether the GPU does nothing any more for this process after such an error.
pub(super) fn is_final(error: DriverError) -> bool {
    use CUresult::*;
    matches!(
        error.0,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_INVALID_DEVICE
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
    )
}
