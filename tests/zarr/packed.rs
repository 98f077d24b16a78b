//! Packed variables come unpacked, with NaN for what is missing, whether their chunks lie whole in a
//! window, are cut by it, are shared by several, or are not there at all.

use forebay::prelude::*;
use serde_json::json;

use crate::fixture::{Objects, batches, files, spec, write};

const MISSING: i16 = -32767;

/// 6 x 10 numbers in chunks of 2 x 10; every seventh is missing, and so is the last chunk.
fn packed() -> Objects {
    let metadata = json!({
        "zarr_format": 2, "shape": [6, 10], "chunks": [2, 10], "dtype": ">i2",
        "compressor": null, "filters": null, "order": "C", "fill_value": MISSING,
    });
    let attributes = json!({
        "_ARRAY_DIMENSIONS": ["time", "x"], "scale_factor": 0.25, "add_offset": 100,
    });
    let mut objects = Objects::new();
    objects.insert(".zgroup".into(), br#"{"zarr_format": 2}"#.to_vec());
    objects.insert("t2m/.zarray".into(), serde_json::to_vec(&metadata).expect("JSON"));
    objects.insert("t2m/.zattrs".into(), serde_json::to_vec(&attributes).expect("JSON"));
    for chunk in 0..2_i16 {
        let values = (0..20).map(|i| chunk * 20 + i);
        let stored = values.map(|n| if n.rem_euclid(7) == 0 { MISSING } else { n });
        let bytes = stored.flat_map(i16::to_be_bytes).collect();
        objects.insert(format!("t2m/{chunk}.0"), bytes);
    }
    objects
}

fn expected(time: u64, x: u64) -> f32 {
    let n = time * 10 + x;
    if n.is_multiple_of(7) || time >= 4 { f32::NAN } else { 100.0 + n as f32 / 4.0 }
}

#[test]
fn packed_values_are_unpacked() {
    let folder = files(&packed());
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let windows: [&[(&str, u64)]; 4] =
        [&[("time", 2)], &[("time", 1)], &[("time", 3), ("x", 4)], &[]];
    for window in windows {
        for batch in [1, 3] {
            let run = batches(&store, &spec(&["t2m"], window), batch).run().expect("runs");
            for batch in run {
                let batch = batch.expect("no fault");
                let tensor = batch.get("t2m").expect("there");
                assert_eq!(tensor.spec().dtype, DType::F32);
                for (sample, window) in batch.windows().iter().enumerate() {
                    let start = |dim: &str| {
                        let range = window.ranges().find(|(name, _)| *name == dim);
                        range.map_or(0, |(_, range)| range.start)
                    };
                    let view = tensor.view::<f32>();
                    for (at, got) in view.index_axis(ndarray::Axis(0), sample).indexed_iter() {
                        let (time, x) = (start("time") + at[0] as u64, start("x") + at[1] as u64);
                        let want = expected(time, x);
                        assert!(*got == want || got.is_nan() && want.is_nan(), "{time} {x} {got}");
                    }
                }
            }
        }
    }
}

#[test]
fn attributes_that_are_no_numbers_are_refused() {
    let folder = files(&packed());
    write(folder.path(), "t2m/.zattrs", br#"{"scale_factor": "a half"}"#);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    let refused = zarr::windows(&store, &spec(&["t2m"], &[])).expect_err("no number");
    let text = refused.to_string();
    assert!(text.contains("t2m") && text.contains("`scale_factor` is \"a half\""), "{text}");
}
