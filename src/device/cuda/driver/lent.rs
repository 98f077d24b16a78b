//! Memory of the host that a GPU copies from or to by itself.
#![expect(unsafe_code, reason = "what a GPU may still use must not be dropped")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::{Context, End, Event, Stream};
use crate::device::cuda::error::CudaError;

/// Memory that the GPU uses until a moment. Dropping it waits for that moment, for as long as the end of a
/// run may take; what the GPU may still use then is left to it.
pub(in crate::device::cuda) struct Lent<T> {
    memory: ManuallyDrop<T>,
    /// What a user knows the memory by.
    bytes: usize,
    /// The GPU is done with it once this has happened.
    pub(in crate::device::cuda) done: Arc<Event>,
}

impl<T> Lent<T> {
    /// `tell` tells `stream` to use the memory, `bytes` of it, which stays where it is and as it is for
    /// as long as it is lent.
    pub(super) fn new(
        stream: &Stream,
        memory: T,
        bytes: usize,
        tell: impl FnOnce(&mut T) -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        let mut memory = ManuallyDrop::new(memory);
        let told = tell(&mut memory).and_then(|()| stream.record());
        let error = match told {
            Ok(done) => return Ok(Lent { memory, bytes, done }),
            Err(error) => error,
        };
        // Some of it may have been told.
        match stream.end() {
            End::At(done) => drop(Lent { memory, bytes, done }),
            // SAFETY: dropped once, and the GPU uses nothing any more.
            End::Now => unsafe { ManuallyDrop::drop(&mut memory) },
            End::Unknown(again) => leave(stream.context(), bytes, &again),
        }
        Err(error)
    }

    /// Waits until the GPU is done, and gives the memory and that moment. Who says that the run ends waits
    /// for a shorter time.
    pub(in crate::device::cuda) fn back(
        self,
        is_ending: impl Fn() -> bool,
    ) -> Result<(T, Arc<Event>), CudaError> {
        self.done.reached(is_ending)?;
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken once, as `this` is not dropped.
        Ok(unsafe { (ManuallyDrop::take(&mut this.memory), std::ptr::read(&raw const this.done)) })
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        match self.done.reached(|| true) {
            Ok(()) => {}
            Err(error) if error.is_final() => tracing::debug!(%error, "a copy failed"),
            Err(error) => return leave(self.done.context(), self.bytes, &error),
        }
        // SAFETY: dropped once, here, and the GPU does not use it any more.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}

fn leave(context: &Context, bytes: usize, error: &CudaError) {
    tracing::warn!(
        "{bytes} bytes of the host's memory are left to {}, which may still use them: {error}",
        context.name()
    );
}

impl<T> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lent { bytes, done, .. } = self;
        f.debug_struct("Lent").field("bytes", bytes).field("done", done).finish_non_exhaustive()
    }
}
