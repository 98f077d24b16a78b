//! Which entries of a dimension are read: by position, or by coordinates.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::written::{self, text_or_number};

/// Entries from one to another, which is not among them: `0..8760`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    /// The first entry.
    pub start: u64,
    /// The entry behind the last one.
    pub end: u64,
}

impl From<Range<u64>> for Span {
    fn from(range: Range<u64>) -> Self {
        Span { start: range.start, end: range.end }
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of entries: write `0..100`");
        let (start, end) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse().map_err(|_| wrong());
        let (start, end) = (number(start)?, number(end)?);
        if start >= end {
            return Err(format!("`{text}` has no entries: a range ends behind its last entry"));
        }
        Ok(Span { start, end })
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        format!("{}..{}", span.start, span.end)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *\\.\\. *[0-9]+$" })
    }
}

/// Coordinates from one to another, both of them included: `-60..60`, `2019-01..2019-06-30`,
/// `2019..` (to the end), `500` (one alone). A date without a time of day is the whole day, a month
/// the whole month, a year the whole year.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The first one; `None` from the beginning.
    pub from: Option<String>,
    /// The last one; `None` to the end.
    pub to: Option<String>,
}

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (end(from), end(to)),
            None => (end(text), end(text)),
        };
        if from.is_none() && to.is_none() {
            let why = format!("`{text}` names no coordinates: write `-60..60` or `2019..2020`");
            return Err(why);
        }
        Ok(Labels { from, to })
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |end: &Option<String>| end.clone().unwrap_or_default();
        match self.from == self.to {
            true => f.write_str(&end(&self.from)),
            false => write!(f, "{}..{}", end(&self.from), end(&self.to)),
        }
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(
            deserializer,
            "coordinates, such as `-60..60`, `2019-01-01..2019-12-31` or `500`",
        )
    }
}

impl JsonSchema for Labels {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        written::schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_ends_that_may_be_open() {
        let labels = |text: &str| text.parse::<Labels>().map(|l| (l.from, l.to));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(labels("-60..60"), Ok((some("-60"), some("60"))));
        assert_eq!(labels("2019.."), Ok((some("2019"), None)));
        assert_eq!(labels(" ..2019-06"), Ok((None, some("2019-06"))));
        assert_eq!(labels("500"), Ok((some("500"), some("500"))));
        assert!(labels("..").is_err());
        assert!(labels("").is_err());
    }
}
