//! Rule 10: bad input gets an error, never a crash, a hang or a wrong number.

use forebay::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Objects, batches, bytes, files, spec, store, v3, write, zstd};

const SHAPE: [u64; 3] = [4, 10, 14];

fn good() -> Objects {
    store(&["t2m"], &v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()])))
}

/// Reads all of a store after `spoil` has had its way; gives the failure.
fn failure(objects: Objects, spoil: impl FnOnce(&std::path::Path)) -> String {
    let folder = files(&objects);
    spoil(folder.path());
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let mut run = batches(&store, &spec(&["t2m"], &[("time", 1)]), 2).run().expect("runs");
    let failed = run.by_ref().find_map(Result::err).expect("a failure").to_string();
    run.close();
    failed
}

/// F: a frame that claims a terabyte ended the process.
#[test]
fn a_header_that_claims_a_terabyte() {
    let bomb = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
    let told = failure(good(), |root| write(root, "t2m/c/2/0/0", &bomb));
    assert_eq!(
        told,
        "stage `decode` failed on item 1 (time 2 to time 3): the chunk `t2m/c/2/0/0` can't be \
         decoded: its header claims 1099511627776 bytes, but a chunk has 560"
    );
}

#[test]
fn chunks_cut_short_or_full_of_noise() {
    for codecs in [
        json!([bytes(), zstd()]),
        json!([bytes()]),
        json!([bytes(), { "name": "blosc", "configuration": {
            "cname": "lz4", "clevel": 3, "shuffle": "shuffle", "typesize": 4, "blocksize": 0 } }]),
        json!([bytes(), { "name": "gzip", "configuration": { "level": 1 } }]),
        json!([bytes(), { "name": "crc32c" }]),
    ] {
        let objects = store(&["t2m"], &v3(SHAPE, [1, 10, 14], &codecs));
        let whole = objects["t2m/c/1/0/0"].clone();
        for len in [0, 1, 3, 7, 15, whole.len() / 2, whole.len() - 1] {
            let told = failure(objects.clone(), |root| write(root, "t2m/c/1/0/0", &whole[..len]));
            assert!(told.contains("t2m/c/1/0/0"), "{codecs} {len}: {told}");
        }
        if codecs != json!([bytes()]) {
            let noise: Vec<u8> = (0..whole.len()).map(|i| (i * 31 % 251) as u8).collect();
            let told = failure(objects, |root| write(root, "t2m/c/1/0/0", &noise));
            assert!(told.contains("t2m/c/1/0/0"), "{codecs}: {told}");
        }
    }
}

/// A pipe that nobody writes to kept a run waiting that no signal ended.
#[test]
fn a_pipe_in_the_place_of_a_chunk() {
    let told = failure(good(), |root| {
        let chunk = root.join("t2m/c/1/0/0");
        std::fs::remove_file(&chunk).expect("there");
        let made = std::process::Command::new("mkfifo").arg(&chunk).status().expect("started");
        assert!(made.success());
    });
    assert!(told.contains("reading `t2m/c/1/0/0`") && told.contains("and no file"), "{told}");
}

#[test]
fn a_chunk_far_too_large_is_not_read() {
    let told = failure(good(), |root| {
        let file = std::fs::File::create(root.join("t2m/c/1/0/0")).expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
    });
    assert!(told.contains("has 1099511627776 bytes, but at most"), "{told}");
}

#[test]
fn an_index_of_a_shard_that_lies() {
    let sharding = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 5, 7], "codecs": [bytes(), zstd()],
        "index_codecs": [bytes()], "index_location": "end",
    }}]);
    let objects = store(&["t2m"], &v3(SHAPE, [2, 10, 14], &sharding));
    let whole = objects["t2m/c/0/0/0"].clone();
    let entries = [(0, u64::MAX - 1), (u64::MAX - 5, 100), (1 << 50, 10), (0, 1 << 40)];
    for (offset, len) in entries {
        let mut bad = whole.clone();
        let at = bad.len() - 128;
        bad[at..at + 8].copy_from_slice(&u64::to_le_bytes(offset));
        bad[at + 8..at + 16].copy_from_slice(&u64::to_le_bytes(len));
        let told = failure(objects.clone(), |root| write(root, "t2m/c/0/0/0", &bad));
        assert!(told.contains("t2m/c/0/0/0"), "{told}");
    }
    let told = failure(objects, |root| write(root, "t2m/c/0/0/0", &whole[..50]));
    assert!(told.contains("t2m/c/0/0/0"), "{told}");
}

#[test]
fn metadata_that_makes_no_sense() {
    let base = v3(SHAPE, [1, 10, 14], &json!([bytes()]));
    let changes: [(&str, Value); 14] = [
        ("/shape", json!([u64::MAX, u64::MAX, u64::MAX])),
        ("/shape", json!([-1, 10, 14])),
        ("/shape", json!("wide")),
        ("/shape", json!([4, 10])),
        ("/data_type", json!("complex128")),
        ("/data_type", json!("string")),
        ("/data_type", json!({ "name": "structured" })),
        ("/chunk_grid/configuration/chunk_shape", json!([0, 10, 14])),
        ("/chunk_grid/configuration/chunk_shape", json!([1, 10])),
        ("/chunk_grid/configuration/chunk_shape", json!([1u64 << 40, 1u64 << 40, 1])),
        ("/chunk_grid/name", json!("rectilinear")),
        ("/codecs", json!([])),
        ("/codecs", json!([{ "name": "no_such_codec" }])),
        (
            "/codecs",
            json!([{ "name": "sharding_indexed", "configuration": {
            "chunk_shape": [1, 3, 14], "codecs": [bytes()], "index_codecs": [bytes()] } }]),
        ),
    ];
    for (at, value) in changes {
        let mut bad = base.clone();
        *bad.pointer_mut(at).expect("there") = value.clone();
        let group = json!({ "zarr_format": 3, "node_type": "group" });
        let objects = Objects::from([
            ("zarr.json".to_owned(), serde_json::to_vec(&group).expect("JSON")),
            ("t2m/zarr.json".to_owned(), serde_json::to_vec(&bad).expect("JSON")),
        ]);
        let folder = files(&objects);
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        let refused = zarr::windows(&store, &spec(&["t2m"], &[("time", 1)])).expect_err(at);
        assert!(refused.to_string().contains("t2m"), "{at} {value}: {refused}");
    }
    for text in ["", "{", "[]", "null", "\u{0}\u{1}", "{\"zarr_format\": 3}"] {
        let folder = files(&good());
        write(folder.path(), "zarr.json", text.as_bytes());
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        // Broken metadata is an error; an empty group still finds its arrays.
        drop(zarr::windows(&store, &spec(&["t2m"], &[("time", 1)])));
    }
}

#[test]
fn places_that_are_no_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &std::path::Path| {
        let store = Store::open(path.to_str().expect("UTF-8")).expect("opens");
        zarr::windows(&store, &spec(&["t2m"], &[])).expect_err("no group").to_string()
    };
    assert!(at(folder.path()).contains("there is no Zarr group"));
    assert!(at(&folder.path().join("nowhere")).contains("there is no Zarr group"));
    let files = files(&good());
    assert!(at(&files.path().join("t2m")).contains("is a single array"));
}
