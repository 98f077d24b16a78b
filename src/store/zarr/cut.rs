//! What a window takes of a variable, by arithmetic on coordinates: which entries along each of its
//! dimensions, and where they belong in the window.

use std::ops::Range;
use std::sync::Arc;

use super::picks::Picks;

/// A dimension along which windows are cut.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) name: Arc<str>,
    /// Where the first window begins.
    pub(super) start: u64,
    /// The window's extent.
    pub(super) size: u64,
    pub(super) stride: u64,
    /// How many windows there are along it.
    pub(super) count: u64,
    /// From the first to behind the last entry that any part of a sample takes, from where the
    /// window begins.
    pub(super) reach: Range<i64>,
}

/// One tensor of a batch: a variable, and what of it belongs to a window.
#[derive(Debug)]
pub(super) struct Cut {
    /// The tensor's name: the variable's, with the name of the part before it if it has one.
    pub(super) name: Arc<str>,
    /// Which of the dataset's variables it is cut from.
    pub(super) variable: usize,
    /// One for each dimension of the variable.
    pub(super) along: Vec<Along>,
}

/// What a window takes along one dimension.
#[derive(Clone, Debug)]
pub(super) struct Along {
    /// The axis that moves it, if it moves.
    pub(super) axis: Option<usize>,
    /// Where it begins: from the window's start if it moves, else from the first entry.
    pub(super) start: i64,
    pub(super) size: u64,
    /// The entries that may be read; others are padded, or are left out if it is `short`.
    pub(super) bounds: Range<i64>,
    pub(super) short: bool,
    /// The entries of a dimension that goes on with its first one behind its last one.
    pub(super) ring: Option<u64>,
    /// If the variable lies in another store and what is nearest is taken: all else here counts the
    /// entries of the sample's store, which these stand for.
    pub(super) picks: Option<Picks>,
}

/// Entries of one dimension that lie together, and where in the window they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: Range<u64>,
    pub(super) to: u64,
    /// Which of them are taken one after the other, if not all are in order.
    pub(super) picks: Option<Arc<[u64]>>,
}

/// Entries of a variable that lie together, and where in the window they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: Vec<Range<u64>>,
    pub(super) to: Vec<u64>,
    /// Which entries of `from` are taken one after the other, for the first dimensions; all are in
    /// order along those that have none. What is picked lies in one chunk.
    pub(super) picks: Vec<Option<Arc<[u64]>>>,
}

impl Along {
    /// The entries between the bounds, if it begins at `start`.
    fn clipped(&self, start: i64) -> Range<i64> {
        let end = start.saturating_add_unsigned(self.size);
        start.max(self.bounds.start)..end.min(self.bounds.end)
    }

    /// How many entries there are in a window that begins at `start`.
    pub(super) fn extent(&self, start: i64) -> u64 {
        if !self.short {
            return self.size;
        }
        let clipped = self.clipped(start);
        clipped.end.abs_diff(clipped.start)
    }

    /// The entries to read for a window that begins at `start`, and where each run of them belongs.
    pub(super) fn segments(&self, start: i64) -> Vec<Segment> {
        let clipped = self.clipped(start);
        if let Some(picks) = &self.picks {
            return picks.segments(clipped, start);
        }
        let mut segments = Vec::with_capacity(1);
        let mut at = clipped.start;
        while at < clipped.end {
            let to = at.abs_diff(start);
            let (first, len) = match self.ring {
                Some(ring) => {
                    let first = at.rem_euclid(ring as i64) as u64;
                    (first, clipped.end.abs_diff(at).min(ring - first))
                }
                None => (at as u64, clipped.end.abs_diff(at)),
            };
            segments.push(Segment { from: first..first + len, to, picks: None });
            at = at.saturating_add_unsigned(len);
        }
        segments
    }
}

impl Piece {
    fn push(&mut self, segment: &Segment) {
        if segment.picks.is_some() {
            self.picks.resize(self.from.len(), None);
            self.picks.push(segment.picks.clone());
        }
        self.from.push(segment.from.clone());
        self.to.push(segment.to);
    }
}

impl Cut {
    /// Where it begins along each dimension, for the window whose axes begin at `starts`.
    pub(super) fn starts<'a>(&'a self, starts: &'a [u64]) -> impl Iterator<Item = i64> + 'a {
        self.along.iter().map(|along| match along.axis {
            Some(axis) => along.start.saturating_add_unsigned(starts[axis]),
            None => along.start,
        })
    }

    /// Its extents in the window whose axes begin at `starts`.
    pub(super) fn extents(&self, starts: &[u64]) -> Vec<u64> {
        self.starts(starts).zip(&self.along).map(|(start, along)| along.extent(start)).collect()
    }

    /// What the window whose axes begin at `starts` takes. Most often that is one piece; several if
    /// a dimension wraps around, none if it lies beyond what there is.
    pub(super) fn pieces(&self, starts: &[u64]) -> Vec<Piece> {
        let mut pieces = vec![Piece {
            from: Vec::with_capacity(self.along.len()),
            to: Vec::with_capacity(self.along.len()),
            picks: Vec::new(),
        }];
        for (start, along) in self.starts(starts).zip(&self.along) {
            let segments = along.segments(start);
            if let [segment] = &segments[..] {
                pieces.iter_mut().for_each(|piece| piece.push(segment));
                continue;
            }
            let each = |piece: Piece| {
                segments.iter().map(move |segment| {
                    let mut piece = piece.clone();
                    piece.push(segment);
                    piece
                })
            };
            pieces = pieces.into_iter().flat_map(each).collect();
        }
        pieces
    }

    /// Whether the pieces fill the window.
    pub(super) fn is_filled(&self, starts: &[u64]) -> bool {
        let filled = |(start, along): (i64, &Along)| {
            along.short
                || along.clipped(start) == (start..start.saturating_add_unsigned(along.size))
        };
        self.starts(starts).zip(&self.along).all(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(start: i64, size: u64, bounds: Range<i64>) -> Along {
        Along { axis: Some(0), start, size, bounds, short: false, ring: None, picks: None }
    }

    fn cut(along: Vec<Along>) -> Cut {
        Cut { name: "x".into(), variable: 0, along }
    }

    #[test]
    fn what_lies_beyond_the_bounds_is_not_read() {
        let cut = cut(vec![along(-2, 4, 0..10)]);
        let piece =
            |from: Range<u64>, to| Piece { from: vec![from], to: vec![to], picks: Vec::new() };
        assert_eq!(cut.pieces(&[0]), [piece(0..2, 2)]);
        assert_eq!(cut.pieces(&[5]), [piece(3..7, 0)]);
        assert_eq!(cut.pieces(&[9]), [piece(7..10, 0)]);
        assert_eq!(cut.pieces(&[12]), []);
        assert!(!cut.is_filled(&[0]) && cut.is_filled(&[5]) && !cut.is_filled(&[9]));
        assert_eq!(cut.extents(&[9]), [4]);
    }

    #[test]
    fn a_short_window_has_what_there_is() {
        let cut = cut(vec![Along { short: true, ..along(0, 4, 0..10) }]);
        let piece = |from: Range<u64>| Piece { from: vec![from], to: vec![0], picks: Vec::new() };
        assert_eq!(cut.extents(&[8]), [2]);
        assert_eq!(cut.pieces(&[8]), [piece(8..10)]);
        assert!(cut.is_filled(&[8]));
    }

    #[test]
    fn a_ring_goes_on_with_its_first_entry() {
        let ring = Along { ring: Some(8), ..along(-1, 4, i64::MIN..i64::MAX) };
        let cut = cut(vec![ring, Along { axis: None, ..along(0, 3, 0..3) }]);
        let piece = |from: Range<u64>, to| Piece {
            from: vec![from, 0..3],
            to: vec![to, 0],
            picks: Vec::new(),
        };
        assert_eq!(cut.pieces(&[0]), [piece(7..8, 0), piece(0..3, 1)]);
        assert_eq!(cut.pieces(&[6]), [piece(5..8, 0), piece(0..1, 3)]);
        assert!(cut.is_filled(&[6]));
    }
}
