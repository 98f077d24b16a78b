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
use crate::ops::Scale;

/// A tensor's memory that several threads fill. Each region must be written by one thread only.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    cells: UnsafeCellSlice<'a, u8>,
    shape: &'a [u64],
    element: usize,
    /// What becomes of the elements on their way into the tensor.
    scale: Option<Scale>,
}

impl<'a> Target<'a> {
    /// The memory of an array of `shape` with elements of `element` bytes.
    ///
    /// # Panics
    /// If `bytes` has another length.
    pub(super) fn new(bytes: &'a mut [u8], shape: &'a [u64], element: usize) -> Self {
        assert_eq!(bytes.len() as u64, shape.iter().product::<u64>() * element as u64);
        Target { cells: UnsafeCellSlice::new(bytes), shape, element, scale: None }
    }

    /// The same, with elements that are normalized on their way.
    pub(super) fn scaled(self, scale: Option<Scale>) -> Self {
        Target { scale, ..self }
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
            chain.fill(encoded, bytes, pool)?;
            self.scale(bytes);
            return Ok(());
        }
        let mut view = self.view(region.clone())?;
        chain.decode_into(encoded, ArrayBytesDecodeIntoTarget::from(&mut view), pool)?;
        if self.scale.is_some() {
            self.region_rows(&region)?.for_each(|row| self.scale(row));
        }
        Ok(())
    }

    /// Brings elements that were just written to their scale.
    fn scale(&self, elements: &mut [u8]) {
        if let Some(scale) = self.scale {
            scale.apply(elements);
        }
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
        let mut own = [0_u64];
        let own = &mut bytemuck::bytes_of_mut(&mut own)[..value.len()];
        own.copy_from_slice(value);
        self.scale(own);
        self.view(region)?.fill(own).map_err(|error| error.to_string())
    }

    /// Brings the part of `from`, an array of `shape` with elements of `element` bytes, that begins
    /// at `start` into `region`, row by row. The region has the dimensions of `shape` behind its
    /// first one, of which it has one entry.
    pub(super) fn rows(
        &self,
        region: &ArraySubset,
        from: &[u8],
        element: usize,
        shape: &[u64],
        start: &[u64],
        bring: impl Fn(&[u8], &mut [u8]),
    ) -> Result<(), String> {
        let extent = region.shape();
        let len = extent.last().map_or(0, |len| *len as usize) * element;
        let sources = row_starts(shape, start, &extent[1..]).map(|at| at * element);
        for (at, row) in sources.zip(self.region_rows(region)?) {
            let values = from.get(at..at + len).ok_or("a chunk is shorter than it says")?;
            bring(values, row);
            self.scale(row);
        }
        Ok(())
    }

    /// The rows of `region`.
    fn region_rows<'r>(
        &'r self,
        region: &'r ArraySubset,
    ) -> Result<impl Iterator<Item = &'r mut [u8]>, String> {
        if !region.inbounds_shape(self.shape) {
            return Err("a region lies outside of its tensor".to_owned());
        }
        let len = region.shape().last().map_or(0, |len| *len as usize) * self.element;
        Ok(row_starts(self.shape, region.start(), region.shape()).map(move |at| {
            let at = at * self.element;
            // SAFETY: the row lies in `region`, which no other thread writes, see `view`; and each row
            // is handed out once.
            unsafe { self.cells.index_mut(at..at + len) }
        }))
    }
}

/// Where the rows of a box begin in an array of `shape`, in elements; they run along the last dimension.
fn row_starts<'a>(
    shape: &'a [u64],
    start: &'a [u64],
    extent: &'a [u64],
) -> impl Iterator<Item = usize> + use<'a> {
    let outer = &extent[..extent.len().saturating_sub(1)];
    let mut at = vec![0_u64; shape.len()];
    (0..outer.iter().product::<u64>()).map(move |_| {
        let along = shape.iter().zip(start).zip(&at);
        let begins = along.fold(0, |begins, ((len, start), at)| begins * len + start + at);
        for (at, extent) in at.iter_mut().zip(outer).rev() {
            *at += 1;
            if *at < *extent {
                break;
            }
            *at = 0;
        }
        begins as usize
    })
}
