//! What people write as a text, or as a number: a year, a level, a distance.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{Schema, json_schema};
use serde::de::{self, Deserializer, Visitor};

/// Reads a text, or the text that a number is; `what` says what is expected.
pub(super) fn text_or_number<'de, T, D>(deserializer: D, what: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Written { what, of: PhantomData })
}

/// What it may be in a file.
pub(super) fn schema() -> Schema {
    json_schema!({ "type": ["string", "number"] })
}

struct Written<T> {
    what: &'static str,
    of: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
