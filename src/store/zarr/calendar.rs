//! Times as CF writes them: a number of `units since date`, in one of several calendars.

/// How days are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calendar {
    /// Julian until 1582-10-04, Gregorian from 1582-10-15.
    Standard,
    ProlepticGregorian,
    Julian,
    NoLeap,
    AllLeap,
    Days360,
}

impl Calendar {
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "standard" | "gregorian" => Calendar::Standard,
            "proleptic_gregorian" => Calendar::ProlepticGregorian,
            "julian" => Calendar::Julian,
            "noleap" | "365_day" => Calendar::NoLeap,
            "all_leap" | "366_day" => Calendar::AllLeap,
            "360_day" => Calendar::Days360,
            _ => {
                return Err(format!(
                    "the calendar `{name}` is not known: standard, proleptic_gregorian, julian, \
                     noleap, all_leap and 360_day are"
                ));
            }
        })
    }

    fn is_leap(self, year: i64) -> bool {
        let gregorian = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        match self {
            Calendar::Standard if year > 1582 => gregorian,
            Calendar::Standard | Calendar::Julian => year % 4 == 0,
            Calendar::ProlepticGregorian => gregorian,
            Calendar::NoLeap | Calendar::Days360 => false,
            Calendar::AllLeap => true,
        }
    }

    fn days_in(self, year: i64, month: u32) -> u32 {
        match month {
            _ if self == Calendar::Days360 => 30,
            2 => 28 + u32::from(self.is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// The day's number, counted from a day that depends on the calendar alone; `None` if there is
    /// no such day.
    fn day(self, (year, month, day): Date) -> Option<i64> {
        if !(1..=12).contains(&month) || day == 0 || day > self.days_in(year, month) {
            return None;
        }
        let gregorian = match self {
            Calendar::Standard => match (year, month, day) {
                date if date >= (1582, 10, 15) => true,
                date if date <= (1582, 10, 4) => false,
                _ => return None,
            },
            calendar => calendar == Calendar::ProlepticGregorian,
        };
        let (month, day) = (i64::from(month), i64::from(day));
        Some(match self {
            Calendar::Days360 => year * 360 + (month - 1) * 30 + day,
            Calendar::NoLeap | Calendar::AllLeap => {
                let before: u32 = (1..month as u32).map(|month| self.days_in(year, month)).sum();
                year * (365 + i64::from(self == Calendar::AllLeap)) + i64::from(before) + day
            }
            // The Julian day number: years that begin in March end with the leap day.
            _ => {
                let early = i64::from(month <= 2);
                let (year, month) = (year + 4800 - early, month + 12 * early - 3);
                let days = day + (153 * month + 2) / 5 + 365 * year + year.div_euclid(4);
                if gregorian {
                    days - year.div_euclid(100) + year.div_euclid(400) - 32045
                } else {
                    days - 32083
                }
            }
        })
    }

    /// The date of a day's number.
    fn date(self, number: i64) -> Date {
        let first = |year| self.day((year, 1, 1)).expect("every year has a first day");
        let (year_0, per_400) = (first(0), first(400) - first(0));
        let mut year = (number - year_0) * 400 / per_400;
        while first(year) > number {
            year -= 1;
        }
        while first(year + 1) <= number {
            year += 1;
        }
        for month in (1..=12).rev() {
            if let Some(first) = self.day((year, month, 1))
                && first <= number
            {
                let mut day = (number - first) as u32 + 1;
                // Ten days are missing from October 1582.
                while day < 40 && self.day((year, month, day)) != Some(number) {
                    day += 1;
                }
                return (year, month, day);
            }
        }
        unreachable!("a year's first day is that of its first month")
    }
}

type Date = (i64, u32, u32);

/// What the numbers of a time coordinate mean.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimeUnits {
    calendar: Calendar,
    /// Seconds in a unit.
    unit: f64,
    /// When the numbers begin, in seconds.
    since: f64,
}

const DAY: f64 = 86_400.0;

impl TimeUnits {
    /// What `units` and `calendar` say, if they are those of a time.
    pub(super) fn new(units: &str, calendar: Option<&str>) -> Option<Result<Self, String>> {
        let (unit, since) = units.split_once(" since ")?;
        let read = || {
            let calendar = Calendar::named(calendar.unwrap_or("standard"))?;
            let unit = match unit.trim().to_ascii_lowercase().as_str() {
                "days" | "day" | "d" => DAY,
                "hours" | "hour" | "hrs" | "hr" | "h" => 3600.0,
                "minutes" | "minute" | "mins" | "min" => 60.0,
                "seconds" | "second" | "secs" | "sec" | "s" => 1.0,
                "milliseconds" | "millisecond" | "ms" => 1e-3,
                "microseconds" | "microsecond" | "us" => 1e-6,
                "nanoseconds" | "nanosecond" | "ns" => 1e-9,
                other => return Err(format!("the unit `{other}` has no fixed length")),
            };
            let (since, _) = moment(calendar, since)?;
            Ok(TimeUnits { calendar, unit, since })
        };
        Some(read())
    }

    /// What the calendar is called.
    pub(super) fn calendar(&self) -> &'static str {
        match self.calendar {
            Calendar::Standard => "standard",
            Calendar::ProlepticGregorian => "proleptic_gregorian",
            Calendar::Julian => "julian",
            Calendar::NoLeap => "noleap",
            Calendar::AllLeap => "all_leap",
            Calendar::Days360 => "360_day",
        }
    }

    /// Whether the days of both are the same.
    pub(super) fn is_comparable(&self, other: &TimeUnits) -> bool {
        let gregorian = [Calendar::Standard, Calendar::ProlepticGregorian];
        let both = gregorian.contains(&self.calendar) && gregorian.contains(&other.calendar);
        both || self.calendar == other.calendar
    }

    /// The number in seconds, counted as in all units of the same calendar.
    pub(super) fn seconds(&self, number: f64) -> f64 {
        self.since + number * self.unit
    }

    /// The numbers from the beginning of what `label` names to behind its end: a year, a month, a
    /// day, or a time of day.
    pub(super) fn interval(&self, label: &str) -> Result<(f64, f64), String> {
        let (start, end) = moment(self.calendar, label)?;
        Ok(((start - self.since) / self.unit, (end - self.since) / self.unit))
    }

    /// How people write the number.
    pub(super) fn label(&self, number: f64) -> String {
        let seconds = (self.since + number * self.unit).round();
        let (year, month, day) = self.calendar.date(seconds.div_euclid(DAY) as i64);
        let of_day = seconds.rem_euclid(DAY) as u32;
        let date = format!("{year:04}-{month:02}-{day:02}");
        match (of_day / 3600, of_day / 60 % 60, of_day % 60) {
            (0, 0, 0) => date,
            (hour, minute, 0) => format!("{date}T{hour:02}:{minute:02}"),
            (hour, minute, second) => format!("{date}T{hour:02}:{minute:02}:{second:02}"),
        }
    }
}

/// From when to when a date, or a date with a time of day, lasts; in seconds.
fn moment(calendar: Calendar, text: &str) -> Result<(f64, f64), String> {
    let wrong = || {
        format!("`{text}` is no date: write `2019`, `2019-06`, `2019-06-30` or `2019-06-30T18:00`")
    };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u32>().map_err(|_| wrong()),
        false => Err(wrong()),
    };
    let text = text.trim();
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time.trim())),
        None => (text.strip_suffix('Z').unwrap_or(text), None),
    };
    let (before, date) = match date.strip_prefix('-') {
        Some(date) => (-1, date),
        None => (1, date),
    };
    let mut parts = date.split('-').map(number);
    let year = before * i64::from(parts.next().unwrap_or_else(|| Err(wrong()))?);
    let (month, day) = (parts.next().transpose()?, parts.next().transpose()?);
    if parts.next().is_some() || (day.is_none() && time.is_some()) {
        return Err(wrong());
    }
    let none = || format!("there is no day `{text}` in the {calendar:?} calendar");
    let at = |date: Date| calendar.day(date).map(|day| day as f64 * DAY).ok_or_else(none);
    let next = |year, month| if month == 12 { (year + 1, 1, 1) } else { (year, month + 1, 1) };
    let (month, day) = match (month, day) {
        (None, _) => return Ok((at((year, 1, 1))?, at((year + 1, 1, 1))?)),
        (Some(month), None) => return Ok((at((year, month, 1))?, at(next(year, month))?)),
        (Some(month), Some(day)) => (month, day),
    };
    let start = at((year, month, day))?;
    let Some(time) = time.filter(|time| !time.is_empty()) else {
        return Ok((start, start + DAY));
    };
    let (time, zone) = zone(time).ok_or_else(wrong)?;
    let mut parts = time.split(':');
    let mut part = |most: f64| match parts.next().map(str::parse::<f64>) {
        None => Ok(None),
        Some(Ok(n)) if (0.0..most).contains(&n) => Ok(Some(n)),
        Some(_) => Err(wrong()),
    };
    let (hour, minute, second) = (part(24.0)?, part(60.0)?, part(61.0)?);
    if parts.next().is_some() {
        return Err(wrong());
    }
    let lasts = match (minute, second) {
        (None, _) => 3600.0,
        (_, None) => 60.0,
        _ => 1.0,
    };
    let of_day = [(hour, 3600.0), (minute, 60.0), (second, 1.0)];
    let of_day: f64 = of_day.iter().map(|(n, unit)| n.unwrap_or(0.0) * unit).sum();
    let start = start + of_day - zone;
    Ok((start, start + lasts))
}

/// A time of day without its zone, and the zone's offset from UTC in seconds.
fn zone(time: &str) -> Option<(&str, f64)> {
    for name in ["Z", "UTC", "GMT"] {
        if let Some(time) = time.strip_suffix(name) {
            return Some((time.trim_end(), 0.0));
        }
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0.0)) };
    let (time, zone) = time.split_at(at);
    let (hours, minutes) = zone[1..].split_once(':').unwrap_or((&zone[1..], "0"));
    let offset = hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0;
    Some((time.trim_end(), if zone.starts_with('-') { -offset } else { offset }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(units: &str, calendar: &str) -> TimeUnits {
        TimeUnits::new(units, Some(calendar)).expect("a time").expect("known")
    }

    /// Reference values of cftime 1.6.5 (`date2num`).
    #[test]
    fn dates_count_as_cftime_counts_them() {
        let cases = [
            ("hours since 1900-01-01", "standard", "2019-01-01", 1_043_136.0),
            ("days since 0001-01-01", "standard", "2000-01-01", 730_121.0),
            ("days since 0001-01-01", "proleptic_gregorian", "2000-01-01", 730_119.0),
            ("days since 2000-01-01", "noleap", "2001-03-01", 424.0),
            ("days since 2000-01-01", "all_leap", "2001-03-01", 426.0),
            ("days since 2000-01-01", "360_day", "2001-02-30", 419.0),
            ("days since 1582-10-04", "standard", "1582-10-15", 1.0),
            ("days since 2000-01-01", "julian", "1900-02-29", -36_466.0),
            ("seconds since 1970-01-01T00:00:00Z", "standard", "2020-01-01", 1_577_836_800.0),
            ("hours since 1900-01-01 00:00:0.0", "gregorian", "1900-01-02T06:00", 30.0),
            ("minutes since 2000-01-01 02:00 +02:00", "standard", "2000-01-01T00:30", 30.0),
        ];
        for (since, calendar, label, want) in cases {
            let units = units(since, calendar);
            let got = units.interval(label).expect("a date").0;
            assert_eq!(got, want, "{label} in {since} ({calendar})");
            assert_eq!(units.label(got), label, "{since} ({calendar})");
        }
    }

    #[test]
    fn a_label_lasts_as_long_as_it_says() {
        let days = units("days since 2000-01-01", "standard");
        assert_eq!(days.interval("2000"), Ok((0.0, 366.0)));
        assert_eq!(days.interval("2000-02"), Ok((31.0, 60.0)));
        assert_eq!(days.interval("2000-12"), Ok((335.0, 366.0)));
        assert_eq!(days.interval("2000-01-02"), Ok((1.0, 2.0)));
        assert_eq!(days.interval("2000-01-02T12"), Ok((1.5, 1.5 + 1.0 / 24.0)));
        for wrong in ["", "x", "2000-13", "2000-02-30", "2000-01-01-01", "2000-1-1T99", "2000T12"] {
            assert!(days.interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_day_of_some_centuries_has_its_date() {
        for calendar in
            ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
        {
            let calendar = Calendar::named(calendar).expect("known");
            let first = calendar.day((1500, 1, 1)).expect("a day");
            let mut last = (0, 0, 0);
            for number in first..first + 250_000 {
                let date = calendar.date(number);
                assert_eq!(calendar.day(date), Some(number), "{calendar:?} {date:?}");
                assert!(date > last, "{calendar:?} {date:?}");
                last = date;
            }
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert!(TimeUnits::new("degrees_north", None).is_none());
        assert!(TimeUnits::new("months since 2000-01-01", None).expect("a time").is_err());
        assert!(TimeUnits::new("days since 2000-01-01", Some("lunar")).expect("a time").is_err());
    }
}
