//! Asking for what one object of a store holds: chunks, or inner chunks of a shard and its index; from
//! local disk if they were read before.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::cache::Found;
use super::dataset::Dataset;
use super::decode;
use super::error::ZarrError;
use super::fetch::{Chunk, Encoded, Object, plan};
use super::shard::{ShardIndex, Sharding};
use super::variable::Variable;
use super::windows::Window;
use crate::item::{Batch, Pool};
use crate::store::{Disk, Part, found};
use crate::trace;

/// What one call asks of one object.
pub(super) struct Asking<'a> {
    pub(super) dataset: &'a Dataset,
    /// Which of the dataset's variables the object belongs to.
    pub(super) variable: usize,
    pub(super) of: &'a Variable,
    pub(super) key: &'a str,
    pub(super) turn: u64,
}

impl Asking<'_> {
    /// Brings chunks of the object.
    pub(super) async fn chunks(&self, chunks: Vec<&mut Chunk>) -> Result<Vec<Found>, ZarrError> {
        let mut found = vec![None; chunks.len()];
        if let Some(sharding) = &self.of.sharding {
            let name = format!("{} {}", self.variable, self.key);
            let index = self.dataset.indexes.get(&name, self.index(sharding)).await?;
            if let Some(index) = index {
                let (mut ranges, mut present) = (Vec::new(), Vec::new());
                for (chunk, found) in chunks.iter().zip(&mut found) {
                    if let Some(range) = index.get(sharding.within(&chunk.place)) {
                        ranges.push(range);
                        present.push(found);
                    }
                }
                let parts = self.ranges(&ranges).await?;
                for (found, bytes) in present.into_iter().zip(parts) {
                    *found = Some(Arc::new(bytes));
                }
            }
        } else {
            let bytes = self.part(Part::Whole, self.of.encoded_max()).await?;
            found.fill(bytes.map(Arc::new));
        }
        trace::fetched(self.of.decoded_bytes() * chunks.len() as u64);
        for (chunk, found) in chunks.into_iter().zip(&found) {
            chunk.data = found.clone().into();
        }
        Ok(found)
    }

    async fn index(&self, sharding: &Sharding) -> Result<Option<Arc<ShardIndex>>, ZarrError> {
        let size = match needs_size(self.of, sharding) {
            true => match found(self.of.store.size(self.key).await)? {
                Some(size) => Some(size),
                None => return Ok(None),
            },
            false => None,
        };
        let read = self.part(sharding.index_part(size), sharding.index_bytes).await?;
        decoded(self.of, sharding, self.key, read).map(|index| index.map(Arc::new))
    }

    /// The cache on disk, if the object is not on this machine anyway.
    fn disk(&self) -> Option<&Disk> {
        self.dataset.disk.as_ref().filter(|_| !self.of.store.is_local())
    }

    /// What a part of the object is called on disk.
    fn on_disk(&self, part: &Part) -> String {
        let Variable { store, fingerprint, .. } = self.of;
        format!("{}/{} {part:?} {fingerprint:016x}", store.url(), self.key)
    }

    /// A part of the object. What is not there is `None`.
    async fn part(&self, part: Part, most: u64) -> Result<Option<Bytes>, ZarrError> {
        let Asking { of, key, turn, .. } = *self;
        let Some(disk) = self.disk() else {
            return Ok(found(of.store.get(key, part, most, turn).await)?);
        };
        let name = self.on_disk(&part);
        if let Some(bytes) = disk.get(&name, turn).await {
            return Ok(Some(bytes));
        }
        let bytes = found(of.store.get(key, part, most, turn).await)?;
        if let Some(bytes) = &bytes {
            disk.put(&name, bytes, turn).await;
        }
        Ok(bytes)
    }

    /// Parts of the object.
    async fn ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ZarrError> {
        let Asking { of, key, turn, .. } = *self;
        let Some(disk) = self.disk() else {
            return Ok(of.store.get_ranges(key, ranges, turn).await?);
        };
        let name = |range: &Range<u64>| self.on_disk(&Part::Range(range.clone()));
        let kept = ranges.iter().map(async |range| disk.get(&name(range), turn).await);
        let kept = futures::future::join_all(kept).await;
        let missing = ranges.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let missing: Vec<_> = missing.map(|(range, _)| range.clone()).collect();
        let read = match missing.is_empty() {
            true => Vec::new(),
            false => of.store.get_ranges(key, &missing, turn).await?,
        };
        let keep = missing.iter().zip(&read);
        let keep = keep.map(async |(range, bytes)| disk.put(&name(range), bytes, turn).await);
        futures::future::join_all(keep).await;
        let mut read = read.into_iter();
        let each = kept.into_iter().map(|kept| kept.or_else(|| read.next()));
        Ok(each.map(|bytes| bytes.expect("as many answers as ranges")).collect())
    }
}

/// Whether the index of a shard can't be asked for before the shard's size is known.
fn needs_size(of: &Variable, sharding: &Sharding) -> bool {
    sharding.needs_size() && !of.store.has_suffix_ranges()
}

/// The index that was read of the shard `key`.
fn decoded(
    of: &Variable,
    sharding: &Sharding,
    key: &str,
    read: Option<Bytes>,
) -> Result<Option<ShardIndex>, ZarrError> {
    let bad = |why| ZarrError::Metadata { name: format!("the index of {key}"), why };
    read.map(|bytes| sharding.decode(&bytes, of.encoded_max()).map_err(bad)).transpose()
}

/// The first window of a dataset of one variable as a batch, from code that is not async: for what is
/// small and needed before a run.
pub(super) fn first_blocking(dataset: &Arc<Dataset>) -> Result<Batch, ZarrError> {
    let windows = vec![Window { dataset: Arc::clone(dataset), number: 0, ticket: None }];
    let mut objects = plan(dataset, &windows);
    let of = &dataset.variables[0];
    let most = of.encoded_max();
    if let Some(sharding) = &of.sharding {
        for Object { key, chunks, .. } in &mut objects {
            let Some(index) = index_blocking(dataset, 0, key)? else { continue };
            for chunk in chunks {
                let Some(range) = index.get(sharding.within(&chunk.place)) else { continue };
                let bytes = of.store.read_part_blocking(key, &Part::Range(range), most)?;
                chunk.data = bytes.map(Arc::new).into();
            }
        }
    } else {
        let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
        let read = of.store.read_blocking(&keys, most)?;
        for (object, bytes) in objects.iter_mut().zip(read) {
            let bytes = bytes.map(Arc::new);
            object.chunks.iter_mut().for_each(|chunk| chunk.data = bytes.clone().into());
        }
    }
    let chunks = objects.into_iter().flat_map(|object| object.chunks).collect();
    let pool = Pool::default();
    Ok(decode::batch(&pool, &pool, Encoded { windows, chunks })?)
}

/// The index of a shard, from code that is not async; `None` if there is no such shard.
pub(super) fn index_blocking(
    dataset: &Dataset,
    variable: usize,
    key: &str,
) -> Result<Option<ShardIndex>, ZarrError> {
    let of = &dataset.variables[variable];
    let Some(sharding) = &of.sharding else { return Ok(None) };
    let size = match needs_size(of, sharding) {
        true => match of.store.size_blocking(key)? {
            Some(size) => Some(size),
            None => return Ok(None),
        },
        false => None,
    };
    let part = sharding.index_part(size);
    let read = of.store.read_part_blocking(key, &part, sharding.index_bytes)?;
    decoded(of, sharding, key, read)
}
