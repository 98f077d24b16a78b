//! Which chunks a group of windows needs, and their encoded bytes. Never decodes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};

use super::cache::{Claim, Found};
use super::dataset::Dataset;
use super::error::ZarrError;
use super::request::Asking;
use super::variable::Variable;
use super::windows::{Window, label_of};
use crate::item::{Buffer, Label};
use crate::trace;

/// Objects that one call reads at once; the store bounds what all calls do.
const AT_ONCE: usize = 256;

/// Windows as [`fetch`] takes them: one, or a group that will share a batch.
pub trait Windows: Send + 'static {
    /// The windows in order.
    fn into_windows(self) -> Vec<Window>;
}

impl Windows for Window {
    fn into_windows(self) -> Vec<Window> {
        vec![self]
    }
}

impl Windows for Vec<Window> {
    fn into_windows(self) -> Vec<Window> {
        self
    }
}

/// Windows and the encoded chunks that hold them.
pub struct Encoded {
    pub(super) windows: Vec<Window>,
    pub(super) chunks: Vec<Chunk>,
}

/// An encoded chunk.
pub(super) struct Chunk {
    /// Which of the dataset's variables it belongs to.
    pub(super) variable: usize,
    /// Its place in the grid of (inner) chunks.
    pub(super) place: Vec<u64>,
    /// Who needs it.
    pub(super) users: Vec<User>,
    pub(super) data: Data,
}

/// A place in a batch that a part of a chunk belongs to.
#[derive(Clone, Copy)]
pub(super) struct User {
    /// Which of the batch's windows.
    pub(super) window: u32,
    /// Which of the dataset's cuts.
    pub(super) cut: u32,
    /// Which of the pieces that the window takes.
    pub(super) piece: u32,
}

/// What there is of a chunk.
#[derive(Clone)]
pub(super) enum Data {
    /// The store has no such chunk: it is all fill value.
    Fill,
    Encoded(Arc<Bytes>),
    /// Another batch has decoded it already.
    Decoded(Arc<Buffer>),
}

impl From<Found> for Data {
    fn from(found: Found) -> Self {
        found.map_or(Data::Fill, Data::Encoded)
    }
}

impl Chunk {
    fn encoded(&self) -> Option<&Arc<Bytes>> {
        match &self.data {
            Data::Encoded(bytes) => Some(bytes),
            Data::Fill | Data::Decoded(_) => None,
        }
    }
}

impl Encoded {
    /// Encoded bytes.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().filter_map(Chunk::encoded).map(|bytes| bytes.len() as u64).sum()
    }

    /// How many chunks it holds; each is there once, however many windows need it.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The windows.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded")
            .field("windows", &self.windows)
            .field("chunks", &self.chunks.len())
            .field("bytes", &self.bytes())
            .finish()
    }
}

impl Label for Encoded {
    fn label(&self) -> String {
        label_of(&self.windows)
    }
}

/// Fetches the encoded chunks of `windows`, each of them once: for an io stage,
/// `io::map("fetch", zarr::fetch)`.
///
/// All windows must come from one [`windows`](super::windows).
///
/// # Errors
/// The store failed, or windows come from several. A chunk that is not there is no error: it holds the
/// fill value.
pub async fn fetch<W: Windows>(windows: W) -> Result<Encoded, ZarrError> {
    let windows = windows.into_windows();
    let Some(first) = windows.first() else {
        return Ok(Encoded { windows, chunks: Vec::new() });
    };
    let dataset = Arc::clone(&first.dataset);
    if windows.iter().any(|window| !Arc::ptr_eq(&window.dataset, &dataset)) {
        return Err(ZarrError::Mixed);
    }
    let objects = plan(&dataset, &windows);
    // Calls begin in the order of their items, and what the first of them wants is asked for first.
    let turn = dataset.turns.fetch_add(1, Relaxed);
    let fetched: Vec<Vec<Chunk>> = futures::stream::iter(objects)
        .map(|object| read(&dataset, object, turn))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    trace::used(dataset.bytes() * windows.len() as u64);
    Ok(Encoded { windows, chunks: fetched.into_iter().flatten().collect() })
}

/// An object of the store and the chunks wanted of it: one, or the inner chunks of a shard.
pub(super) struct Object {
    pub(super) variable: usize,
    pub(super) key: String,
    pub(super) chunks: Vec<Chunk>,
}

/// The objects that a group of windows needs, and which chunks of them.
pub(super) fn plan(dataset: &Dataset, windows: &[Window]) -> Vec<Object> {
    let mut objects = BTreeMap::<(usize, Vec<u64>), BTreeMap<Vec<u64>, Vec<User>>>::new();
    for (window, of) in windows.iter().enumerate() {
        let starts = dataset.starts(of.number);
        for (cut, of) in dataset.cuts.iter().enumerate() {
            let variable = &dataset.variables[of.variable];
            for (piece, region) in of.pieces(&starts).iter().enumerate() {
                let user = User { window: window as u32, cut: cut as u32, piece: piece as u32 };
                each_chunk(variable, &region.from, |place| {
                    let object = match &variable.sharding {
                        Some(sharding) => {
                            place.iter().zip(&sharding.chunks).map(|(at, n)| at / n).collect()
                        }
                        None => place.to_vec(),
                    };
                    let chunks = objects.entry((of.variable, object)).or_default();
                    chunks.entry(place.to_vec()).or_default().push(user);
                });
            }
        }
    }
    objects
        .into_iter()
        .map(|((variable, object), chunks)| {
            let key = dataset.variables[variable].key(&object);
            let chunks = chunks.into_iter();
            let chunks =
                chunks.map(|(place, users)| Chunk { variable, place, users, data: Data::Fill });
            Object { variable, key, chunks: chunks.collect() }
        })
        .collect()
}

/// Calls `f` with the place of each chunk that holds a part of `region`.
pub(super) fn each_chunk(variable: &Variable, region: &[Range<u64>], f: impl FnMut(&[u64])) {
    each_place(region, variable.chunk.iter().map(|n| n.get()), f);
}

/// Calls `f` with the place of each block of a grid with the extents `chunk` that holds a part of
/// `region`.
pub(super) fn each_place(
    region: &[Range<u64>],
    chunk: impl Iterator<Item = u64>,
    mut f: impl FnMut(&[u64]),
) {
    if region.iter().any(|range| range.is_empty()) {
        return;
    }
    let along = |(range, chunk): (&Range<u64>, u64)| range.start / chunk..range.end.div_ceil(chunk);
    let grid: Vec<_> = region.iter().zip(chunk).map(along).collect();
    let mut place: Vec<_> = grid.iter().map(|range| range.start).collect();
    loop {
        f(&place);
        let Some(dim) = (0..grid.len()).rev().find(|&dim| place[dim] + 1 < grid[dim].end) else {
            return;
        };
        place[dim] += 1;
        for later in dim + 1..grid.len() {
            place[later] = grid[later].start;
        }
    }
}

/// Brings the chunks of an object: what is kept or under way already is not asked for again.
async fn read(dataset: &Dataset, object: Object, turn: u64) -> Result<Vec<Chunk>, ZarrError> {
    let Object { variable, key, mut chunks } = object;
    let of = &dataset.variables[variable];
    let asking = Asking { dataset, variable, of, key: &key, turn };
    let Some(cache) = &dataset.cache else {
        asking.chunks(chunks.iter_mut().collect()).await?;
        return Ok(chunks);
    };
    let (mut mine, mut flights, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for chunk in &mut chunks {
        match cache.claim(of.chunk_id(variable, &chunk.place)) {
            Claim::Encoded(found) => chunk.data = found.into(),
            Claim::Decoded(buffer) => chunk.data = Data::Decoded(buffer),
            Claim::Mine(flight) => {
                flights.push((flight, chunk.users.len()));
                mine.push(chunk);
            }
            Claim::Others(flight) => others.push((chunk, flight)),
        }
    }
    if !mine.is_empty() {
        let found = asking.chunks(mine).await?;
        for ((flight, users), found) in flights.into_iter().zip(&found) {
            flight.into_iter().for_each(|flight| flight.land(found, users));
        }
    }
    // Only now, with nothing of its own left to do, does it wait for others.
    for (chunk, mut flight) in others {
        loop {
            if let Ok(landed) = flight.wait_for(Option::is_some).await {
                chunk.data = landed.clone().flatten().into();
                break;
            }
            // The one that fetched it gave up.
            match cache.claim(of.chunk_id(variable, &chunk.place)) {
                Claim::Encoded(found) => chunk.data = found.into(),
                Claim::Decoded(buffer) => chunk.data = Data::Decoded(buffer),
                Claim::Others(next) => {
                    flight = next;
                    continue;
                }
                Claim::Mine(next) => {
                    let users = chunk.users.len();
                    let found = asking.chunks(vec![chunk]).await?;
                    next.into_iter().for_each(|flight| flight.land(&found[0], users));
                }
            }
            break;
        }
    }
    Ok(chunks)
}
