//! What is normalized while it is decoded is what a stage behind the decoder would have made of it, to
//! the last bit, wherever its chunks come from.

use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;
use serde_json::json;

use crate::fixture::{
    Objects, batches, bytes, fetched, files, numbered, spec, store, v2, v3, write, zstd,
};

const SHAPE: [u64; 3] = [6, 10, 14];
const NAMES: [&str; 2] = ["t2m", "u10"];

fn open(objects: &Objects) -> (tempfile::TempDir, Store) {
    let folder = files(objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    (folder, store)
}

fn at_once(store: &Store, spec: &WindowsSpec, size: usize, stats: &Stats) -> Pipeline<Batch> {
    let decode = zarr::decode_normalized(&Pool::default(), stats.clone());
    fetched(store, spec, size).then(cpu::map("decode", decode).workers(2))
}

/// Every tensor's name and bytes, in order.
fn contents(pipeline: Pipeline<Batch>) -> Vec<(String, Vec<u8>)> {
    let run = pipeline.run().expect("runs");
    let batches = run.map(|batch| batch.expect("no fault"));
    let tensors = batches.flat_map(|batch| {
        let all = batch.tensors().iter();
        all.map(|tensor| (tensor.spec().to_string(), tensor.bytes().to_vec())).collect::<Vec<_>>()
    });
    tensors.collect()
}

/// Reads both ways, and compares; gives how many tensors there were.
fn same(what: &str, store: &Store, spec: &WindowsSpec, size: usize, stats: &Stats) -> usize {
    let apart = batches(store, spec, size)
        .then(cpu::map("normalize", ops::normalize(stats.clone())).workers(1));
    let apart = contents(apart);
    let plain = contents(batches(store, spec, size));
    assert_ne!(apart, plain, "{what}: it changes something");
    // Not `assert_eq`, which would print megabytes.
    assert!(contents(at_once(store, spec, size, stats)) == apart, "{what} {spec:?} by {size}");
    apart.len()
}

fn given(names: &[&str]) -> Stats {
    let of = |(i, name): (usize, &&str)| {
        ((*name).to_owned(), MeanStd { mean: 1000.3 + i as f64, std: 3.7 })
    };
    Stats::Given(names.iter().enumerate().map(of).collect())
}

#[test]
fn all_layouts() {
    let big = json!({ "name": "bytes", "configuration": { "endian": "big" } });
    let turned = json!({ "name": "transpose", "configuration": { "order": [2, 0, 1] } });
    let sharded = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 5, 7], "codecs": [bytes(), zstd()],
        "index_codecs": [bytes()], "index_location": "end",
    }}]);
    let blosc = json!({ "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0 });
    let layouts = [
        ("zstd", v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()]))),
        ("cut across", v3(SHAPE, [2, 4, 6], &json!([bytes(), zstd()]))),
        ("sharded", v3(SHAPE, [2, 10, 14], &sharded)),
        ("big-endian", v3(SHAPE, [1, 10, 14], &json!([big, zstd()]))),
        ("transposed", v3(SHAPE, [3, 5, 14], &json!([turned, bytes()]))),
        ("blosc", v2(SHAPE, [1, 10, 14], &blosc)),
    ];
    for (what, metadata) in layouts {
        let mut objects = store(&NAMES, &metadata);
        // Where nothing was written is the fill value, which is normalized too.
        objects.remove("u10/c/0/0/0");
        objects.remove("u10/0.0.0");
        let (_folder, store) = open(&objects);
        let ways: [&[(&str, u64)]; 4] =
            [&[("time", 1)], &[("time", 4)], &[("time", 1), ("y", 4), ("x", 5)], &[]];
        for window in ways {
            for size in [1, 3] {
                assert!(same(what, &store, &spec(&NAMES, window), size, &given(&NAMES)) > 0);
            }
        }
        let padded = WindowsSpec {
            edges: zarr::Edges::All(zarr::Edge::Pad),
            ..spec(&NAMES, &[("time", 4), ("x", 4)])
        };
        assert_eq!(same(what, &store, &padded, 2, &given(&NAMES)), 2 * 4, "{what}");
    }
}

/// Windows that share chunks take them from the cache, where they are as they were stored.
#[test]
fn chunks_that_are_kept() {
    let metadata = v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()]));
    let (_folder, store) = open(&store(&NAMES, &metadata));
    let overlapping =
        WindowsSpec { stride: [("time", 1)].into(), ..spec(&NAMES, &[("time", 3), ("y", 5)]) };
    assert_eq!(same("shared", &store, &overlapping, 2, &Stats::Auto), 2 * 4);
}

#[test]
fn doubles_and_packed_numbers() {
    let (_folder, store) = open(&numbered(&[("a", 6), ("b", 8)]));
    for window in [&[("a", 3)][..], &[("a", 2), ("b", 5)], &[]] {
        assert!(same("f64", &store, &spec(&["v"], window), 2, &given(&["v"])) > 0);
    }
    let metadata = json!({
        "zarr_format": 2, "shape": [4, 10], "chunks": [2, 10], "dtype": ">i2",
        "compressor": null, "filters": null, "order": "C", "fill_value": 3,
    });
    let attributes = json!({ "_ARRAY_DIMENSIONS": ["time", "x"], "scale_factor": 0.25 });
    let mut objects = Objects::new();
    objects.insert(".zgroup".into(), br#"{"zarr_format": 2}"#.to_vec());
    objects.insert("t2m/.zarray".into(), serde_json::to_vec(&metadata).expect("JSON"));
    objects.insert("t2m/.zattrs".into(), serde_json::to_vec(&attributes).expect("JSON"));
    objects.insert("t2m/0.0".into(), (0..20_i16).flat_map(i16::to_be_bytes).collect());
    let (_folder, store) = open(&objects);
    for window in [&[("time", 2)][..], &[("time", 1), ("x", 3)]] {
        assert!(same("packed", &store, &spec(&["t2m"], window), 2, &given(&["t2m"])) > 0);
    }
}

#[test]
fn what_can_not_be_normalized_is_told() {
    let failure = |objects: &Objects, stats: Stats| {
        let (_folder, store) = open(objects);
        let run = at_once(&store, &spec(&["t2m"], &[("time", 1)]), 2, &stats).run().expect("runs");
        run.filter_map(Result::err).next().expect("a fault").to_string()
    };
    let mut metadata = v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()]));
    let told = failure(&store(&["t2m"], &metadata), given(&["u10"]));
    assert!(told.contains("`t2m` can't be normalized: no mean and deviation are given"), "{told}");
    metadata["attributes"] = json!({});
    let told = failure(&store(&["t2m"], &metadata), Stats::Auto);
    assert!(told.contains("gives it no attributes `mean` and `std`"), "{told}");

    let mut objects = store(&["t2m"], &metadata);
    metadata["data_type"] = json!("int32");
    metadata["fill_value"] = json!(0);
    objects.insert("t2m/zarr.json".into(), serde_json::to_vec(&metadata).expect("JSON"));
    objects.remove("zarr.json");
    let folder = files(&objects);
    write(folder.path(), "zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let spec = spec(&["t2m"], &[("time", 1)]);
    let run = at_once(&store, &spec, 2, &given(&["t2m"])).run().expect("runs");
    let told = run.filter_map(Result::err).next().expect("a fault").to_string();
    assert!(told.contains("its elements are i32: cast it to f32 first"), "{told}");
}
