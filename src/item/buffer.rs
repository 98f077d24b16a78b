//! Memory for data: aligned, recycled, counted. Decoding into recycled memory is four times as
//! fast as into fresh memory, because page faults and not codecs are what costs.
//!
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::memory::{HostMemory, Memory, PAGE};
use crate::fault::Result;

/// Idle memory that a pool keeps unless told otherwise.
const IDLE_MAX: u64 = 4 << 30;

/// What a ring allocates ahead at most: more than that is allocated when it is needed.
const RING_MAX: u64 = 4 << 30;

/// A pool of buffers. Cloning it gives another handle on the same pool.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    /// How many buffers of pinned memory are allocated at once; 0 once all of them are there.
    ring: Arc<AtomicUsize>,
}

struct Inner {
    idle: Mutex<Idle>,
    /// Held by who pins memory.
    pinning: Mutex<()>,
    idle_max: u64,
    /// Who allocates, unless it is the system.
    allocate: Option<Allocate>,
    hits: AtomicU64,
    misses: AtomicU64,
    lent: AtomicU64,
}

type Allocate = Box<dyn Fn(usize) -> Result<Box<dyn HostMemory>> + Send + Sync>;

#[derive(Default)]
struct Idle {
    bytes: u64,
    /// By size in pages; the buffer returned last is lent first, as its pages are warmest.
    buffers: BTreeMap<usize, Vec<Memory>>,
}

/// What a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers lent that were recycled.
    pub hits: u64,
    /// Buffers lent that had to be allocated.
    pub misses: u64,
    /// Bytes lent now.
    pub lent_bytes: u64,
    /// Bytes that wait to be lent.
    pub idle_bytes: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Pool::new(IDLE_MAX)
    }
}

impl Pool {
    /// A pool that keeps at most `idle_bytes` of memory that nobody uses.
    pub fn new(idle_bytes: u64) -> Self {
        Pool::allocated_by(idle_bytes, None)
    }

    /// A pool of pinned memory: `allocate` makes so many bytes of it, a multiple of 4,096 and aligned
    /// so, from which a device copies at its full speed while the host goes on. All of it is kept
    /// until the pool and what it lent are gone, as pinning memory takes long.
    pub fn pinned(
        allocate: impl Fn(usize) -> Result<Box<dyn HostMemory>> + Send + Sync + 'static,
    ) -> Self {
        Pool::allocated_by(u64::MAX, Some(Box::new(allocate)))
    }

    fn allocated_by(idle_max: u64, allocate: Option<Allocate>) -> Self {
        let inner = Arc::new(Inner {
            idle: Mutex::default(),
            pinning: Mutex::default(),
            idle_max,
            allocate,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            lent: AtomicU64::new(0),
        });
        Pool { inner, ring: Arc::new(AtomicUsize::new(1)) }
    }

    /// Another handle on the same pool. Where the pool's memory is pinned, the first need of each size
    /// allocates `buffers` of it at once, of 4 GiB at most, so that none is pinned while data flows:
    /// as many as there can be between who takes them and who gives them back.
    pub fn ring(&self, buffers: usize) -> Pool {
        let ring = Arc::new(AtomicUsize::new(buffers.max(1)));
        Pool { inner: Arc::clone(&self.inner), ring }
    }

    /// This handle is the ring of so many buffers of each size from now on.
    pub(crate) fn needs(&self, buffers: u64) {
        let buffers = usize::try_from(buffers).unwrap_or(usize::MAX);
        self.ring.store(buffers.max(1), Relaxed);
    }

    /// Allocates now what a ring of `items` needs whose buffers have so many bytes each: from then on
    /// this handle lends these, a larger one where there is none of the size, and allocates only when
    /// none is left. Does nothing if its memory is not pinned.
    pub(crate) fn reserve(&self, items: u64, bytes: &[u64]) -> Result<()> {
        let Some(allocate) = &self.inner.allocate else { return Ok(()) };
        let mut classes: BTreeMap<usize, u64> = BTreeMap::new();
        for &bytes in bytes {
            *classes.entry(class((bytes as usize).div_ceil(PAGE))).or_default() += 1;
        }
        let each: u64 = classes.iter().map(|(&pages, n)| (pages * PAGE) as u64 * n).sum();
        let items = items.min(RING_MAX / each.max(1)).max(1);
        let _pinning = self.inner.pinning.lock();
        for (pages, n) in classes {
            // What an earlier run has left serves as well.
            let there = self.inner.idle.lock().buffers.get(&pages).map_or(0, Vec::len);
            for _ in there as u64..n * items {
                self.inner.put(Memory::Foreign(allocate(pages * PAGE)?));
            }
        }
        self.ring.store(0, Relaxed);
        Ok(())
    }

    /// Lends a buffer of `len` bytes, aligned to 4,096. What it holds is left over from its last
    /// use.
    ///
    /// # Panics
    /// If there is no such amount of memory; within a stage that is the item's failure.
    pub fn take(&self, len: usize) -> Buffer {
        self.try_take(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, for memory that the system may refuse, as it does pinned memory.
    ///
    /// # Errors
    /// There is no such amount of memory.
    pub fn try_take(&self, len: usize) -> Result<Buffer> {
        let pages = class(len.div_ceil(PAGE));
        let inner = &self.inner;
        let memory = match inner.idle(pages, self.lends_larger()) {
            Some(memory) => {
                inner.hits.fetch_add(1, Relaxed);
                memory
            }
            None => {
                inner.misses.fetch_add(1, Relaxed);
                match &inner.allocate {
                    None => Memory::new(pages),
                    Some(allocate) => self.pin(pages, allocate)?,
                }
            }
        };
        inner.lent.fetch_add((memory.pages() * PAGE) as u64, Relaxed);
        Ok(Buffer { memory: Some(memory), len, pool: self.clone() })
    }

    fn lends_larger(&self) -> bool {
        self.ring.load(Relaxed) == 0
    }

    /// Pins memory, and what else belongs to the ring.
    fn pin(&self, pages: usize, allocate: &Allocate) -> Result<Memory> {
        let _pinning = self.inner.pinning.lock();
        // Another who waited for memory of this size may have pinned all of it.
        if let Some(memory) = self.inner.idle(pages, self.lends_larger()) {
            return Ok(memory);
        }
        let first = allocate(pages * PAGE)?;
        let fit = RING_MAX as usize / (pages * PAGE);
        // Nobody has any of it before all of it is there: pinning waits for copies under way.
        let mut ring = Vec::new();
        for _ in 1..self.ring.load(Relaxed).min(fit) {
            match allocate(pages * PAGE) {
                Ok(memory) => ring.push(memory),
                // The one that is needed is there.
                Err(error) => {
                    tracing::debug!(%error, "a ring stays incomplete");
                    break;
                }
            }
        }
        ring.into_iter().for_each(|memory| self.inner.put(Memory::Foreign(memory)));
        Ok(Memory::Foreign(first))
    }

    /// Whether `other` is a handle on the same pool.
    pub fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether its memory is pinned for a device.
    pub fn is_pinned(&self) -> bool {
        self.inner.allocate.is_some()
    }

    /// What the pool has done.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            hits: self.inner.hits.load(Relaxed),
            misses: self.inner.misses.load(Relaxed),
            lent_bytes: self.inner.lent.load(Relaxed),
            idle_bytes: self.inner.idle.lock().bytes,
        }
    }
}

impl Inner {
    /// Memory that waits to be lent: of so many pages, or else of more.
    fn idle(&self, pages: usize, or_more: bool) -> Option<Memory> {
        let mut idle = self.idle.lock();
        let mut found = idle.buffers.get_mut(&pages).and_then(Vec::pop);
        if found.is_none() && or_more {
            found = idle.buffers.range_mut(pages..).find_map(|(_, larger)| larger.pop());
        }
        idle.bytes -= found.as_ref().map_or(0, |memory| (memory.pages() * PAGE) as u64);
        found
    }

    /// Keeps memory until it is lent, as long as there is not too much of it.
    fn put(&self, memory: Memory) {
        let bytes = (memory.pages() * PAGE) as u64;
        let mut idle = self.idle.lock();
        if idle.bytes + bytes <= self.idle_max {
            idle.bytes += bytes;
            idle.buffers.entry(memory.pages()).or_default().push(memory);
        }
    }
}

/// Sizes in pages are rounded up by an eighth at most, so that buffers of nearly one size share.
fn class(pages: usize) -> usize {
    let step = (pages.next_power_of_two() / 16).max(1);
    pages.max(1).next_multiple_of(step)
}

/// The same in bytes.
pub(crate) fn size_class(bytes: usize) -> usize {
    class(bytes.div_ceil(PAGE)) * PAGE
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// Bytes lent by a [`Pool`], to which they return when this is dropped.
pub struct Buffer {
    /// There until it is dropped.
    memory: Option<Memory>,
    len: usize,
    pool: Pool,
}

impl Buffer {
    /// How much memory it keeps, in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::pages) * PAGE
    }

    /// Shortens it to `len` bytes; does nothing if it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The pool that it belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().map_or(&[][..], Memory::bytes)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().map_or(&mut [][..], Memory::bytes_mut)[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.capacity() as u64;
        let inner = &self.pool.inner;
        inner.lent.fetch_sub(bytes, Relaxed);
        if let Some(memory) = self.memory.take() {
            inner.put(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_recycled_and_counted() {
        let pool = Pool::default();
        let first = pool.take(5_000_000);
        assert_eq!(first.len(), 5_000_000);
        assert_eq!(first.as_ptr() as usize % PAGE, 0);
        let at = first.as_ptr();
        drop(first);
        let again = pool.take(4_990_000);
        assert_eq!(again.as_ptr(), at, "nearly the same size is served from the same memory");
        let PoolStats { hits, misses, lent_bytes, idle_bytes } = pool.stats();
        assert_eq!((hits, misses, idle_bytes), (1, 1, 0));
        assert!(lent_bytes >= 5_000_000);
    }

    #[test]
    fn idle_memory_is_bounded() {
        let pool = Pool::new(10_000);
        drop([pool.take(8_000), pool.take(8_000), pool.take(8_000)]);
        assert_eq!(pool.stats().idle_bytes, 8_192);
        assert_eq!(pool.stats().lent_bytes, 0);
    }

    #[test]
    fn classes_waste_an_eighth_at_most() {
        for pages in 1..5000 {
            let class = class(pages);
            assert!(class >= pages && (class - pages) * 8 <= pages, "{pages} -> {class}");
        }
    }
}
