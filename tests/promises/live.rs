//! The workers of a stage are changed while items flow: order, bounds and sums hold all the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::fault::WorkersError;
use forebay::prelude::*;
use tokio::sync::Semaphore;

use crate::support::until;
use crate::support::{Broken, Gate, How, KINDS, Watched, map_of, numbers, pause, settled};

/// Changes the workers of a stage between 1 and `most` until it ends; counts how often.
fn change_at_random(handle: Handle, stage: String, most: usize, ended: Arc<AtomicBool>) -> usize {
    let mut changes = 0;
    while !ended.load(SeqCst) {
        match handle.set_workers(&stage, 1 + fastrand::usize(..most)) {
            Ok(before) => assert!((1..=most).contains(&before)),
            Err(error) => {
                assert_eq!(error, WorkersError::Ended { stage });
                break;
            }
        }
        changes += 1;
        let stats = handle.stats();
        for stage in &stats.stages {
            let sum = stage.states.shares().iter().sum::<f64>() + stage.states.ended_share();
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            assert!((1..=most).contains(&stage.workers), "{}", stage.workers);
        }
        pause(Duration::from_micros(fastrand::u64(..1000)));
    }
    changes
}

#[test]
fn changing_workers_at_any_time_loses_nothing_and_keeps_the_order() {
    const N: u64 = 20_000;
    for kind in KINDS {
        for ordered in [Ordered::Window(None), Ordered::Window(Some(3)), Ordered::No] {
            let (source, _) = numbers(N);
            let how = How::workers(2).buffer(4).ordered(ordered).on_error(OnError::skip());
            let pipeline = map_of(source, kind, how, |x: u64| async move {
                if x.is_multiple_of(7) {
                    tokio::task::yield_now().await;
                }
                if x.is_multiple_of(64) { Err(Broken(x)) } else { Ok(x) }
            });
            let mut run = pipeline.run().expect("runs");
            let _watched = Watched::new(&run);
            let ended = Arc::new(AtomicBool::new(false));
            let (handle, seen) = (run.handle(), Arc::clone(&ended));
            let changer = move || change_at_random(handle, format!("the_{kind}"), 8, seen);
            let changer = std::thread::spawn(changer);
            let mut items: Vec<u64> = run.by_ref().map(|item| item.expect("no fault")).collect();
            ended.store(true, SeqCst);
            let changes = changer.join().expect("no panic");
            assert!(changes > 10, "{kind}: only {changes} changes");
            if ordered == Ordered::No {
                items.sort_unstable();
            }
            let expected = (0..N).filter(|x| !x.is_multiple_of(64));
            assert!(items.into_iter().eq(expected), "{kind} {ordered:?}");
            let stats = run.close();
            assert_eq!((stats.unaccounted, stats.abandoned), (0, 0));
            assert_eq!(stats.skipped, N.div_ceil(64));
            let whole = stats.stages[1].states.total();
            assert!(whole >= stats.elapsed && whole <= stats.elapsed * 8, "{whole:?}");
        }
    }
}

/// Retries, rates and calls that yield many rest between their parts.
#[test]
fn workers_that_rest_may_be_too_many() {
    for kind in KINDS {
        let (source, _) = numbers(600);
        let how = How::workers(3)
            .buffer(2)
            .rate(Rate { burst: Some(20), ..Rate::requests(4_000.0) })
            .retry(Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(4)));
        let tried = Mutex::new(HashSet::new());
        let pipeline = map_of(source, kind, how, move |x: u64| {
            // The first try of some.
            let fails = x.is_multiple_of(5) && tried.lock().expect("not poisoned").insert(x);
            async move { if fails { Err(Broken(x)) } else { Ok(x) } }
        });
        let name = "many";
        let ten = move |x: u64| Ok::<_, Never>((0..10).map(move |i| Ok::<_, Never>(10 * x + i)));
        let how = Options { buffer: Some(3.into()), workers: Some(2.into()), ..Options::default() };
        let pipeline = match kind {
            Kind::Cpu => pipeline.then_with(cpu::flat_map(name, ten), how),
            _ => pipeline.then_with(device::flat_map(name, ten), how),
        };
        let mut run = pipeline.run().expect("runs");
        let _watched = Watched::new(&run);
        let ended = Arc::new(AtomicBool::new(false));
        let changers: Vec<_> = [format!("the_{kind}"), name.to_owned()]
            .map(|stage| {
                let (handle, seen) = (run.handle(), Arc::clone(&ended));
                std::thread::spawn(move || change_at_random(handle, stage, 8, seen))
            })
            .into();
        let items: Vec<u64> = run.by_ref().map(|item| item.expect("no fault")).collect();
        ended.store(true, SeqCst);
        for changer in changers {
            changer.join().expect("no panic");
        }
        assert!(items.into_iter().eq(0..6_000), "{kind}");
        assert_eq!(run.close().unaccounted, 0);
    }
}

/// Calls wait here until they are let out one by one.
#[derive(Clone)]
struct Turnstile {
    came: Arc<AtomicUsize>,
    out: Arc<Semaphore>,
}

impl Turnstile {
    fn new() -> Self {
        Turnstile { came: Arc::default(), out: Arc::new(Semaphore::new(0)) }
    }

    async fn pass(self) {
        self.came.fetch_add(1, SeqCst);
        self.out.acquire().await.expect("it is never closed").forget();
    }

    fn came(&self) -> u64 {
        self.came.load(SeqCst) as u64
    }
}

#[test]
fn calls_at_a_time_reach_the_new_number_and_fall_to_it() {
    for kind in KINDS {
        let (source, _) = numbers(100);
        let stile = Turnstile::new();
        let inside = stile.clone();
        let pipeline = map_of(source, kind, How::workers(2), move |x| {
            let inside = inside.clone();
            async move {
                inside.pass().await;
                Ok::<_, Never>(x)
            }
        });
        let run = pipeline.run().expect("runs");
        let (handle, id) = (run.handle(), format!("the_{kind}"));
        let workers = || {
            let stage = &handle.stats().stages[1];
            (stage.workers, stage.workers_set)
        };
        until("two calls wait", || stile.came() == 2);
        assert_eq!(handle.set_workers(&id, 6), Ok(2));
        until("six calls wait", || stile.came() == 6);
        assert_eq!(settled(|| stile.came()), 6, "{kind}");
        assert_eq!(workers(), (6, 6), "{kind}");
        assert_eq!(handle.set_workers(&id, 2), Ok(6));
        // All are in a call: they leave after it, and nobody takes their place.
        for left in (2..6).rev() {
            assert_eq!(workers(), (left + 1, 2), "{kind}");
            stile.out.add_permits(1);
            until("one has left", || workers() == (left, 2));
            assert_eq!(stile.came(), 6, "{kind}");
        }
        for came in 7..12 {
            stile.out.add_permits(1);
            until("the next call waits", || stile.came() == came);
            assert_eq!(workers(), (2, 2), "{kind}");
        }
        // Those that are still to leave may stay.
        assert_eq!(handle.set_workers(&id, 5), Ok(2));
        until("five calls wait", || stile.came() == 14);
        assert_eq!(handle.set_workers(&id, 1), Ok(5));
        assert_eq!(handle.set_workers(&id, 7), Ok(1));
        until("seven calls wait", || stile.came() == 16);
        assert_eq!((settled(|| stile.came()), workers()), (16, (7, 7)), "{kind}");
        stile.out.add_permits(1000);
        let stats = run.drain().expect("no fault");
        assert_eq!((stats.items, stats.unaccounted), (100, 0));
    }
}

/// With W workers and a buffer of B items, W + B calls have started: the new W counts.
#[test]
fn the_bounds_are_those_of_the_new_number() {
    for kind in KINDS {
        let (source, _) = numbers(1000);
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let how = How::workers(2).buffer(3).ordered(false);
        let pipeline = map_of(source, kind, how, move |x| {
            count.fetch_add(1, SeqCst);
            async move { Ok::<_, Never>(x) }
        });
        let mut run = pipeline.run().expect("runs");
        let (handle, id) = (run.handle(), format!("the_{kind}"));
        let at_rest = || settled(|| started.load(SeqCst) as u64);
        assert_eq!(at_rest(), 2 + 3, "{kind}");
        assert_eq!(handle.set_workers(&id, 5), Ok(2));
        assert_eq!(at_rest(), 5 + 3, "{kind}");
        assert_eq!(handle.set_workers(&id, 1), Ok(5));
        assert_eq!(at_rest(), 8, "{kind}");
        for taken in 1..=10 {
            assert!(run.next().is_some_and(|item| item.is_ok()));
            assert_eq!(at_rest(), (1 + 3 + taken).max(8), "{kind}");
        }
        assert_eq!(run.drain().expect("no fault").items, 1000);
    }
}

#[test]
fn the_states_add_up_to_the_workers_over_time() {
    for kind in KINDS {
        let (source, _) = numbers(100);
        let gate = Gate::closed();
        let inside = gate.clone();
        let pipeline = map_of(source, kind, How::workers(3), move |x| {
            let inside = inside.clone();
            async move {
                inside.pass().await;
                Ok::<_, Never>(x)
            }
        });
        let run = pipeline.run().expect("runs");
        let (handle, id) = (run.handle(), format!("the_{kind}"));
        for workers in [3_u32, 9, 11] {
            handle.set_workers(&id, workers as usize).expect("it grows");
            until("all are in a call", || gate.came() == u64::from(workers));
            let first = handle.stats();
            pause(Duration::from_millis(20));
            let then = handle.stats();
            let time = then.stages[1].states.total() - first.stages[1].states.total();
            let whole = (then.elapsed - first.elapsed) * workers;
            assert!(time.abs_diff(whole) < Duration::from_micros(1), "{time:?} of {whole:?}");
            let working = then.stages[1].states.working - first.stages[1].states.working;
            assert!(working.abs_diff(whole) < Duration::from_micros(1), "{kind} {working:?}");
        }
        gate.open();
        assert_eq!(run.drain().expect("no fault").items, 100);
    }
}

#[test]
fn a_worker_that_leaves_finishes_its_state_once() {
    type Reasons = Arc<Mutex<Vec<Finish>>>;
    for kind in KINDS {
        let (made, ended) = (Arc::new(AtomicUsize::new(0)), Reasons::default());
        let gate = Gate::closed();
        let (count, reasons, inside) = (Arc::clone(&made), Arc::clone(&ended), gate.clone());
        let start = move |_: &Worker| {
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(())
        };
        let finish = move |(), reason| reasons.lock().expect("not poisoned").push(reason);
        // The input goes on for as long as the run does.
        let source = Pipeline::from(source::stream(
            "numbers",
            futures::StreamExt::chain(
                futures::stream::iter(0..100_u64),
                futures::stream::pending(),
            ),
        ));
        let call = move |(): &mut (), _: &Call<'_>, x: u64| {
            inside.pass_blocking();
            Ok::<_, Never>(x)
        };
        let four = How::workers(4).0;
        let mut run = match kind {
            Kind::Cpu => source.then_with(cpu::with(start).finish(finish).map("s", call), four),
            Kind::Device => {
                source.then_with(device::with(start).finish(finish).map("s", call), four)
            }
            _ => {
                let gate = gate.clone();
                let stage = io::with(move |worker: Worker| std::future::ready(start(&worker)))
                    .finish(move |_: Arc<()>, reason| finish((), reason))
                    .map("s", move |_, _, x: u64| {
                        let gate = gate.clone();
                        async move {
                            gate.pass().await;
                            Ok::<_, Never>(x)
                        }
                    });
                source.then_with(stage, four)
            }
        }
        .run()
        .expect("runs");
        until("all have a state", || made.load(SeqCst) == 4);
        gate.open();
        for x in 0..100 {
            assert_eq!(run.next().expect("an item").expect("no fault"), x);
        }
        let finished = || ended.lock().expect("not poisoned").clone();
        assert!(finished().is_empty());
        // They are idle now.
        assert_eq!(run.handle().set_workers("s", 1), Ok(4));
        until("three have left", || finished().len() == 3);
        assert_eq!(finished(), [Finish::Finished; 3], "{kind}");
        assert_eq!(run.handle().set_workers("s", 3), Ok(1));
        run.close();
        until("the last has left", || finished().len() == made.load(SeqCst));
        assert_eq!(finished()[3..], [Finish::Cancelled], "{kind}");
    }
}

#[test]
fn what_cannot_be_set_is_told() {
    let (source, _) = numbers(100_000);
    let source = source.then(flow::skip(0));
    let run = map_of(source, Kind::Device, How::workers(2), async |x| Ok::<_, Never>(x))
        .run()
        .expect("runs");
    let handle = run.handle();
    let told = |stage: &str, workers| {
        handle.set_workers(stage, workers).expect_err("it can't be set").to_string()
    };
    assert_eq!(
        told("the_devise", 2),
        "there is no stage `the_devise`: did you mean `the_device`? Stages with workers: the_device"
    );
    assert_eq!(
        told("skip", 2),
        "`skip` runs in one task and makes no calls: more workers would do nothing"
    );
    assert_eq!(told("the_device", 0), "`the_device` can't have 0 workers: give it 1 or more");
    assert_eq!(
        told("the_device", 9),
        "`the_device` can't have 9 workers: this run provides for 8 at most; start it with more"
    );
    assert_eq!(handle.set_workers("the_device", 8), Ok(2));
    assert_eq!(run.drain().expect("no fault").items, 100_000);
    assert_eq!(told("the_device", 2), "`the_device` has ended");
}

/// Also before the stage has made its first call, and without any item.
#[test]
fn workers_can_be_set_at_once() {
    for kind in KINDS {
        let (source, _) = numbers(0);
        let run = map_of(source, kind, How::workers(2), async |x| Ok::<_, Never>(x));
        let run = run.run().expect("runs");
        let set = run.handle().set_workers(&format!("the_{kind}"), 4);
        let ended = WorkersError::Ended { stage: format!("the_{kind}") };
        assert!(set == Ok(2) || set == Err(ended), "{set:?}");
        run.drain().expect("no fault");
        let (source, _) = numbers(10);
        let run = map_of(source, kind, How::workers(2), async |x| Ok::<_, Never>(x));
        let mut run = run.run().expect("runs");
        for workers in [1, 7, 2] {
            _ = run.handle().set_workers(&format!("the_{kind}"), workers);
        }
        assert!(run.by_ref().map(|item| item.expect("no fault")).eq(0..10), "{kind}");
        assert_eq!(run.close().unaccounted, 0);
    }
}

/// A run that is dropped while workers come and go.
#[test]
fn a_run_can_be_closed_at_any_time() {
    for kind in KINDS {
        for _ in 0..50 {
            let (source, _) = numbers(u64::MAX);
            let pipeline =
                map_of(source, kind, How::workers(2).buffer(2), async |x| Ok::<_, Never>(x));
            let mut run = pipeline.run().expect("runs");
            let _watched = Watched::new(&run);
            let ended = Arc::new(AtomicBool::new(false));
            let (handle, seen) = (run.handle(), Arc::clone(&ended));
            let changer = move || change_at_random(handle, format!("the_{kind}"), 8, seen);
            let changer = std::thread::spawn(changer);
            for _ in 0..fastrand::usize(..200) {
                assert!(run.next().is_some_and(|item| item.is_ok()));
            }
            assert_eq!(run.close().unaccounted, 0, "{kind}");
            ended.store(true, SeqCst);
            changer.join().expect("no panic");
        }
    }
}
