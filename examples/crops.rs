//! Crops out of whole fields, as patch-based models train on them: each field is one chunk, and 55
//! crops are cut from it. Shuffled in three ways, so that it shows what fetching and decoding each
//! chunk once is worth; then chunks that 1 to 32 windows share. Prints one JSON line for each.
//!
//!     cargo run --release --example crops
#![expect(clippy::print_stdout, reason = "an example tells what it found")]

use std::time::Instant;

use forebay::prelude::*;
use forebay::zarr::Extents;
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

/// The store, and memory to decode into, which all passes recycle.
struct Bench {
    store: Store,
    pool: Pool,
    runs: usize,
}

/// One pass over all windows; gives windows per second, requests and bytes delivered.
fn pass(
    bench: &Bench,
    spec: &WindowsSpec,
    order: Option<flow::Shuffle<Window>>,
    batch: usize,
) -> Result<[f64; 4], Failure> {
    let Bench { store, pool, .. } = bench;
    let before = store.stats().requests;
    let windows = Pipeline::from(zarr::windows(store, spec)?);
    let windows = match order {
        Some(order) => windows.then(order),
        None => windows,
    };
    let start = Instant::now();
    let mut run = windows
        .then(flow::batch(batch))
        .then(io::map("fetch", zarr::fetch).workers(8).buffer(4))
        .then(cpu::map("decode", zarr::decode(pool)).buffer(4))
        .then(device::upload(&device::host()).buffer(2))
        .run()?;
    let (mut crops, mut bytes) = (0, 0);
    for batch in run.by_ref() {
        let batch = batch?;
        crops += batch.len();
        bytes += batch.bytes();
    }
    let seconds = start.elapsed().as_secs_f64();
    run.close();
    let requests = store.stats().requests - before;
    let per_window = bytes as f64 / crops.max(1) as f64;
    Ok([crops as f64 / seconds, bytes as f64 / seconds / 1e6, requests as f64, per_window])
}

/// Peak memory of this process, in MB; rises only.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib * 1024.0 / 1e6)
}

fn report(
    what: &str,
    bench: &Bench,
    mut once: impl FnMut() -> Result<[f64; 4], Failure>,
) -> Result<(), Failure> {
    let mut runs = (0..bench.runs).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [rate, mb, requests, per_window] = runs[runs.len() / 2];
    let line = json!({
        "what": what,
        "windows_per_s": rate.round(),
        "min_max": [runs[0][0].round(), runs[runs.len() - 1][0].round()],
        "mb_per_s": mb.round(),
        "requests": requests,
        "window_bytes": per_window,
        "peak_mb": peak_mb().round(),
    });
    println!("{line}");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let variables = if quick { vec!["t2m"] } else { vec!["t2m", "u10", "v10"] };
    let spec = |window: Extents, cache: Option<u64>| WindowsSpec {
        variables: variables.iter().map(|name| (*name).to_owned()).collect(),
        window,
        cache,
        ..WindowsSpec::default()
    };
    let bench = &Bench {
        store: Store::open("sample://era5")?,
        pool: Pool::default(),
        runs: if quick { 1 } else { 5 },
    };
    let order = |by_chunks| {
        let order = flow::shuffle(1);
        if by_chunks { order.by_chunks(None) } else { order }
    };
    for (sharing, rows) in [(1, 721), (2, 360), (4, 180), (8, 90), (16, 45), (32, 22)] {
        let window = Extents::from([("time", 1), ("latitude", rows)]);
        let spec = spec(window, Some(100 << 20));
        let what = format!("{sharing} windows to a chunk, shuffled by chunks");
        report(&what, bench, || pass(bench, &spec, Some(order(true)), 2 * sharing))?;
    }
    let crops = || Extents::from([("time", 1), ("latitude", 128), ("longitude", 128)]);
    let kept = spec(crops(), Some(100 << 20));
    report("crops in order, 100 MiB kept", bench, || pass(bench, &kept, None, 32))?;
    for (what, by_chunks) in [("by chunks, ", true), ("", false)] {
        let what = format!("crops shuffled {what}100 MiB kept");
        report(&what, bench, || pass(bench, &kept, Some(order(by_chunks)), 32))?;
    }
    if !quick {
        // What a loader does that takes one batch at a time.
        let bench = &Bench { store: bench.store.clone(), pool: bench.pool.clone(), runs: 1 };
        let none = spec(crops(), Some(0));
        report("crops shuffled, nothing kept", bench, || {
            pass(bench, &none, Some(order(false)), 32)
        })?;
    }
    Ok(())
}
