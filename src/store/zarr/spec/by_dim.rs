//! Numbers by dimension, in the order in which they were given.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

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
    pub(in crate::store::zarr) fn iter(&self) -> impl Iterator<Item = (&String, &N)> {
        self.0.iter().map(|(dim, n)| (dim, n))
    }

    pub(in crate::store::zarr) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(dim, _)| dim)
    }

    pub(in crate::store::zarr) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::store::zarr) fn contains_key(&self, dim: &str) -> bool {
        self.get(dim).is_some()
    }

    pub(in crate::store::zarr) fn get(&self, dim: &str) -> Option<N> {
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
