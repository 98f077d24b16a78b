//! What a GPU is told to do in order, and when it is done.
#![expect(unsafe_code, reason = "the driver's functions are foreign")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::memory::Block;
use super::{Context, ended, failed};
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

    /// Copies `from` to the beginning of `to`, while the host goes on. The bytes must be in pinned
    /// memory for that; from other memory the driver copies before it returns.
    pub(in crate::device::cuda) fn upload(
        &self,
        from: Buffer,
        to: &Block,
    ) -> Result<Upload, CudaError> {
        assert!(from.len() <= to.bytes, "a block is as long as what is copied to it");
        self.context.bind()?;
        let from = ManuallyDrop::new(from);
        // SAFETY: `Upload` keeps the bytes, unchanged and in place, until the copy is done. The
        // block's memory outlives it, as freeing waits for all work of the GPU.
        let copied = unsafe { result::memcpy_htod_async(to.address(), &from[..], self.raw) };
        let copied = copied.map_err(|error| failed("copying to the GPU", error));
        match copied.and_then(|()| self.record()) {
            Ok(done) => Ok(Upload { from, done }),
            Err(error) => {
                // Without an event nobody can tell when the copy is done but the end of all work.
                if self.context.answers() {
                    self.end();
                    drop(ManuallyDrop::into_inner(from));
                }
                Err(error)
            }
        }
    }

    /// Copies the beginning of each block to the bytes beside it, and waits for as long as it takes.
    pub(in crate::device::cuda) fn download(
        &self,
        copies: &mut [(&Block, &mut [u8])],
    ) -> Result<(), CudaError> {
        // SAFETY: the bytes stay borrowed until all copies are done: below, or where the stream is told
        // to end when nobody can tell.
        let done = unsafe { self.tell_download(copies) };
        done.and_then(|done| done.reached(|| false)).inspect_err(|_| self.end())
    }

    /// Copies the beginning of each block to the tensor beside it, and waits until all are there; gives
    /// that moment. Who says that the run ends waits for a shorter time.
    pub(in crate::device::cuda) fn download_to(
        &self,
        from: &[&Block],
        to: Vec<Tensor>,
        is_ending: impl Fn() -> bool,
    ) -> Result<(Vec<Tensor>, Arc<Event>), CudaError> {
        let mut to = ManuallyDrop::new(to);
        let bytes = to.iter_mut().map(Tensor::bytes_mut);
        let mut copies: Vec<_> = from.iter().copied().zip(bytes).collect();
        // SAFETY: the tensors are kept until all copies are done: below, or where the stream is told to
        // end when nobody can tell. A GPU that does not answer has them for good.
        let done = unsafe { self.tell_download(&mut copies) };
        let done = done.and_then(|done| done.reached(is_ending).map(|()| done));
        match done {
            Ok(done) => Ok((ManuallyDrop::into_inner(to), done)),
            Err(error @ CudaError::NoAnswer { .. }) => Err(error),
            Err(error) => {
                self.end();
                drop(ManuallyDrop::into_inner(to));
                Err(error)
            }
        }
    }

    /// Tells the stream to copy the beginning of each block to the bytes beside it; gives the moment at
    /// which all will be there.
    ///
    /// # Safety
    /// The bytes stay until then, and nobody uses them.
    unsafe fn tell_download(
        &self,
        copies: &mut [(&Block, &mut [u8])],
    ) -> Result<Arc<Event>, CudaError> {
        self.context.bind()?;
        let mut told = Ok(());
        for (from, to) in copies {
            assert!(to.len() <= from.bytes, "a block is as long as what is copied from it");
            // SAFETY: as this function's own.
            let copied = unsafe { result::memcpy_dtoh_async(to, from.address(), self.raw) };
            told = told.and(copied.map_err(|error| failed("copying from the GPU", error)));
        }
        told.and_then(|()| self.record())
    }

    /// Waits until everything that it was told is done: only where the stream ends.
    fn end(&self) {
        // SAFETY: the stream is alive.
        ended("ending a stream", unsafe { result::stream::synchronize(self.raw) });
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

    /// The time from `earlier` to this; both have happened.
    pub(in crate::device::cuda) fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
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

/// A copy to the GPU under way, and the bytes that it reads. Dropping it waits for the copy; a GPU that
/// does not answer keeps the bytes.
pub(in crate::device::cuda) struct Upload {
    from: ManuallyDrop<Buffer>,
    /// Happens when the copy is done.
    pub(in crate::device::cuda) done: Arc<Event>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        match self.done.reached(|| true) {
            Ok(()) => {}
            Err(CudaError::NoAnswer { .. }) => return,
            // A GPU that failed reads nothing any more.
            Err(error) => tracing::debug!(%error, "a copy failed"),
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.from) };
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

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("done", &self.done).finish_non_exhaustive()
    }
}
