//! What is known of the chunks that windows on their way want, and which of them are kept. Plain
//! state, changed only under the cache's lock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use tokio::sync::watch;

use super::{ChunkId, Found};
use crate::item::Buffer;

/// What an entry costs beside its data.
pub(super) const ENTRY: u64 = 64;

/// A decode that one caller runs while others wait.
pub(super) type Decoding = Arc<OnceLock<Result<Arc<Buffer>, String>>>;

#[derive(Default)]
pub(super) struct State {
    pub(super) chunks: HashMap<ChunkId, Entry>,
    /// What is kept, by next use.
    pub(super) kept: BTreeSet<(u64, ChunkId)>,
    pub(super) bytes: u64,
}

#[derive(Default)]
pub(super) struct Entry {
    /// The windows on their way that want it, by number of announcement.
    pub(super) uses: VecDeque<u64>,
    pub(super) kept: Option<Kept>,
    /// What a batch on its way may still hold, though there was no room to keep it here.
    pub(super) lent: Lent,
    /// Filled by the call that fetches it now.
    pub(super) flight: Option<watch::Receiver<Option<Found>>>,
    pub(super) decoding: Option<Decoding>,
}

/// What is held elsewhere costs nothing to find again.
#[derive(Default)]
pub(super) struct Lent {
    pub(super) encoded: Weak<Bytes>,
    pub(super) decoded: Weak<Buffer>,
}

#[derive(Clone)]
pub(super) enum Kept {
    Encoded(Found),
    Decoded(Arc<Buffer>),
    /// What a plan takes to be kept.
    Planned(u64),
}

impl Kept {
    pub(super) fn bytes(&self) -> u64 {
        ENTRY
            + match self {
                Kept::Encoded(found) => found.as_ref().map_or(0, |bytes| bytes.len() as u64),
                Kept::Decoded(buffer) => buffer.capacity() as u64,
                Kept::Planned(bytes) => *bytes,
            }
    }
}

impl State {
    /// When the chunk is wanted next, as far as is known.
    fn next(&self, id: ChunkId) -> Option<u64> {
        self.chunks.get(&id)?.uses.front().copied()
    }

    pub(super) fn withdraw(&mut self, id: ChunkId, number: u64) -> Option<Kept> {
        let before = self.next(id);
        let entry = self.chunks.get_mut(&id)?;
        let at = entry.uses.partition_point(|other| *other < number);
        if entry.uses.get(at) == Some(&number) {
            entry.uses.remove(at);
        }
        let after = entry.uses.front().copied();
        let is_kept = entry.kept.is_some();
        if is_kept && after != before {
            self.kept.remove(&(before.unwrap_or(u64::MAX), id));
            match after {
                Some(next) => _ = self.kept.insert((next, id)),
                None => return self.forget(id),
            }
        } else if after.is_none() {
            return self.forget(id);
        }
        None
    }

    /// Drops what is kept of a chunk that nobody wants any more; gives it for dropping.
    fn forget(&mut self, id: ChunkId) -> Option<Kept> {
        let entry = self.chunks.get_mut(&id)?;
        let kept = entry.kept.take();
        self.bytes -= kept.as_ref().map_or(0, Kept::bytes);
        self.tidy(id);
        kept
    }

    /// Forgets a chunk about which there is nothing to know.
    pub(super) fn tidy(&mut self, id: ChunkId) {
        let idle = |entry: &Entry| {
            entry.uses.is_empty()
                && entry.kept.is_none()
                && entry.flight.is_none()
                && entry.decoding.is_none()
        };
        if self.chunks.get(&id).is_some_and(idle) {
            self.chunks.remove(&id);
        }
    }

    /// How many of what is kept would have to go for `bytes` more that are wanted at `next`, the one
    /// that is wanted last first; `None` if there is no room even so.
    pub(super) fn room(&self, next: u64, bytes: u64, budget: u64) -> Option<usize> {
        let (mut freed, mut going) = (0, 0);
        for (later, other) in self.kept.iter().rev() {
            if self.bytes + bytes - freed <= budget || *later <= next {
                break;
            }
            freed += self.chunks[other].kept.as_ref().map_or(0, Kept::bytes);
            going += 1;
        }
        (self.bytes + bytes - freed <= budget).then_some(going)
    }

    /// Keeps a chunk, at the cost of those that are wanted later. Does nothing if all others are
    /// wanted sooner.
    pub(super) fn keep(&mut self, id: ChunkId, what: Kept, budget: u64) {
        let Some(next) = self.next(id) else { return };
        let bytes = what.bytes();
        let Some(going) = self.room(next, bytes, budget) else { return };
        for _ in 0..going {
            if let Some((_, other)) = self.kept.pop_last()
                && let Some(entry) = self.chunks.get_mut(&other)
            {
                self.bytes -= entry.kept.take().as_ref().map_or(0, Kept::bytes);
            }
        }
        if let Some(entry) = self.chunks.get_mut(&id) {
            entry.kept = Some(what);
            self.bytes += bytes;
            self.kept.insert((next, id));
        }
    }

    /// Keeps `what` in the place of what is kept of the chunk now, which stays if there is no room.
    pub(super) fn replace(&mut self, id: ChunkId, what: Kept, budget: u64) -> Option<Kept> {
        let next = self.next(id)?;
        let before = self.chunks.get_mut(&id)?.kept.take();
        if let Some(before) = &before {
            self.bytes -= before.bytes();
            self.kept.remove(&(next, id));
        }
        self.keep(id, what, budget);
        if self.chunks.get(&id)?.kept.is_none()
            && let Some(before) = before
        {
            self.keep(id, before, budget);
            return None;
        }
        before
    }
}
