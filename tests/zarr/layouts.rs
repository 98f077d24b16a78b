//! Every layout and codec gives the values that were written.

use forebay::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Objects, batches, bytes, files, spec, store, v2, v3, value, verify, zstd};

const SHAPE: [u64; 3] = [6, 10, 14];
const NAMES: [&str; 2] = ["t2m", "u10"];

/// Reads the store in several ways and verifies every value.
fn check(what: &str, objects: &Objects) {
    let folder = files(objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let ways: [(&[(&str, u64)], u64); 6] = [
        (&[("time", 1)], 6),
        (&[("time", 2)], 3),
        (&[("time", 4)], 1),
        (&[("time", 1), ("y", 4), ("x", 5)], 6 * 2 * 2),
        (&[("x", 3), ("y", 10)], 4),
        (&[], 1),
    ];
    for (window, count) in ways {
        for size in [1, 2, 5] {
            let run = batches(&store, &spec(&NAMES, window), size).run().expect("runs");
            assert_eq!(verify(run, SHAPE), count, "{what} {window:?}");
        }
    }
    // Overlapping windows share their chunks.
    let overlapping =
        WindowsSpec { overlap: [("time", 2)].into(), ..spec(&NAMES, &[("time", 3), ("y", 7)]) };
    let run = batches(&store, &overlapping, 3).run().expect("runs");
    assert_eq!(verify(run, SHAPE), 4, "{what}");
}

#[test]
fn v3_codecs() {
    let blosc = |cname: &str, shuffle: &str| {
        json!({ "name": "blosc", "configuration": {
            "cname": cname, "clevel": 3, "shuffle": shuffle, "typesize": 4, "blocksize": 0 } })
    };
    let transpose = json!({ "name": "transpose", "configuration": { "order": [2, 1, 0] } });
    let big = json!({ "name": "bytes", "configuration": { "endian": "big" } });
    let crc = json!({ "name": "crc32c" });
    let gzip = json!({ "name": "gzip", "configuration": { "level": 3 } });
    let chains: [(&str, Vec<Value>); 10] = [
        ("raw", vec![bytes()]),
        ("zstd", vec![bytes(), zstd()]),
        ("zstd and crc32c", vec![bytes(), zstd(), crc.clone()]),
        ("blosc lz4", vec![bytes(), blosc("lz4", "shuffle")]),
        ("blosc zstd", vec![bytes(), blosc("zstd", "bitshuffle")]),
        ("blosc zlib", vec![bytes(), blosc("zlib", "noshuffle")]),
        ("gzip", vec![bytes(), gzip]),
        ("crc32c", vec![bytes(), crc]),
        ("transpose", vec![transpose, bytes(), zstd()]),
        ("big-endian", vec![big, zstd()]),
    ];
    for (what, codecs) in chains {
        for chunk in [[1, 10, 14], [2, 3, 4], [4, 10, 5], [6, 16, 16]] {
            let metadata = v3(SHAPE, chunk, &Value::Array(codecs.clone()));
            check(&format!("{what} {chunk:?}"), &store(&NAMES, &metadata));
        }
    }
}

#[test]
fn v3_shards() {
    for location in ["end", "start"] {
        for inner in [vec![bytes()], vec![bytes(), zstd()]] {
            for (shard, chunk) in [([2, 10, 14], [1, 5, 7]), ([4, 8, 8], [2, 4, 2])] {
                let sharding = json!([{ "name": "sharding_indexed", "configuration": {
                    "chunk_shape": chunk,
                    "codecs": inner,
                    "index_codecs": [bytes(), { "name": "crc32c" }],
                    "index_location": location,
                }}]);
                let metadata = v3(SHAPE, shard, &sharding);
                check(&format!("shards, index at the {location}"), &store(&NAMES, &metadata));
            }
        }
    }
}

#[test]
fn v2_compressors() {
    let compressors = [
        ("raw", Value::Null),
        ("zstd", json!({ "id": "zstd", "level": 1 })),
        ("gzip", json!({ "id": "gzip", "level": 1 })),
        ("zlib", json!({ "id": "zlib", "level": 1 })),
        (
            "blosc",
            json!({ "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0 }),
        ),
    ];
    for (what, compressor) in compressors {
        for chunk in [[1, 10, 14], [2, 3, 4]] {
            let objects = store(&NAMES, &v2(SHAPE, chunk, &compressor));
            check(&format!("v2 {what}"), &objects);
            // The same with consolidated metadata and nothing else to find the variables by.
            let mut consolidated = objects.clone();
            let mut all = serde_json::Map::new();
            for (key, bytes) in &objects {
                if key.ends_with(".zarray") || key.ends_with(".zattrs") {
                    all.insert(key.clone(), serde_json::from_slice(bytes).expect("JSON"));
                    consolidated.remove(key);
                }
            }
            let all = json!({ "zarr_consolidated_format": 1, "metadata": all });
            consolidated.insert(".zmetadata".into(), serde_json::to_vec(&all).expect("JSON"));
            check(&format!("v2 {what}, consolidated"), &consolidated);
        }
    }
}

#[test]
fn without_consolidated_metadata() {
    let mut objects = store(&NAMES, &v3(SHAPE, [1, 10, 14], &json!([bytes()])));
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    objects.insert("zarr.json".into(), serde_json::to_vec(&group).expect("JSON"));
    check("not consolidated", &objects);
}

#[test]
fn a_chunk_that_is_not_there_is_the_fill_value() {
    let metadata = v3(SHAPE, [1, 5, 14], &json!([bytes(), zstd()]));
    let mut objects = store(&["t2m"], &metadata);
    assert!(objects.remove("t2m/c/2/1/0").is_some());
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let run = batches(&store, &spec(&["t2m"], &[("time", 1)]), 6).run().expect("runs");
    let batch = run.map(|batch| batch.expect("no fault")).next().expect("one");
    let view = batch.get("t2m").expect("there").view::<f32>();
    assert_eq!(view.shape(), [6, 1, 10, 14]);
    for ((t, i, j), got) in (0..6)
        .flat_map(|t| (0..10).flat_map(move |i| (0..14).map(move |j| (t, i, j))))
        .map(|(t, i, j): (usize, usize, usize)| ((t, i, j), view[[t, 0, i, j]]))
    {
        if t == 2 && i >= 5 {
            assert!(got.is_nan());
        } else {
            assert_eq!(got, value(0, t as u64, i as u64, j as u64, 14));
        }
    }
}

#[test]
fn every_type_of_number() {
    for (name, size) in [
        ("int8", 1),
        ("int16", 2),
        ("int32", 4),
        ("int64", 8),
        ("uint8", 1),
        ("uint16", 2),
        ("uint32", 4),
        ("uint64", 8),
        ("float16", 2),
        ("bfloat16", 2),
        ("float64", 8),
        ("bool", 1),
    ] {
        let fill = if name == "bool" { json!(false) } else { json!(0) };
        let metadata = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": name,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [2] } },
            "chunk_key_encoding": { "name": "default" },
            "fill_value": fill,
            "codecs": if size == 1 { json!([{ "name": "bytes" }]) } else { json!([bytes()]) },
            "dimension_names": ["n"],
        });
        let mut objects = Objects::new();
        let group = json!({ "zarr_format": 3, "node_type": "group" });
        objects.insert("zarr.json".into(), serde_json::to_vec(&group).expect("JSON"));
        objects.insert("v/zarr.json".into(), serde_json::to_vec(&metadata).expect("JSON"));
        // The first chunk counts up in bytes, the second is not there.
        let first: Vec<u8> = (0..2 * size).map(|i| u8::from(i % 2 == 0)).collect();
        objects.insert("v/c/0".into(), first.clone());
        let folder = files(&objects);
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        let mut run = batches(&store, &spec(&["v"], &[]), 1).run().expect("runs");
        let batch = run.next().expect("one").expect("no fault");
        let tensor = batch.get("v").expect("there");
        assert_eq!(
            tensor.spec().dtype.to_string().replace("bf16", "bfloat16"),
            match name {
                "bool" => "bool".to_owned(),
                "bfloat16" => name.to_owned(),
                _ => name.replace("uint", "u").replace("int", "i").replace("float", "f"),
            }
        );
        assert_eq!(&tensor.bytes()[..first.len()], first, "{name}");
        assert!(tensor.bytes()[first.len()..].iter().all(|byte| *byte == 0), "{name}");
    }
}

#[test]
fn variables_without_the_windows_dimension_are_read_whole() {
    let mut objects = store(&["t2m"], &v3(SHAPE, [1, 10, 14], &json!([bytes()])));
    let mask = json!({
        "zarr_format": 3, "node_type": "array", "shape": [10, 14], "data_type": "uint8",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [10, 14] } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": 7,
        "codecs": [{ "name": "bytes" }], "dimension_names": ["y", "x"],
    });
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    objects.insert("zarr.json".into(), serde_json::to_vec(&group).expect("JSON"));
    objects.insert("mask/zarr.json".into(), serde_json::to_vec(&mask).expect("JSON"));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let spec = spec(&["t2m", "mask"], &[("time", 2)]);
    let mut run = batches(&store, &spec, 3).run().expect("runs");
    let batch = run.next().expect("one").expect("no fault");
    assert_eq!(*batch.get("t2m").expect("there").spec().shape, [3, 2, 10, 14]);
    let mask = batch.get("mask").expect("there");
    assert_eq!(*mask.spec().shape, [3, 10, 14]);
    assert!(mask.elements::<u8>().iter().all(|x| *x == 7));
    assert_eq!(mask.spec().to_string(), "mask: u8[sample 3, y 10, x 14]");
}

#[test]
fn values_are_normalized_and_cast() {
    let objects = store(&NAMES, &v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()])));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let pool = Pool::default();
    let mut run = batches(&store, &spec(&NAMES, &[("time", 1)]), 2)
        .then(cpu::map("normalize", ops::normalize(ops::Stats::Auto)))
        .then(cpu::map("cast", ops::cast(DType::F64, &pool)))
        .then(device::upload(&device::host()))
        .run()
        .expect("runs");
    let batch = run.next().expect("one").expect("no fault");
    assert_eq!((batch.device().name(), batch.len()), ("host", 2));
    let got = batch.get("u10").expect("there").as_host::<f64>().expect("on the host");
    // (v - 1000) / 2, of the first element of both windows.
    assert_eq!(got[0], f64::from((value(1, 0, 0, 0, 14) - 1000.0) / 2.0));
    assert_eq!(got[140], f64::from((value(1, 1, 0, 0, 14) - 1000.0) / 2.0));
    let back = batch.get("u10").expect("there").to_host(&pool).expect("copied");
    assert_eq!(back.elements::<f64>(), got);

    let given =
        ops::Stats::Given([("t2m".to_owned(), ops::MeanStd { mean: 1.0, std: 0.0 })].into());
    let run = batches(&store, &spec(&["t2m"], &[("time", 1)]), 2)
        .then(cpu::map("normalize", ops::normalize(given)))
        .run()
        .expect("runs");
    let fault = run.filter_map(Result::err).next().expect("a fault");
    assert!(fault.to_string().contains("a deviation of 0"), "{fault}");
}
