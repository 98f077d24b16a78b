//! Self-checking data: a store in which order, pairing and content of every batch can be verified
//! from the values alone, read with overlapping windows while calls take uneven time.
//!
//! The value of variable `k` at step `t` and place `(i, j)` is `1000 (k + 1) + t + (i W + j) mod 97`.
//! So the first pixel tells the step, two variables always differ by exactly 1,000 and two steps by
//! exactly 1: a model that predicts the next step by the last one has a mean squared error of
//! exactly 1, in every batch.
//!
//!     cargo run --release --example self_checking
#![expect(clippy::print_stdout, reason = "an example tells what it found")]

use std::sync::Arc;
use std::time::Duration;

use forebay::prelude::*;
use object_store::{ObjectStoreExt as _, memory::InMemory};
use serde_json::json;

const STEPS: usize = 40;
const HEIGHT: usize = 24;
const WIDTH: usize = 36;

fn value(k: usize, t: usize, i: usize, j: usize) -> f32 {
    (1000 * (k + 1) + t + (i * WIDTH + j) % 97) as f32
}

/// Writes a store with one chunk for each step.
async fn write(objects: &InMemory) -> Result<(), object_store::Error> {
    for (k, name) in ["a", "b"].into_iter().enumerate() {
        let metadata = json!({
            "zarr_format": 3, "node_type": "array", "shape": [STEPS, HEIGHT, WIDTH],
            "data_type": "float32",
            "chunk_grid": {
                "name": "regular", "configuration": { "chunk_shape": [1, HEIGHT, WIDTH] },
            },
            "chunk_key_encoding": { "name": "default" },
            "fill_value": 0.0,
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "dimension_names": ["time", "y", "x"],
        });
        objects.put(&format!("{name}/zarr.json").into(), metadata.to_string().into()).await?;
        for t in 0..STEPS {
            let places = (0..HEIGHT).flat_map(|i| (0..WIDTH).map(move |j| (i, j)));
            let bytes: Vec<u8> =
                places.flat_map(|(i, j)| value(k, t, i, j).to_le_bytes()).collect();
            objects.put(&format!("{name}/c/{t}/0/0").into(), bytes.into()).await?;
        }
    }
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    objects.put(&"zarr.json".into(), group.to_string().into()).await?;
    Ok(())
}

/// Checks one batch from its values alone; gives the steps that its windows begin with.
fn verify(batch: &Batch) -> Vec<usize> {
    let (a, b) = (batch.get("a").expect("read"), batch.get("b").expect("read"));
    let (a, b) = (a.view::<f32>(), b.view::<f32>());
    (0..batch.len())
        .map(|sample| {
            let step = a[[sample, 0, 0, 0]] as usize - 1000;
            let mut error = 0.0;
            for t in 0..2 {
                for i in 0..HEIGHT {
                    for j in 0..WIDTH {
                        let at = [sample, t, i, j];
                        assert_eq!(a[at], value(0, step + t, i, j), "content");
                        assert_eq!(b[at] - a[at], 1000.0, "pairing");
                        error += (a[[sample, 1, i, j]] - a[[sample, 0, i, j]]).powi(2);
                    }
                }
            }
            assert_eq!(error, (2 * HEIGHT * WIDTH) as f32, "a mean squared error of 1");
            let began = batch.windows()[sample].ranges().next().expect("cut in time").1.start;
            assert_eq!(began as usize, step, "the window says what the values say");
            step
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let objects = Arc::new(InMemory::new());
    futures::executor::block_on(write(&objects))?;
    let store = Store::from_object_store("memory", objects, "")?;
    let spec = WindowsSpec {
        variables: ["a", "b"].map(String::from).into(),
        window: [("time", 2)].into(),
        overlap: [("time", 1)].into(),
        ..WindowsSpec::default()
    };
    let pool = Pool::default();
    let read =
        |seed: Option<u64>, workers: usize| -> Result<Vec<usize>, Box<dyn std::error::Error>> {
            let windows = Pipeline::from(zarr::windows(&store, &spec)?);
            let windows = match seed {
                Some(seed) => windows.then(flow::shuffle(seed)),
                None => windows,
            };
            let run = windows
                .then(flow::batch(5))
                .then(io::map("wait", async |windows: Vec<Window>| {
                    // Uneven waits: later batches overtake earlier ones on their way.
                    let micros = windows[0].number() * 7919 % 3000;
                    tokio::time::sleep(Duration::from_micros(micros)).await;
                    Ok::<_, Never>(windows)
                }))
                .then(io::map("fetch", zarr::fetch).workers(workers))
                .then(cpu::map("decode", zarr::decode(&pool)).workers(workers))
                .run()?;
            let mut steps = Vec::new();
            for batch in run {
                steps.extend(verify(&batch?));
            }
            Ok(steps)
        };
    assert!(read(None, 4)?.into_iter().eq(0..STEPS - 1), "in order, nothing lost or doubled");
    let shuffled = read(Some(1), 4)?;
    assert_eq!(shuffled, read(Some(1), 1)?, "the same order for any workers");
    let mut sorted = shuffled.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..STEPS - 1), "nothing lost or doubled");
    println!("{} windows verified from their values alone: {shuffled:?}", shuffled.len());
    Ok(())
}
