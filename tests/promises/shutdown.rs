//! Rule 6: stopping is prompt and clean.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay::prelude::*;

use crate::support::{Gate, How, KINDS, map_of, numbers, outcome, pause, until};

/// An item that counts how many of it exist.
struct Counted(Arc<AtomicI64>);

impl Counted {
    fn new(alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Counted(Arc::clone(alive))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// F14: queues are emptied before `close` returns.
#[test]
fn every_item_is_dropped_wherever_it_was() {
    for kind in KINDS {
        let alive = Arc::new(AtomicI64::new(0));
        let make = Arc::clone(&alive);
        let items = (0..100_000).map(move |_| Counted::new(&make));
        let source = Pipeline::from(source::iter("counted", items)).then(flow::batch(3));
        let pipeline = map_of(source, kind, How::workers(3).buffer(4), |x| async move {
            tokio::task::yield_now().await;
            Ok::<_, Never>(x)
        });
        let mut run = pipeline.then(flow::unbatch()).run().expect("runs");
        for _ in 0..20 {
            assert!(run.next().is_some());
        }
        run.close();
        assert_eq!(alive.load(SeqCst), 0, "{kind}");
    }
}

/// F9: tasks do not outlive the run (counted over a thousand drops in `tests/leaks.rs`).
#[test]
fn calls_that_sleep_are_dropped_at_once() {
    let (source, _) = numbers(1000);
    let started = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&started);
    let stage = io::map("sleep", move |x: u64| {
        count.fetch_add(1, SeqCst);
        async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok::<_, Never>(x)
        }
    });
    let run = source.then(stage.workers(64)).run().expect("runs");
    until("64 calls sleep", || started.load(SeqCst) == 64);
    let start = Instant::now();
    let stats = run.close();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(stats.abandoned >= 64);
}

#[test]
fn dropping_does_not_wait_for_a_call_that_computes_but_closing_does() {
    for kind in [Kind::Cpu, Kind::Device] {
        let gate = Gate::closed();
        let inside = gate.clone();
        let (source, _) = numbers(10);
        let pipeline = map_of(source, kind, How::workers(2), move |x: u64| {
            let gate = inside.clone();
            async move {
                gate.pass().await;
                Ok::<_, Never>(x)
            }
        });
        let run = pipeline.run().expect("runs");
        until("two calls are under way", || gate.came() == 2);
        let start = Instant::now();
        drop(run);
        assert!(start.elapsed() < Duration::from_secs(2), "{kind}");
        gate.open();
    }
    let (source, _) = numbers(10);
    let done = Arc::new(AtomicU64::new(0));
    let (begun, count) = (Arc::new(AtomicU64::new(0)), Arc::clone(&done));
    let began = Arc::clone(&begun);
    let stage = cpu::map("slow", move |x: u64| {
        began.fetch_add(1, SeqCst);
        pause(Duration::from_millis(100));
        count.fetch_add(1, SeqCst);
        Ok::<_, Never>(x)
    });
    let run = source.then(stage.workers(1)).run().expect("runs");
    until("a call has begun", || begun.load(SeqCst) == 1);
    run.close();
    assert_eq!(done.load(SeqCst), 1, "the call ended before `close` returned, and no other began");
}

#[test]
fn blocked_and_starved_stages_wake_up_to_end() {
    // Blocked: nobody takes anything. Starved: the source never gives anything.
    for kind in KINDS {
        let (source, _) = numbers(100);
        let pipeline =
            map_of(source, kind, How::workers(2).buffer(1), |x| async move { Ok::<_, Never>(x) });
        let run = pipeline.run().expect("runs");
        until("it is blocked", || run.stats().stages[1].states.blocked > Duration::ZERO);
        let start = Instant::now();
        run.close();
        assert!(start.elapsed() < Duration::from_secs(2));

        let never = Pipeline::from(source::stream("never", futures::stream::pending::<u64>()));
        let run = map_of(never, kind, How::workers(2), |x| async move { Ok::<_, Never>(x) })
            .run()
            .expect("runs");
        let start = Instant::now();
        run.close();
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn stop_drains_what_is_under_way() {
    for kind in KINDS {
        let (source, pulled) = numbers(u64::MAX);
        let pipeline = map_of(source, kind, How::workers(3), |x| async move { Ok::<_, Never>(x) });
        let mut run = pipeline.run().expect("runs");
        for _ in 0..10 {
            assert!(run.next().is_some());
        }
        run.stop();
        let rest = run.by_ref().inspect(|item| assert!(item.is_ok())).count() as u64;
        let stats = run.close();
        assert_eq!(stats.ended, Some(forebay::trace::Ended::Stopped));
        assert_eq!(stats.items, 10 + rest);
        assert_eq!(stats.read, stats.items, "what was read was delivered");
        assert!(pulled.load(SeqCst) >= stats.read);
    }
}

/// F30: cancelling reaches those who sleep.
#[test]
fn a_waiting_consumer_is_woken_by_cancel() {
    let never = Pipeline::from(source::stream("never", futures::stream::pending::<u64>()));
    let mut run = never.run().expect("runs");
    let handle = run.handle();
    let waiting = std::thread::spawn(move || run.next().map(|item| item.map_err(|f| f.kind())));
    pause(Duration::from_millis(30));
    handle.cancel();
    let got = waiting.join().expect("no panic");
    assert_eq!(got, Some(Err(forebay::fault::FaultKind::Cancelled)));
}

#[test]
fn how_it_ended_is_told() {
    use forebay::trace::Ended;
    let ended = |run: Running<u64>| run.close().ended;
    let mut run = numbers(3).0.run().expect("runs");
    run.by_ref().for_each(drop);
    assert_eq!(ended(run), Some(Ended::Finished));
    assert_eq!(ended(numbers(u64::MAX).0.run().expect("runs")), Some(Ended::Cancelled));
    let mut run =
        numbers(3).0.then(cpu::map("f", |_: u64| Err::<u64, _>("no"))).run().expect("runs");
    run.by_ref().for_each(drop);
    assert_eq!(ended(run), Some(Ended::Failed));
}

#[test]
fn a_finished_run_can_be_asked_again_and_again() {
    let (items, _) = outcome(numbers(3).0.run().expect("runs"));
    assert_eq!(items.len(), 3);
    let mut run = numbers(2).0.run().expect("runs");
    while run.next().is_some() {}
    assert!(run.next().is_none() && run.next().is_none());
    let handle = run.handle();
    drop(run);
    // The handle outlives the run.
    handle.stop();
    handle.cancel();
    assert_eq!(handle.stats().items, 2);
}

/// Panics in what users hand us beside calls: drops of items, and finish functions.
#[test]
fn a_drop_that_panics_does_not_hang_the_run() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a drop that panics");
        }
    }
    let (source, _) = numbers(100);
    let run = source
        .then(cpu::filter("bombs", |_: &u64| Ok::<_, Never>(true)))
        .then(cpu::map("drop", |x: u64| {
            drop(Bomb);
            Ok::<_, Never>(x)
        }))
        .run()
        .expect("runs");
    let fault = outcome(run).1.expect("a fault");
    assert!(fault.to_string().contains("a drop that panics"), "{fault}");
}

/// Windows that wait for their first call are not under way: they can be computed again.
#[test]
fn a_stop_leaves_behind_what_is_computed_by_position_and_not_begun() {
    for kind in KINDS {
        let gate = Gate::closed();
        let inside = gate.clone();
        let source = Pipeline::from(source::index("numbers", Index::new(10_000, |i| i)));
        let mut run = map_of(source, kind, How::workers(3), move |x: u64| {
            let gate = inside.clone();
            async move {
                gate.pass().await;
                Ok::<_, Never>(x)
            }
        })
        .run()
        .expect("runs");
        until("calls have begun", || gate.came() == 3);
        run.stop();
        gate.open();
        let items: Vec<_> = run.by_ref().map(|item| item.expect("no failure")).collect();
        assert!(items.iter().copied().eq(0..3), "{kind}: {items:?}");
        let stats = run.close();
        assert_eq!((stats.read, stats.unaccounted), (3 + stats.abandoned, 0), "{kind}");
    }
}
