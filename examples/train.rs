//! The main job from Rust: an ERA5-like archive in shuffled, normalized batches on the device, with
//! the report of where the time went.
//!
//!     cargo run --release --example train
#![expect(clippy::print_stdout, reason = "an example tells what it found")]

use forebay::prelude::*;
use forebay::trace::{Delivered, report};

/// Stands for a training step: it looks at some values.
fn train(batch: &DeviceBatch) -> f32 {
    let t2m = batch.get("t2m").and_then(|tensor| tensor.as_host::<f32>());
    t2m.map_or(0.0, |values| values.iter().step_by(1000).sum())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open("sample://era5")?;
    let spec = WindowsSpec {
        variables: ["t2m", "u10", "v10"].map(String::from).into(),
        window: [("time", 1)].into(),
        ..WindowsSpec::default()
    };
    let pool = Pool::default();
    let mut run = Pipeline::from(zarr::windows(&store, &spec)?)
        .named("train")
        .then(flow::shuffle(42))
        .then(flow::batch(4))
        .then(flow::repeat(2)) // each epoch in an order of its own
        .then(io::map("fetch", zarr::fetch).workers(8).retry(Retry::times(3)))
        .then(cpu::map("decode", zarr::decode(&pool)).workers(Workers::Auto))
        .then(cpu::map("normalize", ops::normalize(ops::Stats::Auto)))
        .then(device::upload(&device::auto()).buffer(2))
        .run()?;
    let mut delivered = Delivered::default();
    let mut loss = 0.0;
    for batch in run.by_ref() {
        let batch = batch?;
        loss += train(&batch);
        delivered.items += batch.len() as u64;
        delivered.batches += 1;
    }
    let stats = run.close();
    println!("{}\nthe loss that this is not: {loss}", report(&stats, delivered));
    assert_eq!(delivered.items, 32);
    Ok(())
}
