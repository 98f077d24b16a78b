//! NVIDIA GPUs as devices.
//!
//! The driver is looked for when a GPU is asked for; without one every function here is an error that
//! says so. What is copied comes from pinned memory, on a stream of the lane's own; what is done to it
//! there is done on other streams, which wait for the copy by events. While a run goes on nothing
//! waits for a stream: a lane keeps two copies under way, and asks now and then whether the older one
//! is done before it begins a third.
//!
//! `driver` is the only folder that calls the driver.

mod compiler;
mod driver;
mod entry;
mod error;
mod exported;
mod kernel;
mod lane;
mod memory;
mod reader;
mod timeline;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use compiler::Flaw;
pub use driver::{ANSWER_ENDING, ANSWER_RUNNING, Argument, Module, Stream};
use driver::{Context, Pinned};
pub use error::CudaError;
pub(crate) use exported::Exported;
pub use kernel::KERNELS;
use lane::CudaLane;
use memory::Blocks;
pub use memory::{CudaMemory, View};
use timeline::Timeline;

use super::{Device, Kernel, Lane};
use crate::fault::Result;
use crate::item::Pool;
use crate::stage::Worker;

/// One GPU.
pub struct Cuda {
    name: Arc<str>,
    context: Arc<Context>,
    /// Dropped before what the driver frees only once the GPU is done.
    blocks: Arc<Blocks>,
    host: Pool,
    /// Ours.
    kernels: Module,
    timeline: Timeline,
    /// This, for the batches that are on it.
    this: Weak<Cuda>,
}

/// The GPUs that somebody uses.
static OPEN: Mutex<BTreeMap<usize, Weak<Cuda>>> = Mutex::new(BTreeMap::new());

/// How many GPUs this machine has.
///
/// # Errors
/// There is no driver, or none that serves.
pub fn count() -> Result<usize, CudaError> {
    driver::count()
}

/// The GPU of a number, from 0. All who ask for it share its memory.
///
/// # Errors
/// There is no driver or no such GPU, or it failed.
pub fn open(ordinal: usize) -> Result<Arc<Cuda>, CudaError> {
    let mut open = OPEN.lock();
    if let Some(cuda) = open.get(&ordinal).and_then(Weak::upgrade) {
        return Ok(cuda);
    }
    let context = Context::open(ordinal)?;
    let kernels = Module::load(&context, KERNELS)?;
    let pinned = Arc::clone(&context);
    let host = Pool::pinned(move |bytes| Ok(Box::new(Pinned::new(&pinned, bytes)?)));
    let cuda = Arc::new_cyclic(|this| Cuda {
        name: Arc::from(format!("cuda:{ordinal}")),
        blocks: Arc::new(Blocks::new(&context)),
        context,
        host,
        kernels,
        timeline: Timeline::default(),
        this: Weak::clone(this),
    });
    open.insert(ordinal, Arc::downgrade(&cuda));
    Ok(cuda)
}

/// Compiles a kernel and compares what it takes, where that can be done: the compiler may not be here.
pub(crate) fn check(kernel: &Kernel) -> Result<(), Flaw> {
    if !kernel::can_be_checked(kernel) {
        return Ok(());
    }
    kernel::checked(kernel, None).map(drop)
}

/// Whether a kernel compiles, takes what it will be given and can be loaded by a GPU: one of those that
/// are in use, which are those that pipelines copy to. Batches of others are refused when they come.
pub(crate) fn ready(kernel: &Kernel) -> Result<(), CudaError> {
    let gpus: Vec<_> = OPEN.lock().values().filter_map(Weak::upgrade).collect();
    let mut refused = None;
    for gpu in &gpus {
        match kernel::compiled(&gpu.context, kernel) {
            Ok(_) => return Ok(()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => check(kernel).map_err(|flaw| flaw.of(kernel)),
    }
}

impl Cuda {
    /// What its maker calls it, such as `NVIDIA H200`.
    pub fn model(&self) -> &str {
        &self.context.model
    }

    /// Its memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.context.memory_bytes
    }

    /// Memory of it that nobody uses, in bytes.
    ///
    /// # Errors
    /// It failed.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        self.context.free_bytes()
    }

    /// A new stream on it, for work on batches: see [`CudaMemory::on`].
    ///
    /// # Errors
    /// It failed.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        Stream::new(&self.context)
    }

    /// How long what it was told may take: while a run goes on ([`ANSWER_RUNNING`] unless said), and
    /// once the run ends ([`ANSWER_ENDING`]). Then the run ends with an error, and memory that the GPU may
    /// still use is left to it: it is neither freed nor used again. A call that the driver itself does not
    /// return from can't be bounded.
    pub fn wait_at_most(&self, running: Duration, ending: Duration) {
        self.context.wait_at_most(running, ending);
    }

    /// Loads kernels from PTX; ours are `cuda::KERNELS`.
    ///
    /// # Errors
    /// The GPU refuses them.
    pub fn load(&self, ptx: &str) -> Result<Module, CudaError> {
        Module::load(&self.context, ptx)
    }

    /// The stream of another library, by its handle (a `CUstream`).
    ///
    /// # Safety
    /// The handle is that of a stream on this GPU, in its primary context, and the stream is there for
    /// as long as what this returns.
    #[expect(unsafe_code, reason = "only the caller knows what the handle is")]
    pub unsafe fn stream_of(&self, handle: *mut c_void) -> Stream {
        // SAFETY: as this function's own.
        unsafe { Stream::borrowed(&self.context, handle) }
    }
}

impl Device for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn host_pool(&self) -> &Pool {
        &self.host
    }

    fn open_lane(&self, worker: &Worker) -> Result<Box<dyn Lane>> {
        let cuda = self.this.upgrade().expect("it is asked, so it is there");
        Ok(Box::new(CudaLane::new(cuda, worker)?))
    }

    fn as_cuda(&self) -> Option<&Cuda> {
        Some(self)
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}, {})", self.name, self.model())
    }
}
