//! Samples as people train on them: pairs of windows, chosen by coordinates, split, filled up at the
//! edges or going around the globe. Every value is compared with what its place says.

use forebay::prelude::*;
use forebay::zarr::{Also, Edge, Edges, Labels, Split};
use serde_json::json;

use crate::fixture::{Objects, batches, coordinate, files, numbered, spec, write};

const TIME: u64 = 12;
const LAT: u64 = 5;
const LON: u64 = 8;

/// `v` over 12 days of a year without leap days, latitudes from 60 to -60 and longitudes from 0 to
/// 315. Each element is its row-major index.
fn globe() -> Objects {
    let mut objects = numbered(&[("time", TIME), ("latitude", LAT), ("longitude", LON)]);
    let days = json!({ "units": "days since 1999-12-30", "calendar": "noleap" });
    let time: Vec<_> = (0..TIME).map(|day| day as f64).collect();
    coordinate(&mut objects, "time", &time, &days);
    let latitude: Vec<_> = (0..LAT).map(|i| 60.0 - 30.0 * i as f64).collect();
    coordinate(&mut objects, "latitude", &latitude, &json!({ "units": "degrees_north" }));
    let longitude: Vec<_> = (0..LON).map(|i| 45.0 * i as f64).collect();
    coordinate(&mut objects, "longitude", &longitude, &json!({ "units": "degrees_east" }));
    objects
}

/// The elements of a block, by their places; those beyond the data are -1.
fn block(time: &[i64], lat: &[i64], lon: &[i64]) -> Vec<f64> {
    let index = |at: i64, len: u64| (0..len as i64).contains(&at).then_some(at as u64);
    let mut values = Vec::new();
    for t in time {
        for i in lat {
            for j in lon {
                let place = || Some((index(*t, TIME)?, index(*i, LAT)?, index(*j, LON)?));
                let value = place().map(|(t, i, j)| ((t * LAT + i) * LON + j) as f64);
                values.push(value.unwrap_or(-1.0));
            }
        }
    }
    values
}

/// The values of `tensor` in each window, in order, with -1 for NaN.
fn values(store: &Store, spec: &WindowsSpec, size: usize, tensor: &str) -> Vec<Vec<f64>> {
    let mut all = Vec::new();
    for batch in batches(store, spec, size).run().expect("runs") {
        let batch = batch.expect("no fault");
        let tensor = batch.get(tensor).expect("there");
        let elements = tensor.elements::<f64>();
        for window in elements.chunks(elements.len() / batch.len()) {
            all.push(window.iter().map(|x| if x.is_nan() { -1.0 } else { *x }).collect());
        }
    }
    all
}

fn all(len: u64) -> Vec<i64> {
    (0..len as i64).collect()
}

fn globe_store() -> (tempfile::TempDir, Store) {
    let folder = files(&globe());
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    (folder, store)
}

fn labels(text: &str) -> Labels {
    text.parse().expect("labels")
}

#[test]
fn a_target_lies_behind_its_input() {
    let (_folder, store) = globe_store();
    let target =
        Also { offset: [("time", 2)].into(), window: [("time", 1)].into(), ..Also::default() };
    let before = Also { offset: [("time", -3)].into(), ..Also::default() };
    let pairs = WindowsSpec {
        stride: [("time", 1)].into(),
        also: [("target".to_owned(), target), ("before".to_owned(), before)].into(),
        ..spec(&["v"], &[("time", 2)])
    };
    for size in [1, 4] {
        let input = values(&store, &pairs, size, "v");
        // From three before to one behind the two: six entries, so seven samples of twelve.
        assert_eq!(input.len(), 7);
        let (target, before) =
            (values(&store, &pairs, size, "target/v"), values(&store, &pairs, size, "before/v"));
        for (i, start) in (3..10).enumerate() {
            let at = |time: &[i64]| block(time, &all(LAT), &all(LON));
            assert_eq!(input[i], at(&[start, start + 1]), "input {i}");
            assert_eq!(target[i], at(&[start + 2]), "target {i}");
            assert_eq!(before[i], at(&[start - 3, start - 2]), "before {i}");
        }
    }
}

#[test]
fn a_part_is_normalized_as_its_variable_is() {
    let (_folder, store) = globe_store();
    let target = Also { offset: [("time", 1)].into(), ..Also::default() };
    let pairs = WindowsSpec {
        also: [("target".to_owned(), target)].into(),
        ..spec(&["v"], &[("time", 1)])
    };
    let of = |mean| ops::MeanStd { mean, std: 2.0 };
    let first = |stats: &[(&str, f64)]| {
        let stats = stats.iter().map(|(name, mean)| ((*name).to_owned(), of(*mean))).collect();
        let mut run = batches(&store, &pairs, 1)
            .then(cpu::map("normalize", ops::normalize(ops::Stats::Given(stats))))
            .run()
            .expect("runs");
        let batch = run.next().expect("one").expect("no fault");
        batch.get("target/v").expect("there").elements::<f64>()[0]
    };
    assert_eq!(first(&[("v", 10.0)]), 15.0);
    assert_eq!(first(&[("v", 10.0), ("target/v", 0.0)]), 20.0);
}

/// However many parts of however many samples want a chunk, it is fetched once.
#[test]
fn parts_of_a_sample_share_their_chunks() {
    let (_folder, store) = globe_store();
    let target = Also { offset: [("time", 1)].into(), ..Also::default() };
    let pairs = WindowsSpec {
        also: [("target".to_owned(), target)].into(),
        ..spec(&["v"], &[("time", 1)])
    };
    assert_eq!(values(&store, &pairs, 2, "target/v").len(), 11);
    assert_eq!(store.stats().requests, 8, "2 x 2 x 2 chunks");
}

#[test]
fn windows_are_filled_up_at_the_edges() {
    let (_folder, store) = globe_store();
    let target = Also { offset: [("time", 3)].into(), ..Also::default() };
    let padded = WindowsSpec {
        edges: Edges::All(Edge::Pad),
        also: [("target".to_owned(), target)].into(),
        ..spec(&["v"], &[("time", 5), ("longitude", 3)])
    };
    let (input, target) = (values(&store, &padded, 4, "v"), values(&store, &padded, 4, "target/v"));
    assert_eq!(input.len(), 9);
    for (i, (t, x)) in (0..3).flat_map(|t| (0..3).map(move |x| (t * 5, x * 3))).enumerate() {
        let lon: Vec<i64> = (x..x + 3).collect();
        let time = |from: i64| (from..from + 5).collect::<Vec<_>>();
        assert_eq!(input[i], block(&time(t), &all(LAT), &lon), "input {i}");
        assert_eq!(target[i], block(&time(t + 3), &all(LAT), &lon), "target {i}");
    }
}

#[test]
fn short_windows_share_no_batch_with_others() {
    let (_folder, store) = globe_store();
    let short = WindowsSpec {
        edges: Edges::Each([("time".to_owned(), Edge::Short)].into()),
        ..spec(&["v"], &[("time", 5)])
    };
    let each = values(&store, &short, 1, "v");
    let whole = |time: std::ops::Range<i64>| block(&time.collect::<Vec<_>>(), &all(LAT), &all(LON));
    assert_eq!(each, [whole(0..5), whole(5..10), whole(10..12)]);
    let mut run = batches(&store, &short, 3).run().expect("runs");
    let fault = run.find_map(Result::err).expect("different extents").to_string();
    assert!(fault.contains("time 10..15") && fault.contains("`edges: pad`"), "{fault}");
}

#[test]
fn windows_go_around_the_globe() {
    let (_folder, store) = globe_store();
    let around = WindowsSpec {
        edges: Edges::Each([("longitude".to_owned(), Edge::Wrap)].into()),
        stride: [("longitude", 2)].into(),
        ..spec(&["v"], &[("time", 12), ("longitude", 7)])
    };
    let got = values(&store, &around, 4, "v");
    assert_eq!(got.len(), 4);
    for (i, start) in [0_i64, 2, 4, 6].into_iter().enumerate() {
        let lon: Vec<_> = (start..start + 7).map(|j| j % 8).collect();
        assert_eq!(got[i], block(&all(TIME), &all(LAT), &lon), "window {i}");
    }
}

#[test]
fn windows_are_chosen_by_coordinates() {
    let (_folder, store) = globe_store();
    let chosen = |select: &[(&str, &str)]| WindowsSpec {
        select: select.iter().map(|(dim, text)| ((*dim).to_owned(), labels(text))).collect(),
        ..spec(&["v"], &[("time", 1)])
    };
    let year = values(&store, &chosen(&[("time", "2000"), ("latitude", "-30..30")]), 4, "v");
    assert_eq!(year.len(), 10);
    assert_eq!(year[0], block(&[2], &[1, 2, 3], &all(LON)));
    // The days around the new year, in a calendar that knows no leap days.
    let days = values(&store, &chosen(&[("time", "1999-12-31..2000-01-01")]), 4, "v");
    assert_eq!(days, [1, 2].map(|day| block(&[day], &all(LAT), &all(LON))));
    // Across the meridian where the store begins, and by the other convention.
    let europe = values(&store, &chosen(&[("longitude", "-90..90")]), 4, "v");
    assert_eq!(europe[0], block(&[0], &all(LAT), &[6, 7, 0, 1, 2]));
    let whole = values(&store, &chosen(&[("longitude", "-180..180")]), 4, "v");
    assert_eq!(whole[0], block(&[0], &all(LAT), &[4, 5, 6, 7, 0, 1, 2, 3]));
    let equator = values(&store, &chosen(&[("latitude", "0"), ("longitude", "45")]), 4, "v");
    assert_eq!(equator[3], block(&[3], &[2], &[1]));
}

/// Another store: hours instead of days, from the fourth of `globe`'s days on for 11 days, and
/// longitudes from -180.
fn elsewhere(spoil: impl Fn(&str, &mut Vec<f64>)) -> tempfile::TempDir {
    let mut objects = numbered(&[("time", 11), ("latitude", LAT), ("longitude", LON)]);
    let hours = json!({ "units": "hours since 2000-01-02", "calendar": "365_day" });
    let mut time: Vec<_> = (0..11).map(|day| 24.0 * f64::from(day)).collect();
    let mut latitude: Vec<_> = (0..LAT).map(|i| 60.0 - 30.0 * i as f64).collect();
    let mut longitude: Vec<_> = (0..LON).map(|i| 45.0 * i as f64 - 180.0).collect();
    spoil("time", &mut time);
    spoil("latitude", &mut latitude);
    spoil("longitude", &mut longitude);
    coordinate(&mut objects, "time", &time, &hours);
    coordinate(&mut objects, "latitude", &latitude, &json!({ "units": "degrees_north" }));
    coordinate(&mut objects, "longitude", &longitude, &json!({ "units": "degrees_east" }));
    files(&objects)
}

fn with_rain(folder: &tempfile::TempDir, window: &[(&str, u64)]) -> WindowsSpec {
    let store = folder.path().to_str().expect("UTF-8").to_owned();
    let rain = Also { store: Some(store), ..Also::default() };
    WindowsSpec { also: [("rain".to_owned(), rain)].into(), ..spec(&["v"], window) }
}

#[test]
fn another_store_is_aligned_by_its_coordinates() {
    let (_folder, store) = globe_store();
    let other = elsewhere(|_, _| {});
    for size in [1, 3] {
        let both = with_rain(&other, &[("time", 2), ("longitude", 4)]);
        let (here, there) =
            (values(&store, &both, size, "v"), values(&store, &both, size, "rain/v"));
        // Days 3 to 11 are in both: nine of them, so four windows of two, at two longitudes.
        assert_eq!((here.len(), there.len()), (8, 8));
        for (i, (t, x)) in (0..4).flat_map(|t| [0, 4].map(|x| (3 + 2 * t, x))).enumerate() {
            let lon: Vec<_> = (x..x + 4).collect();
            assert_eq!(here[i], block(&[t, t + 1], &all(LAT), &lon), "{i}");
            // The other store's first day is the fourth one, its first longitude half way around.
            let lon: Vec<_> = lon.iter().map(|j| (j + 4) % 8).collect();
            assert_eq!(there[i], block(&[t - 3, t - 2], &all(LAT), &lon), "{i}");
        }
    }
    // Whole fields: the longitudes of the other store are put in the sample's order.
    let whole = with_rain(&other, &[("time", 1)]);
    let there = values(&store, &whole, 2, "rain/v");
    assert_eq!(there[0], block(&[0], &all(LAT), &[4, 5, 6, 7, 0, 1, 2, 3]));
    // A plan predicts the requests of both stores.
    let windows = Pipeline::from(zarr::windows(&store, &whole).expect("windows"));
    let plan = windows.then(flow::batch(2));
    let plan = zarr::plan(plan.index().expect("by position")).expect("planned");
    assert_eq!((plan.windows, plan.chunks, plan.fetched), (9, 16, 16));
    // Around the globe, too.
    let around = WindowsSpec {
        edges: Edges::Each([("longitude".to_owned(), Edge::Wrap)].into()),
        ..with_rain(&other, &[("time", 9), ("longitude", 6)])
    };
    let there = values(&store, &around, 2, "rain/v");
    assert_eq!(there[1], block(&all(9), &all(LAT), &[2, 3, 4, 5, 6, 7]));
}

#[test]
fn stores_that_can_not_be_aligned_are_refused() {
    let (_folder, store) = globe_store();
    let told = |spoil: &dyn Fn(&str, &mut Vec<f64>)| {
        let other = elsewhere(spoil);
        let both = with_rain(&other, &[("time", 2)]);
        zarr::windows(&store, &both).expect_err("refused").to_string()
    };
    let change = |dim: &'static str, at: usize, by: f64| {
        move |name: &str, values: &mut Vec<f64>| {
            if name == dim {
                values[at] += by;
            }
        }
    };
    let text = told(&change("time", 5, 1.0));
    let says = "where the one has 2000-01-07, the other has 2000-01-07T01:00";
    assert!(text.contains("`time`") && text.ends_with(says), "{text}");
    assert!(told(&change("latitude", 0, 10.0)).contains("where the one has 60, the other has 70"));
    assert!(told(&change("longitude", 3, 5.0)).contains("can't be aligned"));
    let later = |name: &str, values: &mut Vec<f64>| {
        if name == "time" {
            values.iter_mut().for_each(|hour| *hour += 24.0 * 365.0);
        }
    };
    assert!(told(&later).contains("can't be aligned"));
}

/// The coordinates of a variable in a group lie beside it, or in a group above.
#[test]
fn coordinates_are_found_in_groups() {
    let mut objects = Objects::new();
    for (key, bytes) in globe() {
        let place = match key.split('/').next() {
            Some("v" | "longitude") => format!("deep/down/{key}"),
            Some("latitude") => format!("deep/{key}"),
            _ => key,
        };
        objects.insert(place, bytes);
    }
    let folder = files(&objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let select = [("time", "2000-01-02"), ("latitude", "0..60"), ("longitude", "45..90")];
    let chosen = WindowsSpec {
        select: select.map(|(dim, text)| (dim.to_owned(), labels(text))).into(),
        ..spec(&["deep/down/v"], &[])
    };
    let got = values(&store, &chosen, 1, "deep/down/v");
    assert_eq!(got, [block(&[3], &[0, 1, 2], &[1, 2])]);
}

#[test]
fn a_split_is_contiguous_and_no_window_reaches_over_its_borders() {
    let (_folder, store) = globe_store();
    let part = |take: &str| {
        let parts = [("train", 0.5), ("valid", 0.25), ("test", 0.25)];
        let parts = parts.map(|(name, share)| (name.to_owned(), share)).to_vec();
        let split = Split { by: "time".into(), parts, take: take.into() };
        let target = Also { offset: [("time", 1)].into(), ..Also::default() };
        let split = WindowsSpec {
            split: Some(split),
            also: [("target".to_owned(), target)].into(),
            ..spec(&["v"], &[("time", 1)])
        };
        let mut days = Vec::new();
        for tensor in ["v", "target/v"] {
            let windows = values(&store, &split, 4, tensor);
            days.extend(windows.iter().map(|window| window[0] as u64 / (LAT * LON)));
        }
        days.sort_unstable();
        days.dedup();
        days
    };
    assert_eq!(part("train"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(part("valid"), [6, 7, 8]);
    assert_eq!(part("test"), [9, 10, 11]);
}

/// A mask over latitude and longitude: an irregular one.
fn is_land(i: i64, j: i64) -> bool {
    (i * i + 2 * j + j * j) % 5 < 2
}

fn with_land(folder: &tempfile::TempDir) {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [LAT, LON], "data_type": "uint8",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [2, 3] } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": 9,
        "codecs": [{ "name": "bytes" }], "dimension_names": ["latitude", "longitude"],
    });
    let json = serde_json::to_vec(&metadata).expect("JSON");
    write(folder.path(), "land/zarr.json", &json);
    for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
        let cells = (0..6).map(|at| u8::from(is_land(i * 2 + at / 3, j * 3 + at % 3)));
        write(folder.path(), &format!("land/c/{i}/{j}"), &cells.collect::<Vec<_>>());
    }
}

#[test]
fn windows_are_kept_by_a_mask_before_they_are_read() {
    let (folder, store) = globe_store();
    with_land(&folder);
    for (edge, share) in [(Edge::Drop, 0.5), (Edge::Wrap, 0.5), (Edge::Pad, 0.3), (Edge::Drop, 0.2)]
    {
        let keep = zarr::Keep { variable: "land".into(), min: Some(1.0), max: None, share };
        let kept = WindowsSpec {
            edges: Edges::Each([("longitude".to_owned(), edge)].into()),
            stride: [("longitude", 1)].into(),
            keep: Some(keep),
            ..spec(&["v"], &[("time", 4), ("latitude", 2), ("longitude", 3)])
        };
        let mut want = Vec::new();
        for t in (0..3).map(|t| t * 4) {
            for i in [0, 2] {
                for j in 0..if edge == Edge::Drop { 6 } else { 8 } {
                    let lon: Vec<_> = match edge {
                        Edge::Wrap => (j..j + 3).map(|j| j % 8).collect(),
                        _ => (j..j + 3).collect(),
                    };
                    let cells =
                        [i, i + 1].into_iter().flat_map(|i| lon.iter().map(move |j| (i, *j)));
                    let land = cells.filter(|(i, j)| *j < LON as i64 && is_land(*i, *j)).count();
                    if land as f64 / 6.0 >= share {
                        want.push(block(&(t..t + 4).collect::<Vec<_>>(), &[i, i + 1], &lon));
                    }
                }
            }
        }
        let got = values(&store, &kept, 4, "v");
        assert!(got.len() > 2 && got.len() < if edge == Edge::Drop { 37 } else { 48 }, "{edge:?}");
        assert_eq!(got, want, "{edge:?} {share}");
        // Ranks share what is kept, and a plan counts it.
        let windows = || Pipeline::from(zarr::windows(&store, &kept).expect("windows"));
        for rank in 0..2 {
            let share = windows().then(flow::shard(rank, 2));
            assert_eq!(share.len_known(), Some(got.len() as u64 / 2));
        }
        let plan = windows().then(flow::batch(4));
        let plan = zarr::plan(plan.index().expect("by position")).expect("planned");
        let all = 3 * 2 * if edge == Edge::Drop { 6 } else { 8 };
        assert_eq!((plan.windows, plan.windows + plan.left_out), (got.len() as u64, all));
        // A shuffle by chunks gives each of them once.
        let number = |window: Result<Window, _>| window.expect("no fault").number();
        let mut in_order = windows().run().expect("runs");
        let in_order: std::collections::BTreeSet<_> = in_order.by_ref().map(number).collect();
        let mut run = windows().then(flow::shuffle(1).by_chunks(None)).run().expect("runs");
        let shuffled: Vec<_> = run.by_ref().map(number).collect();
        assert_eq!(shuffled.len(), got.len());
        assert_eq!(shuffled.into_iter().collect::<std::collections::BTreeSet<_>>(), in_order);
    }
}

#[test]
fn a_mask_that_can_not_be_meant_is_refused() {
    let (folder, store) = globe_store();
    with_land(&folder);
    let told = |variable: &str, min: f64, share: f64| {
        let keep = zarr::Keep { variable: variable.into(), min: Some(min), max: None, share };
        let spec = WindowsSpec { keep: Some(keep), ..spec(&["time"], &[("time", 1)]) };
        zarr::windows(&store, &spec).expect_err("refused").to_string()
    };
    assert!(told("lend", 1.0, 0.5).contains("did you mean `land`?"));
    assert!(told("land", 1.0, 0.5).contains("no variable has a dimension `latitude`"));
    assert!(told("time", 99.0, 0.5).contains("none of the 12 places"));
    assert!(told("time", 0.0, 0.0).contains("write more than 0"));
}

#[test]
fn values_come_in_the_type_that_is_asked_for() {
    let (_folder, store) = globe_store();
    for window in [6, 5] {
        let single = WindowsSpec { dtype: Some(DType::F32), ..spec(&["v"], &[("time", window)]) };
        for batch in batches(&store, &single, 2).run().expect("runs") {
            let batch = batch.expect("no fault");
            let tensor = batch.get("v").expect("there");
            let want = (0..tensor.elements::<f32>().len()).map(|i| i as f32);
            assert!(tensor.elements::<f32>().iter().copied().eq(want));
        }
    }
}

#[test]
fn what_can_not_be_meant_is_refused_with_what_would_do() {
    let (folder, store) = globe_store();
    let base = || spec(&["v"], &[("time", 2)]);
    let told = |spec: WindowsSpec| zarr::windows(&store, &spec).expect_err("refused").to_string();
    let select = |dim: &str, text: &str| WindowsSpec {
        select: [(dim.to_owned(), labels(text))].into(),
        ..base()
    };
    assert_eq!(
        told(select("time", "2019")),
        "the window in `time` has no entries in 2019: its coordinates go from 1999-12-30 to \
         2000-01-10"
    );
    assert!(told(select("latitude", "80..90")).ends_with("go from 60 to -60"));
    assert!(told(select("time", "soon")).contains("write `2019`, `2019-06`"));
    assert!(told(select("latitud", "0")).ends_with("did you mean `latitude`?"));
    let both = WindowsSpec {
        range: [("time".to_owned(), (0..4).into())].into(),
        ..select("time", "2000")
    };
    assert!(told(both).contains("give one of them"));
    let also = |also: Also| WindowsSpec { also: [("target".to_owned(), also)].into(), ..base() };
    let far = Also { offset: [("time", 11)].into(), ..Also::default() };
    assert!(told(also(far)).contains("reaches over 13 entries with those of `also`, of 12"));
    let elsewhere = Also { offset: [("latitude", 1)].into(), ..Also::default() };
    assert!(told(also(elsewhere)).contains("add it to `window`"));
    let absurd = Also { offset: [("time", i64::MIN)].into(), ..Also::default() };
    assert!(told(also(absurd)).contains("the window in `time`"));
    for name in ["", "a/b"] {
        let named = WindowsSpec { also: [(name.to_owned(), Also::default())].into(), ..base() };
        assert!(told(named).contains("a name of its own"));
    }
    let twice = WindowsSpec { variables: vec!["v".into(), "v".into()], ..base() };
    assert!(told(twice).contains("would be named `v`"));
    let edges = |dim: &str, edge| Edges::Each([(dim.to_owned(), edge)].into());
    assert!(told(WindowsSpec { edges: edges("tme", Edge::Pad), ..base() }).contains("`tme`"));
    let wrapped = WindowsSpec { edges: edges("time", Edge::Wrap), ..select("time", "2000") };
    assert!(told(wrapped).contains("wraps around"));
    let split = |parts: &[(&str, f64)], take: &str| WindowsSpec {
        split: Some(Split {
            by: "time".into(),
            parts: parts.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect(),
            take: take.into(),
        }),
        ..base()
    };
    assert!(told(split(&[("train", 0.8)], "trian")).contains("there are `train`"));
    assert!(
        told(split(&[("train", 0.8), ("valid", 0.5)], "valid")).contains("more than the whole")
    );
    assert!(told(split(&[("train", 0.01)], "train")).contains("gets none of its 12 entries"));
    assert!(told(WindowsSpec { dtype: Some(DType::Bool), ..base() }).contains("as bool"));
    std::fs::remove_file(folder.path().join("latitude/zarr.json")).expect("there");
    assert!(told(select("latitude", "0")).contains("choose entries with `range`"));
    write(folder.path(), "time/c/0", &[1, 2, 3]);
    assert!(told(select("time", "2000")).contains("time/c/0"));
}
