//! What is written and how, as Rust code or a definition says it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::error::WriteError;
use crate::flow::Uneven;
use crate::store::zarr::spec::Extents;

/// Which tensors of the batches are written, and how.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteSpec {
    /// The tensors that are written. Default: all of a batch. The array of a tensor `target/t2m` is
    /// named `target_t2m`.
    #[serde(default)]
    pub variables: Vec<String>,
    /// For tensors that the source does not have, one of its tensors at whose place they belong, such
    /// as `{ wind: u10 }`.
    #[serde(default)]
    pub like: BTreeMap<String, String>,
    /// The extents of chunks in the dimensions in which they are not those of the source, such as
    /// `{ time: 1 }`.
    #[serde(default)]
    pub chunks: Extents,
    /// How chunks are compressed: `zstd`, `blosc`, `gzip` or `none`. Default: `zstd`.
    #[serde(default)]
    pub codec: Codec,
    /// What is written where windows overlap. Default: their mean.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to chunks for which windows are missing when the input ends. Default: `fail`.
    #[serde(default)]
    pub incomplete: Incomplete,
    /// Bytes that chunks may take while windows are missing. Default: 4 GiB.
    #[serde(default)]
    pub memory: Option<u64>,
    /// This process's rank and how many there are, where several write one store, as in the step
    /// `shard`. Then what would let two of them write one chunk is refused before anything is written.
    #[serde(default)]
    pub shard: Option<Ranks>,
}

/// A rank among those that write one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ranks {
    /// This process's rank, from 0.
    pub rank: u64,
    /// How many ranks there are.
    pub world: std::num::NonZeroU64,
    /// What happens to windows that do not divide among the ranks, as in the step `shard`.
    #[serde(default)]
    pub uneven: Uneven,
}

impl WriteSpec {
    /// Refuses what can't be meant.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        let wrong = |why: String| Err(WriteError::Argument(why));
        if let Some((dim, _)) = self.chunks.iter().find(|(_, extent)| **extent == 0) {
            return wrong(format!("`chunks` has an extent of 0 in `{dim}`: write 1 or more"));
        }
        if let Err(why) = self.codec.metadata(1) {
            return wrong(format!("`codec` has {why}"));
        }
        match self.shard {
            Some(Ranks { rank, world, .. }) if rank >= world.get() => {
                wrong(format!("`shard` says rank {rank} of {world}: the first rank is 0"))
            }
            _ => Ok(()),
        }
    }
}

impl Ranks {
    /// The windows, of `windows`, that the rank `rank` gets; with `pad` it may reach beyond the last one.
    pub(super) fn share(&self, windows: u64, rank: u64) -> Range<u64> {
        let world = self.world.get();
        let start = self.uneven.start(windows, rank, world);
        start..start + self.uneven.share(windows, rank, world)
    }

    /// Refuses shares with which windows would be left out.
    pub(super) fn check(&self, windows: u64) -> Result<(), WriteError> {
        let left = windows % self.world;
        if self.uneven != Uneven::Drop || left == 0 {
            return Ok(());
        }
        Err(WriteError::Argument(format!(
            "{windows} windows do not divide among {} ranks, so that the last {left} would be written \
             by none: write `uneven: pad` in the step `shard` and in the `shard` of what is written",
            self.world
        )))
    }
}

/// What is written where windows overlap. Values that are NaN do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The mean of all windows.
    #[default]
    Mean,
    /// The mean with weights that rise as a squared sine from a window's edge to its middle.
    Hann,
    /// The mean with weights that rise in a straight line from a window's edge to its middle.
    Triangle,
}

impl Overlap {
    pub(super) fn name(self) -> &'static str {
        match self {
            Overlap::Mean => "mean",
            Overlap::Hann => "hann",
            Overlap::Triangle => "triangle",
        }
    }

    /// The weights of the entries of a window of `size` along one dimension; none is 0.
    pub(super) fn weights(self, size: u64) -> Vec<f64> {
        let weight = |at: u64| {
            let middle = (at as f64 + 0.5) / size as f64;
            match self {
                Overlap::Mean => 1.0,
                Overlap::Hann => (std::f64::consts::PI * middle).sin().powi(2),
                Overlap::Triangle => 2.0 * middle.min(1.0 - middle),
            }
        };
        (0..size).map(weight).collect()
    }
}

/// What happens to chunks for which windows are missing when the input ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Incomplete {
    /// They are not written, and the run fails and says which they are: another run can write them.
    #[default]
    Fail,
    /// They are written with the fill value for what is missing, and count as done from then on.
    Write,
}

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// With what.
    pub name: CodecName,
    /// How much. Default: 3 for zstd, 5 for blosc (with lz4) and gzip.
    pub level: Option<u8>,
}

/// With what chunks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodecName {
    /// Small and fast.
    #[default]
    Zstd,
    /// Larger and faster to read: lz4 over shuffled bytes.
    Blosc,
    /// What every reader knows.
    Gzip,
    /// Not at all.
    None,
}

impl Codec {
    /// The metadata of the codecs of an array with elements of `size` bytes.
    pub(super) fn metadata(self, size: usize) -> Result<Vec<serde_json::Value>, String> {
        let (most, default) = match self.name {
            CodecName::Zstd => (22, 3),
            CodecName::Blosc | CodecName::Gzip => (9, 5),
            CodecName::None => (0, 0),
        };
        let level = self.level.unwrap_or(default);
        if level > most {
            return Err(format!("a level of {level}: write 0 to {most}"));
        }
        let compression = match self.name {
            CodecName::Zstd => Some(serde_json::json!({
                "name": "zstd", "configuration": { "level": level, "checksum": false },
            })),
            CodecName::Blosc => Some(serde_json::json!({
                "name": "blosc", "configuration": {
                    "cname": "lz4", "clevel": level, "typesize": size, "blocksize": 0,
                    "shuffle": if size > 1 { "shuffle" } else { "noshuffle" },
                },
            })),
            CodecName::Gzip => Some(serde_json::json!({
                "name": "gzip", "configuration": { "level": level },
            })),
            CodecName::None => None,
        };
        let bytes = match size {
            1 => serde_json::json!({ "name": "bytes" }),
            _ => serde_json::json!({ "name": "bytes", "configuration": { "endian": "little" } }),
        };
        Ok(std::iter::once(bytes).chain(compression).collect())
    }
}

impl From<CodecName> for Codec {
    fn from(name: CodecName) -> Self {
        Codec { name, level: None }
    }
}

impl<'de> Deserialize<'de> for Codec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            name: CodecName,
            #[serde(default)]
            level: Option<u8>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Codec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("zstd, blosc, gzip or none, or `{ name: zstd, level: 9 }`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Codec, E> {
                CodecName::deserialize(de::value::StrDeserializer::new(text)).map(Codec::from)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Codec, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                let Whole { name, level } = Whole::deserialize(map)?;
                Ok(Codec { name, level })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Codec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Codec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = generator.subschema_for::<CodecName>();
        json_schema!({ "anyOf": [name, {
            "type": "object",
            "properties": { "name": name, "level": { "type": "integer", "minimum": 0 } },
            "required": ["name"],
            "additionalProperties": false,
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_rise_to_the_middle_and_are_never_0() {
        for overlap in [Overlap::Hann, Overlap::Triangle] {
            let weights = overlap.weights(8);
            assert!(weights[..4].is_sorted() && weights[4..].is_sorted_by(|a, b| a >= b));
            assert!(weights.iter().all(|weight| *weight > 0.0 && *weight <= 1.0));
            assert!(weights.iter().zip(weights.iter().rev()).all(|(a, b)| (a - b).abs() < 1e-12));
            assert_eq!(overlap.weights(1), [1.0]);
        }
        assert_eq!(Overlap::Mean.weights(3), [1.0; 3]);
    }
}
