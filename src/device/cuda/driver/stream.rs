//! What a GPU is told to do in order, and when it is done.
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::memory::Block;
use super::{Context, Lent, ended, failed};
use crate::device::cuda::error::CudaError;
use crate::item::{Buffer, Tensor};

/// How often a copy or a kernel is asked whether it is done: at first, and at last.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

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
    pub(in crate::device::cuda) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.bind()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failed("making a stream", error))?;
        Ok(Stream { raw, borrowed: false, context: Arc::clone(context) })
    }

    pub(in crate::device::cuda) unsafe fn borrowed(
        context: &Arc<Context>,
        handle: *mut c_void,
    ) -> Self {
        Stream { raw: handle.cast(), borrowed: true, context: Arc::clone(context) }
    }

    /// The driver's handle, a `CUstream`.
    pub fn handle(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// What comes after this on the stream begins once `event` has happened. The host goes on.
    pub(in crate::device::cuda) fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }
            .map_err(|error| failed("waiting for an event", error))
    }

    /// Happens once everything that the stream was told so far is done.
    pub(in crate::device::cuda) fn record(&self) -> Result<Arc<Event>, CudaError> {
        self.context.bind()?;
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .map_err(|error| failed("making an event", error))?;
        let event = Arc::new(Event { raw, context: Arc::clone(&self.context) });
        // SAFETY: both are alive.
        unsafe { result::event::record(raw, self.raw) }
            .map_err(|error| failed("recording an event", error))?;
        Ok(event)
    }

    /// When what the stream was told so far is over. Asks once more where the driver can't say.
    pub(in crate::device::cuda) fn end(&self) -> End {
        match self.record().or_else(|_| self.record()) {
            Ok(event) => End::At(event),
            Err(error) if error.is_final() => End::Now,
            Err(error) => End::Unknown(error),
        }
    }

    /// Copies `from` to the beginning of `to`, while the host goes on. The bytes must be in pinned
    /// memory for that; from other memory the driver copies before it returns.
    pub(in crate::device::cuda) fn upload(
        &self,
        from: Buffer,
        to: &Block,
    ) -> Result<Lent<Buffer>, CudaError> {
        assert!(from.len() <= to.bytes, "a block is as long as what is copied to it");
        self.context.bind()?;
        let bytes = from.len();
        Lent::new(self, from, bytes, |from| {
            // SAFETY: the bytes are lent until the copy is done. So is the block: who gives it back says
            // when its last use is over.
            unsafe { result::memcpy_htod_async(to.address(), &from[..], self.raw) }
                .map_err(|error| failed("copying to the GPU", error))
        })
    }

    /// Copies the beginning of each block to the tensor beside it, while the host goes on. The tensors
    /// must be in pinned memory for that.
    pub(in crate::device::cuda) fn download(
        &self,
        from: &[&Block],
        to: Vec<Tensor>,
    ) -> Result<Lent<Vec<Tensor>>, CudaError> {
        self.context.bind()?;
        let bytes = to.iter().map(|tensor| tensor.bytes().len()).sum();
        Lent::new(self, to, bytes, |to| {
            let copies = from.iter().zip(to.iter_mut().map(Tensor::bytes_mut));
            // SAFETY: the tensors are lent until the copies are done.
            copies.into_iter().try_for_each(|(from, to)| unsafe { self.fetch(from, 0, to) })
        })
    }

    /// Copies what of a block begins at `at` to `to`, in pinned memory, while the host goes on.
    pub(in crate::device::cuda) fn download_part(
        &self,
        from: &Block,
        at: usize,
        to: Buffer,
    ) -> Result<Lent<Buffer>, CudaError> {
        self.context.bind()?;
        let bytes = to.len();
        // SAFETY: the bytes are lent until the copy is done.
        Lent::new(self, to, bytes, |to| unsafe { self.fetch(from, at, &mut to[..]) })
    }

    /// # Safety
    /// The bytes stay until what the stream was told is done, and nobody uses them.
    unsafe fn fetch(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<(), CudaError> {
        assert!(at + to.len() <= from.bytes, "a block is as long as what is copied from it");
        // SAFETY: as this function's own.
        unsafe { result::memcpy_dtoh_async(to, from.address() + at as u64, self.raw) }
            .map_err(|error| failed("copying from the GPU", error))
    }

    pub(in crate::device::cuda) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.borrowed && self.context.may_free() {
            // SAFETY: made once. The driver ends what the stream was told before it frees it.
            ended("closing a stream", unsafe { result::stream::destroy(self.raw) });
        }
    }
}

/// When what a stream was told is over.
#[derive(Debug)]
pub(in crate::device::cuda) enum End {
    /// At this moment.
    At(Arc<Event>),
    /// The GPU failed and does nothing any more.
    Now,
    /// Nobody can tell, for this reason: what it uses must not be used again.
    Unknown(CudaError),
}

/// A moment of a stream.
pub(in crate::device::cuda) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: the driver locks an event while it is asked something.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it has happened.
    pub(in crate::device::cuda) fn happened(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(failed("working", error)),
        }
    }

    /// Asks now and then whether it has happened, until it has, or for too long: once `is_ending` says
    /// that the run ends, for a shorter time.
    pub(in crate::device::cuda) fn reached(
        self: &Arc<Self>,
        is_ending: impl Fn() -> bool,
    ) -> Result<(), CudaError> {
        let (mut pause, longest) = POLL;
        let (begun, mut ending) = (Instant::now(), None);
        while !self.happened()? {
            if ending.is_none() && is_ending() {
                ending = Some(Instant::now());
            }
            let waited = begun.elapsed();
            // What one has waited for in vain, the others need not wait for again.
            self.context.check_answers()?;
            if !self.context.answer.is_patient(waited, ending.map(|since| since.elapsed())) {
                return Err(self.context.give_up(self, waited));
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// The time from `earlier` to this; `None` if one of them has not happened yet.
    pub(in crate::device::cuda) fn since(
        &self,
        earlier: &Event,
    ) -> Result<Option<Duration>, CudaError> {
        self.context.bind()?;
        // SAFETY: both are alive, and recorded with timing.
        match unsafe { result::event::elapsed(earlier.raw, self.raw) } {
            Ok(ms) => Ok(Some(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(None),
            Err(error) => Err(failed("asking for a time", error)),
        }
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

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw).finish_non_exhaustive()
    }
}
