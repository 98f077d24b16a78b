//! The driver of NVIDIA's GPUs: what we use of it, each thing with its owner and its end.
//!
//! The only file of the device path that contains `unsafe`. Everything here can be called from any
//! thread, makes the context current on that thread first, and turns every failure into an error:
//! a driver that is not there, or too old to have a function, is found by [`Context::open`].
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::error::CudaError;
use crate::item::{Buffer, HostMemory};

/// The oldest driver that serves, as it counts versions: 12.0.
const OLDEST: i32 = 12_000;

/// Functions of the driver that are called below. One that a driver lacks would be a panic.
const FUNCTIONS: [&str; 31] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
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

/// How often a copy or a kernel is asked whether it is done: at first, and at last.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

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
        Err(error) => return Err(failed("starting the driver", error)),
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
        // SAFETY: as above; released once, when this is dropped.
        let raw = unsafe { result::primary_ctx::retain(device) };
        let raw = raw.map_err(|error| failed("opening the GPU", error))?;
        Ok(Arc::new(Context { device, raw, model, memory_bytes: memory as u64 }))
    }

    /// Memory of the GPU that nobody uses, in bytes.
    pub(super) fn free_bytes(&self) -> Result<u64, CudaError> {
        self.bind()?;
        let (free, _) =
            result::mem_get_info().map_err(|error| failed("asking for free memory", error))?;
        Ok(free as u64)
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

/// Work that the GPU does in order.
pub struct Stream {
    raw: sys::CUstream,
    /// Whether it is somebody else's.
    borrowed: bool,
    context: Arc<Context>,
}

// SAFETY: the driver locks a stream while it is told something.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.bind()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failed("making a stream", error))?;
        Ok(Stream { raw, borrowed: false, context: Arc::clone(context) })
    }

    pub(super) unsafe fn borrowed(context: &Arc<Context>, handle: *mut c_void) -> Self {
        Stream { raw: handle.cast(), borrowed: true, context: Arc::clone(context) }
    }

    /// The driver's handle, a `CUstream`.
    pub fn handle(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// What comes after this on the stream begins once `event` has happened. The host goes on.
    pub(super) fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }
            .map_err(|error| failed("waiting for an event", error))
    }

    /// Happens once everything that the stream was told so far is done.
    pub(super) fn record(&self) -> Result<Event, CudaError> {
        self.context.bind()?;
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .map_err(|error| failed("making an event", error))?;
        let event = Event { raw, context: Arc::clone(&self.context) };
        // SAFETY: both are alive.
        unsafe { result::event::record(raw, self.raw) }
            .map_err(|error| failed("recording an event", error))?;
        Ok(event)
    }

    /// Copies `from` to the beginning of `to`, while the host goes on. The bytes must be in pinned
    /// memory for that; from other memory the driver copies before it returns.
    pub(super) fn upload(&self, from: Buffer, to: &Block) -> Result<Upload, CudaError> {
        assert!(from.len() <= to.bytes, "a block is as long as what is copied to it");
        self.context.bind()?;
        let from = ManuallyDrop::new(from);
        // SAFETY: `Upload` keeps the bytes, unchanged and in place, until the copy is done. The
        // block's memory outlives it, as freeing waits for all work of the GPU.
        let copied = unsafe { result::memcpy_htod_async(to.at, &from[..], self.raw) };
        let upload = copied.map_err(|error| failed("copying to the GPU", error));
        // Without an event nobody could tell when the bytes may be used again: then they never are.
        upload.and_then(|()| Ok(Upload { from, done: Arc::new(self.record()?) }))
    }

    /// Copies the beginning of `from` to `to`, and waits for it.
    pub(super) fn download(&self, from: &Block, to: &mut [u8]) -> Result<(), CudaError> {
        assert!(to.len() <= from.bytes, "a block is as long as what is copied from it");
        self.context.bind()?;
        // SAFETY: the bytes stay borrowed until the copy is done: below, or where the stream is
        // told to end when nobody can tell.
        let copied = unsafe { result::memcpy_dtoh_async(to, from.at, self.raw) };
        copied.map_err(|error| failed("copying from the GPU", error))?;
        self.record().and_then(|done| done.reached()).inspect_err(|_| self.end())
    }

    /// Waits until everything that it was told is done: only where the stream ends.
    fn end(&self) {
        // SAFETY: the stream is alive.
        ended("ending a stream", unsafe { result::stream::synchronize(self.raw) });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.borrowed && self.context.bind().is_ok() {
            // SAFETY: made once. The driver ends what the stream was told before it frees it.
            ended("closing a stream", unsafe { result::stream::destroy(self.raw) });
        }
    }
}

/// A moment of a stream.
pub(super) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: the driver locks an event while it is asked something.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Whether it has happened.
    pub(super) fn happened(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(failed("working", error)),
        }
    }

    /// Asks now and then whether it has happened, until it has.
    pub(super) fn reached(&self) -> Result<(), CudaError> {
        let (mut pause, longest) = POLL;
        while !self.happened()? {
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// The time from `earlier` to this; both have happened.
    pub(super) fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        self.context.bind()?;
        // SAFETY: both are alive, and recorded with timing.
        let ms = unsafe { result::event::elapsed(earlier.raw, self.raw) };
        let ms = ms.map_err(|error| failed("asking for a time", error))?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made once; the driver keeps what is left of it until it has happened.
            ended("closing an event", unsafe { result::event::destroy(self.raw) });
        }
    }
}

/// A copy to the GPU under way, and the bytes that it reads. Dropping it waits for the copy.
pub(super) struct Upload {
    from: ManuallyDrop<Buffer>,
    /// Happens when the copy is done.
    pub(super) done: Arc<Event>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A GPU that failed reads nothing any more.
        if let Err(error) = self.done.reached() {
            tracing::debug!(%error, "a copy failed");
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.from) };
    }
}

/// Memory on the GPU.
pub(super) struct Block {
    at: sys::CUdeviceptr,
    /// How much.
    pub(super) bytes: usize,
    context: Arc<Context>,
}

impl Block {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
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
    pub(super) fn address(&self) -> u64 {
        self.at
    }

    /// The GPU's number.
    pub(super) fn ordinal(&self) -> i32 {
        self.context.device
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once; freeing waits for all work that could use it.
            ended("freeing memory", unsafe { result::free_sync(self.at) });
        }
    }
}

/// Memory of the host from which the GPU copies by itself. Cached, not write-combined: decoders read
/// what they wrote.
pub(super) struct Pinned {
    at: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: memory that only its owner refers to, like a box.
unsafe impl Send for Pinned {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
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
        if self.context.bind().is_ok() {
            // SAFETY: allocated once, and nobody refers to it any more.
            ended("unpinning memory", unsafe { result::free_host(self.at.as_ptr().cast()) });
        }
    }
}

/// Kernels that a GPU has loaded.
pub struct Module {
    raw: sys::CUmodule,
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

impl Module {
    pub(super) fn load(context: &Arc<Context>, ptx: &str) -> Result<Self, CudaError> {
        context.bind()?;
        let ptx = CString::new(ptx).map_err(|_| CudaError::Kernel {
            name: "PTX".to_owned(),
            why: "it contains a NUL byte".to_owned(),
        })?;
        // SAFETY: the text is PTX and ends with a NUL; the driver checks what it says.
        let raw = unsafe { result::module::load_data(ptx.as_ptr().cast()) };
        let raw = raw.map_err(|error| failed("loading kernels", error))?;
        Ok(Module { raw, context: Arc::clone(context) })
    }

    /// Tells `stream` to run a kernel for `elements` elements, in blocks of `block` threads. Kernels
    /// stride over the elements that the largest grid has no thread for.
    ///
    /// # Errors
    /// There is no kernel of that name, or the GPU failed.
    ///
    /// # Safety
    /// The arguments are those that the kernel takes, and it keeps to the memory that it is given: for
    /// batches that of a [`View`](super::View) that is there until the stream was told.
    pub unsafe fn run(
        &self,
        stream: &Stream,
        name: &str,
        elements: u64,
        block: u32,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        self.launch(stream, name, elements, block, &mut arguments.to_vec())
    }

    pub(super) fn launch(
        &self,
        stream: &Stream,
        name: &str,
        elements: u64,
        block: u32,
        arguments: &mut [Argument],
    ) -> Result<(), CudaError> {
        if elements == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let wrong = |why: String| CudaError::Kernel { name: name.to_owned(), why };
        let c_name = CString::new(name).map_err(|_| wrong("its name has a NUL byte".to_owned()))?;
        // SAFETY: the module is alive.
        let function = unsafe { result::module::get_function(self.raw, c_name) };
        let function = function.map_err(|error| wrong(format!("not found: {}", text(error))))?;
        let grid = elements.div_ceil(u64::from(block)).min(1 << 20) as u32;
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| match argument {
                Argument::Address(value) | Argument::U64(value) => (&raw mut *value).cast(),
                Argument::F32(value) => (&raw mut *value).cast(),
                Argument::F64(value) => (&raw mut *value).cast(),
                Argument::Eight(value) => (&raw mut *value).cast(),
            })
            .collect();
        let (grid, block) = ((grid, 1, 1), (block, 1, 1));
        // SAFETY: the driver copies the arguments before it returns. What a kernel does is between
        // it and the GPU, which keeps it to the memory of this process there.
        let launched =
            unsafe { result::launch_kernel(function, grid, block, 0, stream.raw, &mut pointers) };
        launched.map_err(|error| wrong(text(error)))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded once; the driver waits for kernels that run.
            ended("unloading kernels", unsafe { result::module::unload(self.raw) });
        }
    }
}

fn failed(doing: &'static str, error: DriverError) -> CudaError {
    CudaError::Failed { doing, why: text(error) }
}

/// What the driver calls an error.
fn text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let says = error.error_string().map(|says| says.to_string_lossy().into_owned());
    match (name, says) {
        (Ok(name), Ok(says)) => format!("{says} ({name})"),
        _ => format!("error {}", error.0 as u32),
    }
}

/// The end of something can't be refused; a failed GPU says so at the next thing asked of it.
fn ended(doing: &'static str, result: Result<(), DriverError>) {
    if let Err(error) = result {
        tracing::debug!(error = text(error), "{doing} failed");
    }
}

macro_rules! debug {
    ($($of:ident => $field:ident),*) => {
        $(impl fmt::Debug for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($of)).field(stringify!($field), &self.$field)
                    .finish_non_exhaustive()
            }
        })*
    };
}

debug!(Context => model, Stream => raw, Event => raw, Upload => done, Block => bytes,
    Pinned => bytes, Module => raw);
