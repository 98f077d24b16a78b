//! Values of arguments that are written otherwise in a definition than in Rust.

use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::units;
use crate::store::zarr::Disk;

/// A size in bytes, with its unit.
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sized;
        impl Visitor<'_> for Sized {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size with its unit, such as 512MiB")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                units::bytes(text).map(Size).map_err(E::custom)
            }

            /// Nothing is nothing in any unit.
            fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
                match number {
                    0 => Ok(Size(0)),
                    _ => units::bytes(&number.to_string()).map(Size).map_err(E::custom),
                }
            }
        }
        deserializer.deserialize_any(Sized)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let sized = json_schema!({ "type": "string", "pattern": "^[0-9.]+ *([kKMGT]i?)?B$" });
        json_schema!({ "anyOf": [sized, { "const": 0 }] })
    }
}

/// A cache on local disk: how much it holds, or that and where it lies.
pub(super) struct DiskCache(pub(super) Disk);

impl<'de> Deserialize<'de> for DiskCache {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            bytes: Size,
            path: Option<PathBuf>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = DiskCache;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 50GiB, or { bytes: 50GiB, path: /scratch/chunks }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DiskCache, E> {
                let bytes = units::bytes(text).map_err(E::custom)?;
                Ok(DiskCache(Disk { bytes, path: None }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DiskCache, A::Error> {
                let map = MapAccessDeserializer::new(map);
                let Whole { bytes: Size(bytes), path } = Whole::deserialize(map)?;
                Ok(DiskCache(Disk { bytes, path }))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for DiskCache {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DiskCache".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let size = generator.subschema_for::<Size>();
        json_schema!({ "anyOf": [size, {
            "type": "object",
            "properties": { "bytes": size, "path": { "type": "string" } },
            "required": ["bytes"],
            "additionalProperties": false,
        }]})
    }
}
