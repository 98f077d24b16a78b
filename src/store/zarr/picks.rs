//! What a window takes along a dimension of another store whose entries are picked one by one: an
//! entry may be taken several times, or not at all. Arithmetic on positions only.

use std::ops::Range;
use std::sync::Arc;

use super::cut::Segment;
use super::nearest::Nearest;
use crate::item::{Buffer, Pool};

/// The entries of a variable that stand for those of the sample's store.
#[derive(Clone, Debug)]
pub(super) struct Picks {
    /// One for each entry of the sample's store.
    at: Arc<[u64]>,
    /// Entries of the variable's chunks.
    chunk: u64,
    /// Chunks that a window takes from at most.
    pub(super) chunks_max: u64,
    /// Neighbours that are taken from one chunk, at most.
    pub(super) in_chunk_max: u64,
    /// How far away the farthest coordinate is.
    pub(super) farthest: Arc<str>,
}

impl Picks {
    /// Those of a variable with chunks of `chunk` entries, for windows of `size` entries.
    pub(super) fn new(nearest: &Nearest, chunk: u64, size: u64) -> Self {
        let at = Arc::clone(&nearest.at);
        let (mut changes, mut longest, mut run) = (vec![0_u64], 0, 0);
        for (i, entry) in at.iter().enumerate() {
            let is_new = i > 0 && entry / chunk != at[i - 1] / chunk;
            run = if is_new { 1 } else { run + 1 };
            longest = longest.max(run);
            changes.push(changes[i] + u64::from(is_new));
        }
        // Two more where the window goes on with the first entry, and where it begins.
        let span = usize::try_from(size).unwrap_or(usize::MAX).min(at.len());
        let most = (0..=at.len() - span).map(|i| changes[i + span] - changes[i]).max();
        let chunks_max = (most.unwrap_or(0) + 2).min(size);
        let farthest = nearest.farthest.as_str().into();
        Picks { at, chunk, chunks_max, in_chunk_max: longest.max(1), farthest }
    }

    /// How many entries the sample's store has.
    pub(super) fn len(&self) -> u64 {
        self.at.len() as u64
    }

    /// What is taken for `wanted` of a window that begins at `start`: one segment for each run that
    /// lies in one chunk.
    pub(super) fn segments(&self, wanted: Range<i64>, start: i64) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut run: Vec<u64> = Vec::new();
        let mut end = |run: &mut Vec<u64>, at: i64| {
            let (Some(min), Some(max)) = (run.iter().min(), run.iter().max()) else { return };
            let from = *min..max + 1;
            let to = at.abs_diff(start) - run.len() as u64;
            segments.push(Segment { from, to, picks: Some(run.as_slice().into()) });
            run.clear();
        };
        for at in wanted.clone() {
            // A dimension that goes around goes on with its first entry.
            let entry = self.at[at.rem_euclid(self.at.len() as i64) as usize];
            if run.last().is_some_and(|last| last / self.chunk != entry / self.chunk) {
                end(&mut run, at);
            }
            run.push(entry);
        }
        end(&mut run, wanted.end);
        segments
    }

    /// The entries of the variable from the first to the last that stand for `entries`.
    pub(super) fn hull(&self, entries: Range<u64>) -> Range<u64> {
        let within = entries.start.min(self.len() - 1)..entries.end.min(self.len());
        let picks = &self.at[within.start as usize..within.end.max(within.start + 1) as usize];
        let (min, max) = (picks.iter().min(), picks.iter().max());
        min.copied().unwrap_or(0)..max.map_or(1, |max| max + 1)
    }
}

/// The elements of a decoded chunk of `shape` at `picks` along each dimension, as an array of its
/// own.
pub(super) fn gather(
    decoded: &[u8],
    shape: &[u64],
    picks: &[Vec<u64>],
    element: usize,
    pool: &Pool,
) -> Result<Buffer, String> {
    let len: usize = picks.iter().map(Vec::len).product();
    let mut gathered = pool.take(len * element);
    let Some((last, outer)) = picks.split_last() else { return Err("no dimension".to_owned()) };
    let mut at = vec![0; outer.len()];
    for row in gathered.chunks_exact_mut((last.len() * element).max(1)) {
        let places = outer.iter().zip(&at).zip(shape);
        let base = places.fold(0, |base, ((picks, at), n)| base * n + picks[*at]);
        let base = base * shape[outer.len()];
        for (to, pick) in row.chunks_exact_mut(element).zip(last) {
            let from = (base + pick) as usize * element;
            let value = decoded.get(from..from + element);
            to.copy_from_slice(value.ok_or("a chunk is shorter than it says")?);
        }
        for dim in (0..at.len()).rev() {
            at[dim] += 1;
            if at[dim] < outer[dim].len() {
                break;
            }
            at[dim] = 0;
        }
    }
    Ok(gathered)
}
