//! Rules 5 and 8: order is kept unless told otherwise, and does not depend on workers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::prelude::*;

use crate::support::{Gate, How, KINDS, Watched, map_of, numbers, outcome, settled};

/// Waits between 0 and 2 ms, by the item.
async fn uneven(x: u64) -> Result<u64, Never> {
    tokio::task::yield_now().await;
    let micros = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
    if micros > 1024 {
        futures_timer(Duration::from_micros(micros)).await;
    }
    Ok(x)
}

/// A timer that works on every kind's threads.
async fn futures_timer(time: Duration) {
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until {
        tokio::task::yield_now().await;
    }
}

/// F17: order is kept and stated; and `ordered` gives items as they come in order, where pypeln's
/// waits for all of them.
#[test]
fn order_is_kept_by_default_in_every_kind() {
    for kind in KINDS {
        for workers in [1, 3, 8] {
            let (source, _) = numbers(300);
            let pipeline = map_of(source, kind, How::workers(workers), uneven);
            let (items, fault) = outcome(pipeline.run().expect("runs"));
            assert!(fault.is_none());
            assert!(items.into_iter().eq(0..300), "{kind} with {workers} workers");
        }
    }
}

#[test]
fn without_order_every_item_comes_once() {
    for kind in KINDS {
        let (source, _) = numbers(300);
        let pipeline = map_of(source, kind, How::workers(5).ordered(false), uneven);
        let (items, _) = outcome(pipeline.run().expect("runs"));
        assert_eq!(items.len(), 300);
        assert_eq!(items.into_iter().collect::<BTreeSet<_>>().len(), 300);
    }
}

#[test]
fn others_run_no_further_ahead_than_the_window() {
    for kind in KINDS {
        for window in [3, 4, 7] {
            let first = Gate::closed();
            let started = Arc::new(AtomicU64::new(0));
            let (source, _) = numbers(100);
            let (gate, count) = (first.clone(), Arc::clone(&started));
            let pipeline = map_of(
                source,
                kind,
                How::workers(3).ordered(Ordered::Window(Some(window))),
                move |x| {
                    let (gate, count) = (gate.clone(), Arc::clone(&count));
                    async move {
                        count.fetch_add(1, SeqCst);
                        if x == 0 {
                            gate.pass().await;
                        }
                        Ok::<_, Never>(x)
                    }
                },
            );
            let run = pipeline.run().expect("runs");
            // Item 0 does not finish: exactly `window` items start, itself included.
            assert_eq!(settled(|| started.load(SeqCst)), window as u64, "{kind}");
            let stats = run.stats();
            let stage = &stats.stages[1];
            assert!(stage.states.turn > Duration::ZERO, "waiting for item 0 is the state `turn`");
            first.open();
            let (items, _) = outcome(run);
            assert!(items.into_iter().eq(0..100));
        }
    }
}

/// F4: the window is larger than the workers, and waiting for one's turn is a state of its own.
#[test]
fn stragglers_are_overtaken_within_the_window() {
    // Without a window beyond the workers, each straggler would stop the stage.
    let straggler = Gate::closed();
    let gate = straggler.clone();
    let done = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&done);
    let (source, _) = numbers(64);
    let stage = io::map("fetch", move |x: u64| {
        let (gate, count) = (gate.clone(), Arc::clone(&count));
        async move {
            if x == 0 {
                gate.pass().await;
            }
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(x)
        }
    });
    let run = source.then(stage.workers(4)).run().expect("runs");
    // The default window is 8 x workers: 31 others finish before item 0.
    assert_eq!(settled(|| done.load(SeqCst)), 31);
    straggler.open();
    assert!(outcome(run).0.into_iter().eq(0..64));
}

#[test]
fn many_items_of_one_stay_together_and_in_order() {
    for workers in [1, 4] {
        let (source, _) = numbers(50);
        let stage = cpu::flat_map("expand", |x: u64| {
            Ok::<_, Never>((0..x % 7).map(move |i| Ok::<_, Never>(x * 10 + i)))
        });
        let (items, _) = outcome(source.then(stage.workers(workers)).run().expect("runs"));
        let expected = (0..50_u64).flat_map(|x| (0..x % 7).map(move |i| x * 10 + i));
        assert!(items.into_iter().eq(expected));
    }
}

/// The fingerprint of a shuffled, batched, two-stage pipeline.
fn fingerprint(seed: u64, workers: usize, kind: Kind) -> u64 {
    let pipeline = Pipeline::from(source::index("numbers", Index::new(500, |i| i)))
        .then(flow::shuffle(seed))
        .then(flow::batch(7));
    let pipeline = map_of(pipeline, kind, How::workers(workers), |batch: Vec<u64>| async move {
        uneven(batch[0]).await.map(|_| batch)
    });
    let pipeline = pipeline
        .then(flow::unbatch())
        .then(cpu::filter("odd", |x: &u64| Ok::<_, Never>(x % 2 == 1)));
    let mut run = pipeline.run().expect("runs");
    run.by_ref().for_each(|item| _ = item.expect("no fault"));
    run.close().fingerprint
}

#[test]
fn the_same_seed_gives_the_same_order_for_any_workers() {
    let one = fingerprint(42, 1, Kind::Io);
    for kind in KINDS {
        for workers in [1, 2, 5] {
            assert_eq!(fingerprint(42, workers, kind), one, "{kind} with {workers} workers");
        }
    }
    assert_ne!(fingerprint(43, 2, Kind::Cpu), one);
}

#[test]
fn a_filter_does_not_renumber_items() {
    let (source, _) = numbers(10);
    let mut run = source
        .then(io::filter("even", async |x: u64| Ok::<_, Never>(x.is_multiple_of(2))))
        .run()
        .expect("runs");
    let mut ids = Vec::new();
    while let Some(item) = run.next() {
        ids.push((item.expect("no fault"), run.last_id().expect("one came").position()));
    }
    assert_eq!(ids, [(0, 0), (2, 2), (4, 4), (6, 6), (8, 8)]);
}

/// Workers that take several short calls at once give back those they did not start when one of
/// them waits. Two that do so at once must not change the order of the rest: with a window bounded
/// in bytes, the oldest item behind a later one would never start.
#[test]
fn items_given_back_keep_their_place() {
    let buffer = Buffer { items: 64, bytes: 64 };
    let how = How::workers(4).buffer(buffer).ordered(Ordered::Window(Some(64)));
    let pipeline = map_of(numbers(20_000).0, Kind::Io, how, |x: u64| async move {
        if x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 == 0 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Never>(x)
    });
    let run = pipeline.run().expect("runs");
    let _watched = Watched::new(&run);
    let (items, fault) = outcome(run);
    assert!(fault.is_none(), "{fault:?}");
    assert!(items.into_iter().eq(0..20_000));
}
