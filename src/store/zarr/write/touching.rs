//! Which windows touch a chunk: arithmetic on coordinates, so that it is known when all have come.

use std::ops::Range;

use crate::store::zarr::cut::{Along, Axis, Cut, Segment};
use crate::store::zarr::dataset::Dataset;

/// The windows that touch a chunk, by their places along each axis.
#[derive(Debug)]
pub(super) struct Touching {
    /// Along each axis, runs of places in rising order.
    runs: Vec<Vec<Range<u64>>>,
}

impl Touching {
    /// The windows of which `cut` takes something of the block `chunk` of its variable.
    pub(super) fn new(cut: &Cut, axes: &[Axis], chunk: &[Range<u64>]) -> Self {
        let runs = axes.iter().enumerate().map(|(number, axis)| {
            let along = cut.along.iter().zip(chunk);
            match along.into_iter().find(|(along, _)| along.axis == Some(number)) {
                Some((along, chunk)) => runs(along, axis, chunk),
                // It takes the same wherever the window is along this axis.
                None => std::iter::once(0..axis.count).collect(),
            }
        });
        Touching { runs: runs.collect() }
    }

    /// How many there are, without regard to those that a mask leaves out.
    pub(super) fn len(&self) -> u64 {
        self.runs.iter().map(|runs| len(runs)).product()
    }

    /// Which of them the window is whose places along the axes are `places`.
    pub(super) fn position(&self, places: &[u64]) -> Option<u64> {
        self.runs.iter().zip(places).try_fold(0, |position, (runs, place)| {
            let mut before = 0;
            for run in runs {
                if run.contains(place) {
                    return Some(position * len(runs) + before + place - run.start);
                }
                before += run.end - run.start;
            }
            None
        })
    }

    /// The lowest and the highest of their numbers.
    pub(super) fn ends(&self, axes: &[Axis]) -> Option<(u64, u64)> {
        let ends = self.runs.iter().zip(axes);
        ends.into_iter().try_fold((0, 0), |(first, last), (runs, axis)| {
            let (from, to) = (runs.first()?.start, runs.last()?.end - 1);
            Some((first * axis.count + from, last * axis.count + to))
        })
    }

    /// How many of them are read.
    pub(super) fn read(&self, dataset: &Dataset) -> u64 {
        if dataset.left_out() == 0 {
            return self.len();
        }
        (0..self.len()).filter(|position| self.is_read(dataset, *position)).count() as u64
    }

    /// Whether the one at `position` is read: a mask may leave it out.
    pub(super) fn is_read(&self, dataset: &Dataset, position: u64) -> bool {
        if dataset.left_out() == 0 {
            return true;
        }
        let (mut rest, mut number, mut step) = (position, 0, 1);
        for (runs, axis) in self.runs.iter().zip(dataset.axes()).rev() {
            let mut place = rest % len(runs);
            rest /= len(runs);
            for run in runs {
                match run.end - run.start {
                    inside if place < inside => {
                        number += (run.start + place) * step;
                        break;
                    }
                    inside => place -= inside,
                }
            }
            step *= axis.count;
        }
        dataset.is_read(number)
    }
}

/// The places along the axes of the window `number`.
pub(super) fn places(axes: &[Axis], mut number: u64) -> Vec<u64> {
    let mut places = vec![0; axes.len()];
    for (place, axis) in places.iter_mut().zip(axes).rev() {
        *place = number % axis.count.max(1);
        number /= axis.count.max(1);
    }
    places
}

fn len(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// The places along `axis` at which a window takes something of the entries `chunk`.
fn runs(along: &Along, axis: &Axis, chunk: &Range<u64>) -> Vec<Range<u64>> {
    let base = along.start.saturating_add_unsigned(axis.start);
    if along.ring.is_some() {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for place in 0..axis.count {
            let segments = along.segments(base.saturating_add_unsigned(place * axis.stride));
            let touches = |segment: &Segment| {
                segment.from.start.max(chunk.start) < segment.from.end.min(chunk.end)
            };
            match (segments.iter().any(touches), runs.last_mut()) {
                (true, Some(run)) if run.end == place => run.end += 1,
                (true, _) => runs.push(place..place + 1),
                (false, _) => {}
            }
        }
        return runs;
    }
    let (first, end) =
        (along.bounds.start.max(chunk.start as i64), along.bounds.end.min(chunk.end as i64));
    if first >= end {
        return Vec::new();
    }
    let (stride, size) = (axis.stride as i64, along.size as i64);
    // A window that begins at `at` touches it if `at + size > first` and `at < end`.
    let from = (first - size - base).div_euclid(stride) + 1;
    let to = (end - 1 - base).div_euclid(stride) + 1;
    let (from, to) = (from.max(0) as u64, (to.max(0) as u64).min(axis.count));
    std::iter::once(from..to).filter(|run| !run.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, size: u64, stride: u64, count: u64) -> Axis {
        Axis { name: name.into(), start: 0, size, stride, count, reach: 0..size as i64 }
    }

    fn along(axis: usize, start: i64, size: u64, len: u64, ring: bool) -> Along {
        let bounds = if ring { i64::MIN..i64::MAX } else { 0..len as i64 };
        Along {
            axis: Some(axis),
            start,
            size,
            bounds,
            short: false,
            ring: ring.then_some(len),
            picks: None,
        }
    }

    /// What arithmetic says is what comes out if every window's pieces are looked at.
    #[test]
    fn windows_that_touch_a_chunk_are_counted_by_arithmetic() {
        let mut cases = 0;
        for (size, stride) in [(1, 1), (3, 1), (3, 2), (2, 3), (4, 4), (5, 2)] {
            for (start, ring) in [(0, false), (-2, false), (2, false), (0, true), (3, true)] {
                let axes = [axis("x", size, stride, 6), axis("y", 2, 1, 3)];
                let along = vec![along(0, start, size, 11, ring), along(1, 0, 2, 4, false)];
                let cut = Cut { name: "v".into(), variable: 0, along };
                for chunk in [[0..4, 0..2], [4..8, 2..4], [8..11, 0..1]] {
                    let touching = Touching::new(&cut, &axes, &chunk);
                    let touches = |number: &u64| {
                        let places = places(&axes, *number);
                        let starts: Vec<_> =
                            places.iter().zip(&axes).map(|(at, axis)| at * axis.stride).collect();
                        cut.pieces(&starts).iter().any(|piece| {
                            let mut both = piece.from.iter().zip(&chunk);
                            both.all(|(a, b)| a.start.max(b.start) < a.end.min(b.end))
                        })
                    };
                    let want: Vec<_> = (0..18).filter(touches).collect();
                    assert_eq!(touching.len(), want.len() as u64, "{size} {stride} {chunk:?}");
                    for (position, number) in want.iter().enumerate() {
                        let found = touching.position(&places(&axes, *number));
                        assert_eq!(found, Some(position as u64));
                    }
                    let ends = want.first().copied().zip(want.last().copied());
                    assert_eq!(touching.ends(&axes).filter(|_| touching.len() > 0), ends);
                    cases += 1;
                }
            }
        }
        assert_eq!(cases, 90);
    }
}
