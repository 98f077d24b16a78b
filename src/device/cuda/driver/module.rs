//! Kernels, and what they are given.
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

use std::ffi::{CString, c_void};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys;

use super::stream::Stream;
use super::{Context, ended, failed, text};
use crate::device::cuda::entry::{Entries, entries, misfit};
use crate::device::cuda::error::CudaError;

/// More blocks of a kernel are not run at once, unless it is a user's own.
const BLOCKS_MAX: u64 = 1 << 20;

/// Kernels that a GPU has loaded.
pub struct Module {
    raw: sys::CUmodule,
    /// What each of them takes.
    entries: Entries,
    context: Arc<Context>,
}

// SAFETY: a module does not change once it is loaded.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel's argument.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// An address on the GPU.
    Address(u64),
    /// An `unsigned long long`.
    U64(u64),
    /// A `float`.
    F32(f32),
    /// A `double`.
    F64(f64),
    /// Eight `long long`s, handed over as one struct.
    Eight([i64; 8]),
}

/// In how many threads a kernel runs.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::cuda) struct Grid {
    pub(in crate::device::cuda) blocks: u32,
    /// Of each block.
    pub(in crate::device::cuda) threads: u32,
}

impl Grid {
    /// A thread for each element, up to a bound: kernels stride over those beyond.
    pub(in crate::device::cuda) fn of(elements: u64, threads: u32) -> Self {
        let blocks = elements.div_ceil(u64::from(threads)).min(BLOCKS_MAX) as u32;
        Grid { blocks, threads }
    }
}

impl Module {
    pub(in crate::device::cuda) fn load(
        context: &Arc<Context>,
        ptx: &str,
    ) -> Result<Self, CudaError> {
        context.bind()?;
        let entries = entries(ptx);
        let ptx = CString::new(ptx).map_err(|_| CudaError::Kernel {
            name: "PTX".to_owned(),
            why: "it contains a NUL byte".to_owned(),
        })?;
        // SAFETY: the text is PTX and ends with a NUL; the driver checks what it says.
        let raw = unsafe { result::module::load_data(ptx.as_ptr().cast()) };
        let raw = raw.map_err(|error| failed("loading kernels", error))?;
        Ok(Module { raw, entries, context: Arc::clone(context) })
    }

    /// Tells `stream` to run a kernel for `elements` elements, in blocks of `block` threads. Kernels
    /// stride over the elements that the largest grid has no thread for.
    ///
    /// # Errors
    /// There is no kernel of that name, it takes other arguments, or the GPU failed.
    ///
    /// # Safety
    /// The kernel keeps to the memory that it is given: for batches that of a
    /// [`View`](crate::device::cuda::View) that is there until the stream was told, and is then dropped:
    /// of one that is forgotten nobody knows that the stream uses its memory.
    pub unsafe fn run(
        &self,
        stream: &Stream,
        name: &str,
        elements: u64,
        block: u32,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        self.launch(stream, name, Grid::of(elements, block.max(1)), &mut arguments.to_vec())
    }

    pub(in crate::device::cuda) fn launch(
        &self,
        stream: &Stream,
        name: &str,
        grid: Grid,
        arguments: &mut [Argument],
    ) -> Result<(), CudaError> {
        let Grid { blocks, threads } = grid;
        if blocks == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let wrong = |why: String| CudaError::Kernel { name: name.to_owned(), why };
        // The driver reads as many arguments as the kernel takes, however many there are.
        let params = self.entries.get(name).ok_or_else(|| wrong("not found".to_owned()))?;
        if let Some(why) = misfit(params, arguments) {
            return Err(wrong(why));
        }
        let c_name = CString::new(name).map_err(|_| wrong("its name has a NUL byte".to_owned()))?;
        // SAFETY: the module is alive.
        let function = unsafe { result::module::get_function(self.raw, c_name) };
        let function = function.map_err(|error| wrong(format!("not found: {}", text(error))))?;
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| match argument {
                Argument::Address(value) | Argument::U64(value) => (&raw mut *value).cast(),
                Argument::F32(value) => (&raw mut *value).cast(),
                Argument::F64(value) => (&raw mut *value).cast(),
                Argument::Eight(value) => (&raw mut *value).cast(),
            })
            .collect();
        let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
        // SAFETY: there are as many arguments as the kernel takes, of its widths, and the driver copies
        // them before it returns. What a kernel then does is
        // not checked by anyone, as the guide says: it reaches what this process has on the GPU, and
        // memory of the host that is pinned.
        let launched = unsafe {
            result::launch_kernel(function, grid, block, 0, stream.handle().cast(), &mut pointers)
        };
        launched.map_err(|error| wrong(text(error)))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.may_free() {
            // SAFETY: loaded once; the driver waits for kernels that run.
            ended("unloading kernels", unsafe { result::module::unload(self.raw) });
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("raw", &self.raw).finish_non_exhaustive()
    }
}
