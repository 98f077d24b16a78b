//! A variable: what its metadata means for reading it. Refuses what can't be read, before anything
//! is read.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Map, Value};
use zarrs::array::codec::CodecChain;
use zarrs::array::{Array, ArrayMetadata, ChunkShape, FillValue};
use zarrs::metadata_ext::codec::sharding::ShardingCodecConfigurationV1;
use zarrs::storage::store::MemoryStore;

use super::cache::ChunkId;
use super::chain::{Chain, Taken};
use super::error::ZarrError;
use super::meta::Found;
use super::shard::Sharding;
use super::unpack::Unpack;
use crate::item::DType;
use crate::store::Store;

/// A chunk of more decoded bytes is refused: no codec is made for it, and memory is not either.
const CHUNK_MAX: u64 = 4 << 30;

/// A variable of a Zarr store.
pub(super) struct Variable {
    pub(super) store: Store,
    /// Which of the dataset's stores that is.
    pub(super) source: usize,
    pub(super) name: Arc<str>,
    /// The type that is delivered.
    pub(super) dtype: DType,
    /// The type that is stored.
    pub(super) stored: DType,
    /// How stored values become what is delivered, if they do not stay as they are.
    pub(super) unpack: Option<Unpack>,
    pub(super) dims: Arc<[Arc<str>]>,
    pub(super) shape: Vec<u64>,
    /// The shape of what is encoded as one: the chunks, or the inner chunks of shards.
    pub(super) chunk: ChunkShape,
    pub(super) chain: Chain,
    pub(super) sharding: Option<Sharding>,
    pub(super) attributes: Map<String, Value>,
    /// Tells its metadata from others.
    pub(super) fingerprint: u64,
    array: Array<MemoryStore>,
}

impl Variable {
    /// From its metadata in the store number `source`; its values are delivered as `dtype` if one is
    /// given.
    pub(super) fn new(
        (store_of, source): (&Store, usize),
        found: Found,
        dtype: Option<DType>,
    ) -> Result<Self, ZarrError> {
        let Found { name, mut metadata } = found;
        let bad = |why: String| ZarrError::Metadata { name: name.clone(), why };
        let unsupported = |why: String| ZarrError::Unsupported { name: name.clone(), why };
        let attributes = match metadata.get("attributes") {
            Some(Value::Object(attributes)) => attributes.clone(),
            _ => Map::new(),
        };
        let stored = stored_dtype(&metadata).map_err(unsupported)?;
        let fill_v2 = metadata.get("dtype").and(metadata.get("fill_value"));
        let unpack = Unpack::new(stored, dtype, &attributes, fill_v2).map_err(bad)?;
        let fingerprint = fingerprint(&metadata);
        let taken = Taken::from_metadata(&mut metadata);
        let parsed: ArrayMetadata =
            serde_json::from_value(metadata.clone()).map_err(|error| bad(error.to_string()))?;
        let store = Arc::new(MemoryStore::new());
        let not_made = |error: &dyn std::fmt::Display| match codec_of(&error.to_string()) {
            Some(codec) => unsupported(format!(
                "it uses the codec `{codec}`; blosc, zstd, gzip, zlib, bz2, lz4, pcodec, crc32c, \
                 adler32, fletcher32, shuffle, transpose, fixedscaleoffset, packbits and bitround \
                 can be read"
            )),
            None => bad(error.to_string()),
        };
        let array = Array::new_with_metadata(store, &format!("/{name}"), parsed)
            .map_err(|error| not_made(&error))?;
        if array.data_type().fixed_size() != Some(stored.size()) {
            return Err(bad("its data type and its size disagree".to_owned()));
        }
        let shape = array.shape().to_vec();
        if metadata.pointer("/chunk_grid/name").is_some_and(|grid| grid != "regular") {
            return Err(unsupported("its chunk grid is not regular".to_owned()));
        }
        let grid =
            array.chunk_shape(&vec![0; shape.len()]).map_err(|error| bad(error.to_string()))?;
        let (sharding, chunk, codecs) = match sharding(&metadata).map_err(&bad)? {
            Some(configuration) => {
                let codecs = CodecChain::from_metadata(&configuration.codecs)
                    .map_err(|error| not_made(&error))?;
                let chunk = configuration.chunk_shape.clone();
                let sharding = Sharding::new(&grid, configuration).map_err(bad)?;
                (Some(sharding), chunk, Arc::new(codecs))
            }
            None => (None, grid, array.codecs()),
        };
        let chunk_bytes = bytes_of(&chunk, stored).filter(|bytes| *bytes <= CHUNK_MAX);
        let Some(chunk_bytes) = chunk_bytes else {
            return Err(unsupported(format!("a chunk of {chunk:?} elements has more than 4 GiB")));
        };
        let element = (array.data_type().clone(), array.fill_value().clone());
        let chain = Chain::new(taken, codecs, chunk.clone(), element, encoded_max(chunk_bytes));
        let chain = chain.map_err(unsupported)?;
        Ok(Variable {
            store: store_of.clone(),
            source,
            dims: dims(&metadata, &attributes, shape.len()).into(),
            name: Arc::from(name.as_str()),
            dtype: unpack.as_ref().map_or(stored, Unpack::dtype),
            stored,
            unpack,
            shape,
            chunk,
            chain,
            sharding,
            attributes,
            fingerprint,
            array,
        })
    }

    /// Bytes of a decoded chunk.
    pub(super) fn decoded_bytes(&self) -> u64 {
        bytes_of(&self.chunk, self.stored).expect("checked when the variable was made")
    }

    /// More than an encoded chunk can have: codecs do not make things much larger.
    pub(super) fn encoded_max(&self) -> u64 {
        encoded_max(self.decoded_bytes())
    }

    pub(super) fn fill_value(&self) -> &FillValue {
        self.array.fill_value()
    }

    /// The element that a chunk which is not there is full of, as it is delivered; written to
    /// `value`, which is aligned for every type.
    pub(super) fn missing<'a>(&self, value: &'a mut [u64; 1]) -> &'a [u8] {
        let fill = self.fill_value().as_ne_bytes();
        let value = &mut bytemuck::bytes_of_mut(value)[..self.dtype.size()];
        match &self.unpack {
            Some(unpack) => {
                let mut stored = [0_u64];
                let stored = &mut bytemuck::bytes_of_mut(&mut stored)[..fill.len()];
                stored.copy_from_slice(fill);
                unpack.row(stored, value);
            }
            None => value.copy_from_slice(fill),
        }
        value
    }

    /// The element that stands where a window reaches beyond the data: NaN, or the fill value where
    /// there is no NaN.
    pub(super) fn padding<'a>(&self, value: &'a mut [u64; 1]) -> &'a [u8] {
        match nan(self.dtype, bytemuck::bytes_of_mut(value)) {
            true => &bytemuck::bytes_of(value)[..self.dtype.size()],
            false => self.missing(value),
        }
    }

    /// The chunk at `place` of the grid of the variable that is the `at`-th of its dataset.
    pub(super) fn chunk_id(&self, at: usize, place: &[u64]) -> ChunkId {
        let grid = self.shape.iter().zip(&self.chunk);
        let place = (grid.zip(place))
            .fold(0, |number, ((len, chunk), at)| number * len.div_ceil(chunk.get()) + at);
        ChunkId { variable: at as u32, place }
    }

    /// The key of the object that holds the chunk, or the shard, at `place` of the outer grid.
    pub(super) fn key(&self, place: &[u64]) -> String {
        self.array.chunk_key(place).to_string()
    }
}

fn fingerprint(metadata: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Bytes of a chunk's elements, if they can be counted.
fn bytes_of(chunk: &[NonZeroU64], stored: DType) -> Option<u64> {
    let elements = chunk.iter().map(|n| n.get()).try_fold(1, u64::checked_mul);
    elements?.checked_mul(stored.size() as u64)
}

/// More than an encoded chunk can have: codecs do not make things much larger.
fn encoded_max(decoded: u64) -> u64 {
    decoded + decoded / 8 + (64 << 10)
}

/// The codec that zarrs' error says is not known.
fn codec_of(error: &str) -> Option<&str> {
    error.strip_suffix(" is not supported")?.rsplit_once("codec ").map(|(_, codec)| codec)
}

/// The data type by the name that v3 or v2 metadata gives it.
fn stored_dtype(metadata: &Value) -> Result<DType, String> {
    let named = metadata.get("data_type").or_else(|| metadata.get("dtype"));
    let Some(name) = named.and_then(Value::as_str) else {
        return Err(match named {
            Some(other) => format!("its data type is {other}, not a number"),
            None => "it has no data type".to_owned(),
        });
    };
    Ok(match name.trim_start_matches(['<', '>', '|', '=']) {
        "bool" | "b1" => DType::Bool,
        "int8" | "i1" => DType::I8,
        "int16" | "i2" => DType::I16,
        "int32" | "i4" => DType::I32,
        "int64" | "i8" => DType::I64,
        "uint8" | "u1" => DType::U8,
        "uint16" | "u2" => DType::U16,
        "uint32" | "u4" => DType::U32,
        "uint64" | "u8" => DType::U64,
        "float16" | "f2" => DType::F16,
        "bfloat16" => DType::BF16,
        "float32" | "f4" => DType::F32,
        "float64" | "f8" => DType::F64,
        _ => return Err(format!("its data type is `{name}`; numbers and bool can be read")),
    })
}

/// Writes NaN to the first bytes, if there is one among the values of the type.
fn nan(dtype: DType, to: &mut [u8]) -> bool {
    match dtype {
        DType::F16 => to[..2].copy_from_slice(&half::f16::NAN.to_ne_bytes()),
        DType::BF16 => to[..2].copy_from_slice(&half::bf16::NAN.to_ne_bytes()),
        DType::F32 => to[..4].copy_from_slice(&f32::NAN.to_ne_bytes()),
        DType::F64 => to[..8].copy_from_slice(&f64::NAN.to_ne_bytes()),
        _ => return false,
    }
    true
}

/// The sharding of a v3 array whose only codec it is.
fn sharding(metadata: &Value) -> Result<Option<ShardingCodecConfigurationV1>, String> {
    let Some([codec]) = metadata.get("codecs").and_then(Value::as_array).map(Vec::as_slice) else {
        return Ok(None);
    };
    if codec.get("name").and_then(Value::as_str) != Some("sharding_indexed") {
        return Ok(None);
    }
    let configuration = codec.get("configuration").cloned().unwrap_or_default();
    serde_json::from_value(configuration).map(Some).map_err(|error| error.to_string())
}

/// The names of the dimensions: v3's own, else xarray's attribute, else numbers.
fn dims(metadata: &Value, attributes: &Map<String, Value>, rank: usize) -> Vec<Arc<str>> {
    let named = metadata
        .get("dimension_names")
        .or_else(|| attributes.get("_ARRAY_DIMENSIONS"))
        .and_then(Value::as_array);
    (0..rank)
        .map(|dim| match named.and_then(|names| names.get(dim)).and_then(Value::as_str) {
            Some(name) => Arc::from(name),
            None => Arc::from(format!("dim_{dim}")),
        })
        .collect()
}

/// The numbers of a shape.
pub(super) fn numbers(shape: &[NonZeroU64]) -> Vec<u64> {
    shape.iter().map(|n| n.get()).collect()
}
