//! What measuring costs: a meter that belongs to no run, used as a stage uses its own.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Meter;
use super::log::CallRecord;
use crate::item::ItemId;
use crate::stage::Kind;

/// What measuring costs on this machine for each item and stage: everything that a stage records
/// of a small item in a burst of 16, on a meter that belongs to no run.
pub fn measuring_cost() -> Duration {
    const BURST: usize = 16;
    const BURSTS: u32 = 20_000;
    let start = Instant::now();
    let meter = Meter::new("measured".to_owned(), Kind::Cpu, 2, start).with_places(2);
    let mut calls = Vec::with_capacity(BURST);
    let mut done = 0;
    for _ in 0..BURSTS {
        calls.clear();
        let mut from = Instant::now();
        meter.attempts.fetch_add(BURST as u64, Relaxed);
        meter.set([1, 1, 0, 0, 0], from);
        for _ in 0..BURST {
            let (id, attempt) = (ItemId::source(done), 1);
            meter.under_way[0].begin(done, id, attempt, None, meter.since_start(from));
            let now = Instant::now();
            let (from_ns, ns) = (meter.since_start(from), (now - from).as_nanos() as u64);
            let call = CallRecord { id, worker: 0, attempt, from_ns, ns, bytes: 1, failed: false };
            meter.note_if_slow(&call);
            calls.push(call);
            meter.under_way[0].end();
            from = now;
            done += 1;
        }
        meter.served(&calls);
        meter.items_in.fetch_add(BURST as u64, Relaxed);
        meter.sent(calls.iter().map(|call| call.id), BURST as u64, from);
        meter.set([0, 2, 0, 0, 0], from);
    }
    start.elapsed() / (BURSTS * BURST as u32)
}
