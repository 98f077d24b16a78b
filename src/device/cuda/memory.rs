//! Memory on a GPU, handed from batch to batch: what is given back may still be in use there, and who
//! takes it waits for that on the GPU and not on the host.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::driver::{Block, Context, End, Event, Lent, Pinned, Stream};
use super::error::CudaError;
use crate::device::Memory;
use crate::fault::Result;
use crate::item::{Buffer, Pool, size_class};

/// Batches whose memory may be given back while the GPU works on it, before memory is used again that
/// has to be waited for.
const BATCHES: usize = 3;

/// What is copied back at once at most, in bytes: a copy is waited for while the next is under way.
const PIECE: usize = 4 << 20;

/// Blocks of a GPU's memory that wait to be used again.
pub(super) struct Blocks {
    context: Arc<Context>,
    /// Pinned memory through which tensors are copied back to any other: a copy to other memory would hold
    /// up whoever asks for it, for as long as a GPU does not answer.
    back: Pool,
    idle: Mutex<BTreeMap<usize, Vec<Idle>>>,
    /// Locked by who frees what is idle: meanwhile there is no memory for others either.
    making_room: Mutex<()>,
}

struct Idle {
    block: Block,
    uses: Uses,
}

/// What works on memory.
#[derive(Default)]
struct Uses {
    /// It is over when these have happened.
    until: Vec<Arc<Event>>,
    /// Or nobody can tell when it is.
    unknown: Option<CudaError>,
}

impl Uses {
    fn add(&mut self, end: End) {
        match end {
            End::At(until) => self.until.push(until),
            End::Now => {}
            End::Unknown(error) => self.unknown = Some(error),
        }
    }

    fn are_over(&self) -> bool {
        self.until.iter().all(|use_| matches!(use_.happened(), Ok(true)))
    }

    /// They are over when all of these have happened.
    fn known(&self) -> Result<&[Arc<Event>], CudaError> {
        match &self.unknown {
            Some(error) => Err(error.clone()),
            None => Ok(&self.until),
        }
    }

    /// What `stream` is told from now on begins when they are over.
    fn before(&self, stream: &Stream) -> Result<(), CudaError> {
        self.known()?.iter().try_for_each(|use_| stream.wait(use_))
    }
}

impl Blocks {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let pinned = Arc::clone(context);
        let back = Pool::pinned(move |bytes| Ok(Box::new(Pinned::new(&pinned, bytes)?)));
        let (idle, making_room) = Default::default();
        Blocks { context: Arc::clone(context), back, idle, making_room }
    }

    /// A block for `bytes` bytes, which work on `stream` may write to from now on.
    ///
    /// One that is given back while the GPU still works on it is taken only once there are a few such,
    /// `in_use`: a copy into it would have to wait for that work.
    fn take(
        &self,
        bytes: usize,
        in_use: usize,
        stream: &Stream,
        is_ending: impl Fn() -> bool,
    ) -> Result<Block, CudaError> {
        let class = size_class(bytes);
        let idle = {
            let mut idle = self.idle.lock();
            let blocks = idle.entry(class).or_default();
            let over = |idle: &Idle| idle.uses.are_over();
            // One that nobody uses any more, or else the one that was given back first.
            let which = blocks.iter().position(over).or((blocks.len() >= in_use).then_some(0));
            which.map(|which| blocks.remove(which))
        };
        let Some(Idle { block, uses }) = idle else {
            return Block::new(&self.context, class).or_else(|error| {
                // What waits to be used again makes room.
                let _alone = self.making_room.lock();
                self.free_idle(is_ending);
                Block::new(&self.context, class).map_err(|_| error)
            });
        };
        match uses.before(stream) {
            Ok(()) => Ok(block),
            Err(error) => {
                self.give_back(block, uses);
                Err(error)
            }
        }
    }

    fn give_back(&self, block: Block, uses: Uses) {
        match &uses.unknown {
            Some(error) => block.leave(error),
            None => self.idle.lock().entry(block.bytes).or_default().push(Idle { block, uses }),
        }
    }

    /// Frees what waits to be used again, once nothing uses any of it: the driver would wait for that
    /// without an end.
    fn free_idle(&self, is_ending: impl Fn() -> bool) {
        let idle = std::mem::take(&mut *self.idle.lock());
        for use_ in idle.values().flatten().flat_map(|idle| &idle.uses.until) {
            if let Err(error) = use_.reached(&is_ending) {
                tracing::debug!(%error, "the last use of memory failed");
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.free_idle(|| true);
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
    uses: Mutex<Uses>,
}

impl CudaMemory {
    /// Memory for `bytes` bytes, of which a batch has `per_batch`. `fill` tells `stream` how to fill it, and
    /// says when it is filled. Where memory is short, what waits to be used again is waited for, for a
    /// shorter time once `is_ending` says that the run ends.
    pub(super) fn filled<T>(
        blocks: &Arc<Blocks>,
        bytes: usize,
        per_batch: usize,
        stream: &Stream,
        is_ending: impl Fn() -> bool,
        fill: impl FnOnce(&Block) -> Result<(T, Arc<Event>), CudaError>,
    ) -> Result<(Self, T), CudaError> {
        let block = blocks.take(bytes, per_batch.max(1) * BATCHES, stream, is_ending)?;
        let (told, ready) = match fill(&block) {
            Ok(filled) => filled,
            Err(error) => {
                // Some of it may have been told.
                let mut uses = Uses::default();
                uses.add(stream.end());
                blocks.give_back(block, uses);
                return Err(error);
            }
        };
        let blocks = Arc::clone(blocks);
        let uses = Mutex::default();
        Ok((CudaMemory { block: Some(block), bytes, blocks, ready, uses }, told))
    }

    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("there until it is dropped")
    }

    /// Work on `stream` may read and write it from now on; [`used`](Self::used) or
    /// [`used_by`](Self::used_by) say until when.
    pub(super) fn enter(&self, stream: &Stream) -> Result<(), CudaError> {
        let (memory, stream_of) = (self.blocks.context.name(), stream.context().name());
        if memory != stream_of {
            return Err(CudaError::OtherGpu { memory, stream: stream_of });
        }
        stream.wait(&self.ready)?;
        self.uses.lock().before(stream)
    }

    /// Waits until its bytes are there, and until work on it is over: that may write to it.
    pub(super) fn arrived(&self) -> Result<(), CudaError> {
        self.ready.reached(|| false)?;
        let until = self.uses.lock().known()?.to_vec();
        until.iter().try_for_each(|use_| use_.reached(|| false))
    }

    pub(super) fn used(&self, until: Arc<Event>) {
        let uses = &mut self.uses.lock();
        uses.until.retain(|use_| !matches!(use_.happened(), Ok(true)));
        uses.until.push(until);
    }

    /// It is used until what `stream` was told so far is over.
    pub(super) fn used_by(&self, stream: &Stream) {
        let end = stream.end();
        self.uses.lock().add(end);
    }

    /// Its bytes changed, and are there once `ready` has happened.
    pub(super) fn changed(&mut self, ready: Arc<Event>) {
        *self.uses.get_mut() = Uses::default();
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
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_host(&self) -> Option<&[u8]> {
        None
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        if to.len() != self.bytes() {
            let (held, asked) = (self.bytes(), to.len());
            return Err(format!("{asked} bytes are asked for of memory of {held}").into());
        }
        let stream = Stream::new(&self.blocks.context)?;
        self.enter(&stream)?;
        let mut last: Option<(Lent<Buffer>, &mut [u8])> = None;
        for (i, piece) in to.chunks_mut(PIECE).enumerate() {
            // Few sizes, as pinned memory is kept.
            let mut part = self.blocks.back.try_take(piece.len().next_power_of_two())?;
            part.truncate(piece.len());
            let part = stream.download_part(self.block(), i * PIECE, part);
            let part = part.inspect_err(|_| self.used_by(&stream))?;
            self.used(Arc::clone(&part.done));
            if let Some((part, to)) = last.replace((part, piece)) {
                arrives(part, to)?;
            }
        }
        last.map_or(Ok(()), |(part, to)| arrives(part, to))
    }

    fn as_cuda(&self) -> Option<&CudaMemory> {
        Some(self)
    }

    fn as_cuda_mut(&mut self) -> Option<&mut CudaMemory> {
        Some(self)
    }
}

fn arrives(part: Lent<Buffer>, to: &mut [u8]) -> Result<()> {
    let (part, _) = part.back(|| false)?;
    to.copy_from_slice(&part);
    Ok(())
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut uses = std::mem::take(self.uses.get_mut());
            uses.until.push(Arc::clone(&self.ready));
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
        self.memory.used_by(self.stream);
    }
}
