//! Decodes chunks in parallel, each straight into its place in the batch where it lies whole inside
//! a window; otherwise once into recycled scratch memory, from which its parts are copied.

use std::ops::Range;
use std::sync::Arc;

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use zarrs::array::ArraySubset;

use super::cut::{Cut, Piece};
use super::dataset::Dataset;
use super::disjoint::Target;
use super::error::DecodeError;
use super::fetch::{Chunk, Data, Encoded, User};
use super::picks::gather;
use super::variable::{Variable, numbers};
use super::windows::Window;
use crate::fault::BoxError;
use crate::item::{Batch, Label as _, Pool, Spec, Tensor};
use crate::ops::{Scale, Stats};

/// Decodes what [`fetch`](super::fetch) brought into a batch in memory from `pool`: for a cpu
/// stage, `cpu::map("decode", zarr::decode(&pool))`.
///
/// Each variable becomes a tensor of shape `[windows, ...]`, the other dimensions being those of
/// the variable, cut to the window. Chunks are decoded side by side on the stage's threads.
pub fn decode(pool: &Pool) -> impl Fn(Encoded) -> Result<Batch, DecodeError> + Send + Sync + use<> {
    let pool = pool.clone();
    let scratch = scratch_of(&pool);
    move |encoded| batch(&pool, &scratch, encoded)
}

/// Decodes as [`decode`] does, and brings each variable to mean 0 and deviation 1 on the way, to the same
/// bits as [`ops::normalize`](crate::ops::normalize) behind it: while a chunk is still in the processor's
/// cache, which spares a pass over the batch's memory and a stage's batches in flight.
///
/// ```
/// use forebay::prelude::*;
///
/// let stats = [("t2m".to_owned(), ops::MeanStd { mean: 278.6, std: 21.2 })];
/// let decode = zarr::decode_normalized(&Pool::default(), ops::Stats::Given(stats.into()));
/// let stage = cpu::map("decode", decode).workers(2);
/// ```
pub fn decode_normalized(
    pool: &Pool,
    stats: Stats,
) -> impl Fn(Encoded) -> Result<Batch, BoxError> + Send + Sync + use<> {
    decode_as(pool, Some(stats))
}

/// One or the other.
pub(crate) fn decode_as(
    pool: &Pool,
    stats: Option<Stats>,
) -> impl Fn(Encoded) -> Result<Batch, BoxError> + Send + Sync + use<> {
    let pool = pool.clone();
    let scratch = scratch_of(&pool);
    move |encoded| {
        let first = encoded.windows.first().cloned();
        scaled(&pool, &scratch, encoded, |spec| {
            let Some(stats) = &stats else { return Ok(None) };
            Ok(Some(Scale::new(stats.of(first.as_ref(), &spec.name)?, spec)?))
        })
    }
}

/// Where chunks are decoded that do not go straight into a batch: what no device copies is not pinned
/// for one.
fn scratch_of(pool: &Pool) -> Pool {
    if pool.is_pinned() { Pool::default() } else { pool.clone() }
}

fn no_memory(variable: &str, error: &BoxError) -> DecodeError {
    DecodeError { key: variable.to_owned(), why: error.to_string() }
}

pub(super) fn batch(pool: &Pool, scratch: &Pool, encoded: Encoded) -> Result<Batch, DecodeError> {
    scaled(pool, scratch, encoded, |_| Ok(None))
}

/// Decodes into a batch, whose tensors are brought to another scale if `scale_of` says one.
fn scaled<E: From<DecodeError>>(
    pool: &Pool,
    scratch: &Pool,
    encoded: Encoded,
    scale_of: impl Fn(&Spec) -> Result<Option<Scale>, E>,
) -> Result<Batch, E> {
    let Encoded { mut windows, chunks } = encoded;
    let Some(first) = windows.first() else {
        return Ok(Batch::new(Vec::new(), windows));
    };
    let dataset = Arc::clone(&first.dataset);
    let starts: Vec<_> = windows.iter().map(|window| dataset.starts(window.number)).collect();
    let mut tensors = Vec::with_capacity(dataset.cuts.len());
    let mut scales = Vec::with_capacity(dataset.cuts.len());
    for cut in &dataset.cuts {
        same_extents(cut, &starts, &windows)?;
        let spec = dataset.spec(cut, &starts[0], windows.len() as u64);
        let key = Arc::clone(&spec.name);
        scales.push(scale_of(&spec)?);
        tensors.push(Tensor::try_take(pool, spec).map_err(|error| no_memory(&key, &error))?);
    }
    let shapes: Vec<_> = tensors.iter().map(|tensor| Arc::clone(&tensor.spec().shape)).collect();
    let targets: Vec<_> = (tensors.iter_mut().zip(&shapes).zip(scales))
        .map(|((tensor, shape), scale)| {
            let element = tensor.spec().dtype.size();
            Target::new(tensor.bytes_mut(), shape, element).scaled(scale)
        })
        .collect();
    pad(&dataset, &targets, &shapes, &starts)?;
    let pieces = |starts: &Vec<u64>| dataset.cuts.iter().map(|cut| cut.pieces(starts)).collect();
    let pieces: Vec<Vec<Vec<Piece>>> = starts.iter().map(pieces).collect();
    // Each gives its memory back as soon as it is decoded, for a fetch to use again while it is warm.
    let place = |chunk: Chunk| {
        let of = &dataset.variables[chunk.variable];
        let placing = Placing { dataset: &dataset, of, pieces: &pieces, targets: &targets };
        placing.place(&chunk, scratch).map_err(|why| DecodeError { key: key(of, &chunk), why })
    };
    // Where there are no threads to share the work, none are started.
    match rayon::current_thread_index() {
        Some(_) => chunks.into_par_iter().try_for_each(place)?,
        None => chunks.into_iter().try_for_each(place)?,
    }
    drop(targets);
    // Their chunks are no longer wanted by these.
    windows.iter_mut().for_each(|window| window.ticket = None);
    Ok(Batch::new(tensors, windows))
}

/// Refuses windows that are cut short differently: they can't be stacked.
fn same_extents(cut: &Cut, starts: &[Vec<u64>], windows: &[Window]) -> Result<(), DecodeError> {
    let first = cut.extents(&starts[0]);
    let Some(other) = starts.iter().position(|starts| cut.extents(starts) != first) else {
        return Ok(());
    };
    let why = format!(
        "the window at {} has other extents than the one at {}, so they can't share a batch: write \
         `edges: pad`, or batches of one",
        windows[other].label(),
        windows[0].label()
    );
    Err(DecodeError { key: cut.name.to_string(), why })
}

/// Fills the windows that reach beyond what there is, before what there is comes into them.
fn pad(
    dataset: &Dataset,
    targets: &[Target<'_>],
    shapes: &[Arc<[u64]>],
    starts: &[Vec<u64>],
) -> Result<(), DecodeError> {
    for ((cut, target), shape) in dataset.cuts.iter().zip(targets).zip(shapes) {
        let of = &dataset.variables[cut.variable];
        let mut value = [0_u64];
        let value = of.padding(&mut value);
        for (window, _) in starts.iter().enumerate().filter(|(_, at)| !cut.is_filled(at)) {
            let window = window as u64;
            let whole: Vec<_> = std::iter::once(window..window + 1)
                .chain(shape[1..].iter().map(|n| 0..*n))
                .collect();
            let filled = target.fill(ArraySubset::new_with_ranges(&whole), value);
            filled.map_err(|why| DecodeError { key: cut.name.to_string(), why })?;
        }
    }
    Ok(())
}

/// What people know the chunk by.
fn key(of: &Variable, chunk: &Chunk) -> String {
    match &of.sharding {
        None => of.key(&chunk.place),
        Some(sharding) => {
            let (outer, inner): (Vec<_>, Vec<_>) =
                chunk.place.iter().zip(&sharding.chunks).map(|(at, n)| (at / n, at % n)).unzip();
            format!("{} inner chunk {inner:?}", of.key(&outer))
        }
    }
}

struct Placing<'a> {
    dataset: &'a Dataset,
    of: &'a Variable,
    /// What each window takes of the variable of each cut.
    pieces: &'a [Vec<Vec<Piece>>],
    targets: &'a [Target<'a>],
}

/// A part of a chunk and where it belongs.
struct Part<'a> {
    target: &'a Target<'a>,
    /// Where in the tensor.
    to: ArraySubset,
    /// Where in the chunk it begins.
    from: Vec<u64>,
    is_whole: bool,
    /// Which entries of the chunk are taken along each dimension, if they are picked one by one.
    picks: Option<Vec<Vec<u64>>>,
}

impl Placing<'_> {
    fn place(&self, chunk: &Chunk, pool: &Pool) -> Result<(), String> {
        let part = |user: &User| self.part(chunk, *user);
        let parts: Vec<_> = chunk.users.iter().map(part).collect();
        let encoded = match &chunk.data {
            Data::Fill => {
                let mut value = [0_u64];
                let value = self.of.missing(&mut value);
                return parts.into_iter().try_for_each(|part| part.target.fill(part.to, value));
            }
            Data::Decoded(buffer) => return self.copy(&parts, buffer, pool),
            Data::Encoded(bytes) => bytes,
        };
        let chain = &self.of.chain;
        let scratch = || {
            let shape = numbers(&self.of.chunk);
            let mut scratch = pool.take(self.of.decoded_bytes() as usize);
            let whole = ArraySubset::new_with_shape(shape.clone());
            let target = Target::new(&mut scratch, &shape, self.of.stored.size());
            target.decode(whole, encoded, chain, pool).map(|()| scratch)
        };
        if let Some(cache) = &self.dataset.cache {
            let id = self.of.chunk_id(chunk.variable, &chunk.place);
            let (users, bytes) = (chunk.users.len(), self.of.decoded_bytes());
            if let Some(shared) = cache.decoded(id, users, bytes, scratch) {
                return self.copy(&parts, &shared?, pool);
            }
        }
        if let ([Part { target, to, is_whole: true, .. }], None) = (&parts[..], &self.of.unpack) {
            return target.decode(to.clone(), encoded, chain, pool);
        }
        self.copy(&parts, &scratch()?, pool)
    }

    /// Copies parts of a decoded chunk to their places.
    fn copy(&self, parts: &[Part<'_>], decoded: &[u8], pool: &Pool) -> Result<(), String> {
        let shape = numbers(&self.of.chunk);
        let element = self.of.stored.size();
        parts.iter().try_for_each(|part| {
            let (target, unpack) = (part.target, &self.of.unpack);
            let bring = |from: &[u8], to: &mut [u8]| match unpack {
                Some(unpack) => unpack.row(from, to),
                None => to.copy_from_slice(from),
            };
            let Some(picks) = &part.picks else {
                return target.rows(&part.to, decoded, element, &shape, &part.from, bring);
            };
            let gathered = gather(decoded, &shape, picks, element, pool)?;
            let shape: Vec<_> = picks.iter().map(|picks| picks.len() as u64).collect();
            target.rows(&part.to, &gathered, element, &shape, &vec![0; shape.len()], bring)
        })
    }

    /// What a piece of a window takes of the chunk.
    fn part(&self, chunk: &Chunk, user: User) -> Part<'_> {
        let piece = &self.pieces[user.window as usize][user.cut as usize][user.piece as usize];
        let window = u64::from(user.window);
        let mut to: Vec<Range<u64>> = Vec::with_capacity(piece.from.len() + 1);
        to.push(window..window + 1);
        let mut from = Vec::with_capacity(piece.from.len());
        let mut is_whole = piece.picks.is_empty();
        let mut picks = (!is_whole).then(Vec::new);
        let along = piece.from.iter().zip(&piece.to).zip(&chunk.place).zip(&self.of.chunk);
        for (dim, (((range, begins), at), extent)) in along.enumerate() {
            let origin = at * extent.get();
            let start = range.start.max(origin);
            let end = range.end.min(origin + extent.get());
            is_whole &= end - start == extent.get();
            if let Some(picks) = &mut picks {
                let picked = piece.picks.get(dim).and_then(Option::as_ref);
                let within = match picked {
                    Some(picked) => picked.iter().map(|pick| pick - origin).collect(),
                    None => (start - origin..end - origin).collect::<Vec<_>>(),
                };
                if picked.is_some() {
                    to.push(*begins..begins + within.len() as u64);
                    from.push(0);
                    picks.push(within);
                    continue;
                }
                picks.push(within);
            }
            let place = begins + start - range.start;
            to.push(place..place + (end - start));
            from.push(start - origin);
        }
        let target = &self.targets[user.cut as usize];
        Part { target, to: ArraySubset::new_with_ranges(&to), from, is_whole, picks }
    }
}
