//! How another store of a sample lies to the sample's own: at the same coordinates, or near them.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::written::{self, text_or_number};

/// How the entries of another store are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// At the coordinates of the sample's store, which it must have.
    #[default]
    Exact,
    /// At the coordinate that is nearest to each of the sample's store.
    Nearest,
}

/// How far away the nearest coordinate may be: `3h` for times (`s`, `min`, `h`, `d`), `0.25` for
/// others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// In the units of the coordinate.
    Number(f64),
    /// Of times.
    Seconds(f64),
}

const UNITS: [(&str, f64); 4] = [("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)];

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no distance: write `3h` for times, else `0.25`");
        let text = text.trim();
        let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        if !(number.is_finite() && number >= 0.0) {
            return Err(wrong());
        }
        if unit.is_empty() {
            return Ok(Tolerance::Number(number));
        }
        let seconds = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, seconds) = seconds.ok_or_else(|| {
            format!("`{unit}` is no unit of a distance in time: write s, min, h or d")
        })?;
        Ok(Tolerance::Seconds(number * seconds))
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Coordinates in single precision are not exactly what people write.
            Tolerance::Number(number) => write!(f, "{}", *number as f32),
            Tolerance::Seconds(seconds) => {
                let whole = |(_, unit): &&(&str, f64)| *seconds > 0.0 && seconds % unit == 0.0;
                let (name, unit) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
                write!(f, "{}{name}", seconds / unit)
            }
        }
    }
}

impl Serialize for Tolerance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tolerance::Number(number) => serializer.serialize_f64(*number),
            Tolerance::Seconds(seconds) => serializer.collect_str(&format_args!("{seconds}s")),
        }
    }
}

impl<'de> Deserialize<'de> for Tolerance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer, "a distance, such as `3h` for times or 0.25 for others")
    }
}

impl JsonSchema for Tolerance {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Tolerance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        written::schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_in_time_has_a_unit() {
        let read = |text: &str| text.parse::<Tolerance>();
        assert_eq!(read("3h"), Ok(Tolerance::Seconds(10_800.0)));
        assert_eq!(read("1.5 d"), Ok(Tolerance::Seconds(129_600.0)));
        assert_eq!(read("0.25"), Ok(Tolerance::Number(0.25)));
        for wrong in ["", "h", "-1", "3 weeks", "nan"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for text in ["3h", "90min", "2d", "7s", "0s", "0.25"] {
            assert_eq!(read(text).map(|read| read.to_string()), Ok(text.to_owned()));
        }
    }
}
