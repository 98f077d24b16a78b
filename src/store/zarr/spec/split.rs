//! A dimension split into contiguous parts.

use std::fmt;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A dimension split into contiguous parts, one of which is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The dimension.
    pub by: String,
    /// The parts in order, and the share of the dimension's entries that each has.
    pub parts: Vec<(String, f64)>,
    /// The part that is read.
    pub take: String,
}

impl Split {
    /// The entries of the part, of `len`.
    pub(in crate::store::zarr) fn entries(&self, len: u64) -> Result<Range<u64>, String> {
        let mut before = 0.0;
        let mut found = None;
        for (name, share) in &self.parts {
            if !(*share > 0.0 && *share <= 1.0) {
                return Err(format!("`{name}` has a share of {share}: write one from 0 to 1"));
            }
            let border = |share: f64| (share.min(1.0) * len as f64).round() as u64;
            // Shares such as 0.7 and 0.3 add up to a little more or less than 1.
            let end = if before + share > 1.0 - 1e-9 { 1.0 } else { before + share };
            if *name == self.take {
                found = Some(border(before)..border(end));
            }
            before += share;
        }
        if before > 1.0 + 1e-9 {
            return Err(format!("its shares add up to {before}: more than the whole"));
        }
        if self.parts.is_empty() {
            return Err(format!("has no parts: write their shares, such as `{}: 0.8`", self.take));
        }
        found.ok_or_else(|| {
            let names: Vec<_> = self.parts.iter().map(|(name, _)| format!("`{name}`")).collect();
            format!("has no part `{}` to take: there are {}", self.take, names.join(", "))
        })
    }
}

impl Serialize for Split {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(Some(self.parts.len() + 2))?;
        map.serialize_entry("by", &self.by)?;
        for (name, share) in &self.parts {
            map.serialize_entry(name, share)?;
        }
        map.serialize_entry("take", &self.take)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Split;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "shares by name, such as { by: time, train: 0.8, valid: 0.2, take: train }",
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Split, A::Error> {
                let (mut by, mut take, mut parts) = (None, None, Vec::new());
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "by" => by = Some(map.next_value()?),
                        "take" => take = Some(map.next_value()?),
                        _ => parts.push((key, map.next_value()?)),
                    }
                }
                let missing = |name| de::Error::missing_field(name);
                Ok(Split {
                    by: by.ok_or_else(|| missing("by"))?,
                    take: take.ok_or_else(|| missing("take"))?,
                    parts,
                })
            }
        }
        deserializer.deserialize_map(Parts)
    }
}

impl JsonSchema for Split {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Split".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": { "by": { "type": "string" }, "take": { "type": "string" } },
            "required": ["by", "take"],
            "additionalProperties": { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_contiguous_and_whole() {
        let parts = vec![("a".to_owned(), 0.7), ("b".to_owned(), 0.2), ("c".to_owned(), 0.1)];
        let take = |take: &str| {
            let split = Split { by: "time".into(), parts: parts.clone(), take: take.into() };
            split.entries(101)
        };
        assert_eq!(take("a"), Ok(0..71));
        assert_eq!(take("b"), Ok(71..91));
        assert_eq!(take("c"), Ok(91..101));
        assert!(take("d").expect_err("no such part").contains("`a`, `b`, `c`"));
        let wrong = |share| Split {
            by: "time".into(),
            parts: vec![("a".into(), 0.5), ("b".into(), share)],
            take: "a".into(),
        };
        assert!(wrong(0.6).entries(10).is_err());
        assert!(wrong(0.0).entries(10).is_err());
        assert!(wrong(f64::NAN).entries(10).is_err());
    }
}
