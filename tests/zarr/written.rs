//! Stores as zarr-python, numcodecs and tensorstore write them: every codec that people have is
//! read, or refused at open by its name. `tests/data/written.py` made them.

use std::io::Read as _;

use forebay::prelude::*;
use serde_json::Value;

use crate::fixture::{Objects, batches, files, spec};

/// What is not read, and what the refusal says.
const REFUSED: [(&str, &str); 4] = [
    ("zarr-python v3 numcodecs.delta", "`numcodecs.delta`"),
    ("zarr-python v3 numcodecs.lzma", "`numcodecs.lzma`"),
    ("zarr-python v2 delta", "`delta`"),
    ("zarr-python v2 lzma", "`lzma`"),
];

pub(crate) fn cases() -> Vec<Value> {
    let packed = include_bytes!("../data/written.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("gzip of UTF-8");
    let Value::Array(cases) = serde_json::from_str::<Value>(&text).expect("JSON")["cases"].take()
    else {
        panic!("a list of cases");
    };
    cases
}

pub(crate) fn objects(case: &Value) -> Objects {
    let byte = |pair: &[u8]| {
        u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")
    };
    let bytes = |hex: &Value| hex.as_str().expect("text").as_bytes().chunks(2).map(byte).collect();
    let objects = case["objects"].as_object().expect("objects").iter();
    objects.map(|(key, hex)| (key.clone(), bytes(hex))).collect()
}

/// Reads `v` as f64, in row-major order.
fn read(store: &Store, window: &[(&str, u64)]) -> Result<Vec<f64>, String> {
    let spec = WindowsSpec { dtype: Some(DType::F64), ..spec(&["v"], window) };
    zarr::windows(store, &spec).map_err(|error| error.to_string())?;
    let mut values = Vec::new();
    for batch in batches(store, &spec, 2).run().expect("runs") {
        let batch = batch.map_err(|fault| fault.to_string())?;
        values.extend_from_slice(batch.get("v").expect("there").elements::<f64>());
    }
    Ok(values)
}

#[test]
fn what_others_write_is_read() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 90, "{} cases", cases.len());
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let folder = files(&objects(case));
        let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
        let want: Vec<f64> = serde_json::from_value(case["values"].clone()).expect("numbers");
        for window in [&[][..], &[("time", 2)], &[("time", 3)]] {
            let refused = REFUSED.iter().find(|(refused, _)| name == *refused);
            match (read(&store, window), refused) {
                (Ok(got), None) if got == want => {}
                (Err(error), Some((_, says))) if error.contains(says) => {}
                (Ok(got), _) => wrong.push(format!("{name} {window:?}: {:?}", &got[..8])),
                (Err(error), _) => wrong.push(format!("{name} {window:?}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
