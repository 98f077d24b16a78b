//! However many windows want a chunk, it is fetched and decoded once, in any order that keeps the
//! windows of a chunk together; and within a budget.

use std::collections::BTreeSet;

use forebay::prelude::*;
use forebay::source::Groups;
use serde_json::json;

use crate::fixture::{batches, bytes, files, spec, store, v3, value, verify, zstd};

const SHAPE: [u64; 3] = [12, 40, 60];
const NAMES: [&str; 2] = ["t2m", "u10"];

/// A store of whole fields, each a chunk: 12 steps of 2 variables.
fn fields() -> (tempfile::TempDir, Store) {
    let metadata = v3(SHAPE, [1, 40, 60], &json!([bytes(), zstd()]));
    let folder = files(&store(&NAMES, &metadata));
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    (folder, store)
}

fn crops() -> WindowsSpec {
    spec(&NAMES, &[("time", 1), ("y", 10), ("x", 12)])
}

/// Every window along the way, shuffled as told, in batches of 8.
fn read(store: &Store, spec: &WindowsSpec, order: flow::Shuffle<Window>) -> (u64, u64) {
    let before = store.stats().requests;
    let windows = zarr::windows(store, spec).expect("windows");
    let pipeline = Pipeline::from(windows)
        .then(order)
        .then(flow::batch(8))
        .then(io::map("fetch", zarr::fetch).workers(6))
        .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(3));
    let windows = verify(pipeline.run().expect("runs"), SHAPE);
    (windows, store.stats().requests - before)
}

#[test]
fn neighbours_in_order_share_their_chunks() {
    let (_folder, store) = fields();
    let windows = Pipeline::from(zarr::windows(&store, &crops()).expect("windows"));
    let pipeline = windows
        .then(flow::batch(8))
        .then(io::map("fetch", zarr::fetch).workers(6))
        .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(3));
    // 4 x 5 crops of each of 12 fields; 20 crops are two batches and a half.
    assert_eq!(verify(pipeline.run().expect("runs"), SHAPE), 240);
    assert_eq!(store.stats().requests, 24, "each chunk of both variables once");
}

#[test]
fn windows_that_overlap_share_their_chunks() {
    let (_folder, store) = fields();
    let overlapping = WindowsSpec { stride: [("time", 1)].into(), ..spec(&NAMES, &[("time", 4)]) };
    let run = batches(&store, &overlapping, 1).run().expect("runs");
    assert_eq!(verify(run, SHAPE), 9);
    assert_eq!(store.stats().requests, 24);
}

#[test]
fn a_shuffle_by_chunks_reads_each_chunk_once() {
    let (_folder, store) = fields();
    for mixed in [Some(1), Some(3), None] {
        let (windows, requests) = read(&store, &crops(), flow::shuffle(5).by_chunks(mixed));
        assert_eq!((windows, requests), (240, 24), "{mixed:?}");
    }
    // A full shuffle as well, if everything fits.
    assert_eq!(read(&store, &crops(), flow::shuffle(5)), (240, 24));
}

/// Groups follow the chunks, not the first window, which may begin in the middle of one.
#[test]
fn a_range_that_begins_inside_a_chunk_is_grouped_by_chunks() {
    let chunks = [4, 40, 60];
    let folder = files(&store(&NAMES, &v3(SHAPE, chunks, &json!([bytes()]))));
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let windows = WindowsSpec {
        range: [("time".to_owned(), (3..12).into())].into(),
        // Room for one chunk of each variable: another group's would not stay.
        cache: Some(2 * (4 * 40 * 60 * 4 + 4096)),
        ..spec(&NAMES, &[("time", 1)])
    };
    let pipeline = Pipeline::from(zarr::windows(&store, &windows).expect("windows"))
        .then(flow::shuffle(3).by_chunks(Some(1)))
        .then(flow::batch(1))
        .then(io::map("fetch", zarr::fetch).workers(1).buffer(1))
        .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(1));
    assert_eq!(verify(pipeline.run().expect("runs"), SHAPE), 9);
    assert_eq!(store.stats().requests, 6, "three chunks of both variables");
}

#[test]
fn the_budget_is_kept_and_costs_requests() {
    let (_folder, store) = fields();
    let read = |cache: u64| {
        let spec = WindowsSpec { cache: Some(cache), ..crops() };
        read(&store, &spec, flow::shuffle(5))
    };
    let (all, none) = (read(1 << 30), read(0));
    assert_eq!((all, none.0), ((240, 24), 240));
    // Without a cache each batch of 8 asks for nearly 8 fields, two variables each.
    assert!(none.1 > 200, "{none:?}");
    // Room for half of the fields saves more than half of what is left: the future is known.
    let field = 40 * 60 * 4 + 4096;
    let half = read(12 * field);
    assert!(half.1 < (24 + none.1) / 2, "{half:?} between {all:?} and {none:?}");
}

#[test]
fn whole_chunks_in_order_are_decoded_in_place() {
    let (_folder, store) = fields();
    let pool = Pool::default();
    let windows = zarr::windows(&store, &spec(&NAMES, &[("time", 1)])).expect("windows");
    let mut run = Pipeline::from(windows)
        .then(flow::batch(2))
        .then(io::map("fetch", zarr::fetch).workers(2))
        .then(cpu::map("decode", zarr::decode(&pool)).workers(1).buffer(1))
        .run()
        .expect("runs");
    run.by_ref().for_each(|batch| _ = batch.expect("no fault"));
    let stats = pool.stats();
    // Two tensors a batch, and no scratch memory.
    assert_eq!(stats.hits + stats.misses, 12, "{stats:?}");
}

/// Chunks whose fetch is given up are fetched by another call; runs that end early leave nothing.
#[test]
fn runs_that_end_early_leave_the_chunks_to_others() {
    let (_folder, store) = fields();
    let windows = zarr::windows(&store, &crops()).expect("windows");
    let index = windows.into_index().expect("computed by position");
    let pipeline = || {
        Pipeline::from(source::index("windows", index.clone()))
            .then(flow::shuffle(9).by_chunks(Some(4)))
            .then(flow::batch(8))
            .then(io::map("fetch", zarr::fetch).workers(6))
            .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(3))
    };
    for taken in 0..12 {
        let mut run = pipeline().run().expect("runs");
        assert_eq!(run.by_ref().take(taken).count(), taken);
        run.close();
    }
    assert_eq!(verify(pipeline().run().expect("runs"), SHAPE), 240);
    // With every window gone, nothing is kept: the pool has all of its memory back.
    drop(index);
    assert_eq!(store.pool().stats().lent_bytes, 0);
}

/// Windows that a mask leaves are grouped by chunks, too: each chunk that any of them wants is fetched
/// once, and none that no window wants.
#[test]
fn a_shuffle_by_chunks_of_windows_that_are_kept_reads_each_chunk_once() {
    let mut objects = store(&NAMES, &v3(SHAPE, [2, 10, 15], &json!([bytes()])));
    // Land in blocks of 5 x 5, of which a chunk has six; in the south there is none.
    let land = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [40, 60], "data_type": "float64",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [40, 60] } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": 0.0,
        "codecs": [bytes()], "dimension_names": ["y", "x"],
    });
    let is_land = |y: u64, x: u64| (y / 5 * 7 + x / 5 * 3) % 5 < 2 && y < 30;
    let values = (0..40).flat_map(|y| (0..60).map(move |x| f64::from(u8::from(is_land(y, x)))));
    objects.insert("land/c/0/0".into(), values.flat_map(f64::to_le_bytes).collect());
    objects.insert("land/zarr.json".into(), serde_json::to_vec(&land).expect("JSON"));
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    objects.insert("zarr.json".into(), serde_json::to_vec(&group).expect("JSON"));
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let keep = zarr::Keep { variable: "land".into(), min: Some(1.0), max: None, share: 1.0 };
    let kept = |cache| WindowsSpec {
        keep: Some(keep.clone()),
        cache: Some(cache),
        ..spec(&NAMES, &[("time", 1), ("y", 5), ("x", 5)])
    };
    // Which windows there are, and which chunks they want, by hand.
    let places = (0..8).flat_map(|y| (0..12).map(move |x| (y * 5, x * 5)));
    let places: Vec<_> = places.filter(|(y, x)| is_land(*y, *x)).collect();
    let wanted: BTreeSet<_> = places.iter().map(|(y, x)| (y / 10, x / 15)).collect();
    assert!(places.len() > 20 && wanted.len() < 16, "the mask leaves some of all");
    let order = |seed, mixed| {
        let windows = zarr::windows(&store, &kept(1 << 30)).expect("windows");
        let pipeline = Pipeline::from(windows).then(flow::shuffle(seed).by_chunks(mixed));
        let mut run = pipeline.run().expect("runs");
        run.by_ref().map(|window| window.expect("no fault").number()).collect::<Vec<_>>()
    };
    for mixed in [Some(1), Some(3), None] {
        let (windows, requests) = read(&store, &kept(1 << 30), flow::shuffle(5).by_chunks(mixed));
        assert_eq!(windows, 12 * places.len() as u64, "{mixed:?}");
        assert_eq!(requests, 2 * 6 * wanted.len() as u64, "{mixed:?}");
        let numbers = order(5, mixed);
        assert_eq!(numbers, order(5, mixed));
        assert_ne!(numbers, order(6, mixed));
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    }
    // With room for one chunk of each variable alone, too, where a full shuffle is far from it.
    let tight = |order: flow::Shuffle<Window>| {
        let before = store.stats().requests;
        let windows = kept(2 * (2 * 10 * 15 * 4 + 4096));
        let pipeline = Pipeline::from(zarr::windows(&store, &windows).expect("windows"))
            .then(order)
            .then(flow::batch(1))
            .then(io::map("fetch", zarr::fetch).workers(1).buffer(1))
            .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(1).buffer(1));
        assert_eq!(verify(pipeline.run().expect("runs"), SHAPE), 12 * places.len() as u64);
        store.stats().requests - before
    };
    let grouped = tight(flow::shuffle(5).by_chunks(Some(1)));
    assert_eq!(grouped, 2 * 6 * wanted.len() as u64);
    let full = tight(flow::shuffle(5));
    assert!(full > 2 * grouped, "{full} requests in full, {grouped} by chunks");
    // Ranks get equal shares.
    let share = |rank| {
        let windows = zarr::windows(&store, &kept(1 << 30)).expect("windows");
        let order = flow::shuffle(5).by_chunks(None);
        let mut run =
            Pipeline::from(windows).then(order).then(flow::shard(rank, 4)).run().expect("runs");
        run.by_ref().map(|window| window.expect("no fault").number()).collect::<Vec<_>>()
    };
    let shares: Vec<_> = (0..4).map(share).collect();
    assert!(shares.iter().all(|share| share.len() == 3 * places.len()));
    assert_eq!(shares.concat().iter().collect::<BTreeSet<_>>().len(), 12 * places.len());
}

#[test]
fn ranks_get_equal_disjoint_shares() {
    let (_folder, store) = fields();
    let spec = spec(&NAMES, &[("time", 1), ("y", 10), ("x", 13)]);
    let share = |rank, world, uneven| {
        let mut run = Pipeline::from(zarr::windows(&store, &spec).expect("windows"))
            .then(flow::shuffle(3).by_chunks(Some(2)))
            .then(flow::shard(rank, world).uneven(uneven))
            .run()
            .expect("runs");
        run.by_ref().map(|window| window.expect("no fault").number()).collect::<Vec<_>>()
    };
    // 12 x 4 x 4 = 192 windows among 7 ranks.
    // The first three get one more, and none is left out or repeated.
    let kept: Vec<_> = (0..7).map(|rank| share(rank, 7, flow::Uneven::Keep)).collect();
    assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [28, 28, 28, 27, 27, 27, 27]);
    assert_eq!(kept.into_iter().flatten().collect::<BTreeSet<_>>().len(), 192);
    for (uneven, each) in [(flow::Uneven::Drop, 27), (flow::Uneven::Pad, 28)] {
        let shares: Vec<_> = (0..7).map(|rank| share(rank, 7, uneven)).collect();
        assert!(shares.iter().all(|share| share.len() == each));
        let all: BTreeSet<_> = shares.into_iter().flatten().collect();
        let distinct = if uneven == flow::Uneven::Drop { 189 } else { 192 };
        assert_eq!(all.len(), distinct);
    }
}

#[test]
fn a_batch_draws_from_as_many_chunks_as_said() {
    let (_folder, store) = fields();
    let windows = zarr::windows(&store, &crops()).expect("windows");
    let groups = windows.into_index().expect("by position").groups().expect("groups").clone();
    assert_eq!((groups.len(), groups.count()), (240, 12));
    let mut run = Pipeline::from(zarr::windows(&store, &crops()).expect("windows"))
        .then(flow::shuffle(1).by_chunks(Some(6)))
        .then(flow::batch(8))
        .run()
        .expect("runs");
    let drawn: Vec<_> = run
        .by_ref()
        .map(|batch| batch.expect("no fault").iter().map(|w| groups.of(w.number())).collect())
        .map(|groups: BTreeSet<_>| groups.len() as f64)
        .collect();
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    assert!((mean - Groups::drawn(6, 8)).abs() < 0.6, "{mean}");
}

/// Ranges of entries split a store: what is read of one is not read of the other.
#[test]
fn ranges_split_a_store() {
    let (_folder, store) = fields();
    let split = |start, end| {
        let range =
            [("time".to_owned(), zarr::Span { start, end }), ("y".to_owned(), (5..40).into())];
        let spec = WindowsSpec { range: range.into(), ..spec(&NAMES, &[("time", 2), ("x", 25)]) };
        zarr::windows(&store, &spec)
    };
    let times = |start, end| {
        let windows = split(start, end).expect("windows").into_index().expect("by position");
        let starts = (0..windows.len()).map(|i| {
            let window = windows.get(i);
            let time = window.ranges().find(|(dim, _)| *dim == "time").expect("cut").1;
            time.start
        });
        starts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(times(0, 7), [0, 2, 4]);
    assert_eq!(times(7, 12), [7, 9]);
    let run = Pipeline::from(split(7, 12).expect("windows"))
        .then(flow::shuffle(1).by_chunks(None))
        .then(flow::batch(3))
        .then(io::map("fetch", zarr::fetch))
        .then(cpu::map("decode", zarr::decode(&Pool::default())))
        .run()
        .expect("runs");
    let mut windows = 0;
    for batch in run {
        let batch = batch.expect("no fault");
        for (sample, window) in batch.windows().iter().enumerate() {
            let start = |dim| window.ranges().find(|(name, _)| *name == dim).expect("cut").1.start;
            let view = batch.get("u10").expect("there").view::<f32>();
            let view = view.index_axis(ndarray::Axis(0), sample);
            assert_eq!(view.shape(), [2, 35, 25]);
            for (at, got) in view.indexed_iter() {
                let (t, y, x) = (at[0] as u64, at[1] as u64, at[2] as u64);
                assert_eq!(*got, value(1, start("time") + t, 5 + y, start("x") + x, 60));
            }
            windows += 1;
        }
    }
    assert_eq!(windows, 4);
    let refused = split(7, 13).expect_err("too long").to_string();
    assert!(refused.contains("`time`") && refused.contains("7..13"), "{refused}");
}
