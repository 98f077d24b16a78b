//! A chunk for which windows are still to come: the values that came so far. Where windows overlap, the
//! sum of values times weights and the sum of weights; where none do, the values themselves.

use std::collections::BTreeMap;
use std::ops::Range;

use super::output::Output;
use crate::item::{Buffer, Number, Pool, for_type};
use crate::store::zarr::cut::Piece;

/// A chunk for which windows are still to come.
pub(super) struct Pile {
    values: Values,
    /// For each window that touches the chunk whether it came, a bit each.
    came: Vec<u64>,
    /// Windows that touch it.
    pub(super) windows: u64,
    /// Windows that did not come yet.
    pub(super) missing: u64,
    /// The first window that is not added yet, by its position among those that touch the chunk.
    next: u64,
    /// What came before its turn: sums of several numbers depend on their order.
    early: BTreeMap<u64, Vec<Held>>,
    /// Bytes of that.
    pub(super) early_bytes: u64,
}

/// What a window has of the chunk, until it is its turn.
struct Held {
    common: Common,
    elements: Buffer,
}

enum Values {
    /// Elements as they are written.
    Plain(Buffer),
    /// Sums as f64.
    Weighted { sums: Buffer, weights: Buffer },
}

impl Pile {
    /// A chunk of `output` that `touching` windows touch, of which `read` will come.
    pub(super) fn new(output: &Output, pool: &Pool, touching: u64, read: u64) -> Self {
        let elements = output.elements() as usize;
        let values = match output.weights {
            Some(_) => {
                let mut sums = pool.take(elements * 8);
                let mut weights = pool.take(elements * 8);
                sums.fill(0);
                weights.fill(0);
                Values::Weighted { sums, weights }
            }
            None => {
                let mut values = pool.take(elements * output.dtype.size());
                let fill = output.fill();
                values
                    .chunks_exact_mut(fill.len())
                    .for_each(|element| element.copy_from_slice(fill));
                Values::Plain(values)
            }
        };
        let came = vec![0; touching.div_ceil(64) as usize];
        Pile {
            values,
            came,
            windows: read,
            missing: read,
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
        }
    }

    /// Notes that the window at `position` came; false if it did before.
    pub(super) fn comes(&mut self, position: u64) -> bool {
        let (word, bit) = (&mut self.came[(position / 64) as usize], 1 << (position % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.missing -= u64::from(is_new);
        is_new
    }

    /// Adds what the `pieces` of a window have of the chunk `block`, at once or in its turn: windows are
    /// added in the order of their positions, whenever they come, so that the sums are the same. Those
    /// for which `is_read` is false never come. `window` are the elements of the window, of the extents
    /// `shape`.
    pub(super) fn add(
        &mut self,
        (output, pool): (&Output, &Pool),
        (block, pieces): (&[Range<u64>], &[&Piece]),
        (window, shape): (&[u8], &[u64]),
        (position, is_read): (u64, impl Fn(u64) -> bool),
    ) {
        let parts = pieces.iter().filter_map(|piece| Common::new(block, piece));
        if output.in_turn && !self.is_next(position, &is_read) {
            let hold = |part| Held::new(part, (window, shape), output, pool);
            let parts: Vec<_> = parts.map(hold).collect();
            self.early_bytes += parts.iter().map(Held::bytes).sum::<u64>();
            self.early.insert(position, parts);
            return;
        }
        let origin = vec![0; shape.len()];
        parts.for_each(|part| self.add_part(output, &part, window, (shape, &origin)));
        self.next = position + 1;
        while let Some(position) = self.early.keys().next().copied()
            && self.is_next(position, &is_read)
        {
            let parts = self.early.remove(&position).unwrap_or_default();
            self.add_held(output, parts);
            self.next = position + 1;
        }
    }

    /// Whether it is the turn of the window at `position`. Those that are not read keep nobody waiting.
    fn is_next(&mut self, position: u64, is_read: &impl Fn(u64) -> bool) -> bool {
        while self.next < position && !is_read(self.next) {
            self.next += 1;
        }
        self.next == position
    }

    fn add_held(&mut self, output: &Output, parts: Vec<Held>) {
        for held in parts {
            self.early_bytes -= held.bytes();
            let Held { common, elements } = held;
            let place = (&*common.extent, &*common.window);
            self.add_part(output, &common, &elements, place);
        }
    }

    /// Adds the elements that a window has in common with the chunk. `window` are elements of it, of the
    /// extents `shape`, from `origin` on.
    fn add_part(
        &mut self,
        output: &Output,
        common: &Common,
        window: &[u8],
        place: (&[u64], &[u64]),
    ) {
        let size = output.dtype.size();
        let values = &mut self.values;
        common.rows(place, &output.chunk, |from, to, len, at| match values {
            Values::Plain(values) => values[to * size..(to + len) * size]
                .copy_from_slice(&window[from * size..(from + len) * size]),
            Values::Weighted { sums, weights } => {
                let own = output.weights.as_deref().unwrap_or_default();
                let last = at.len().saturating_sub(1);
                let outer = own[..last.min(own.len())].iter().zip(at);
                let outer = outer.map(|(weights, at)| weights[*at as usize]).product();
                let inner = match own.last() {
                    Some(weights) => &weights[at[last] as usize..at[last] as usize + len],
                    None => &[1.0][..],
                };
                let row = &window[from * size..(from + len) * size];
                let (sums, weights) =
                    (&mut sums[to * 8..(to + len) * 8], &mut weights[to * 8..(to + len) * 8]);
                let to = (bytemuck::cast_slice_mut(sums), bytemuck::cast_slice_mut(weights));
                for_type!(output.dtype, T => weighted::<T>(row, (outer, inner), to));
            }
        });
    }

    /// The elements of the chunk, with the fill value where none came.
    pub(super) fn finish(mut self, output: &Output, pool: &Pool) -> Buffer {
        // Where windows are missing others may still wait for them.
        for (_, parts) in std::mem::take(&mut self.early) {
            self.add_held(output, parts);
        }
        let (sums, weights) = match self.values {
            Values::Plain(values) => return values,
            Values::Weighted { sums, weights } => (sums, weights),
        };
        let mut values = pool.take(output.elements() as usize * output.dtype.size());
        let from = (bytemuck::cast_slice(&sums), bytemuck::cast_slice(&weights));
        let (fill, to) = (output.fill(), &mut values[..]);
        for_type!(output.dtype, T => means::<T>(from, to, fill));
        values
    }
}

impl Held {
    /// A copy of what `common` says of a window's elements.
    fn new(common: Common, (window, shape): (&[u8], &[u64]), output: &Output, pool: &Pool) -> Self {
        let size = output.dtype.size();
        let mut elements = pool.take(common.extent.iter().product::<u64>() as usize * size);
        let (origin, mut to) = (vec![0; shape.len()], 0);
        common.rows((shape, &origin), &output.chunk, |from, _, len, _| {
            let row = &window[from * size..(from + len) * size];
            elements[to..to + row.len()].copy_from_slice(row);
            to += row.len();
        });
        Held { common, elements }
    }

    fn bytes(&self) -> u64 {
        self.elements.capacity() as u64
    }
}

fn means<T: Number>((sums, weights): (&[f64], &[f64]), to: &mut [u8], fill: &[u8]) {
    let to: &mut [T] = bytemuck::cast_slice_mut(to);
    let fill: T = bytemuck::pod_read_unaligned(fill);
    for ((to, sum), weight) in to.iter_mut().zip(sums).zip(weights) {
        let mean = sum / weight;
        *to = match *weight > 0.0 {
            true if T::DTYPE.is_float() => T::narrow(mean),
            true => T::narrow(mean.round()),
            false => fill,
        };
    }
}

/// Adds values and their weights; those that are NaN do not count.
fn weighted<T: Number>(
    row: &[u8],
    (outer, inner): (f64, &[f64]),
    (sums, weights): (&mut [f64], &mut [f64]),
) {
    let row: &[T] = bytemuck::cast_slice(row);
    for (((value, inner), sum), weight) in row.iter().zip(inner).zip(sums).zip(weights) {
        let value = value.widen();
        if !value.is_nan() {
            *sum += value * (outer * inner);
            *weight += outer * inner;
        }
    }
}

/// What a piece of a window and a chunk have in common.
struct Common {
    /// Where it begins in the window and in the chunk.
    window: Vec<u64>,
    chunk: Vec<u64>,
    extent: Vec<u64>,
}

impl Common {
    fn new(block: &[Range<u64>], piece: &Piece) -> Option<Self> {
        let dims = block.len();
        let mut common = Common {
            window: Vec::with_capacity(dims),
            chunk: Vec::with_capacity(dims),
            extent: Vec::with_capacity(dims),
        };
        for ((block, from), to) in block.iter().zip(&piece.from).zip(&piece.to) {
            let (start, end) = (block.start.max(from.start), block.end.min(from.end));
            if start >= end {
                return None;
            }
            common.window.push(to + start - from.start);
            common.chunk.push(start - block.start);
            common.extent.push(end - start);
        }
        Some(common)
    }

    /// Calls `f` for each row with where it begins in the elements of a part of the window, given by its
    /// extents and where it begins, and in the chunk's, how many elements it has, and the place in the
    /// window of its first one.
    fn rows(
        &self,
        (part, origin): (&[u64], &[u64]),
        chunk: &[u64],
        mut f: impl FnMut(usize, usize, usize, &[u64]),
    ) {
        let dims = self.extent.len();
        let len = self.extent.last().map_or(1, |n| *n as usize);
        let rows: u64 = self.extent[..dims.saturating_sub(1)].iter().product();
        let mut at = vec![0; dims];
        let mut place = self.window.clone();
        for _ in 0..rows {
            let (mut from, mut to) = (0, 0);
            for dim in 0..dims {
                place[dim] = self.window[dim] + at[dim];
                from = from * part[dim] + place[dim] - origin[dim];
                to = to * chunk[dim] + self.chunk[dim] + at[dim];
            }
            f(from as usize, to as usize, len, &place);
            for dim in (0..dims.saturating_sub(1)).rev() {
                at[dim] += 1;
                if at[dim] < self.extent[dim] {
                    break;
                }
                at[dim] = 0;
            }
        }
    }
}
