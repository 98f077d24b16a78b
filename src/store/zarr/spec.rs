//! Which variables are read and how they are cut into windows, as Rust code or a definition says it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::item::DType;
use crate::store::StoreOptions;

/// Which variables, and how they are cut into windows.
///
/// Dimensions that are not named are read whole. Windows are enumerated in row-major order of the
/// dimensions as they are written: the last one runs fastest. What does not fill a window at the
/// end of a dimension is left out, unless `edges` says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowsSpec {
    /// The variables to read, each of which becomes a tensor of the batch.
    pub variables: Vec<String>,
    /// The window's extent in each dimension that is cut, such as `{ time: 2 }`.
    #[serde(default)]
    pub window: Extents,
    /// How far apart windows begin. Default: the window's extent.
    #[serde(default)]
    pub stride: Extents,
    /// How many entries neighbouring windows share; the other way to say `stride`.
    #[serde(default)]
    pub overlap: Extents,
    /// More windows that belong to each sample, by name, such as
    /// `{ target: { offset: { time: 2 }, window: { time: 1 } } }`. Their tensors are named
    /// `target/t2m`. Only samples all of whose windows lie within the data are read.
    #[serde(default)]
    pub also: BTreeMap<String, Also>,
    /// What happens where a window reaches beyond the data: `drop` (no such window), `pad`, `short`
    /// or `wrap`, for all dimensions that are cut or by dimension. Default: `drop`.
    #[serde(default)]
    pub edges: Edges,
    /// The entries of a dimension that are read, by position, such as `{ time: 0..8760 }`: the
    /// others are as if they were not there.
    #[serde(default)]
    pub range: BTreeMap<String, Span>,
    /// The entries of a dimension that are read, by its coordinates, such as
    /// `{ time: 2019-01-01..2019-12-31, latitude: -60..60 }`, both ends included.
    #[serde(default)]
    pub select: BTreeMap<String, Labels>,
    /// One of the contiguous parts that a dimension is split into, such as
    /// `{ by: time, train: 0.8, valid: 0.2, take: train }`. No window reaches over a border.
    #[serde(default)]
    pub split: Option<Split>,
    /// Keeps the windows in which a variable has values that are wanted, such as
    /// `{ variable: lsm, min: 0.5, share: 0.3 }`: those of which land makes 30 % or more. The
    /// variable is read before the windows, which are counted without the others.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// The type of all tensors. Default: the type in which they are stored, or that they are
    /// unpacked to.
    #[serde(default)]
    pub dtype: Option<DType>,
    /// Bytes of chunks that may be kept because another window that is on its way will want them, in
    /// this epoch or the next. Default: 512 MiB. A chunk that is wanted once is never kept.
    #[serde(default)]
    pub cache: Option<u64>,
    /// Keeps what was read on local disk, for the epochs and runs to come. Not used for a store on
    /// this machine. The chunks of the store must not change while its metadata stays the same.
    #[serde(default)]
    pub disk: Option<Disk>,
}

/// A cache on local disk, which any number of processes may share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Bytes that it has at most. What was used longest ago makes room.
    pub bytes: u64,
    /// Its folder. Default: `chunks` in `$FOREBAY_CACHE`, else in `$XDG_CACHE_HOME/forebay`, else in
    /// `~/.cache/forebay`.
    #[serde(default)]
    pub path: Option<PathBuf>,
}

/// Another window of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// Its variables. Default: those of the sample.
    #[serde(default)]
    pub variables: Vec<String>,
    /// The URL of another store that they lie in. Its dimensions are aligned with those of the sample
    /// by their coordinates, and only what both have is read.
    #[serde(default)]
    pub store: Option<String>,
    /// Options of that store.
    #[serde(default)]
    pub options: StoreOptions,
    /// Its extents, where they are not those of the sample's window.
    #[serde(default)]
    pub window: Extents,
    /// How far behind the sample's window it begins, such as `{ time: 2 }`; before it, if negative.
    #[serde(default)]
    pub offset: Offsets,
}

/// Which windows are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The variable that decides. It has no dimensions that the windows do not have.
    pub variable: String,
    /// The least value that is wanted. Default: any; but never NaN, if there is a `min` or a `max`.
    #[serde(default)]
    pub min: Option<f64>,
    /// The largest value that is wanted.
    #[serde(default)]
    pub max: Option<f64>,
    /// The share of a window's values that must be wanted, more than 0. Default: 1, all of them.
    #[serde(default = "all")]
    pub share: f64,
}

fn all() -> f64 {
    1.0
}

/// What happens where a window reaches beyond the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// There is no such window.
    #[default]
    Drop,
    /// It is filled up with NaN, or with the fill value where there is no NaN.
    Pad,
    /// It has fewer entries, and can share a batch with others of its extents only.
    Short,
    /// It goes on at the other end, as longitudes do.
    Wrap,
}

/// What happens at the edges: one rule for all dimensions that are cut, or one by dimension, where
/// those that are not named drop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Edges {
    /// In all dimensions.
    All(Edge),
    /// By dimension.
    Each(BTreeMap<String, Edge>),
}

impl Edges {
    pub(super) fn of(&self, dim: &str) -> Edge {
        match self {
            Edges::All(edge) => *edge,
            Edges::Each(edges) => edges.get(dim).copied().unwrap_or_default(),
        }
    }

    /// The dimensions that are named.
    pub(super) fn dims(&self) -> impl Iterator<Item = &String> {
        let each = match self {
            Edges::All(_) => None,
            Edges::Each(edges) => Some(edges.keys()),
        };
        each.into_iter().flatten()
    }
}

impl Default for Edges {
    fn default() -> Self {
        Edges::All(Edge::Drop)
    }
}

impl<'de> Deserialize<'de> for Edges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Edges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("drop, pad, short or wrap, or one of them by dimension")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Edges, E> {
                Edge::deserialize(de::value::StrDeserializer::new(text)).map(Edges::All)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Edges, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                BTreeMap::deserialize(map).map(Edges::Each)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Edges {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Edges".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Edge>();
        json_schema!({ "anyOf": [one, { "type": "object", "additionalProperties": one }] })
    }
}

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
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("coordinates, such as `-60..60`, `2019-01-01..2019-12-31` or `500`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Labels, E> {
                text.parse().map_err(E::custom)
            }

            // A year or a level is a number in YAML.
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Labels, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Labels, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Labels, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Labels {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"] })
    }
}

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
    pub(super) fn entries(&self, len: u64) -> Result<Range<u64>, String> {
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

/// Numbers of entries by dimension, in the order in which they were given.
pub type Extents = ByDim<u64>;

/// Distances in entries by dimension.
pub type Offsets = ByDim<i64>;

/// Numbers by dimension, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByDim<N>(Vec<(String, N)>);

impl<N> Default for ByDim<N> {
    fn default() -> Self {
        ByDim(Vec::new())
    }
}

impl<N: Copy> ByDim<N> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &N)> {
        self.0.iter().map(|(dim, n)| (dim, n))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(dim, _)| dim)
    }

    pub(super) fn contains_key(&self, dim: &str) -> bool {
        self.get(dim).is_some()
    }

    pub(super) fn get(&self, dim: &str) -> Option<N> {
        self.0.iter().find(|(name, _)| name == dim).map(|(_, n)| *n)
    }
}

impl<D: Into<String>, N, const LEN: usize> From<[(D, N); LEN]> for ByDim<N> {
    fn from(entries: [(D, N); LEN]) -> Self {
        entries.into_iter().collect()
    }
}

impl<D: Into<String>, N> FromIterator<(D, N)> for ByDim<N> {
    fn from_iter<I: IntoIterator<Item = (D, N)>>(entries: I) -> Self {
        ByDim(entries.into_iter().map(|(dim, n)| (dim.into(), n)).collect())
    }
}

impl<N: Copy + Serialize> Serialize for ByDim<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, N: Copy + Deserialize<'de>> Deserialize<'de> for ByDim<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers<N>(PhantomData<N>);
        impl<'de, N: Copy + Deserialize<'de>> Visitor<'de> for Numbers<N> {
            type Value = ByDim<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("numbers by dimension, such as { time: 2 }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByDim<N>, A::Error> {
                let mut numbers = ByDim::default();
                while let Some((dim, n)) = map.next_entry::<String, N>()? {
                    if numbers.contains_key(&dim) {
                        let twice = format!("the dimension `{dim}` is there twice");
                        return Err(de::Error::custom(twice));
                    }
                    numbers.0.push((dim, n));
                }
                Ok(numbers)
            }
        }
        deserializer.deserialize_map(Numbers(PhantomData))
    }
}

impl<N: JsonSchema> JsonSchema for ByDim<N> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}ByDimension", N::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <BTreeMap<String, N>>::json_schema(generator)
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
