//! A subscriber of one's own: lines for people on stderr and, at the same time, JSON lines for
//! programs on stdout, each with a filter of its own. Events from inside a call carry the span of
//! the call (`forebay.item`) and of its stage (`forebay.stage`).
//!
//!     cargo run --example telemetry
//!     FOREBAY_LOG=forebay::stage=debug cargo run --example telemetry > telemetry.jsonl
//!     FOREBAY_JSON=off FOREBAY_LOG=info,forebay::item=trace cargo run --example telemetry
//!
//! What to set, in either variable:
//!
//! | filter | shows |
//! |---|---|
//! | `info` | your own events, with the stage that they came from |
//! | `info,forebay::item=trace` | and with the item, its attempt and its worker |
//! | `forebay::item=debug` | calls that failed and are tried again, and items that were skipped |
//! | `forebay::stage=debug` | what each stage did, when it ends |
//! | `forebay::stall=info` | what a run waits for in which nothing moves |

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use forebay::prelude::*;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry};

/// Fails once, as stores do.
async fn fetch(key: u64) -> std::io::Result<Vec<u8>> {
    static FAILED: AtomicBool = AtomicBool::new(false);
    tokio::time::sleep(Duration::from_millis(2)).await;
    if key == 3 && !FAILED.swap(true, Relaxed) {
        return Err(std::io::Error::other("the store is busy"));
    }
    tracing::info!(key, "fetched");
    Ok(vec![key as u8; 1000])
}

fn decode(bytes: Vec<u8>) -> Result<u64, Never> {
    let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
    tracing::info!(sum, "decoded");
    Ok(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = |variable, default: &str| {
        EnvFilter::try_from_env(variable).unwrap_or_else(|_| EnvFilter::new(default))
    };
    let people = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(filter("FOREBAY_LOG", "info,forebay::item=debug"));
    let programs = fmt::layer()
        .json()
        .with_writer(std::io::stdout)
        .with_filter(filter("FOREBAY_JSON", "info,forebay::item=trace,forebay::stage=debug"));
    Registry::default().with(people).with(programs).init();

    let stats = Pipeline::from(source::iter("keys", 0..8_u64))
        .then(io::map("fetch", fetch).workers(4).retry(Retry::times(3)))
        .then(cpu::map("decode", decode).workers(2))
        .run()?
        .drain()?;
    assert_eq!((stats.items, stats.stages[1].retries), (8, 1));
    Ok(())
}
