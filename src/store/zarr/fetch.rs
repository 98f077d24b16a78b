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
use super::shard::{ShardIndex, Sharding};
use super::variable::Variable;
use super::windows::{Window, label_of};
use crate::item::{Buffer, Label};
use crate::store::{Part, StoreError};

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
/// The store failed. A chunk that is not there is no error: it holds the fill value.
pub async fn fetch<W: Windows>(windows: W) -> Result<Encoded, ZarrError> {
    let windows = windows.into_windows();
    let Some(first) = windows.first() else {
        return Ok(Encoded { windows, chunks: Vec::new() });
    };
    let dataset = Arc::clone(&first.dataset);
    let objects = plan(&dataset, &windows);
    // Calls begin in the order of their items, and what the first of them wants is asked for first.
    let turn = dataset.turns.fetch_add(1, Relaxed);
    let fetched: Vec<Vec<Chunk>> = futures::stream::iter(objects)
        .map(|object| read(&dataset, object, turn))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
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
pub(super) fn each_chunk(variable: &Variable, region: &[Range<u64>], mut f: impl FnMut(&[u64])) {
    if region.iter().any(|range| range.is_empty()) {
        return;
    }
    let along = |(range, chunk): (&Range<u64>, &std::num::NonZeroU64)| {
        range.start / chunk.get()..range.end.div_ceil(chunk.get())
    };
    let grid: Vec<_> = region.iter().zip(&variable.chunk).map(along).collect();
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
    let place = (variable, &*key);
    let Some(cache) = &dataset.cache else {
        request(dataset, place, chunks.iter_mut().collect(), turn).await?;
        return Ok(chunks);
    };
    let of = &dataset.variables[variable];
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
        let found = request(dataset, place, mine, turn).await?;
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
                    let found = request(dataset, place, vec![chunk], turn).await?;
                    next.into_iter().for_each(|flight| flight.land(&found[0], users));
                }
            }
            break;
        }
    }
    Ok(chunks)
}

/// Asks the store for chunks of one object.
async fn request(
    dataset: &Dataset,
    (variable, key): (usize, &str),
    chunks: Vec<&mut Chunk>,
    turn: u64,
) -> Result<Vec<Found>, ZarrError> {
    let of = &dataset.variables[variable];
    let most = of.encoded_max();
    let mut found = vec![None; chunks.len()];
    if let Some(sharding) = &of.sharding {
        let read_index = read_index(dataset, (variable, key), sharding, most, turn);
        if let Some(index) = dataset.indexes.get(&format!("{variable} {key}"), read_index).await? {
            let (mut ranges, mut present) = (Vec::new(), Vec::new());
            for (chunk, found) in chunks.iter().zip(&mut found) {
                if let Some(range) = index.get(sharding.within(&chunk.place)) {
                    ranges.push(range);
                    present.push(found);
                }
            }
            let parts = get_ranges(dataset, (variable, key), &ranges, turn).await?;
            for (found, bytes) in present.into_iter().zip(parts) {
                *found = Some(Arc::new(bytes));
            }
        }
    } else {
        let bytes = get(dataset, (variable, key), Part::Whole, most, turn).await?;
        found.fill(bytes.map(Arc::new));
    }
    for (chunk, found) in chunks.into_iter().zip(&found) {
        chunk.data = found.clone().into();
    }
    Ok(found)
}

/// What a part of an object is called on disk.
fn on_disk(dataset: &Dataset, (variable, key): (usize, &str), part: &Part) -> String {
    let of = &dataset.variables[variable];
    format!("{}/{key} {part:?} {:016x}", of.store.url(), of.fingerprint)
}

/// A part of an object, from disk if it was read before. What is not there is `None`.
async fn get(
    dataset: &Dataset,
    (variable, key): (usize, &str),
    part: Part,
    most: u64,
    turn: u64,
) -> Result<Option<Bytes>, ZarrError> {
    let store = &dataset.variables[variable].store;
    let disk = dataset.disk.as_ref().filter(|_| !store.is_local());
    let Some(disk) = disk else {
        return Ok(there(store.get(key, part, most, turn).await)?);
    };
    let name = on_disk(dataset, (variable, key), &part);
    if let Some(bytes) = disk.get(&name, turn).await {
        return Ok(Some(bytes));
    }
    let bytes = there(store.get(key, part, most, turn).await)?;
    if let Some(bytes) = &bytes {
        disk.put(&name, bytes, turn).await;
    }
    Ok(bytes)
}

/// Parts of one object, from disk as far as they were read before.
async fn get_ranges(
    dataset: &Dataset,
    (variable, key): (usize, &str),
    ranges: &[Range<u64>],
    turn: u64,
) -> Result<Vec<Bytes>, ZarrError> {
    let store = &dataset.variables[variable].store;
    let disk = dataset.disk.as_ref().filter(|_| !store.is_local());
    let Some(disk) = disk else {
        return Ok(store.get_ranges(key, ranges, turn).await?);
    };
    let name = |range: &Range<u64>| on_disk(dataset, (variable, key), &Part::Range(range.clone()));
    let kept = futures::future::join_all(
        ranges.iter().map(async |range| disk.get(&name(range), turn).await),
    );
    let kept = kept.await;
    let missing = ranges.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
    let missing: Vec<_> = missing.map(|(range, _)| range.clone()).collect();
    let mut read = match missing.is_empty() {
        true => Vec::new(),
        false => store.get_ranges(key, &missing, turn).await?,
    };
    futures::future::join_all(missing.iter().zip(&read).map(async |(range, bytes)| {
        disk.put(&name(range), bytes, turn).await;
    }))
    .await;
    let mut read = read.drain(..);
    let each = kept.into_iter().map(|kept| kept.or_else(|| read.next()));
    Ok(each.map(|bytes| bytes.expect("as many answers as ranges")).collect())
}

async fn read_index(
    dataset: &Dataset,
    (variable, key): (usize, &str),
    sharding: &Sharding,
    most: u64,
    turn: u64,
) -> Result<Option<Arc<ShardIndex>>, ZarrError> {
    let store = &dataset.variables[variable].store;
    let needs_size = sharding.needs_size() && !store.has_suffix_ranges();
    let size = match needs_size {
        true => there(store.size(key).await)?,
        false => None,
    };
    if needs_size && size.is_none() {
        return Ok(None);
    }
    let part = sharding.index_part(size);
    let bytes = get(dataset, (variable, key), part, sharding.index_bytes, turn).await?;
    let Some(bytes) = bytes else { return Ok(None) };
    let bad = |why| ZarrError::Metadata { name: format!("the index of {key}"), why };
    Ok(Some(Arc::new(sharding.decode(&bytes, most).map_err(bad)?)))
}

/// The encoded chunks of the first window, from code that is not async: for what is small and needed
/// before a run.
pub(super) fn whole_blocking(dataset: &Arc<Dataset>) -> Result<Encoded, ZarrError> {
    let windows = vec![Window { dataset: Arc::clone(dataset), number: 0, ticket: None }];
    let mut objects = plan(dataset, &windows);
    let of = |object: &Object| &dataset.variables[object.variable];
    let most = |object: &Object| of(object).encoded_max();
    let is_plain = |object: &&Object| of(object).sharding.is_none();
    let keys: Vec<_> = objects.iter().filter(is_plain).map(|object| object.key.clone()).collect();
    let largest = objects.iter().map(most).max().unwrap_or(0);
    let mut read = dataset.store.read_blocking(&keys, largest)?.into_iter();
    for object in &mut objects {
        let Some(sharding) = &dataset.variables[object.variable].sharding else {
            let bytes = read.next().expect("as many answers as keys");
            for chunk in &mut object.chunks {
                chunk.data = bytes.clone().map(Arc::new).into();
            }
            continue;
        };
        let Some(index) = index_blocking(dataset, object.variable, &object.key)? else { continue };
        for chunk in &mut object.chunks {
            let Some(range) = index.get(sharding.within(&chunk.place)) else { continue };
            let part = Part::Range(range);
            let bytes = dataset.store.read_part_blocking(&object.key, &part, largest)?;
            chunk.data = bytes.map(Arc::new).into();
        }
    }
    let chunks = objects.into_iter().flat_map(|object| object.chunks).collect();
    Ok(Encoded { windows, chunks })
}

/// The index of a shard, from code that is not async; `None` if there is no such shard.
pub(super) fn index_blocking(
    dataset: &Dataset,
    variable: usize,
    key: &str,
) -> Result<Option<ShardIndex>, ZarrError> {
    let of = &dataset.variables[variable];
    let Some(sharding) = &of.sharding else { return Ok(None) };
    let needs_size = sharding.needs_size() && !of.store.has_suffix_ranges();
    let size = if needs_size { of.store.size_blocking(key)? } else { None };
    if needs_size && size.is_none() {
        return Ok(None);
    }
    let part = sharding.index_part(size);
    let read = of.store.read_part_blocking(key, &part, sharding.index_bytes)?;
    let bad = |why| ZarrError::Metadata { name: format!("the index of {key}"), why };
    read.map(|bytes| sharding.decode(&bytes, of.encoded_max()).map_err(bad)).transpose()
}

/// What is not there is no error here.
fn there<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
