//! Chunks that several windows want: each is fetched and decoded once, and kept as long as a window
//! that is already on its way will want it and the budget allows.
//!
//! The source computes windows far ahead of the fetch, so the next uses of a chunk are known. What
//! is kept is therefore chosen by the future, not by the past: the chunk whose next use is farthest
//! goes first (Belady's rule, optimal for what is known), and one that nobody is known to want is
//! not kept at all.

mod kept;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::fault::panic_message;
use crate::item::Buffer;
use kept::{ENTRY, Kept, State};

/// A chunk of a dataset: the variable, and its place in the grid in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChunkId {
    pub(super) variable: u32,
    pub(super) place: u64,
}

/// An encoded chunk; `None` if the store has none, so that it is all fill value.
pub(super) type Found = Option<Arc<Bytes>>;

/// The chunks of a dataset that windows share.
pub(super) struct ChunkCache {
    state: Mutex<State>,
    budget: u64,
    announced: AtomicU64,
}

/// What there is of a chunk that a call wants.
pub(super) enum Claim {
    Encoded(Found),
    Decoded(Arc<Buffer>),
    /// Nothing: the caller fetches it and tells the others, if there are any.
    Mine(Option<Flight>),
    /// Another call fetches it now.
    Others(watch::Receiver<Option<Found>>),
}

/// The promise to fetch a chunk. Dropping it lets another call try.
pub(super) struct Flight {
    cache: Arc<ChunkCache>,
    id: ChunkId,
    done: Option<watch::Sender<Option<Found>>>,
}

impl Flight {
    /// Tells those who wait, and keeps the chunk if it is wanted beyond `users` windows.
    pub(super) fn land(mut self, found: &Found, users: usize) {
        let Some(done) = self.done.take() else { return };
        let mut state = self.cache.state.lock();
        if let Some(entry) = state.chunks.get_mut(&self.id) {
            entry.flight = None;
            entry.lent.encoded = found.as_ref().map(Arc::downgrade).unwrap_or_default();
            if entry.uses.len() > users {
                state.keep(self.id, Kept::Encoded(found.clone()), self.cache.budget);
            }
            state.tidy(self.id);
        }
        drop(state);
        done.send_replace(Some(found.clone()));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.done.is_some() {
            let mut state = self.cache.state.lock();
            if let Some(entry) = state.chunks.get_mut(&self.id) {
                entry.flight = None;
                state.tidy(self.id);
            }
        }
    }
}

/// A window's announcement that it will want its chunks; withdrawn when it is dropped.
pub(super) struct Ticket {
    cache: Arc<ChunkCache>,
    number: u64,
    chunks: Box<[ChunkId]>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut left = Vec::new();
        let mut state = self.cache.state.lock();
        for id in &self.chunks {
            left.extend(state.withdraw(*id, self.number));
        }
        drop(state);
        // Memory goes back to its pool without the lock.
        drop(left);
    }
}

impl ChunkCache {
    pub(super) fn new(budget: u64) -> Arc<Self> {
        Arc::new(ChunkCache { state: Mutex::default(), budget, announced: AtomicU64::new(0) })
    }

    /// Bytes that it may keep.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    /// A window that wants `chunks` is on its way.
    pub(super) fn announce(self: &Arc<Self>, chunks: Box<[ChunkId]>) -> Ticket {
        let mut state = self.state.lock();
        // Under the lock, so that the uses of a chunk are in order.
        let number = self.announced.fetch_add(1, Relaxed);
        for id in &chunks {
            state.chunks.entry(*id).or_default().uses.push_back(number);
        }
        drop(state);
        Ticket { cache: Arc::clone(self), number, chunks }
    }

    /// What there is of a chunk.
    pub(super) fn claim(self: &Arc<Self>, id: ChunkId) -> Claim {
        let mut state = self.state.lock();
        let Some(entry) = state.chunks.get_mut(&id) else { return Claim::Mine(None) };
        match (&entry.kept, &entry.flight) {
            (Some(Kept::Encoded(found)), _) => Claim::Encoded(found.clone()),
            (Some(Kept::Decoded(buffer)), _) => Claim::Decoded(Arc::clone(buffer)),
            (Some(Kept::Planned(_)), _) => Claim::Mine(None),
            (None, Some(flight)) => Claim::Others(flight.clone()),
            (None, None) => {
                if let Some(buffer) = entry.lent.decoded.upgrade() {
                    return Claim::Decoded(buffer);
                }
                if let Some(bytes) = entry.lent.encoded.upgrade() {
                    return Claim::Encoded(Some(bytes));
                }
                let (done, flight) = watch::channel(None);
                entry.flight = Some(flight);
                Claim::Mine(Some(Flight { cache: Arc::clone(self), id, done: Some(done) }))
            }
        }
    }

    /// The decoded chunk of `bytes` bytes, if others than the `users` windows of the caller want it
    /// and there is room to keep it: kept, or made by `decode`, which one caller runs while the
    /// others wait.
    pub(super) fn decoded(
        &self,
        id: ChunkId,
        users: usize,
        bytes: u64,
        decode: impl FnOnce() -> Result<Buffer, String>,
    ) -> Option<Result<Arc<Buffer>, String>> {
        let decoding = {
            let mut state = self.state.lock();
            let entry = state.chunks.get_mut(&id)?;
            if let Some(Kept::Decoded(buffer)) = &entry.kept {
                return Some(Ok(Arc::clone(buffer)));
            }
            match &entry.decoding {
                Some(decoding) => Arc::clone(decoding),
                None => {
                    if entry.uses.len() <= users {
                        return None;
                    }
                    // What is kept encoded makes room for it.
                    let there = entry.kept.as_ref().map_or(0, Kept::bytes);
                    let (next, more) =
                        (*entry.uses.front()?, (bytes + ENTRY).saturating_sub(there));
                    state.room(next, more, self.budget)?;
                    let entry = state.chunks.get_mut(&id)?;
                    Arc::clone(entry.decoding.get_or_insert_default())
                }
            }
        };
        // A panic is everybody's error: those who wait would try again, one after the other, and
        // nobody would ever say that it has ended.
        let decode = || match catch_unwind(AssertUnwindSafe(decode)) {
            Ok(decoded) => decoded.map(Arc::new),
            Err(panic) => Err(format!("panic: {}", panic_message(panic))),
        };
        let decoded = decoding.get_or_init(decode).clone();
        let mut state = self.state.lock();
        let mut left = None;
        if let Some(entry) = state.chunks.get_mut(&id)
            && entry.decoding.as_ref().is_some_and(|now| Arc::ptr_eq(now, &decoding))
        {
            entry.decoding = None;
            if let Ok(buffer) = &decoded {
                entry.lent.decoded = Arc::downgrade(buffer);
            }
            if let Ok(buffer) = &decoded
                && entry.uses.len() > users
            {
                left = state.replace(id, Kept::Decoded(Arc::clone(buffer)), self.budget);
            }
            state.tidy(id);
        }
        drop(state);
        drop(left);
        Some(decoded)
    }

    /// For a plan: whether the chunk would be kept when `users` windows want it; if not, it is taken
    /// to be fetched and kept from now on, as `bytes` decoded bytes, as far as there is room.
    pub(super) fn would_have(&self, id: ChunkId, users: usize, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.chunks.get(&id) else { return false };
        let (is_kept, is_shared) = (entry.kept.is_some(), entry.uses.len() > users);
        if !is_kept && is_shared {
            state.keep(id, Kept::Planned(bytes), self.budget);
        }
        is_kept
    }

    /// Bytes that it keeps now.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

impl std::fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("ChunkCache")
            .field("budget", &self.budget)
            .field("bytes", &state.bytes)
            .field("kept", &state.kept.len())
            .field("wanted", &state.chunks.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(place: u64) -> ChunkId {
        ChunkId { variable: 0, place }
    }

    fn fetch(cache: &Arc<ChunkCache>, place: u64, bytes: usize) -> bool {
        match cache.claim(id(place)) {
            Claim::Encoded(_) | Claim::Decoded(_) | Claim::Others(_) => false,
            Claim::Mine(flight) => {
                let flight = flight.expect("its uses are known");
                flight.land(&Some(Arc::new(Bytes::from(vec![0; bytes]))), 1);
                true
            }
        }
    }

    /// Fetches that a sequence of uses costs.
    fn fetches(sequence: &[u64], budget: u64) -> usize {
        let cache = ChunkCache::new(budget);
        let tickets: Vec<_> =
            sequence.iter().map(|place| cache.announce(Box::new([id(*place)]))).collect();
        let mut fetched = 0;
        for (place, ticket) in sequence.iter().zip(tickets) {
            fetched += usize::from(fetch(&cache, *place, 1000));
            drop(ticket);
            assert!(cache.bytes() <= budget);
        }
        let state = cache.state.lock();
        assert!(state.chunks.is_empty() && state.kept.is_empty() && state.bytes == 0);
        fetched
    }

    #[test]
    fn the_chunk_wanted_last_goes_first() {
        // With room for three, Belady's rule costs 7 faults on the textbook's sequence, of which
        // the last use of a chunk need not be kept.
        let sequence = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let each = 1000 + ENTRY;
        assert_eq!(fetches(&sequence, 20 * each), 6, "each chunk once if there is room");
        assert_eq!(fetches(&sequence, 0), 20);
        let some = fetches(&sequence, 3 * each);
        assert!((6..=9).contains(&some), "{some}");
    }

    #[test]
    fn a_flight_that_fails_lets_another_try() {
        let cache = ChunkCache::new(1 << 20);
        let tickets = [cache.announce(Box::new([id(1)])), cache.announce(Box::new([id(1)]))];
        let Claim::Mine(Some(flight)) = cache.claim(id(1)) else { panic!("nobody has it") };
        let Claim::Others(waiting) = cache.claim(id(1)) else { panic!("it is under way") };
        drop(flight);
        assert!(waiting.has_changed().is_err(), "those who wait learn of it");
        assert!(matches!(cache.claim(id(1)), Claim::Mine(Some(_))));
        drop(tickets);
        assert!(cache.state.lock().chunks.is_empty());
    }

    /// Those who wait for a decode that panics get its error, and nobody decodes in its place.
    #[test]
    fn a_decode_that_panics_is_the_error_of_all_who_wait_for_it() {
        let cache = ChunkCache::new(1 << 20);
        let tickets: Vec<_> = (0..3).map(|_| cache.announce(Box::new([id(1)]))).collect();
        let waiting = || {
            let state = cache.state.lock();
            // The entry's, the one that decodes, and the one that waits.
            state.chunks[&id(1)].decoding.as_ref().is_some_and(|it| Arc::strong_count(it) == 3)
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                cache.decoded(id(1), 1, 4096, || {
                    while !waiting() {
                        std::thread::yield_now();
                    }
                    panic!("a broken codec")
                })
            });
            while cache.state.lock().chunks[&id(1)].decoding.is_none() {
                std::thread::yield_now();
            }
            let second = cache.decoded(id(1), 1, 4096, || panic!("decoded twice"));
            let first = first.join().expect("the panic is caught");
            for told in [first, second] {
                let told = told.expect("others want it").map(drop).expect_err("it panicked");
                assert_eq!(told, "panic: a broken codec");
            }
        });
        // It is not taken to be under way for ever: the next one tries again.
        let pool = crate::item::Pool::default();
        let again = cache.decoded(id(1), 1, 4096, || Ok(pool.take(4096)));
        assert!(again.is_some_and(|decoded| decoded.is_ok()));
        drop(tickets);
        assert!(cache.state.lock().chunks.is_empty());
    }

    #[test]
    fn what_is_decoded_takes_the_place_of_what_is_encoded() {
        let pool = crate::item::Pool::default();
        let cache = ChunkCache::new(1 << 20);
        let mut tickets: Vec<_> = (0..3).map(|_| cache.announce(Box::new([id(1)]))).collect();
        assert!(fetch(&cache, 1, 1000));
        let mut decodes = 0;
        for _ in 0..2 {
            let decoded = cache.decoded(id(1), 1, 4096, || {
                decodes += 1;
                Ok(pool.take(4096))
            });
            assert!(decoded.is_some_and(|decoded| decoded.is_ok()));
            tickets.pop();
        }
        assert_eq!((decodes, cache.bytes()), (1, 4096 + ENTRY));
        tickets.clear();
        assert_eq!((cache.bytes(), pool.stats().lent_bytes), (0, 0));
    }
}
