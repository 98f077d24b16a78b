//! What a plan predicts is what a run then counts.

use forebay::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Objects, bytes, files, spec, store, v2, v3, zstd};

const SHAPE: [u64; 3] = [12, 40, 60];
const NAMES: [&str; 2] = ["t2m", "u10"];

fn layouts() -> Vec<(&'static str, Objects)> {
    let zstd_chain = json!([bytes(), zstd()]);
    let sharded = |chunk: [u64; 3], inner: [u64; 3], at: &str| {
        let codec = json!([{ "name": "sharding_indexed", "configuration": {
            "chunk_shape": inner,
            "codecs": zstd_chain,
            "index_codecs": [bytes(), { "name": "crc32c" }],
            "index_location": at,
        }}]);
        v3(SHAPE, chunk, &codec)
    };
    let blosc = json!({ "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1 });
    let metadata: [(&str, Value); 6] = [
        ("fields", v3(SHAPE, [1, 40, 60], &zstd_chain)),
        ("tiles", v3(SHAPE, [1, 16, 16], &zstd_chain)),
        ("cubes", v3(SHAPE, [5, 20, 32], &zstd_chain)),
        ("shards", sharded([4, 40, 60], [1, 10, 20], "end")),
        ("shards, index first", sharded([6, 40, 60], [2, 20, 15], "start")),
        ("v2 blosc", v2(SHAPE, [1, 40, 60], &blosc)),
    ];
    metadata.into_iter().map(|(name, metadata)| (name, store(&NAMES, &metadata))).collect()
}

fn within(percent: f64, what: &str, predicted: u64, counted: u64) {
    let apart = predicted.abs_diff(counted) as f64 / counted.max(1) as f64;
    assert!(apart <= percent / 100.0, "{what}: predicted {predicted}, counted {counted}");
}

#[test]
fn a_plan_predicts_requests_and_bytes() {
    let orders = ["in order", "shuffled by chunks", "shuffled"];
    let target = zarr::Also {
        variables: vec!["u10".into()],
        offset: [("time", 2)].into(),
        ..Default::default()
    };
    for (layout, objects) in layouts() {
        let folder = files(&objects);
        let opened = || Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        for order in orders {
            for (cache, workers) in [(0, 5), (1 << 30, 1), (1 << 30, 5)] {
                let what = format!("{layout}, {order}, cache of {cache}, {workers} workers");
                let spec = WindowsSpec {
                    cache: Some(cache),
                    overlap: [("x", 4)].into(),
                    edges: zarr::Edges::Each([("x".to_owned(), zarr::Edge::Wrap)].into()),
                    also: [("target".to_owned(), target.clone())].into(),
                    ..spec(&NAMES, &[("time", 2), ("y", 10), ("x", 16)])
                };
                let batches = |store: &Store| {
                    let windows = Pipeline::from(zarr::windows(store, &spec).expect("windows"));
                    let windows = match order {
                        "in order" => windows,
                        "shuffled" => windows.then(flow::shuffle(7)),
                        _ => windows.then(flow::shuffle(7).by_chunks(Some(3))),
                    };
                    windows.then(flow::batch(8))
                };
                let store = opened();
                let plan = zarr::plan(batches(&store).index().expect("by position"));
                let plan = plan.expect("planned");
                assert_eq!(store.stats().requests, 0, "{what}: planning reads no data");

                let store = opened();
                let mut run = batches(&store)
                    .then(io::map("fetch", zarr::fetch).workers(workers))
                    .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(2))
                    .run()
                    .expect("runs");
                let windows: u64 =
                    run.by_ref().map(|batch| batch.expect("no fault").len() as u64).sum();
                let traffic = run.stats().stages[run.stats().stages.len() - 2].traffic;
                assert_eq!(traffic.amplification(), Some(plan.amplification()), "{what}");
                let counted = store.stats();
                assert_eq!(plan.windows, windows, "{what}");
                // Which of two calls side by side fetches a chunk that both want is chance, and so
                // is what can be read of a shard in one request. These stores are small.
                let chance = cache > 0 && workers > 1 && layout.starts_with("shards");
                let percent = if chance { 100.0 } else { 1.0 };
                within(percent, &what, plan.requests, counted.requests);
                within(percent, &what, plan.wire_bytes, counted.bytes);
                if cache > 0 {
                    assert!(plan.fetches_per_chunk() == 1.0, "{what}: {plan:?}");
                }
            }
        }
    }
}

#[test]
fn a_plan_says_what_to_change() {
    let objects = store(&NAMES, &v3(SHAPE, [1, 40, 60], &json!([bytes(), zstd()])));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let spec =
        |cache, window: &[(&str, u64)]| WindowsSpec { cache: Some(cache), ..spec(&NAMES, window) };
    let advice = |spec: &WindowsSpec, by_chunks: bool| {
        let windows = Pipeline::from(zarr::windows(&store, spec).expect("windows"));
        let order = flow::shuffle(3);
        let order = if by_chunks { order.by_chunks(None) } else { order };
        let batches = windows.then(order).then(flow::batch(8));
        let plan = zarr::plan(batches.index().expect("by position")).expect("planned");
        zarr::advice(&plan).join("\n")
    };
    let crops: &[(&str, u64)] = &[("time", 1), ("y", 10), ("x", 12)];
    let small = 6 * 40 * 60 * 4;
    let said = advice(&spec(small, crops), false);
    assert!(said.contains("wanted 20.0 times") && said.contains("shuffle: chunks"), "{said}");
    assert_eq!(advice(&spec(small, crops), true), "", "and then nothing is wrong");
    let said = advice(&spec(1 << 30, &[("time", 1), ("y", 10), ("x", 35)]), true);
    assert!(said.contains("used by no window"), "{said}");
}
