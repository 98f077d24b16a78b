//! Writing different regions of one tensor from several threads at once.
//!
//! One of the two files that contain `unsafe`. A [`Target`] hands out regions that the caller has
//! proved to be disjoint: the regions of different chunks never overlap within a window, and each
//! window has a place of its own in the tensor.
#![expect(unsafe_code, reason = "threads write to disjoint regions of one buffer")]

use unsafe_cell_slice::UnsafeCellSlice;
use zarrs::array::{ArrayBytesDecodeIntoTarget, ArrayBytesFixedDisjointView, ArraySubset};

use super::chain::Chain;
use crate::item::Pool;

/// A tensor's memory that several threads fill. Each region must be written by one thread only.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    cells: UnsafeCellSlice<'a, u8>,
    shape: &'a [u64],
    element: usize,
}

impl<'a> Target<'a> {
    /// The memory of an array of `shape` with elements of `element` bytes.
    ///
    /// # Panics
    /// If `bytes` has another length.
    pub(super) fn new(bytes: &'a mut [u8], shape: &'a [u64], element: usize) -> Self {
        assert_eq!(bytes.len() as u64, shape.iter().product::<u64>() * element as u64);
        Target { cells: UnsafeCellSlice::new(bytes), shape, element }
    }

    fn view(&self, region: ArraySubset) -> Result<ArrayBytesFixedDisjointView<'a>, String> {
        // SAFETY: no other view of the region exists, by the contract of this type: its only user,
        // `decode`, makes one view for each pair of a chunk and a window, chunks do not overlap in
        // a window, and each window has a place of its own in the tensor.
        unsafe { ArrayBytesFixedDisjointView::new(self.cells, self.element, self.shape, region) }
            .map_err(|error| error.to_string())
    }

    /// Decodes a whole chunk into `region`, which has as many elements.
    pub(super) fn decode(
        &self,
        region: ArraySubset,
        encoded: &[u8],
        chain: &Chain,
        pool: &Pool,
    ) -> Result<(), String> {
        if chain.is_plain()
            && let Some(bytes) = self.contiguous(&region)
        {
            return chain.fill(encoded, bytes, pool);
        }
        let mut view = self.view(region)?;
        chain.decode_into(encoded, ArrayBytesDecodeIntoTarget::from(&mut view), pool)
    }

    /// The bytes of `region` if they follow each other.
    #[expect(clippy::mut_from_ref, reason = "regions are disjoint, by the contract of this type")]
    fn contiguous(&self, region: &ArraySubset) -> Option<&mut [u8]> {
        if !region.inbounds_shape(self.shape) {
            return None;
        }
        let (start, extent) = (region.start(), region.shape());
        // All dimensions behind the first that has several entries must be whole.
        let first = extent.iter().position(|&n| n != 1).unwrap_or(extent.len());
        if (first + 1..extent.len()).any(|dim| extent[dim] != self.shape[dim]) {
            return None;
        }
        let at = start.iter().zip(self.shape).fold(0, |at, (start, n)| at * n + start) as usize;
        let len = extent.iter().product::<u64>() as usize;
        let range = at * self.element..(at + len) * self.element;
        // SAFETY: the bytes are those of `region`, which no other thread writes; see `view`.
        Some(unsafe { self.cells.index_mut(range) })
    }

    /// Fills `region` with one value.
    pub(super) fn fill(&self, region: ArraySubset, value: &[u8]) -> Result<(), String> {
        self.view(region)?.fill(value).map_err(|error| error.to_string())
    }

    /// Brings the part of `from`, an array of `shape` with elements of `element` bytes, that begins
    /// at `start` into `region`, row by row. The region has the dimensions of `shape` behind its
    /// first one.
    pub(super) fn rows(
        &self,
        region: &ArraySubset,
        from: &[u8],
        element: usize,
        shape: &[u64],
        start: &[u64],
        bring: impl Fn(&[u8], &mut [u8]),
    ) -> Result<(), String> {
        if !region.inbounds_shape(self.shape) {
            return Err("a region lies outside of its tensor".to_owned());
        }
        let (to, extent) = (region.start(), region.shape());
        let dims = shape.len();
        // A scalar has the samples alone as its dimensions.
        let Some(row) = extent.last().map(|n| if dims == 0 { 1 } else { *n as usize }) else {
            return Ok(());
        };
        let rows: u64 = extent[1..dims.max(1)].iter().product();
        let mut at = vec![0_u64; dims];
        for _ in 0..if dims == 0 { 1 } else { rows } {
            let (mut source, mut target) = (0, to[0]);
            for d in 0..dims {
                source = source * shape[d] + start[d] + at[d];
                target = target * self.shape[d + 1] + to[d + 1] + at[d];
            }
            let (source, target) = (source as usize * element, target as usize * self.element);
            let values = from.get(source..source + row * element);
            let values = values.ok_or("a chunk is shorter than it says")?;
            // SAFETY: the row lies in `region`, which no other thread writes; see `view`.
            bring(values, unsafe { self.cells.index_mut(target..target + row * self.element) });
            for d in (0..dims.saturating_sub(1)).rev() {
                at[d] += 1;
                if at[d] < extent[d + 1] {
                    break;
                }
                at[d] = 0;
            }
        }
        Ok(())
    }
}
