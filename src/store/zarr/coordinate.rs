//! Coordinates: the values along a dimension, by which entries of it can be chosen.

use super::calendar::TimeUnits;
use super::dataset::Dataset;
use super::error::ZarrError;
use super::meta::Known;
use super::request::first_blocking;
use super::spec::Labels;

/// The values along a dimension.
#[derive(Debug)]
pub(super) struct Coordinate {
    values: Vec<f64>,
    time: Option<TimeUnits>,
    pub(super) is_longitude: bool,
}

/// Entries of a dimension; of a ring, they may go on with its first one behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) ring: bool,
}

impl Coordinate {
    /// Reads the variable that is named as its dimension and lies in the group of the variable `of`,
    /// or in one above it.
    pub(super) fn read(
        known: &Known<'_>,
        of: &str,
        dim: &str,
        len: u64,
    ) -> Result<Self, ZarrError> {
        let wrong = |why: String| ZarrError::Window { dim: dim.to_owned(), why };
        let groups = of.match_indices('/').map(|(at, _)| &of[..=at]).rev().chain([""]);
        let mut found = None;
        for group in groups {
            match Dataset::whole(known, format!("{group}{dim}")) {
                Ok(dataset) => {
                    found = Some(dataset);
                    break;
                }
                Err(ZarrError::NoVariable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(dataset) = found else {
            let why = "can't be chosen by coordinates: the store has no variable of that name; \
                       choose entries with `range`";
            return Err(wrong(why.to_owned()));
        };
        let variable = &dataset.variables[0];
        if variable.shape != [len] {
            let why = format!(
                "can't be chosen by coordinates: those have the shape {:?}",
                variable.shape
            );
            return Err(wrong(why));
        }
        let attribute = |name: &str| variable.attributes.get(name).and_then(|value| value.as_str());
        let units = attribute("units").unwrap_or_default();
        let time = TimeUnits::new(units, attribute("calendar")).transpose().map_err(wrong)?;
        let east = ["degrees_east", "degree_east", "degrees_E", "degree_E"].contains(&units);
        let is_longitude = east || ["longitude", "lon"].contains(&dim);
        let batch = first_blocking(&dataset)?;
        let values = batch.tensors()[0].elements::<f64>().to_vec();
        Ok(Coordinate { values, time, is_longitude })
    }

    /// The entries from one label to another, both included.
    pub(super) fn find(&self, labels: &Labels) -> Result<Entries, String> {
        let ascending = self.values.is_sorted_by(|a, b| a < b);
        if !ascending && !self.values.is_sorted_by(|a, b| a > b) {
            return Err("can't be chosen by coordinates: theirs neither rise nor fall".to_owned());
        }
        let (from, to) = (labels.from.as_deref(), labels.to.as_deref());
        let (low, high) = match &self.time {
            Some(units) => {
                let from = from.map(|label| units.interval(label)).transpose()?;
                let to = to.map(|label| units.interval(label)).transpose()?;
                // A moment before the end, so that the end itself belongs to what comes next.
                let behind = |end: f64| end - end.abs().max(1.0) * 1e-12;
                (from.map(|(start, _)| start), to.map(|(_, end)| behind(end)))
            }
            None => {
                let number = |label: &str| match label.parse::<f64>() {
                    Ok(number) if number.is_finite() => Ok(number),
                    _ => Err(format!("is chosen by `{label}`, which is no number")),
                };
                let (from, to) = (from.map(number).transpose()?, to.map(number).transpose()?);
                if let (Some(from), Some(to), Some(ring)) = (from, to, self.ring()) {
                    return self.around(from, to, ring).ok_or_else(|| self.nothing(labels));
                }
                let (from, to) = match (from, to) {
                    (Some(from), Some(to)) if from > to => (Some(to), Some(from)),
                    ends => ends,
                };
                // Coordinates in single precision are not exactly what people write.
                let near = self.step() * 1e-4;
                (from.map(|from| from - near), to.map(|to| to + near))
            }
        };
        let (low, high) = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
        let (start, end) = if ascending {
            let start = self.values.partition_point(|value| *value < low);
            (start, self.values.partition_point(|value| *value <= high))
        } else {
            let start = self.values.partition_point(|value| *value > high);
            (start, self.values.partition_point(|value| *value >= low))
        };
        if start >= end {
            return Err(self.nothing(labels));
        }
        Ok(Entries { start: start as u64, end: end as u64, ring: false })
    }

    /// Where the entries of `other` lie to these: how many entries behind the first one of `other`
    /// that of these is, and whether both go around. All that both have must be the same.
    pub(super) fn align(&self, other: &Coordinate) -> Result<(i64, bool), String> {
        self.check_kind(other)?;
        let (here, there) = (self.comparable(), other.comparable());
        let (Some(&first), Some(&other_first)) = (here.first(), there.first()) else {
            return Err("one of them has no coordinates".to_owned());
        };
        let near = self.step().min(other.step()) * self.scale() * 1e-3;
        let (len, ring) = (here.len() as i64, self.ring().is_some() && other.ring().is_some());
        let ring = ring && here.len() == there.len();
        let nearest = |values: &[f64], value: f64| {
            let apart = |at: &usize| (values[*at] - value).abs();
            (0..values.len()).min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap_or(0) as i64
        };
        let around = |degrees: f64| (degrees + 180.0).rem_euclid(360.0) - 180.0;
        let by = match (ring, nearest(&there, first)) {
            (true, _) => {
                let steps = around(first - other_first) / self.step();
                (steps.round() as i64).rem_euclid(len)
            }
            // The first one of these lies before all of the other's.
            (false, 0) if (there[0] - first).abs() > near => -nearest(&here, other_first),
            (false, at) => at,
        };
        for (at, value) in here.iter().enumerate() {
            let place = at as i64 + by;
            let place = if ring { place.rem_euclid(len) } else { place };
            let Some(other_value) = usize::try_from(place).ok().and_then(|at| there.get(at)) else {
                continue;
            };
            let apart = value - other_value;
            let apart = if ring { around(apart) } else { apart };
            if apart.abs() > near {
                let (label, other_label) = (self.label(at), other.label(place as usize));
                return Err(format!("where the one has {label}, the other has {other_label}"));
            }
        }
        Ok((by, ring))
    }

    /// Refuses coordinates whose distance from these means nothing.
    pub(super) fn check_kind(&self, other: &Coordinate) -> Result<(), String> {
        match (&self.time, &other.time) {
            (None, None) => Ok(()),
            (Some(units), Some(others)) if units.is_comparable(others) => Ok(()),
            (Some(units), Some(others)) => {
                let (one, other) = (units.calendar(), others.calendar());
                Err(format!("their calendars differ: {one} and {other}"))
            }
            _ => Err("one of them has times, the other has not".to_owned()),
        }
    }

    /// Whether these are times.
    pub(super) fn has_times(&self) -> bool {
        self.time.is_some()
    }

    /// The values in units that those of another store are in, too: seconds, if they are times.
    pub(super) fn comparable(&self) -> Vec<f64> {
        match &self.time {
            Some(units) => self.values.iter().map(|value| units.seconds(*value)).collect(),
            None => self.values.clone(),
        }
    }

    /// How much of what is compared a unit is.
    fn scale(&self) -> f64 {
        self.time.as_ref().map_or(1.0, |units| units.seconds(1.0) - units.seconds(0.0))
    }

    /// How people write the entry `at`.
    pub(super) fn label(&self, at: usize) -> String {
        match (self.values.get(at), &self.time) {
            (None, _) => "nothing".to_owned(),
            (Some(value), Some(units)) => units.label(*value),
            (Some(value), None) => format!("{}", *value as f32),
        }
    }

    /// How far neighbours lie apart, at the beginning.
    fn step(&self) -> f64 {
        match self.values[..] {
            [first, second, ..] => (second - first).abs(),
            _ => 1.0,
        }
    }

    /// The step, if these are longitudes that go around the globe with the same step everywhere.
    fn ring(&self) -> Option<f64> {
        let step = self.step();
        let (first, last) = (self.values.first()?, self.values.last()?);
        let around = (last + step - first - 360.0).abs() < step / 2.0;
        (self.is_longitude && around && last > first).then_some(step)
    }

    /// The entries from the longitude `from` eastwards to `to`.
    fn around(&self, from: f64, to: f64, step: f64) -> Option<Entries> {
        let (len, first) = (self.values.len() as f64, self.values[0]);
        let to = if to < from { to + 360.0 } else { to };
        let start = ((from - first) / step - 1e-4).ceil();
        let end = ((to - first) / step + 1e-4).floor() + 1.0;
        let count = (end - start).min(len);
        let start = start.rem_euclid(len);
        let ring = start + count > len;
        let entries = Entries { start: start as u64, end: (start + count) as u64, ring };
        (count >= 1.0).then_some(entries)
    }

    #[cfg(test)]
    pub(super) fn plain(values: Vec<f64>, is_longitude: bool) -> Self {
        Coordinate { values, time: None, is_longitude }
    }

    fn nothing(&self, labels: &Labels) -> String {
        let (first, last) = (self.label(0), self.label(self.values.len().saturating_sub(1)));
        format!("has no entries in {labels}: its coordinates go from {first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(values: &[f64], is_longitude: bool, labels: &str) -> Result<(u64, u64, bool), String> {
        let coordinate = Coordinate { values: values.to_vec(), time: None, is_longitude };
        let entries = coordinate.find(&labels.parse().expect("labels"))?;
        Ok((entries.start, entries.end, entries.ring))
    }

    #[test]
    fn both_ends_are_included_whichever_way_the_coordinates_run() {
        let up = [-90.0, -60.0, -30.0, 0.0, 30.0, 60.0, 90.0];
        let down: Vec<_> = up.iter().rev().copied().collect();
        assert_eq!(find(&up, false, "-60..60"), Ok((1, 6, false)));
        assert_eq!(find(&up, false, "60..-60"), Ok((1, 6, false)));
        assert_eq!(find(&down, false, "-60..30"), Ok((2, 6, false)));
        assert_eq!(find(&down, false, "30.."), Ok((0, 3, false)));
        assert_eq!(find(&up, false, "30"), Ok((4, 5, false)));
        let none = find(&up, false, "31..59").expect_err("nothing there");
        assert_eq!(none, "has no entries in 31..59: its coordinates go from -90 to 90");
        assert!(find(&up, false, "north").is_err());
        assert!(find(&[1.0, 3.0, 2.0], false, "1..2").is_err());
        assert!(find(&[], false, "1..2").is_err());
    }

    #[test]
    fn single_precision_is_near_enough() {
        let values: Vec<_> = (0..11).map(|i| f64::from(i as f32 * 0.1)).collect();
        assert_eq!(find(&values, false, "0.3..0.7"), Ok((3, 8, false)));
    }

    #[test]
    fn longitudes_go_around() {
        let from_0: Vec<_> = (0..36).map(|i| f64::from(i) * 10.0).collect();
        let from_180: Vec<_> = (0..36).map(|i| f64::from(i) * 10.0 - 180.0).collect();
        assert_eq!(find(&from_0, true, "10..50"), Ok((1, 6, false)));
        assert_eq!(find(&from_0, true, "-20..30"), Ok((34, 40, true)));
        assert_eq!(find(&from_0, true, "350..20"), Ok((35, 39, true)));
        assert_eq!(find(&from_0, true, "-180..180"), Ok((18, 54, true)));
        assert_eq!(find(&from_180, true, "0..350"), Ok((18, 54, true)));
        assert_eq!(find(&from_180, true, "190..200"), Ok((1, 3, false)));
        // A part of the globe does not go around.
        assert_eq!(find(&from_0[..10], true, "10..20"), Ok((1, 3, false)));
        assert!(find(&from_0[..10], true, "-20..-10").is_err());
    }

    #[test]
    fn times_are_chosen_by_date() {
        let units = TimeUnits::new("hours since 2000-01-01", Some("noleap"));
        let time = units.expect("a time").expect("known");
        let values = (0..8760 * 2).map(f64::from).collect();
        let coordinate = Coordinate { values, time: Some(time), is_longitude: false };
        let find = |labels: &str| {
            let entries = coordinate.find(&labels.parse().expect("labels"));
            entries.map(|entries| (entries.start, entries.end))
        };
        assert_eq!(find("2001"), Ok((8760, 17520)));
        assert_eq!(find("2000-02..2000-03-01"), Ok((744, 744 + 672 + 24)));
        assert_eq!(find("2000-01-01T06:00..2000-01-01T09:00"), Ok((6, 10)));
        assert_eq!(find("..2000-01-01"), Ok((0, 24)));
        let none = find("2019").expect_err("nothing there");
        assert!(none.ends_with("go from 2000-01-01 to 2001-12-31T23:00"), "{none}");
        assert!(find("2000-02-29").is_err());
    }
}
