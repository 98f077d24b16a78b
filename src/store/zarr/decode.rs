//! Decodes chunks in parallel, each straight into its place in the batch where it lies whole inside
//! a window; otherwise once into recycled scratch memory, from which its parts are copied.

use std::ops::Range;
use std::sync::Arc;

use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
use zarrs::array::ArraySubset;

use super::dataset::Dataset;
use super::disjoint::{Decoder, Target};
use super::error::DecodeError;
use super::fetch::{Chunk, Data, Encoded};
use super::variable::{Variable, numbers};
use crate::item::{Batch, Pool, Tensor};

/// Decodes what [`fetch`](super::fetch) brought into a batch in memory from `pool`: for a cpu
/// stage, `cpu::map("decode", zarr::decode(&pool))`.
///
/// Each variable becomes a tensor of shape `[windows, ...]`, the other dimensions being those of
/// the variable, cut to the window. Chunks are decoded side by side on the stage's threads.
pub fn decode(pool: &Pool) -> impl Fn(Encoded) -> Result<Batch, DecodeError> + Send + Sync + use<> {
    let pool = pool.clone();
    move |encoded| batch(&pool, encoded)
}

fn batch(pool: &Pool, encoded: Encoded) -> Result<Batch, DecodeError> {
    let Encoded { mut windows, chunks } = encoded;
    let Some(first) = windows.first() else {
        return Ok(Batch::new(Vec::new(), windows));
    };
    let dataset = Arc::clone(&first.dataset);
    let mut tensors: Vec<_> = dataset
        .variables
        .iter()
        .map(|variable| Tensor::take(pool, dataset.spec(variable, windows.len() as u64)))
        .collect();
    let shapes: Vec<_> = tensors.iter().map(|tensor| Arc::clone(&tensor.spec().shape)).collect();
    let targets: Vec<_> = (tensors.iter_mut().zip(&shapes).zip(&dataset.variables))
        .map(|((tensor, shape), of)| Target::new(tensor.bytes_mut(), shape, of.dtype.size()))
        .collect();
    let numbers: Vec<_> = windows.iter().map(|window| window.number).collect();
    chunks.par_iter().try_for_each(|chunk| {
        let of = &dataset.variables[chunk.variable];
        let placing = Placing { dataset: &dataset, of, target: &targets[chunk.variable] };
        placing.place(chunk, &numbers, pool).map_err(|why| DecodeError { key: key(of, chunk), why })
    })?;
    drop(targets);
    // Their chunks are no longer wanted by these.
    windows.iter_mut().for_each(|window| window.ticket = None);
    Ok(Batch::new(tensors, windows))
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
    target: &'a Target<'a>,
}

/// A part of a chunk and where it belongs.
struct Part {
    /// Where in the tensor.
    to: ArraySubset,
    /// Where in the chunk it begins.
    from: Vec<u64>,
    is_whole: bool,
}

impl Placing<'_> {
    fn place(&self, chunk: &Chunk, windows: &[u64], pool: &Pool) -> Result<(), String> {
        let parts: Vec<_> = chunk
            .users
            .iter()
            .map(|&user| self.part(chunk, user, windows[user as usize]))
            .collect();
        let encoded = match &chunk.data {
            Data::Fill => {
                let fill = self.of.fill_value().as_ne_bytes();
                // Aligned for every type.
                let (mut stored, mut value) = ([0_u64], [0_u64]);
                let stored = &mut bytemuck::bytes_of_mut(&mut stored)[..fill.len()];
                let value = &mut bytemuck::bytes_of_mut(&mut value)[..self.of.dtype.size()];
                stored.copy_from_slice(fill);
                match &self.of.unpack {
                    Some(unpack) => unpack.row(stored, value),
                    None => value.copy_from_slice(stored),
                }
                return parts.into_iter().try_for_each(|part| self.target.fill(part.to, value));
            }
            Data::Decoded(buffer) => return self.copy(&parts, buffer),
            Data::Encoded(bytes) => bytes,
        };
        self.of.guard.check(encoded, self.of.decoded_bytes())?;
        let decoder = Decoder {
            codecs: &self.of.codecs,
            shape: &self.of.chunk,
            dtype: self.of.data_type(),
            fill: self.of.fill_value(),
            is_plain_zstd: self.of.is_plain_zstd,
        };
        let scratch = || {
            let shape = numbers(&self.of.chunk);
            let mut scratch = pool.take(self.of.decoded_bytes() as usize);
            let whole = ArraySubset::new_with_shape(shape.clone());
            let target = Target::new(&mut scratch, &shape, self.of.stored.size());
            target.decode(whole, encoded, &decoder).map(|()| scratch)
        };
        if let Some(cache) = &self.dataset.cache {
            let id = self.of.chunk_id(chunk.variable, &chunk.place);
            let (users, bytes) = (chunk.users.len(), self.of.decoded_bytes());
            if let Some(shared) = cache.decoded(id, users, bytes, scratch) {
                return self.copy(&parts, &shared?);
            }
        }
        if let ([Part { to, is_whole: true, .. }], None) = (&parts[..], &self.of.unpack) {
            return self.target.decode(to.clone(), encoded, &decoder);
        }
        self.copy(&parts, &scratch()?)
    }

    /// Copies parts of a decoded chunk to their places.
    fn copy(&self, parts: &[Part], decoded: &[u8]) -> Result<(), String> {
        let shape = numbers(&self.of.chunk);
        let element = self.of.stored.size();
        parts.iter().try_for_each(|part| {
            self.target.rows(&part.to, decoded, element, &shape, &part.from, |from, to| match &self
                .of
                .unpack
            {
                Some(unpack) => unpack.row(from, to),
                None => to.copy_from_slice(from),
            })
        })
    }

    /// What the window `number`, at place `user` of the batch, takes of the chunk.
    fn part(&self, chunk: &Chunk, user: u32, number: u64) -> Part {
        let user = u64::from(user);
        let region = self.dataset.region(self.of, number);
        let mut to: Vec<Range<u64>> = Vec::with_capacity(region.len() + 1);
        to.push(user..user + 1);
        let mut from = Vec::with_capacity(region.len());
        let mut is_whole = true;
        for ((window, at), extent) in region.iter().zip(&chunk.place).zip(&self.of.chunk) {
            let origin = at * extent.get();
            let start = window.start.max(origin);
            let end = window.end.min(origin + extent.get());
            is_whole &= end - start == extent.get();
            to.push(start - window.start..end - window.start);
            from.push(start - origin);
        }
        Part { to: ArraySubset::new_with_ranges(&to), from, is_whole }
    }
}
