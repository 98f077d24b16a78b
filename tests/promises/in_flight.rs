//! Rules 2 and 3: with the consumer stopped, exactly so many items are under way, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use forebay::prelude::*;

use crate::support::{Gate, How, KINDS, Watched, map_of, numbers, outcome, pause, settled, until};

/// Starts a pipeline of one stage that nobody reads, and gives the calls started and the items
/// taken from the source, once both have come to rest.
fn at_rest(kind: Kind, how: How, before: usize) -> (u64, u64) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let pulled = Arc::new(AtomicU64::new(0));
    let pulls = Arc::clone(&pulled);
    let items = (0..10_000_u64).inspect(move |_| {
        pulls.fetch_add(1, SeqCst);
    });
    let options = Options { buffer: Some(before.into()), ..Options::default() };
    let source = Pipeline::from_with(source::iter("numbers", items), options);
    let pipeline = map_of(source, kind, how, move |x| {
        count.fetch_add(1, SeqCst);
        async move { Ok::<_, Never>(x) }
    });
    let run = pipeline.run().expect("runs");
    let at_rest = (settled(|| calls.load(SeqCst)), settled(|| pulled.load(SeqCst)));
    let (mut items, fault) = outcome(run);
    items.sort_unstable();
    assert!(fault.is_none() && items.into_iter().eq(0..10_000));
    at_rest
}

/// The formula of the documentation: with W workers, a buffer of B items behind the stage and b
/// behind the source, W + B calls have started, and the source gave b items and one in its hand
/// beyond them. F26 and F43: a call starts with its room in hand, never before.
#[test]
fn a_stopped_consumer_stops_every_kind_at_the_formula() {
    for kind in KINDS {
        for (workers, buffer, before) in [(1, 1, 1), (3, 5, 2), (4, 2, 8), (8, 16, 4)] {
            let how = How::workers(workers).buffer(buffer).ordered(false);
            let (started, taken) = at_rest(kind, how, before);
            assert_eq!(started, (workers + buffer) as u64, "{kind} {workers} {buffer}");
            assert_eq!(taken, started + before as u64 + 1, "{kind} {workers} {buffer} {before}");
        }
        // In order it is the same as long as items finish in order, which one worker's do.
        let (started, taken) = at_rest(kind, How::workers(1).buffer(3), 2);
        assert_eq!((started, taken), (4, 7), "{kind}");
    }
}

/// Items that finished before their turn wait in the window, beside what the formula counts.
#[test]
fn with_order_no_more_than_the_window_is_held_beside() {
    for kind in KINDS {
        for (workers, buffer, window) in [(3, 5, 4), (8, 2, 16)] {
            let how = How::workers(workers).buffer(buffer);
            let how = how.ordered(Ordered::Window(Some(window)));
            let (started, taken) = at_rest(kind, how, 2);
            let least = (workers + buffer) as u64;
            assert!((least..=least + window as u64).contains(&started), "{kind}: {started}");
            assert_eq!(taken, started + 2 + 1);
        }
    }
}

/// F2: a worker takes its next item the moment it is free, whoever polls.
#[test]
fn calls_that_hang_are_as_many_as_the_workers() {
    for kind in KINDS {
        let gate = Gate::closed();
        let inside = gate.clone();
        let (source, _) = numbers(1000);
        let pipeline = map_of(source, kind, How::workers(5), move |x: u64| {
            let gate = inside.clone();
            async move {
                gate.pass().await;
                Ok::<_, Never>(x)
            }
        });
        let run = pipeline.run().expect("runs");
        assert_eq!(settled(|| gate.came()), 5, "{kind}");
        gate.open();
        assert_eq!(outcome(run).0.len(), 1000);
    }
}

/// F1: a slow consumer stops nobody until the buffers are full.
#[test]
fn work_goes_on_while_nobody_asks() {
    let (source, _) = numbers(40);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let stage = io::map("work", move |x: u64| {
        count.fetch_add(1, SeqCst);
        async move { Ok::<_, Never>(x) }
    });
    let run = source.then(stage.buffer(100)).run().expect("runs");
    assert_eq!(settled(|| calls.load(SeqCst)), 40, "without a single `next`");
    drop(run);
}

#[test]
fn links_are_bounded_in_bytes_and_one_item_always_fits() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let items = (0..100).map(move |i| {
        count.fetch_add(1, SeqCst);
        vec![i as u8; 1000]
    });
    // A burst leaves the source only as far as it fits: 2 items of about 1,024 bytes each.
    let buffer = Buffer { items: 50, bytes: 2500 };
    let options = Options { buffer: Some(buffer), ..Options::default() };
    let run = Pipeline::from_with(source::iter("blobs", items), options).run().expect("runs");
    pause(std::time::Duration::from_millis(50));
    let waiting = run.stats().stages[0].buffer;
    assert!(waiting.bytes <= 2500, "{waiting:?}");
    assert_eq!(waiting.items, 2);
    assert_eq!(outcome(run).0.len(), 100);

    // Larger than the bound: one at a time.
    let options = Options { buffer: Some(Buffer { items: 50, bytes: 10 }), ..Options::default() };
    let items = (0..20).map(|i| vec![i as u8; 1000]);
    let run = Pipeline::from_with(source::iter("blobs", items), options).run().expect("runs");
    assert!(settled(|| run.stats().stages[0].buffer.items as u64) == 1);
    assert_eq!(outcome(run).0.len(), 20);
}

/// A worker that rests must hear of an item that comes while the others are in long calls, also if
/// it last rested because of the window.
#[test]
fn an_idle_worker_hears_of_items_while_others_are_busy() {
    let (first, rest) = (Gate::closed(), Gate::closed());
    let started = Arc::new(AtomicU64::new(0));
    let (send, items) = futures::channel::mpsc::unbounded::<u64>();
    let (gates, count) = ((first.clone(), rest.clone()), Arc::clone(&started));
    let how = How::workers(3).ordered(Ordered::Window(Some(3))).retry(Retry::times(1));
    let run = map_of(Pipeline::from(source::stream("numbers", items)), Kind::Io, how, move |x| {
        let ((first, rest), count) = (gates.clone(), Arc::clone(&count));
        async move {
            count.fetch_add(1, SeqCst);
            match x {
                0 => first.pass().await,
                3.. => rest.pass().await,
                _ => {}
            }
            Ok::<_, Never>(x)
        }
    });
    let run = run.run().expect("runs");
    for x in 0..5 {
        send.unbounded_send(x).expect("the source listens");
    }
    assert_eq!(settled(|| started.load(SeqCst)), 3, "3 and 4 wait for the window");
    first.open();
    until("3 and 4 are under way", || started.load(SeqCst) == 5);
    settled(|| started.load(SeqCst));
    send.unbounded_send(5).expect("the source listens");
    until("the third worker took 5", || started.load(SeqCst) == 6);
    rest.open();
    drop(send);
    let (items, fault) = outcome(run);
    assert!(fault.is_none());
    assert!(items.into_iter().eq(0..6));
}

/// What is done does not wait for what isn't: quick calls travel in bursts, and one of them may turn
/// out to wait.
#[test]
fn what_was_done_before_a_call_that_waits_is_delivered() {
    for ordered in [true, false] {
        for _ in 0..20 {
            let gate = Gate::closed();
            let inside = gate.clone();
            let (source, _) = numbers(3_000);
            let how = How::workers(1).ordered(ordered);
            let pipeline = map_of(source, Kind::Io, how, move |x: u64| {
                let gate = inside.clone();
                async move {
                    if x == 2_011 {
                        gate.pass().await;
                    }
                    Ok::<_, Never>(x)
                }
            });
            let mut run = pipeline.run().expect("runs");
            let _watched = Watched::new(&run);
            for n in 0..2_011 {
                assert_eq!(run.next().and_then(Result::ok), Some(n));
            }
            gate.open();
            assert_eq!(run.count(), 3_000 - 2_011);
        }
    }
}
