//! Memory on a GPU, handed from batch to batch: what is given back may still be in use there, and who
//! takes it waits for that on the GPU and not on the host.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::driver::{Block, Context, Event, Stream};
use super::error::CudaError;
use crate::device::Memory;
use crate::fault::Result;
use crate::item::size_class;

/// Batches whose memory may be given back while the GPU works on it, before memory is used again that
/// has to be waited for.
const BATCHES: usize = 3;

/// Blocks of a GPU's memory that wait to be used again.
pub(super) struct Blocks {
    context: Arc<Context>,
    idle: Mutex<BTreeMap<usize, Vec<Idle>>>,
}

struct Idle {
    block: Block,
    /// What it was last used for is over when these have happened.
    uses: Vec<Arc<Event>>,
}

impl Blocks {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Blocks { context: Arc::clone(context), idle: Mutex::default() }
    }

    /// A block for `bytes` bytes, which work on `stream` may write to from now on.
    ///
    /// One that is given back while the GPU still works on it is taken only once there are a few such,
    /// `in_use`: a copy into it would have to wait for that work.
    fn take(&self, bytes: usize, in_use: usize, stream: &Stream) -> Result<Block, CudaError> {
        let class = size_class(bytes);
        let idle = {
            let mut idle = self.idle.lock();
            let blocks = idle.entry(class).or_default();
            let over =
                |idle: &Idle| idle.uses.iter().all(|use_| matches!(use_.happened(), Ok(true)));
            // One that nobody uses any more, or else the one that was given back first.
            let which = blocks.iter().position(over).or((blocks.len() >= in_use).then_some(0));
            which.map(|which| blocks.remove(which))
        };
        let Some(Idle { block, uses }) = idle else {
            return Block::new(&self.context, class).or_else(|error| {
                // What waits to be used again makes room.
                self.idle.lock().clear();
                Block::new(&self.context, class).map_err(|_| error)
            });
        };
        for use_ in &uses {
            stream.wait(use_)?;
        }
        Ok(block)
    }

    fn give_back(&self, block: Block, uses: Vec<Arc<Event>>) {
        self.idle.lock().entry(block.bytes).or_default().push(Idle { block, uses });
    }
}

/// A tensor's memory on a GPU. It goes back to the GPU's pool when it is dropped, and is used again
/// only after the work on it that was asked for before is done.
pub struct CudaMemory {
    /// There until it is dropped.
    block: Option<Block>,
    bytes: usize,
    blocks: Arc<Blocks>,
    /// Its bytes are there once this has happened.
    ready: Arc<Event>,
    /// Work on it since.
    uses: Mutex<Vec<Arc<Event>>>,
}

impl CudaMemory {
    /// Memory for `bytes` bytes, of which a batch has `per_batch`. `fill` tells `stream` how to fill it, and says when it is filled.
    pub(super) fn filled<T>(
        blocks: &Arc<Blocks>,
        bytes: usize,
        per_batch: usize,
        stream: &Stream,
        fill: impl FnOnce(&Block) -> Result<(T, Arc<Event>), CudaError>,
    ) -> Result<(Self, T), CudaError> {
        let block = blocks.take(bytes, per_batch.max(1) * BATCHES, stream)?;
        // A block that a failed GPU may still write to is freed, which waits for it.
        let (told, ready) = fill(&block)?;
        let blocks = Arc::clone(blocks);
        let uses = Mutex::default();
        Ok((CudaMemory { block: Some(block), bytes, blocks, ready, uses }, told))
    }

    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("there until it is dropped")
    }

    /// Work on `stream` may read and write it from now on; [`used`](Self::used) says until when.
    pub(super) fn enter(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.wait(&self.ready)?;
        self.uses.lock().iter().try_for_each(|use_| stream.wait(use_))
    }

    /// Waits until its bytes are there.
    pub(super) fn arrived(&self) -> Result<(), CudaError> {
        self.ready.reached(|| false)
    }

    pub(super) fn used(&self, until: Arc<Event>) {
        let mut uses = self.uses.lock();
        uses.retain(|use_| !matches!(use_.happened(), Ok(true)));
        uses.push(until);
    }

    /// Its bytes changed, and are there once `ready` has happened.
    pub(super) fn changed(&mut self, ready: Arc<Event>) {
        self.uses.get_mut().clear();
        self.ready = ready;
    }

    /// Lets work on `stream` use it for as long as the view is there: the stream first waits until the
    /// bytes have arrived, and the memory is used again only after what the stream was told meanwhile.
    /// The host waits for nothing.
    ///
    /// A batch can't be let go of while something works on it:
    ///
    /// ```compile_fail,E0505
    /// use forebay::device::cuda::Stream;
    /// use forebay::prelude::*;
    ///
    /// fn too_late(batch: DeviceBatch, stream: &Stream) -> Option<u64> {
    ///     let view = batch.tensors()[0].memory().as_cuda()?.on(stream).ok()?;
    ///     drop(batch);
    ///     Some(view.address())
    /// }
    /// ```
    ///
    /// # Errors
    /// The GPU failed.
    pub fn on<'a>(&'a self, stream: &'a Stream) -> Result<View<'a>, CudaError> {
        self.enter(stream)?;
        Ok(View { memory: self, stream })
    }
}

impl Memory for CudaMemory {
    fn as_host(&self) -> Option<&[u8]> {
        None
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        let stream = Stream::new(&self.blocks.context)?;
        self.enter(&stream)?;
        stream.download(&mut [(self.block(), to)])?;
        Ok(())
    }

    fn as_cuda(&self) -> Option<&CudaMemory> {
        Some(self)
    }

    fn as_cuda_mut(&mut self) -> Option<&mut CudaMemory> {
        Some(self)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut uses = std::mem::take(self.uses.get_mut());
            uses.push(Arc::clone(&self.ready));
            self.blocks.give_back(block, uses);
        }
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaMemory({} bytes)", self.bytes)
    }
}

/// A tensor on a GPU while a stream works on it.
#[derive(Debug)]
pub struct View<'a> {
    memory: &'a CudaMemory,
    stream: &'a Stream,
}

impl View<'_> {
    /// Where the first element is, on the GPU.
    pub fn address(&self) -> u64 {
        self.memory.block().address()
    }

    /// How many bytes of data are there.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        match self.stream.record() {
            Ok(until) => self.memory.used(until),
            // A GPU that can't record an event does no more work either.
            Err(error) => tracing::debug!(%error, "the end of a use could not be recorded"),
        }
    }
}
