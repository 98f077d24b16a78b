//! Stores of different resolution in one sample: of the other store the nearest entries are taken,
//! and every value is compared with the one at the place that is nearest by hand.

use forebay::prelude::*;
use forebay::zarr::{Align, Also, ByDim, Edge, Edges, Span, Tolerance};
use serde_json::{Value, json};

use crate::fixture::{batches, coordinate, files, numbered, spec};

const HOURS: u64 = 36;
const LAT: u64 = 9;
const LON: u64 = 16;

struct Coordinates {
    time: (Vec<f64>, Value),
    latitude: Vec<f64>,
    longitude: Vec<f64>,
}

/// A store of one variable `v` with the given coordinates; each element is its row-major index.
fn store(at: &Coordinates) -> tempfile::TempDir {
    let lengths = [at.time.0.len(), at.latitude.len(), at.longitude.len()].map(|n| n as u64);
    let dims = ["time", "latitude", "longitude"];
    let dims: Vec<_> = dims.into_iter().zip(lengths).collect();
    let mut objects = numbered(&dims);
    coordinate(&mut objects, "time", &at.time.0, &at.time.1);
    coordinate(&mut objects, "latitude", &at.latitude, &json!({ "units": "degrees_north" }));
    coordinate(&mut objects, "longitude", &at.longitude, &json!({ "units": "degrees_east" }));
    files(&objects)
}

fn hours(since: &str, calendar: &str) -> Value {
    json!({ "units": format!("hours since {since}"), "calendar": calendar })
}

fn steps(first: f64, step: f64, len: u64) -> Vec<f64> {
    (0..len).map(|i| first + step * i as f64).collect()
}

/// Hourly, every 22.5 degrees from 90 north, every 22.5 degrees from 0 east.
fn fine() -> Coordinates {
    Coordinates {
        time: (steps(0.0, 1.0, HOURS), hours("2000-01-01", "standard")),
        latitude: steps(90.0, -22.5, LAT),
        longitude: steps(0.0, 22.5, LON),
    }
}

/// Every six hours from half past the hour, other latitudes from the south, longitudes from -180.
fn coarse() -> Coordinates {
    Coordinates {
        time: (steps(30.0, 360.0, 6), json!({ "units": "minutes since 2000-01-01" })),
        latitude: steps(-80.0, 40.0, 5),
        longitude: steps(-180.0, 60.0, 6),
    }
}

/// The nearest of `there` by looking at each, the lower one of two that are as near.
fn nearest(value: f64, there: &[f64], around: bool) -> usize {
    let apart = |other: f64| {
        let by = (value - other).abs();
        if around { (by % 360.0).min(360.0 - by % 360.0) } else { by }
    };
    let mut best = (0..there.len()).collect::<Vec<_>>();
    let turned = |value: f64| if around { (value - there[0]).rem_euclid(360.0) } else { value };
    let below = |at: &usize| f64::from(u8::from(turned(there[*at]) > turned(value)));
    best.sort_by(|a, b| {
        apart(there[*a]).total_cmp(&apart(there[*b])).then(below(a).total_cmp(&below(b)))
    });
    best[0]
}

fn opened(folder: &tempfile::TempDir) -> Store {
    Store::open(folder.path().to_str().expect("UTF-8")).expect("opens")
}

fn beside(folder: &tempfile::TempDir, also: Also, window: &[(&str, u64)]) -> WindowsSpec {
    let store = Some(folder.path().to_str().expect("UTF-8").to_owned());
    let also = Also { store, align: Align::Nearest, ..also };
    WindowsSpec { also: [("coarse".to_owned(), also)].into(), ..spec(&["v"], window) }
}

/// The values of both tensors in each window.
fn both(store: &Store, spec: &WindowsSpec, size: usize) -> Vec<[Vec<f64>; 2]> {
    let mut all = Vec::new();
    for batch in batches(store, spec, size).run().expect("runs") {
        let batch = batch.expect("no fault");
        let tensors = ["v", "coarse/v"].map(|name| batch.get(name).expect("there"));
        assert_eq!(tensors[0].spec().shape, tensors[1].spec().shape);
        let of = |tensor: &Tensor, window: usize| {
            let elements = tensor.elements::<f64>();
            let each = elements.len() / batch.len();
            elements[window * each..(window + 1) * each].to_vec()
        };
        all.extend((0..batch.len()).map(|i| tensors.map(|tensor| of(tensor, i))));
    }
    all
}

/// What the coarse tensor has where the fine one has the element `index`, `later` hours later.
fn expected(index: f64, fine: &Coordinates, coarse: &Coordinates, later: usize) -> f64 {
    let index = index as usize;
    let (t, i, j) = (index / 144 + later, index / 16 % 9, index % 16);
    let minutes: Vec<_> = coarse.time.0.clone();
    let t = nearest(fine.time.0[t] * 60.0, &minutes, false);
    let i = nearest(fine.latitude[i], &coarse.latitude, false);
    let j = nearest(fine.longitude[j], &coarse.longitude, true);
    ((t * coarse.latitude.len() + i) * coarse.longitude.len() + j) as f64
}

#[test]
fn a_coarser_store_is_read_at_the_nearest_places() {
    let (fine, coarse) = (fine(), coarse());
    let (here, there) = (store(&fine), store(&coarse));
    let here = opened(&here);
    for (window, count) in [
        (vec![("time", 1)], 36),
        (vec![("time", 5), ("latitude", 4), ("longitude", 7)], 7 * 2 * 2),
        (vec![("latitude", 9)], 1),
    ] {
        for size in [1, 4] {
            let spec = beside(&there, Also::default(), &window);
            let windows = both(&here, &spec, size);
            assert_eq!(windows.len(), count, "{window:?}");
            for [own, other] in &windows {
                let want: Vec<_> =
                    own.iter().map(|index| expected(*index, &fine, &coarse, 0)).collect();
                assert_eq!(*other, want, "{window:?} in batches of {size}");
            }
        }
    }
}

#[test]
fn other_windows_lie_at_the_coordinates_of_the_samples_store() {
    let (fine, coarse) = (fine(), coarse());
    let (here, there) = (store(&fine), store(&coarse));
    let later = Also { offset: [("time", 7)].into(), ..Also::default() };
    let around = WindowsSpec {
        edges: Edges::Each([("longitude".to_owned(), Edge::Wrap)].into()),
        ..beside(&there, later, &[("time", 2), ("longitude", 10)])
    };
    let windows = both(&opened(&here), &around, 3);
    assert_eq!(windows.len(), 14 * 2);
    for [own, other] in &windows {
        let want: Vec<_> = own.iter().map(|index| expected(*index, &fine, &coarse, 7)).collect();
        assert_eq!(*other, want);
    }
}

/// The other way around: of a finer store only what is nearest is read.
#[test]
fn of_a_finer_store_the_chunks_between_are_not_read() {
    let sparse =
        Coordinates { time: (steps(0.0, 12.0, 3), hours("2000-01-01", "standard")), ..fine() };
    let (here, there) = (store(&sparse), store(&fine()));
    let spec = beside(&there, Also::default(), &[("time", 3)]);
    let windows = both(&opened(&here), &spec, 1);
    let want = [0, 12, 24].into_iter().flat_map(|t| t * 144..(t + 1) * 144);
    let want: Vec<_> = want.map(f64::from).collect();
    assert_eq!(windows[0][1], want);
}

#[test]
fn a_plan_says_how_far_away_they_are() {
    let (here, there) = (store(&fine()), store(&coarse()));
    let spec = beside(&there, Also::default(), &[("time", 1)]);
    let windows = Pipeline::from(zarr::windows(&opened(&here), &spec).expect("windows"));
    let plan = windows.then(flow::batch(1));
    let plan = zarr::plan(plan.index().expect("by position")).expect("planned");
    let nearest: Vec<_> = plan.variables[1].nearest.iter().map(|(d, far)| (&**d, &**far)).collect();
    // 35:00 is four and a half hours behind 30:30; 22.5 north lies between 0 and 40.
    assert_eq!(nearest, [("latitude", "17.5"), ("longitude", "30"), ("time", "270min")]);
    assert!(plan.variables[0].nearest.is_empty());
    // The eight chunks of each store, each once: what is repeated is not fetched again.
    assert_eq!((plan.chunks, plan.fetched), (16, 16));
}

#[test]
fn what_is_too_far_away_is_named() {
    let (here, there) = (store(&fine()), store(&coarse()));
    let here = opened(&here);
    let tolerance =
        |dim: &str, most| Also { tolerance: ByDim::from([(dim, most)]), ..Also::default() };
    let told = |spec: &WindowsSpec| zarr::windows(&here, spec).expect_err("refused").to_string();
    let short = beside(&there, tolerance("time", Tolerance::Seconds(7200.0)), &[("time", 1)]);
    let text = told(&short);
    let says =
        "the nearest to 2000-01-01T03:00 is 2000-01-01T00:30, 150min away, and at most 2h is";
    assert!(text.contains("`time`") && text.contains(says), "{text}");
    // Only what is read counts.
    let some =
        WindowsSpec { range: [("time".to_owned(), Span { start: 0, end: 3 })].into(), ..short };
    assert!(zarr::windows(&here, &some).is_ok());
    let text = told(&beside(&there, tolerance("time", Tolerance::Number(2.0)), &[("time", 1)]));
    assert!(text.contains("its `tolerance` is no time: write `3h`"), "{text}");
    let text = told(&beside(&there, tolerance("level", Tolerance::Number(2.0)), &[("time", 1)]));
    assert!(text.contains("no variable has a dimension `level`"), "{text}");
    // Another year: each is farther away than neighbours are.
    let year =
        Coordinates { time: (steps(0.0, 6.0, 6), hours("2001-01-01", "standard")), ..coarse() };
    let text = told(&beside(&store(&year), Also::default(), &[("time", 1)]));
    assert!(text.contains("the nearest to 2000-01-01 is 2001-01-01, 366d away"), "{text}");
    // Other calendars have other days.
    let days =
        Coordinates { time: (steps(0.0, 6.0, 6), hours("2000-01-01", "noleap")), ..coarse() };
    let text = told(&beside(&store(&days), Also::default(), &[("time", 1)]));
    assert!(text.contains("their calendars differ: standard and noleap"), "{text}");
}

#[test]
fn an_alignment_that_means_nothing_is_refused() {
    let here = store(&fine());
    let here = opened(&here);
    let told = |also: Also| {
        let also = [("rain".to_owned(), also)].into();
        let spec = WindowsSpec { also, ..spec(&["v"], &[("time", 1)]) };
        zarr::windows(&here, &spec).expect_err("refused").to_string()
    };
    let text = told(Also { align: Align::Nearest, ..Also::default() });
    assert!(text.contains("`rain`") && text.contains("give its `store`"), "{text}");
    let tolerance = ByDim::from([("time", Tolerance::Seconds(1.0))]);
    let text = told(Also { tolerance, ..Also::default() });
    assert!(text.contains("a `tolerance` is for `align: nearest`"), "{text}");
}
