//! Small stores whose every value can be verified from its place alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay::prelude::*;
use serde_json::{Value, json};
use zarrs::array::{Array, ArrayMetadata, ArraySubset};
use zarrs::storage::store::MemoryStore;
use zarrs::storage::{ListableStorageTraits as _, ReadableStorageTraits as _};

/// Objects by key.
pub(crate) type Objects = BTreeMap<String, Vec<u8>>;

/// The value of variable `k` at time `t` and place `i` of `W` columns `j`: unique in what matters.
pub(crate) fn value(k: u64, t: u64, i: u64, j: u64, w: u64) -> f32 {
    1000.0 * (k + 1) as f32 + t as f32 + ((i * w + j) % 97) as f32
}

/// Metadata of a v3 variable over (time, y, x).
pub(crate) fn v3(shape: [u64; 3], chunk: [u64; 3], codecs: &Value) -> Value {
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": "NaN",
        "codecs": codecs,
        "dimension_names": ["time", "y", "x"],
        "attributes": { "mean": 1000.0, "std": 2.0 },
    })
}

/// Metadata of a v2 variable over (time, y, x).
pub(crate) fn v2(shape: [u64; 3], chunk: [u64; 3], compressor: &Value) -> Value {
    json!({
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunk,
        "dtype": "<f4",
        "compressor": compressor,
        "fill_value": "NaN",
        "filters": null,
        "order": "C",
        "dimension_separator": ".",
    })
}

pub(crate) fn bytes() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

pub(crate) fn zstd() -> Value {
    json!({ "name": "zstd", "configuration": { "level": 1, "checksum": true } })
}

fn objects_of(memory: &MemoryStore) -> Objects {
    let object = |key: zarrs::storage::StoreKey| {
        let value = memory.get(&key).expect("readable").expect("there");
        (key.to_string(), value.to_vec())
    };
    memory.list().expect("keys").into_iter().map(object).collect()
}

/// Writes the self-checking values of the variables `names`, each with `metadata`.
pub(crate) fn store(names: &[&str], metadata: &Value) -> Objects {
    let memory = Arc::new(MemoryStore::new());
    for (k, name) in names.iter().enumerate() {
        let parsed: ArrayMetadata = serde_json::from_value(metadata.clone()).expect("metadata");
        let array = Array::new_with_metadata(Arc::clone(&memory), &format!("/{name}"), parsed)
            .expect("an array");
        let shape = array.shape().to_vec();
        let (t, h, w) = (shape[0], shape[1], shape[2]);
        let mut values = Vec::new();
        for t in 0..t {
            for i in 0..h {
                values.extend((0..w).map(|j| value(k as u64, t, i, j, w)));
            }
        }
        let whole = ArraySubset::new_with_shape(shape);
        array.store_array_subset(&whole, &values).expect("written");
    }
    let mut objects = objects_of(&memory);
    let json = |value: &Value| serde_json::to_vec(value).expect("JSON");
    if metadata["zarr_format"] == 3 {
        let all: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), metadata.clone())).collect();
        let group = json!({
            "zarr_format": 3, "node_type": "group", "attributes": {},
            "consolidated_metadata": { "kind": "inline", "must_understand": false, "metadata": all },
        });
        objects.insert("zarr.json".into(), json(&group));
        for name in names {
            objects.insert(format!("{name}/zarr.json"), json(metadata));
        }
    } else {
        let dims = json!({ "_ARRAY_DIMENSIONS": ["time", "y", "x"] });
        objects.insert(".zgroup".into(), json(&json!({ "zarr_format": 2 })));
        for name in names {
            objects.insert(format!("{name}/.zarray"), json(metadata));
            objects.insert(format!("{name}/.zattrs"), json(&dims));
        }
    }
    objects
}

/// A store of one variable `v` whose elements are their own row-major indices, in chunks of half the
/// length of each dimension.
pub(crate) fn numbered(dims: &[(&str, u64)]) -> Objects {
    let (dims, shape): (Vec<_>, Vec<_>) = dims.iter().copied().unzip();
    let chunk: Vec<u64> = shape.iter().map(|n| n.div_ceil(2)).collect();
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "float64",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": -1.0,
        "codecs": [bytes()], "dimension_names": dims,
    });
    let memory = Arc::new(MemoryStore::new());
    let parsed = serde_json::from_value(metadata.clone()).expect("metadata");
    let array = Array::new_with_metadata(Arc::clone(&memory), "/v", parsed).expect("array");
    let values: Vec<f64> = (0..shape.iter().product::<u64>()).map(|i| i as f64).collect();
    let whole = ArraySubset::new_with_shape(shape);
    array.store_array_subset(&whole, &values).expect("written");
    let mut objects = objects_of(&memory);
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    objects.insert("zarr.json".into(), serde_json::to_vec(&group).expect("JSON"));
    objects.insert("v/zarr.json".into(), serde_json::to_vec(&metadata).expect("JSON"));
    objects
}

/// Adds the coordinates of a dimension.
pub(crate) fn coordinate(objects: &mut Objects, dim: &str, values: &[f64], attributes: &Value) {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [values.len()], "data_type": "float64",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [values.len()] } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": "NaN",
        "codecs": [bytes()], "dimension_names": [dim], "attributes": attributes,
    });
    objects.insert(format!("{dim}/zarr.json"), serde_json::to_vec(&metadata).expect("JSON"));
    let values = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    objects.insert(format!("{dim}/c/0"), values);
}

/// The same objects as files.
pub(crate) fn files(objects: &Objects) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (key, bytes) in objects {
        write(folder.path(), key, bytes);
    }
    folder
}

pub(crate) fn write(root: &Path, key: &str, bytes: &[u8]) {
    let path = root.join(key);
    std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
    std::fs::write(path, bytes).expect("written");
}

/// Windows of a store, fetched in batches.
pub(crate) fn fetched(store: &Store, spec: &WindowsSpec, size: usize) -> Pipeline<zarr::Encoded> {
    let windows = zarr::windows(store, spec).expect("windows");
    Pipeline::from(windows).then(flow::batch(size)).then(io::map("fetch", zarr::fetch).workers(3))
}

/// Windows of a store, read in batches.
pub(crate) fn batches(store: &Store, spec: &WindowsSpec, size: usize) -> Pipeline<Batch> {
    fetched(store, spec, size).then(cpu::map("decode", zarr::decode(&Pool::default())).workers(2))
}

pub(crate) fn spec(names: &[&str], window: &[(&str, u64)]) -> WindowsSpec {
    WindowsSpec {
        variables: names.iter().map(|name| (*name).to_owned()).collect(),
        window: window.iter().map(|(dim, n)| (*dim, *n)).collect(),
        ..WindowsSpec::default()
    }
}

/// Checks every value of every batch against its place; gives how many windows there were.
pub(crate) fn verify(run: Running<Batch>, shape: [u64; 3]) -> u64 {
    let mut windows = 0;
    for batch in run {
        let batch = batch.expect("no fault");
        windows += batch.len() as u64;
        for (k, tensor) in batch.tensors().iter().enumerate() {
            for (sample, window) in batch.windows().iter().enumerate() {
                let start = |dim: &str| {
                    let range = window.ranges().find(|(name, _)| *name == dim);
                    range.map_or(0, |(_, range)| range.start)
                };
                let view = tensor.view::<f32>();
                let view = view.index_axis(ndarray::Axis(0), sample);
                for (at, got) in view.indexed_iter() {
                    let (t, i, j) = (at[0] as u64, at[1] as u64, at[2] as u64);
                    let place = (start("time") + t, start("y") + i, start("x") + j);
                    let want = value(k as u64, place.0, place.1, place.2, shape[2]);
                    assert_eq!(*got, want, "variable {k} at {place:?}");
                }
            }
        }
    }
    windows
}
