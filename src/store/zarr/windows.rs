//! Windows: coordinates to read, enumerated by xbatcher's rules, computed by position.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cache::Ticket;
use super::dataset::Dataset;
use super::error::ZarrError;
use crate::item::{DType, Label};
use crate::source::{self, Index, Indexed};
use crate::store::Store;

/// Which variables, and how they are cut into windows.
///
/// Dimensions that are not named are read whole. Windows are enumerated in row-major order of the
/// dimensions as they are written: the last one runs fastest. What does not fill a window at the
/// end of a dimension is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The entries of a dimension that are read, such as `{ time: 0..8760 }`: the others are as if
    /// they were not there. Two ranges that do not touch make a split into training and validation.
    #[serde(default)]
    pub range: BTreeMap<String, Span>,
    /// Bytes of chunks that may be kept because another window that is on its way will want them, in
    /// this epoch or the next. Default: 512 MiB. A chunk that is wanted once is never kept.
    #[serde(default)]
    pub cache: Option<u64>,
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

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]+ *\\.\\. *[0-9]+$" })
    }
}

/// Numbers of entries by dimension, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<(String, u64)>);

impl Extents {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.0.iter().map(|(dim, n)| (dim, n))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(dim, _)| dim)
    }

    pub(super) fn contains_key(&self, dim: &str) -> bool {
        self.get(dim).is_some()
    }

    fn get(&self, dim: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == dim).map(|(_, n)| *n)
    }
}

impl<D: Into<String>, const N: usize> From<[(D, u64); N]> for Extents {
    fn from(entries: [(D, u64); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<D: Into<String>> FromIterator<(D, u64)> for Extents {
    fn from_iter<I: IntoIterator<Item = (D, u64)>>(entries: I) -> Self {
        Extents(entries.into_iter().map(|(dim, n)| (dim.into(), n)).collect())
    }
}

impl Serialize for Extents {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Extents {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Extents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("numbers by dimension, such as { time: 2 }")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Extents, A::Error> {
                let mut extents = Extents::default();
                while let Some((dim, n)) = map.next_entry::<String, u64>()? {
                    if extents.contains_key(&dim) {
                        let twice = format!("the dimension `{dim}` is there twice");
                        return Err(serde::de::Error::custom(twice));
                    }
                    extents.0.push((dim, n));
                }
                Ok(extents)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl JsonSchema for Extents {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Extents".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        <BTreeMap<String, u64>>::json_schema(generator)
    }
}

/// How far apart windows begin in `dim`.
pub(super) fn stride(spec: &WindowsSpec, dim: &str, size: u64) -> Result<u64, String> {
    match (spec.stride.get(dim), spec.overlap.get(dim)) {
        (Some(_), Some(_)) => Err("has a stride and an overlap: give one of them".to_owned()),
        (Some(0), None) => Err("has a stride of 0: write 1 or more".to_owned()),
        (Some(stride), None) => Ok(stride),
        (None, Some(overlap)) if overlap >= size => Err(format!(
            "has {size} entries, of which {overlap} overlap: an overlap is smaller than the window"
        )),
        (None, overlap) => Ok(size - overlap.unwrap_or(0)),
    }
}

/// A source of the windows of `spec`, computed by position: it costs nothing to shuffle them, to
/// skip to any of them or to group them.
///
/// # Errors
/// The store or its metadata can't be read, or the windows do not fit the variables.
pub fn windows(store: &Store, spec: &WindowsSpec) -> Result<Indexed<Window>, ZarrError> {
    let dataset = Arc::new(Dataset::open(store, spec)?);
    let len = dataset.len;
    let groups = dataset.groups();
    let window = move |number| Window {
        ticket: dataset.announce(number).map(Arc::new),
        dataset: Arc::clone(&dataset),
        number,
    };
    Ok(source::index("windows", Index::new(len, window).grouped(groups)))
}

/// Coordinates to read: one window into the variables of a dataset. Cheap to clone.
#[derive(Clone)]
pub struct Window {
    pub(super) dataset: Arc<Dataset>,
    pub(super) number: u64,
    /// Says that it will want its chunks, until they are decoded.
    pub(super) ticket: Option<Arc<Ticket>>,
}

impl Window {
    /// Which of the dataset's windows it is.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it begins and ends along each dimension that is cut, in entries.
    pub fn ranges(&self) -> impl Iterator<Item = (&str, Range<u64>)> {
        self.dataset.ranges(self.number).map(|(dim, range)| (&**dim, range))
    }

    /// The variables that are read, with their types.
    pub fn variables(&self) -> impl Iterator<Item = (&str, DType)> {
        self.dataset.dtypes()
    }

    /// An attribute of a variable.
    pub fn attribute(&self, variable: &str, name: &str) -> Option<&Value> {
        self.dataset.variable(variable)?.attributes.get(name)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({})", self.label())
    }
}

impl Label for Window {
    fn label(&self) -> String {
        let ranges: Vec<_> = self
            .ranges()
            .map(|(dim, range)| match range.end - range.start {
                1 => format!("{dim} {}", range.start),
                _ => format!("{dim} {}..{}", range.start, range.end),
            })
            .collect();
        if ranges.is_empty() { "the whole store".to_owned() } else { ranges.join(", ") }
    }
}

impl Label for Vec<Window> {
    fn label(&self) -> String {
        label_of(self)
    }
}

/// What people call a group of windows.
pub(crate) fn label_of(windows: &[Window]) -> String {
    match windows {
        [] => "no window".to_owned(),
        [one] => one.label(),
        [first, .., last] => format!("{} to {}", first.label(), last.label()),
    }
}
