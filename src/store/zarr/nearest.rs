//! Which entry of another store is read for each entry of the sample's: the one whose coordinate is
//! nearest. Gives positions and distances; reads nothing but coordinates.

use std::cmp::Ordering;
use std::sync::Arc;

use super::coordinate::{Coordinate, Entries};
use super::spec::Tolerance;

/// The nearest entries of a dimension of another store.
#[derive(Debug)]
pub(super) struct Nearest {
    here: Coordinate,
    there: Coordinate,
    /// For each entry of the sample's store.
    pub(super) at: Arc<[u64]>,
    /// How far away that is.
    apart: Vec<f64>,
    most: f64,
    /// How far away the farthest one that is read is.
    pub(super) farthest: String,
}

impl Nearest {
    /// Finds the nearest entry of `there` for each of `here`. Without a tolerance it is at most as
    /// far away as neighbours of that store are from each other.
    pub(super) fn new(
        here: Coordinate,
        there: Coordinate,
        tolerance: Option<Tolerance>,
    ) -> Result<Self, String> {
        here.check_kind(&there)?;
        let (values, others) = (here.comparable(), there.comparable());
        let around = here.is_longitude || there.is_longitude;
        let turn = |value: f64| if around { value.rem_euclid(360.0) } else { value };
        let mut sorted: Vec<_> = others.iter().enumerate().map(|(i, v)| (turn(*v), i)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let most = match (tolerance, here.has_times()) {
            (Some(Tolerance::Seconds(seconds)), true) => seconds,
            (Some(Tolerance::Number(number)), false) => number,
            (Some(_), true) => return Err("its `tolerance` is no time: write `3h`".to_owned()),
            (Some(_), false) => {
                return Err("it has no times, its `tolerance` has: write `0.25`".to_owned());
            }
            (None, _) if sorted.len() < 2 => {
                let why = "the other store has one entry alone: say with `tolerance` how far away \
                           that may be";
                return Err(why.to_owned());
            }
            (None, _) => {
                let gaps = sorted.windows(2).map(|pair| pair[1].0 - pair[0].0);
                // Around the globe the gap between the last and the first one is no step.
                gaps.fold(0.0, f64::max)
            }
        };
        let apart = |a: f64, b: f64| {
            let by = (a - b).abs();
            if around { by.min(360.0 - by) } else { by }
        };
        let find = |value: &f64| {
            let (value, len) = (turn(*value), sorted.len());
            let behind = sorted.partition_point(|(other, _)| *other < value);
            // The one below comes first, so that it is taken of two that are as near.
            let below = behind.checked_sub(1).or(around.then(|| len.saturating_sub(1)));
            let above = if around { behind % len.max(1) } else { behind };
            let both = below.into_iter().chain([above]).filter_map(|at| sorted.get(at));
            let both = both.map(|(other, at)| (*at as u64, apart(value, *other)));
            both.min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let found: Option<Vec<_>> = values.iter().map(find).collect();
        let found = found.ok_or("one of them has no coordinates")?;
        let (at, apart): (Vec<_>, _) = found.into_iter().unzip();
        Ok(Nearest { here, there, at: at.into(), apart, most, farthest: String::new() })
    }

    /// Refuses entries that are read but whose nearest one is too far away.
    pub(super) fn settle(&mut self, entries: Entries) -> Result<(), String> {
        let mut farthest = 0.0_f64;
        // Coordinates in single precision are not exactly what people write.
        let most = self.most * (1.0 + 1e-6);
        for entry in entries.start..entries.end {
            let entry = entry as usize % self.at.len().max(1);
            let apart = self.apart[entry];
            // It may be NaN.
            if apart.partial_cmp(&most).is_none_or(Ordering::is_gt) {
                return Err(format!(
                    "the nearest to {} is {}, {} away, and at most {} is allowed: read less with \
                     `select`, or give a larger `tolerance`",
                    self.here.label(entry),
                    self.there.label(self.at[entry] as usize),
                    self.distance(apart),
                    self.distance(self.most),
                ));
            }
            farthest = farthest.max(apart);
        }
        self.farthest = self.distance(farthest);
        Ok(())
    }

    fn distance(&self, apart: f64) -> String {
        match self.here.has_times() {
            true => Tolerance::Seconds(apart).to_string(),
            false => Tolerance::Number(apart).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(
        here: &[f64],
        there: &[f64],
        is_longitude: bool,
        tolerance: Option<f64>,
    ) -> Result<Nearest, String> {
        let coordinate = |values: &[f64]| Coordinate::plain(values.to_vec(), is_longitude);
        let tolerance = tolerance.map(Tolerance::Number);
        let mut nearest = Nearest::new(coordinate(here), coordinate(there), tolerance)?;
        nearest.settle(Entries { start: 0, end: here.len() as u64, ring: false })?;
        Ok(nearest)
    }

    #[test]
    fn each_entry_has_its_nearest_one_whichever_way_they_run() {
        let here = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let found =
            |there: &[f64]| nearest(&here, there, false, None).map(|found| found.at.to_vec());
        assert_eq!(found(&[0.0, 3.0]), Ok(vec![0, 0, 1, 1, 1, 1]));
        assert_eq!(found(&[4.0, 0.0]), Ok(vec![1, 1, 1, 0, 0, 0]), "of two the lower one");
        assert_eq!(found(&[5.4, 4.4, 3.4, 2.4, 1.4, 0.4]), Ok(vec![5, 4, 3, 2, 1, 0]));
        assert_eq!(found(&[-9.0, 2.0, 90.0]), Ok(vec![1, 1, 1, 1, 1, 1]));
        assert!(found(&[]).is_err() && found(&[1.0]).is_err());
        let one = nearest(&here, &[1.0], false, Some(4.0)).expect("near enough");
        assert_eq!((one.at.to_vec(), &*one.farthest), (vec![0; 6], "4"));
    }

    #[test]
    fn longitudes_are_near_around_the_globe() {
        let here = [-180.0, -90.0, -1.0, 0.0, 90.0, 179.0, 359.0];
        let there = [0.0, 60.0, 120.0, 180.0, 240.0, 300.0];
        let found = nearest(&here, &there, true, None).expect("near enough");
        assert_eq!(*found.at, [3, 4, 0, 0, 1, 3, 0]);
        assert_eq!(found.farthest, "30");
    }

    #[test]
    fn the_first_one_that_is_too_far_away_is_named() {
        let why = nearest(&[0.0, 1.0, 2.5, 9.0], &[0.0, 1.0], false, Some(1.0)).map(drop);
        let why = why.expect_err("too far");
        assert!(why.starts_with("the nearest to 2.5 is 1, 1.5 away, and at most 1 is"), "{why}");
        let why = nearest(&[0.0, f64::NAN], &[0.0, 1.0], false, None).map(drop);
        assert!(why.expect_err("no place").contains("NaN"));
    }
}
