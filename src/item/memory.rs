//! Memory in pages, zeroed by the system and not touched before its first use.
//!
//! One of the few files that contain `unsafe`. Large buffers are mappings of their own, so that the
//! advice to back them with huge pages comes before their first page fault: the system's allocator
//! zeroes what is aligned to pages by writing to it, which faults in every small page.
#![expect(unsafe_code, reason = "mmap, madvise and munmap are foreign functions")]

use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The unit and the alignment of all buffers.
pub(super) const PAGE: usize = 4096;
/// Buffers of this size and more are mappings of their own.
const MAPPED: usize = 2 << 20;
/// Buffers of this size and more are backed with huge pages where the system has them. A smaller one
/// would waste much of its last page: 2.5 MB would take 4.
const HUGE: usize = 8 << 20;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
pub(super) struct Page([u8; PAGE]);

/// Some pages of memory.
pub(super) enum Memory {
    Small(Vec<Page>),
    Mapped(Mapping),
    Foreign(Box<dyn HostMemory>),
}

/// Memory of the host that somebody else allocates for a [`Pool`](super::Pool), such as the driver of
/// a device.
pub trait HostMemory: Send + Sync + 'static {
    /// The bytes; always the same ones.
    fn bytes(&self) -> &[u8];

    /// The bytes; always the same ones.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A mapping of its own: private, readable, writable, all of it initialised.
pub(super) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory that only its owner refers to, like a box.
unsafe impl Send for Mapping {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for Mapping {}

impl Memory {
    /// `pages` pages of zeros.
    ///
    /// # Panics
    /// If the system has no such amount of memory.
    pub(super) fn new(pages: usize) -> Memory {
        let bytes = pages * PAGE;
        let none = || -> ! { panic!("the system has no {bytes} bytes of memory") };
        if bytes < MAPPED {
            let memory = bytemuck::try_zeroed_vec(pages);
            return Memory::Small(memory.unwrap_or_else(|()| none()));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses a place where nothing is.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let Ok(Some(at)) = mapped.map(NonNull::new) else { none() };
        if bytes >= HUGE {
            // SAFETY: the range is the mapping just made. The advice changes how it is backed, never
            // what it holds.
            let advised = unsafe { madvise(at.as_ptr(), bytes, Advice::LinuxHugepage) };
            if let Err(error) = advised {
                // A system without huge pages works as well, only slower.
                tracing::trace!(%error, "no huge pages");
            }
        }
        Memory::Mapped(Mapping { at: at.cast(), bytes })
    }

    pub(super) fn pages(&self) -> usize {
        self.bytes().len() / PAGE
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Small(pages) => bytemuck::cast_slice(pages),
            Memory::Foreign(memory) => memory.bytes(),
            // SAFETY: the mapping is as long as that, readable, and the system zeroed it.
            Memory::Mapped(Mapping { at, bytes }) => unsafe {
                std::slice::from_raw_parts(at.as_ptr(), *bytes)
            },
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Small(pages) => bytemuck::cast_slice_mut(pages),
            Memory::Foreign(memory) => memory.bytes_mut(),
            // SAFETY: as above, and writable; `&mut self` says that nobody else refers to it.
            Memory::Mapped(Mapping { at, bytes }) => unsafe {
                std::slice::from_raw_parts_mut(at.as_ptr(), *bytes)
            },
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nobody refers to it any more.
        if let Err(error) = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) } {
            tracing::error!(%error, "memory could not be given back");
        }
    }
}
