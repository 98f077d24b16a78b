//! An array that is written: its metadata, its chunks and how they are encoded.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use zarrs::array::codec::api::ArrayToBytesCodecTraits as _;
use zarrs::array::{Array, ArrayBytes, ArrayMetadata, CodecOptions};
use zarrs::storage::store::MemoryStore;

use super::error::WriteError;
use super::spec::WriteSpec;
use super::touching::Touching;
use crate::item::{DType, Spec};
use crate::store::zarr::cut::Cut;
use crate::store::zarr::dataset::Dataset;
use crate::store::zarr::error::hint;
use crate::store::zarr::variable::numbers;

/// A chunk of more bytes is refused.
const CHUNK_MAX: u64 = 4 << 30;
/// Attributes that say how values were stored in the source, which is not how they are stored here.
const STORAGE: [&str; 6] =
    ["scale_factor", "add_offset", "_FillValue", "missing_value", "_ARRAY_DIMENSIONS", "forebay"];

/// An array that is written.
pub(super) struct Output {
    pub(super) name: String,
    /// The tensor that holds its values.
    pub(super) tensor: Arc<str>,
    /// Which of the dataset's cuts says where they belong.
    pub(super) cut: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<u64>,
    pub(super) chunk: Vec<u64>,
    /// The weights of a window's entries along each dimension; none if no windows overlap.
    pub(super) weights: Option<Vec<Vec<f64>>>,
    /// Whether three windows or more have values for one element, so that they are added in turn.
    pub(super) in_turn: bool,
    pub(super) metadata: Value,
    array: Array<MemoryStore>,
}

impl Output {
    /// The array of the tensor `tensor` of a batch that was read from `dataset`.
    pub(super) fn new(
        spec: &WriteSpec,
        dataset: &Dataset,
        tensor: &Spec,
    ) -> Result<Self, WriteError> {
        let wrong = |why: String| WriteError::Tensor { tensor: tensor.name.to_string(), why };
        let like = spec.like.get(&*tensor.name).map_or(&*tensor.name, String::as_str);
        let place = dataset.cuts.iter().position(|cut| &*cut.name == like);
        let cut = place.ok_or_else(|| {
            let known: Vec<_> = dataset.cuts.iter().map(|cut| cut.name.to_string()).collect();
            wrong(match spec.like.contains_key(&*tensor.name) {
                true => format!("the source has no tensor `{like}`{}", hint(like, &known)),
                false => format!(
                    "the source has none of that name, so its place is not known: write for instance \
                     `like: {{ {}: {} }}`",
                    tensor.name,
                    known.first().map_or("", String::as_str)
                ),
            })
        })?;
        if dataset.cuts[cut].along.iter().any(|along| along.picks.is_some()) {
            let why = "it has the nearest entries of another store, and so no grid of its own: say \
                       with `like` which tensor of the sample's store it lies on";
            return Err(wrong(why.to_owned()));
        }
        let of = &dataset.variables[dataset.cuts[cut].variable];
        let mut chunk = numbers(&of.chunk);
        for (at, dim) in of.dims.iter().enumerate() {
            if let Some(extent) = spec.chunks.get(dim) {
                chunk[at] = extent;
            }
        }
        let bytes = chunk.iter().try_fold(tensor.dtype.size() as u64, |a, b| a.checked_mul(*b));
        if bytes.is_none_or(|bytes| bytes == 0 || bytes > CHUNK_MAX) {
            let why = format!("chunks of {chunk:?} elements have no bytes or more than 4 GiB");
            return Err(wrong(format!("{why}: write other `chunks`")));
        }
        let cut_of = &dataset.cuts[cut];
        let overlaps = overlaps(cut_of, dataset);
        if overlaps && tensor.dtype == DType::Bool {
            let why = "windows overlap, and there is no mean of bool: cast it to f32";
            return Err(wrong(why.to_owned()));
        }
        let codecs = spec.codec.metadata(tensor.dtype.size());
        let codecs = codecs.map_err(|why| WriteError::Argument(format!("`codec` has {why}")))?;
        let mut attributes: Map<String, Value> = of.attributes.clone();
        attributes.retain(|name, _| !STORAGE.contains(&name.as_str()));
        attributes.insert("forebay".to_owned(), made_of(spec, dataset, overlaps));
        let metadata = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": of.shape,
            "data_type": data_type(tensor.dtype),
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": fill_value(tensor.dtype),
            "codecs": codecs,
            "dimension_names": &*of.dims,
            "attributes": attributes,
        });
        let name = tensor.name.replace('/', "_");
        Ok(Output {
            array: array(&name, &metadata).map_err(wrong)?,
            name,
            tensor: Arc::clone(&tensor.name),
            cut,
            dtype: tensor.dtype,
            shape: of.shape.clone(),
            chunk,
            weights: overlaps
                .then(|| cut_of.along.iter().map(|along| weights(spec, along, dataset)).collect()),
            in_turn: overlaps && most_at_a_place(cut_of, dataset) > 2,
            metadata,
        })
    }

    /// The entries of the chunk at `place` of the grid.
    pub(super) fn block(&self, place: &[u64]) -> Vec<Range<u64>> {
        let along = place.iter().zip(&self.chunk).zip(&self.shape);
        along.map(|((at, n), len)| at * n..((at + 1) * n).min(*len)).collect()
    }

    /// The number of the chunk at `place`, in row-major order.
    pub(super) fn number(&self, place: &[u64]) -> u64 {
        let grid = self.shape.iter().zip(&self.chunk).zip(place);
        grid.fold(0, |number, ((len, chunk), at)| number * len.div_ceil(*chunk) + at)
    }

    /// The windows that touch the chunk at `place`.
    pub(super) fn touching(&self, dataset: &Dataset, place: &[u64]) -> Touching {
        Touching::new(&dataset.cuts[self.cut], dataset.axes(), &self.block(place))
    }

    /// Elements of a chunk.
    pub(super) fn elements(&self) -> u64 {
        self.chunk.iter().product()
    }

    /// Bytes that a chunk takes until it is written.
    pub(super) fn bytes_while_open(&self) -> u64 {
        let element = if self.weights.is_some() { 16 } else { self.dtype.size() as u64 };
        self.elements() * element
    }

    pub(super) fn key(&self, place: &[u64]) -> String {
        self.array.chunk_key(place).to_string()
    }

    /// The element that stands where no window has a value.
    pub(super) fn fill(&self) -> &[u8] {
        self.array.fill_value().as_ne_bytes()
    }

    /// Encodes a chunk.
    pub(super) fn encode(&self, elements: &[u8]) -> Result<Bytes, String> {
        let shape: Vec<_> =
            self.chunk.iter().filter_map(|n| std::num::NonZeroU64::new(*n)).collect();
        let options = CodecOptions::default().with_concurrent_target(1);
        let (dtype, fill) = (self.array.data_type(), self.array.fill_value());
        let bytes = ArrayBytes::from(elements);
        let encoded = self.array.codecs().encode(bytes, &shape, dtype, fill, &options);
        encoded.map(|bytes| Bytes::from(bytes.into_owned())).map_err(|error| error.to_string())
    }
}

/// The metadata of a coordinate: one chunk with all of its `len` values.
pub(super) fn coordinate(
    dim: &str,
    len: u64,
    dtype: DType,
    mut attributes: Map<String, Value>,
) -> Value {
    attributes.retain(|name, _| !STORAGE.contains(&name.as_str()));
    let codecs = super::spec::Codec::default().metadata(dtype.size()).unwrap_or_default();
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [len],
        "data_type": data_type(dtype),
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [len.max(1)] } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": fill_value(dtype),
        "codecs": codecs,
        "dimension_names": [dim],
        "attributes": attributes,
    })
}

/// The only chunk of a coordinate.
pub(super) fn encode_whole(metadata: &Value, elements: &[u8], len: u64) -> Result<Bytes, String> {
    let array = array("coordinate", metadata)?;
    let shape: Vec<_> = std::num::NonZeroU64::new(len).into_iter().collect();
    let options = CodecOptions::default().with_concurrent_target(1);
    let (dtype, fill) = (array.data_type(), array.fill_value());
    let encoded = array.codecs().encode(elements.into(), &shape, dtype, fill, &options);
    encoded.map(|bytes| Bytes::from(bytes.into_owned())).map_err(|error| error.to_string())
}

fn array(name: &str, metadata: &Value) -> Result<Array<MemoryStore>, String> {
    let parsed: ArrayMetadata =
        serde_json::from_value(metadata.clone()).map_err(|error| error.to_string())?;
    let array = Array::new_with_metadata(Arc::new(MemoryStore::new()), &format!("/{name}"), parsed);
    array.map_err(|error| error.to_string())
}

/// What the values of a chunk depend on beside the batches: what was begun is gone on with only if it
/// is the same.
fn made_of(spec: &WriteSpec, dataset: &Dataset, overlaps: bool) -> Value {
    let mut windows = Map::new();
    for axis in dataset.axes() {
        let (start, size, stride, count) = (axis.start, axis.size, axis.stride, axis.count);
        windows.insert(
            axis.name.to_string(),
            json!({ "start": start, "size": size, "stride": stride, "count": count }),
        );
    }
    match overlaps {
        true => json!({ "windows": windows, "overlap": spec.overlap.name() }),
        false => json!({ "windows": windows }),
    }
}

/// Whether two windows have a place in common.
fn overlaps(cut: &Cut, dataset: &Dataset) -> bool {
    dataset.axes().iter().enumerate().any(|(number, axis)| {
        match cut.along.iter().find(|along| along.axis == Some(number)) {
            Some(along) => axis.count > 1 && (along.size > axis.stride || along.ring.is_some()),
            None => axis.count > 1,
        }
    })
}

/// How many windows have a value for one element, at most.
fn most_at_a_place(cut: &Cut, dataset: &Dataset) -> u64 {
    let along = dataset.axes().iter().enumerate().map(|(number, axis)| {
        match cut.along.iter().find(|along| along.axis == Some(number)) {
            // Around a ring the last windows may come to lie over the first ones.
            Some(along) => {
                let most = along.size.div_ceil(axis.stride) + u64::from(along.ring.is_some());
                most.min(axis.count)
            }
            None => axis.count,
        }
    });
    along.fold(1, u64::saturating_mul)
}

fn weights(
    spec: &WriteSpec,
    along: &crate::store::zarr::cut::Along,
    dataset: &Dataset,
) -> Vec<f64> {
    let moves = along.axis.is_some_and(|axis| along.size > dataset.axes()[axis].stride);
    match moves {
        true => spec.overlap.weights(along.size),
        false => vec![1.0; along.size as usize],
    }
}

fn data_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}

fn fill_value(dtype: DType) -> Value {
    match dtype {
        DType::Bool => json!(false),
        float if float.is_float() => json!("NaN"),
        _ => json!(0),
    }
}
