//! What a pass over windows will cost, computed from coordinates and metadata: requests, bytes, how
//! often chunks are wanted. No data is read.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;

use super::cache::{ChunkCache, ChunkId};
use super::dataset::Dataset;
use super::error::ZarrError;
use super::shard::ShardIndex;
use super::windows::Window;
use super::{fetch, request};
use crate::source::{Groups, Index};

/// Groups of windows that the source is ahead of the fetch: the default buffer.
const AHEAD: u64 = 1024;
/// Groups that are looked at; what there is beyond them is estimated from these.
const LOOKED_AT: u64 = 20_000;

/// What one pass over all windows costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Windows in the pass.
    pub windows: u64,
    /// Windows that are left out, as `keep` says.
    pub left_out: u64,
    /// Groups of windows that share a batch.
    pub batches: u64,
    /// Bytes of all windows, decoded.
    pub window_bytes: u64,
    /// Different chunks that windows want.
    pub chunks: u64,
    /// How often windows want a chunk, over all chunks.
    pub wanted: u64,
    /// Chunks that are fetched; those that come back after they were given up count again.
    pub fetched: u64,
    /// Requests for data and for indexes of shards.
    pub requests: u64,
    /// Bytes that come back.
    pub wire_bytes: u64,
    /// Bytes of the chunks that are fetched, decoded.
    pub decoded_bytes: u64,
    /// Bytes of chunks that are kept at most for later windows.
    pub cache_bytes: u64,
    /// Bytes of the largest batch, decoded.
    pub batch_bytes: u64,
    /// Share of the batches that was looked at; the rest is estimated from it.
    pub looked_at: f64,
    /// Whether sizes of some objects were estimated from others.
    pub sizes_estimated: bool,
    /// Groups of windows that are cut from the same chunks.
    pub groups: u64,
    /// The grid of chunks and windows, for each variable.
    pub variables: Vec<PlannedVariable>,
}

/// How a variable is cut.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedVariable {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<String>,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The shape of a chunk, of an inner chunk if it is sharded.
    pub chunk: Vec<u64>,
    /// The shape of a window.
    pub window: Vec<u64>,
    /// The dimensions of another store of which the nearest entries are taken, with how far away the
    /// farthest of them is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nearest: BTreeMap<String, String>,
}

impl Plan {
    /// Decoded bytes for each byte that a window uses, if each chunk were decoded for each window:
    /// what is fetched over what is used. 1 is perfect; below 1 windows share chunks.
    pub fn amplification(&self) -> f64 {
        self.decoded_bytes as f64 / self.window_bytes.max(1) as f64
    }

    /// How often a chunk is fetched, in the mean.
    pub fn fetches_per_chunk(&self) -> f64 {
        self.fetched as f64 / self.chunks.max(1) as f64
    }

    /// Seconds that the pass takes at least over a link of so many bytes per second, if each request
    /// takes `latency` seconds more and the store serves 256 at once.
    pub fn seconds(&self, bytes_per_s: f64, latency: f64) -> f64 {
        let at_once = crate::store::REQUESTS as f64;
        (self.wire_bytes as f64 / bytes_per_s).max(self.requests as f64 * latency / at_once)
    }
}

/// Plans a pass over groups of windows.
///
/// # Errors
/// The store can't tell the sizes of its objects, or an index of a shard can't be read.
pub fn plan(index: &Index<Vec<Window>>) -> Result<Plan, ZarrError> {
    let batches = index.len();
    let first = if batches == 0 { Vec::new() } else { index.get(0) };
    let mut plan = Plan {
        windows: 0,
        left_out: 0,
        batches,
        window_bytes: 0,
        chunks: 0,
        wanted: 0,
        fetched: 0,
        requests: 0,
        wire_bytes: 0,
        decoded_bytes: 0,
        cache_bytes: 0,
        batch_bytes: 0,
        looked_at: 1.0,
        sizes_estimated: false,
        groups: 0,
        variables: Vec::new(),
    };
    let Some(dataset) = first.first().map(|window| std::sync::Arc::clone(&window.dataset)) else {
        return Ok(plan);
    };
    drop(first);
    plan.groups = dataset.groups().count();
    plan.left_out = dataset.left_out();
    plan.variables = variables(&dataset);
    let mut sizes = Sizes::default();
    let mut asked = Asked::default();
    let looked = batches.min(LOOKED_AT);
    let mut coming = VecDeque::new();
    for batch in 0..looked {
        while coming.len() < AHEAD as usize && batch + (coming.len() as u64) < batches {
            coming.push_back(index.get(batch + coming.len() as u64));
        }
        let windows = coming.pop_front().expect("one at least is coming");
        let bytes = dataset.bytes() * windows.len() as u64;
        plan.windows += windows.len() as u64;
        plan.window_bytes += bytes;
        plan.batch_bytes = plan.batch_bytes.max(bytes);
        asked.batch(&dataset, &windows, &mut plan, &mut sizes)?;
        if let Some(cache) = &dataset.cache {
            plan.cache_bytes = plan.cache_bytes.max(cache.bytes());
        }
    }
    plan.chunks = asked.chunks.len() as u64;
    plan.wire_bytes += sizes.bytes(&dataset)?;
    plan.sizes_estimated = sizes.estimated;
    plan.looked_at = looked as f64 / batches.max(1) as f64;
    if looked < batches {
        let all = |n: u64| (n as f64 / plan.looked_at) as u64;
        plan.windows = all(plan.windows);
        plan.window_bytes = all(plan.window_bytes);
        plan.wanted = all(plan.wanted);
        plan.fetched = all(plan.fetched);
        plan.requests = all(plan.requests);
        plan.wire_bytes = all(plan.wire_bytes);
        plan.decoded_bytes = all(plan.decoded_bytes);
        plan.chunks = all(plan.chunks).min(plan.fetched);
    }
    Ok(plan)
}

fn variables(dataset: &Dataset) -> Vec<PlannedVariable> {
    let planned = |cut: &super::cut::Cut| {
        let variable = &dataset.variables[cut.variable];
        PlannedVariable {
            name: cut.name.to_string(),
            dims: variable.dims.iter().map(|dim| dim.to_string()).collect(),
            shape: variable.shape.clone(),
            chunk: super::variable::numbers(&variable.chunk),
            window: cut.along.iter().map(|along| along.size).collect(),
            nearest: (variable.dims.iter().zip(&cut.along))
                .filter_map(|(dim, along)| {
                    let picks = along.picks.as_ref()?;
                    Some((dim.to_string(), picks.farthest.to_string()))
                })
                .collect(),
        }
    };
    dataset.cuts.iter().map(planned).collect()
}

/// What was asked for so far.
#[derive(Default)]
struct Asked {
    chunks: HashMap<ChunkId, ()>,
    indexes: HashMap<(usize, String), ()>,
}

impl Asked {
    /// Asks as [`fetch`](super::fetch) does for one batch.
    fn batch(
        &mut self,
        dataset: &Dataset,
        windows: &[Window],
        plan: &mut Plan,
        sizes: &mut Sizes,
    ) -> Result<(), ZarrError> {
        for object in fetch::plan(dataset, windows) {
            let of = &dataset.variables[object.variable];
            let mut places = Vec::new();
            for chunk in &object.chunks {
                let users = chunk.users.len();
                let id = of.chunk_id(object.variable, &chunk.place);
                plan.wanted += users as u64;
                self.chunks.entry(id).or_default();
                let is_there =
                    dataset.cache.as_ref().is_some_and(|cache: &std::sync::Arc<ChunkCache>| {
                        cache.would_have(id, users, of.decoded_bytes())
                    });
                if !is_there {
                    plan.fetched += 1;
                    plan.decoded_bytes += of.decoded_bytes();
                    places.push(&chunk.place);
                }
            }
            if places.is_empty() {
                continue;
            }
            let Some(sharding) = &of.sharding else {
                plan.requests += 1;
                *sizes.wanted.entry((object.variable, object.key)).or_default() += 1;
                continue;
            };
            if self.indexes.insert((of.source, object.key.clone()), ()).is_none() {
                plan.requests += 1;
                plan.wire_bytes += sharding.index_bytes;
            }
            let index = sizes.index(dataset, object.variable, &object.key)?;
            let mut ranges: Vec<_> = places
                .iter()
                .filter_map(|place| index.as_ref()?.get(sharding.within(place)))
                .collect();
            ranges.sort_unstable_by_key(|range| range.start);
            let mut end = None;
            for range in ranges {
                match end {
                    Some(last) if range.start <= last + of.store.gap() => {
                        let more = range.end.saturating_sub(last);
                        plan.wire_bytes += more;
                        end = Some(last + more);
                    }
                    _ => {
                        plan.requests += 1;
                        plan.wire_bytes += range.end - range.start;
                        end = Some(range.end);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Sizes of objects, and indexes of shards, as far as the stores tell them at little cost.
#[derive(Default)]
struct Sizes {
    /// How often objects that are read whole are fetched, by variable and key.
    wanted: BTreeMap<(usize, String), u64>,
    indexes: BTreeMap<(usize, String), Option<ShardIndex>>,
    estimated: bool,
}

/// Objects whose size is asked for; that of others is the mean of these.
const ASKED: usize = 4096;
/// Shards whose index is read; others are taken to be like the first.
const INDEXES: usize = 64;

impl Sizes {
    /// Bytes of all objects that are read whole, as often as they are fetched.
    fn bytes(&mut self, dataset: &Dataset) -> Result<u64, ZarrError> {
        let mut bytes = 0;
        let mut first = std::mem::take(&mut self.wanted).into_iter().peekable();
        let most = (ASKED / dataset.variables.len().max(1)).max(1);
        while let Some(((variable, _), _)) = first.peek() {
            let variable = *variable;
            let of_variable = std::iter::from_fn(|| first.next_if(|((of, _), _)| *of == variable));
            let (keys, times): (Vec<_>, Vec<_>) =
                of_variable.map(|((_, key), times)| (key, times)).unzip();
            let asked = &keys[..keys.len().min(most)];
            self.estimated |= asked.len() < keys.len();
            let sizes = dataset.variables[variable].store.sizes_blocking(asked)?;
            let sizes: Vec<_> = sizes.into_iter().map(Option::unwrap_or_default).collect();
            let mean = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
            let sizes = sizes.into_iter().chain(std::iter::repeat(mean));
            bytes += times.into_iter().zip(sizes).map(|(times, size)| times * size).sum::<u64>();
        }
        Ok(bytes)
    }

    fn index(
        &mut self,
        dataset: &Dataset,
        variable: usize,
        key: &str,
    ) -> Result<&Option<ShardIndex>, ZarrError> {
        let place = (dataset.variables[variable].source, key.to_owned());
        if !self.indexes.contains_key(&place) {
            if self.indexes.len() >= INDEXES {
                self.estimated = true;
                return Ok(self.indexes.values().next().expect("many are known"));
            }
            let index = request::index_blocking(dataset, variable, key)?;
            self.indexes.insert(place.clone(), index);
        }
        Ok(&self.indexes[&place])
    }
}

/// What to change, if the plan is bad.
pub fn advice(plan: &Plan) -> Vec<String> {
    let mut advice = Vec::new();
    let wanted = plan.wanted as f64 / plan.chunks.max(1) as f64;
    if plan.fetches_per_chunk() > 1.05 {
        advice.push(format!(
            "each chunk is wanted {wanted:.1} times and fetched {:.1} times: write `shuffle: \
             chunks`, or give `zarr.windows` a larger `cache`",
            plan.fetches_per_chunk()
        ));
    }
    if plan.amplification() > 1.5 && plan.fetches_per_chunk() <= 1.05 {
        let worst = plan.variables.first().map(|v| {
            let by =
                |shape: &[u64]| shape.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" x ");
            format!("windows of {} cut chunks of {}", by(&v.window), by(&v.chunk))
        });
        advice.push(format!(
            "{}: {:.0} % of what is decoded is used by no window; windows that fill chunks, or a \
             store with smaller chunks, would save it",
            worst.unwrap_or_default(),
            100.0 - 100.0 / plan.amplification()
        ));
    }
    if plan.requests > 0 && plan.wire_bytes / plan.requests < 64 << 10 && plan.requests > 1000 {
        advice.push(format!(
            "{} requests of {} kB each: the latency of the store decides; shards or larger chunks \
             need fewer",
            plan.requests,
            plan.wire_bytes / plan.requests / 1000
        ));
    }
    advice
}

/// How many groups of chunks a batch of `windows` comes from, in the mean, under a shuffle by
/// chunks with `mixed` groups at a time.
pub fn mixing(mixed: u64, windows: u64) -> f64 {
    Groups::drawn(mixed.max(1), windows)
}
