//! Windows chosen by the values of a variable, such as a land mask, before any of them is read.

use std::sync::Arc;

use super::cut::{Axis, Cut};
use super::dataset::Dataset;
use super::error::ZarrError;
use super::meta::Known;
use super::request::first_blocking;
use super::spec::Keep;
use crate::source::Groups;
use crate::store::Store;

/// A mask of more values is refused: it is held in memory while windows are chosen.
const VALUES_MAX: u64 = 1 << 27;
/// More places are refused: the numbers of those that are kept are held in memory.
const PLACES_MAX: u64 = 1 << 26;

impl Keep {
    /// Whether it can choose at all, whatever the values are.
    pub(crate) fn check(&self) -> Result<(), ZarrError> {
        let wrong = |why| Err(ZarrError::Keep { variable: self.variable.clone(), why });
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong(format!("a share of {}: write more than 0, at most 1", self.share));
        }
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => {
                wrong(format!("no value lies between a `min` of {min} and a `max` of {max}"))
            }
            _ => Ok(()),
        }
    }
}

/// Finds the mask of `keep`, without reading its values.
pub(crate) fn find_mask(store: &Store, keep: &Keep) -> Result<(), ZarrError> {
    Dataset::whole(&Known::read(store)?, keep.variable.clone()).map(drop)
}

/// The windows that are kept, numbered with the places that the mask chose running fastest.
#[derive(Debug)]
pub(super) struct Kept {
    /// For each place that is kept, what it adds to the window's number.
    places: Vec<u64>,
    /// The axes that the mask does not have: how many windows there are along each, and what each
    /// step adds to the window's number.
    others: Vec<(u64, u64)>,
    pub(super) len: u64,
}

impl Kept {
    /// The number of the `i`-th window that is kept, among all of the dataset's.
    pub(super) fn number(&self, i: u64) -> u64 {
        let places = self.places.len().max(1) as u64;
        let (mut i, mut number) = (i / places, self.places[(i % places) as usize]);
        for (count, step) in self.others.iter().rev() {
            number += i % count * step;
            i /= count;
        }
        number
    }

    /// How the windows that are kept group, if those of all windows do so along `axes`: how many there
    /// are, in groups of how many, and how many there are in the first one.
    pub(super) fn groups(&self, axes: &[(u64, u64, u64)], of: &[Axis]) -> Groups {
        let steps = steps(of);
        let is_other = |axis: &usize| self.others.contains(&(of[*axis].count, steps[*axis]));
        let (others, chosen): (Vec<_>, Vec<_>) = (0..of.len()).partition(is_other);
        let along = |of: &[usize]| Groups::beginning(of.iter().map(|axis| axes[*axis]));
        let by_mask = along(&chosen);
        let group = |place: u64| {
            let number = self.places[place as usize];
            by_mask.of(chosen.iter().fold(0, |item, axis| {
                item * of[*axis].count + number / steps[*axis] % of[*axis].count
            }))
        };
        along(&others).choosing(self.places.len() as u64, group)
    }

    /// Whether the window `number`, among all of the dataset's, is kept.
    pub(super) fn has(&self, number: u64) -> bool {
        let others = self.others.iter().map(|(count, step)| number / step % count * step);
        let place = number - others.sum::<u64>();
        self.places.binary_search(&place).is_ok()
    }

    /// Chooses by the values of the mask. `cut` makes a cut of a variable with the given dimensions
    /// and shape.
    pub(super) fn choose(
        known: &Known<'_>,
        keep: &Keep,
        axes: &[Axis],
        cut: impl FnOnce(&[Arc<str>], &[u64]) -> Result<Cut, ZarrError>,
    ) -> Result<Self, ZarrError> {
        let wrong = |why: String| ZarrError::Keep { variable: keep.variable.clone(), why };
        keep.check()?;
        let mask = Dataset::whole(known, keep.variable.clone())?;
        let shape = mask.variables[0].shape.clone();
        let values = shape.iter().try_fold(1, |n: u64, len| n.checked_mul(*len));
        if values.is_none_or(|values| values > VALUES_MAX) {
            let why = format!("{shape:?} values are too many: at most {VALUES_MAX} are read");
            return Err(wrong(why));
        }
        let cut = cut(&mask.variables[0].dims, &shape)?;
        let along = |axis: usize| cut.along.iter().any(|along| along.axis == Some(axis));
        let steps = steps(axes);
        let (chosen, others): (Vec<_>, Vec<_>) = (0..axes.len()).partition(|axis| along(*axis));
        let count = chosen.iter().try_fold(1, |n: u64, axis| n.checked_mul(axes[*axis].count));
        let count = count.filter(|count| *count <= PLACES_MAX);
        let count = count.ok_or_else(|| {
            wrong(format!("more than {PLACES_MAX} places: choose fewer by `stride` or `select`"))
        })?;
        let batch = first_blocking(&mask)?;
        let hits = Sums::new(&shape, batch.tensors()[0].elements::<f64>(), |value| {
            keep.min.is_none_or(|min| value >= min) && keep.max.is_none_or(|max| value <= max)
        });
        let mut starts: Vec<_> = axes.iter().map(|axis| axis.start).collect();
        let cells: u64 = cut.along.iter().map(|along| along.size).product();
        let least = ((cells as f64 * keep.share).ceil() as u64).max(1);
        let mut places = Vec::new();
        for place in 0..count {
            let (mut rest, mut number) = (place, 0);
            for &axis in chosen.iter().rev() {
                let at = rest % axes[axis].count;
                rest /= axes[axis].count;
                starts[axis] = axes[axis].start + at * axes[axis].stride;
                number += at * steps[axis];
            }
            let hit: u64 = cut.pieces(&starts).iter().map(|piece| hits.within(&piece.from)).sum();
            if hit >= least {
                places.push(number);
            }
        }
        if places.is_empty() {
            let why = format!("none of the {count} places has a share of {} of it", keep.share);
            return Err(wrong(why));
        }
        let others: Vec<_> =
            others.into_iter().map(|axis| (axes[axis].count, steps[axis])).collect();
        let len = others.iter().map(|(count, _)| count).product::<u64>() * places.len() as u64;
        Ok(Kept { places, others, len })
    }
}

/// What a step along each axis adds to the number of a window.
fn steps(axes: &[Axis]) -> Vec<u64> {
    let mut steps = vec![1; axes.len()];
    for axis in (1..axes.len()).rev() {
        steps[axis - 1] = steps[axis] * axes[axis].count;
    }
    steps
}

/// How many values hit, before each place of an array: any block is counted by looking at its
/// corners alone.
struct Sums {
    /// The extents of the array, each with one more entry in front.
    shape: Vec<usize>,
    sums: Vec<u64>,
}

impl Sums {
    fn new(shape: &[u64], values: &[f64], hits: impl Fn(f64) -> bool) -> Self {
        let shape: Vec<_> = shape.iter().map(|n| *n as usize + 1).collect();
        let mut sums = vec![0; shape.iter().product()];
        let mut at = vec![1; shape.len()];
        for value in values {
            let place = at.iter().zip(&shape).fold(0, |place, (at, n)| place * n + at);
            sums[place] = u64::from(hits(*value));
            for dim in (0..shape.len()).rev() {
                at[dim] += 1;
                if at[dim] < shape[dim] {
                    break;
                }
                at[dim] = 1;
            }
        }
        let mut step = 1;
        for n in shape.iter().rev() {
            for place in step..sums.len() {
                if place / step % n != 0 {
                    sums[place] += sums[place - step];
                }
            }
            step *= n;
        }
        Sums { shape, sums }
    }

    fn within(&self, block: &[std::ops::Range<u64>]) -> u64 {
        let (mut added, mut taken) = (0, 0);
        for corner in 0..1_u32 << block.len() {
            let mut place = 0;
            for (dim, (range, n)) in block.iter().zip(&self.shape).enumerate() {
                let at = if corner >> dim & 1 == 1 { range.end } else { range.start };
                place = place * n + at as usize;
            }
            match (block.len() as u32 - corner.count_ones()).is_multiple_of(2) {
                true => added += self.sums[place],
                false => taken += self.sums[place],
            }
        }
        added - taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_their_corners() {
        let shape = [3_u64, 4, 5];
        let values: Vec<_> = (0..60).map(|i| f64::from(i * 7 % 11)).collect();
        let sums = Sums::new(&shape, &values, |value| value > 4.0);
        for (a, b) in [([0, 0, 0], [3, 4, 5]), ([1, 2, 0], [3, 3, 5]), ([0, 1, 2], [1, 2, 3])] {
            let block: Vec<_> = a.iter().zip(b).map(|(a, b)| *a..b).collect();
            let inside = |i: u64| {
                let at = [i / 20, i / 5 % 4, i % 5];
                at.iter().zip(&block).all(|(at, range)| range.contains(at))
            };
            let want = (0..60).filter(|i| inside(*i) && values[*i as usize] > 4.0).count();
            assert_eq!(sums.within(&block), want as u64, "{block:?}");
        }
        assert_eq!(Sums::new(&[], &[5.0], |value| value > 4.0).within(&[]), 1);
    }

    #[test]
    fn the_mask_runs_fastest() {
        // Axes of 3, 4 and 5 windows, of which the mask has the second one.
        let kept = Kept { places: vec![5, 15], others: vec![(3, 20), (5, 1)], len: 30 };
        let numbers: Vec<_> = (0..kept.len).map(|i| kept.number(i)).collect();
        assert_eq!(numbers[..4], [5, 15, 6, 16]);
        assert_eq!(numbers[29], 2 * 20 + 15 + 4);
        for number in 0..60 {
            assert_eq!(kept.has(number), numbers.contains(&number), "{number}");
        }
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 30);
    }
}
