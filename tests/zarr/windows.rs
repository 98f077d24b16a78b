//! Windows are enumerated as xbatcher does, and each chunk is fetched once for a batch.

use std::collections::BTreeMap;

use forebay::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{batches, bytes, files, numbered, spec, store, v3, verify, zstd};
use crate::server::Server;

fn lengths(array: &serde_json::Map<String, Value>) -> Vec<(&str, u64)> {
    array.iter().map(|(dim, n)| (dim.as_str(), n.as_u64().expect("a length"))).collect()
}

#[test]
fn as_xbatcher_enumerates_them() {
    let text = include_str!("../data/xbatcher-windows.json");
    let data: Value = serde_json::from_str(text).expect("JSON");
    let cases = data["cases"].as_array().expect("cases");
    assert!(cases.len() > 15);
    for case in cases {
        let extents = |name: &str| -> zarr::Extents {
            let dims = case[name].as_object().expect("an object").iter();
            dims.map(|(dim, n)| (dim.clone(), n.as_u64().expect("a number"))).collect()
        };
        let folder = files(&numbered(&lengths(case["array"].as_object().expect("an object"))));
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        let spec = WindowsSpec {
            variables: vec!["v".into()],
            window: extents("window"),
            overlap: extents("overlap"),
            ..WindowsSpec::default()
        };
        if case["error"] == true {
            assert!(zarr::windows(&store, &spec).is_err(), "{case}");
            continue;
        }
        let run = batches(&store, &spec, 4).run().expect("runs");
        let mut got = Vec::new();
        for batch in run {
            let batch = batch.expect("no fault");
            let tensor = batch.get("v").expect("there");
            let each = tensor.elements::<f64>().len() / batch.len();
            for window in tensor.elements::<f64>().chunks(each) {
                let mut ids: Vec<u64> = window.iter().map(|x| *x as u64).collect();
                ids.sort_unstable();
                got.push(ids);
            }
        }
        let want: Vec<Vec<u64>> = serde_json::from_value(case["windows"].clone()).expect("windows");
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_what_would() {
    let objects = store(&["t2m", "u10"], &v3([6, 10, 14], [1, 10, 14], &json!([bytes()])));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let told = |spec: WindowsSpec| zarr::windows(&store, &spec).expect_err("refused").to_string();
    let with = |variables: &[&str], window: &[(&str, u64)]| told(spec(variables, window));
    let text = with(&["t2n"], &[]);
    assert!(text.ends_with("did you mean `t2m`?"), "{text}");
    assert!(with(&[], &[]).contains("`t2m`, `u10`"));
    assert!(with(&["t2m"], &[("tim", 1)]).ends_with("did you mean `time`?"));
    assert_eq!(with(&["t2m"], &[("time", 7)]), "the window in `time` has 7 entries: write 1 to 6");
    assert!(with(&["t2m"], &[("time", 0)]).contains("write 1 to 6"));
    assert!(with(&["../t2m"], &[]).contains("it is no name"));
    let both = WindowsSpec {
        stride: [("time", 1)].into(),
        overlap: [("time", 1)].into(),
        ..spec(&["t2m"], &[("time", 2)])
    };
    assert!(told(both).contains("give one of them"));
    let alone = WindowsSpec { stride: [("time", 1)].into(), ..spec(&["t2m"], &[("y", 2)]) };
    assert!(told(alone).contains("add it to `window`"));
}

/// Every batch fetches each chunk once, however many of its windows need it.
#[test]
fn a_chunk_is_fetched_once_for_a_batch() {
    let objects = store(&["t2m"], &v3([8, 10, 14], [2, 10, 14], &json!([bytes(), zstd()])));
    let server = Server::start(objects);
    let store = Store::open(&server.url).expect("opens");
    let overlapping =
        WindowsSpec { stride: [("time", 1)].into(), ..spec(&["t2m"], &[("time", 3)]) };
    let pipeline = batches(&store, &overlapping, 100);
    assert!(server.requests().iter().all(|request| !request.contains("/c/")), "only metadata");
    assert_eq!(verify(pipeline.run().expect("runs"), [8, 10, 14]), 6);
    let mut counts = BTreeMap::new();
    for request in server.requests() {
        *counts.entry(request).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert!(counts.iter().all(|(request, n)| *n == 1 && request.starts_with("GET t2m/c/")));
}

/// The index of a shard is read once, and inner chunks that lie close together in one request.
#[test]
fn shards_are_read_in_few_requests() {
    let sharding = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 5, 7], "codecs": [bytes(), zstd()],
        "index_codecs": [bytes(), { "name": "crc32c" }], "index_location": "end",
    }}]);
    let objects = store(&["t2m"], &v3([8, 10, 14], [4, 10, 14], &sharding));
    let server = Server::start(objects);
    let store = Store::open(&server.url).expect("opens");
    let pipeline = batches(&store, &spec(&["t2m"], &[("time", 1)]), 2);
    server.requests();
    assert_eq!(verify(pipeline.run().expect("runs"), [8, 10, 14]), 8);
    let requests = server.requests();
    let indexes = requests.iter().filter(|request| request.contains(" -")).count();
    // Two shards, each read by two batches: an index each, and one range for each batch.
    assert_eq!((indexes, requests.len()), (2, 2 + 4), "{requests:?}");
}

#[test]
fn windows_cost_nothing_to_reach() {
    let objects = store(&["t2m"], &v3([6, 10, 14], [1, 10, 14], &json!([bytes()])));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let windows = zarr::windows(&store, &spec(&["t2m"], &[("x", 2), ("time", 1)])).expect("ok");
    let Ok(index) = windows.into_index() else { panic!("windows are computed by position") };
    assert_eq!(index.len(), 7 * 6);
    // The last dimension written runs fastest.
    let ranges: Vec<_> = index.get(8).ranges().map(|(d, r)| (d.to_owned(), r)).collect();
    assert_eq!(ranges, [("x".to_owned(), 2..4), ("time".to_owned(), 2..3)]);
    assert_eq!(format!("{:?}", index.get(8)), "Window(x 2..4, time 2)");
}
