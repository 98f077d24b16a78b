//! Faults that systems like ours have had, replayed: F for those of dataflow frameworks and loaders,
//! D for the defects of pypeln 0.4.9. Those that belong to another promise are tested there, with
//! their number in the comment.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::fault::FaultKind;
use forebay::prelude::*;

use crate::support::{
    Broken, Gate, How, KINDS, Watched, map_of, numbers, outcome, pause, settled, until,
};

fn waiting(name: &'static str, time: Duration) -> impl Stage<In = u64, Out = u64> {
    io::map(name, move |x: u64| async move {
        tokio::time::sleep(time).await;
        Ok::<_, Never>(x)
    })
}

// ----------------------------------------------------------------------- asynchronous stages

/// F1 and D3: fetches of several steps go on while the consumer is busy, sync or async.
#[test]
fn a_busy_consumer_does_not_stop_the_fetches() {
    let done = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&done);
    let fetch = io::map("fetch", move |x: u64| {
        let count = Arc::clone(&count);
        async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(x)
        }
    });
    let mut run = numbers(60).0.then(fetch.workers(5)).run().expect("runs");
    assert!(run.next().is_some());
    // Nobody polls the run now; all of the 60 are fetched all the same.
    until("all are fetched", || done.load(SeqCst) == 60);
    assert_eq!(run.count(), 59);
}

/// F5: hundreds of calls that are ready at once starve nobody: not each other, and not a timer.
#[test]
fn hundreds_of_ready_calls_starve_nobody() {
    let ticks = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ticks);
    let tick = io::map("tick", move |x: u64| {
        let count = Arc::clone(&count);
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(x)
        }
    });
    let ready = io::map("ready", async |x: u64| Ok::<_, Never>(x));
    let busy = numbers(u64::MAX).0.then(ready.workers(500)).then(flow::skip(u64::MAX));
    let timed = numbers(20).0.then(tick.workers(1));
    let run = flow::merge([busy, timed]).run().expect("runs");
    until("the timer fired 20 times", || ticks.load(SeqCst) == 20);
    run.close();
}

/// F7: calls that compute for ever do not hold up those that wait for the network.
#[test]
fn cpu_calls_do_not_hold_up_io_calls() {
    let gate = Gate::closed();
    let held = gate.clone();
    let fetched = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&fetched);
    let fetch = io::map("fetch", move |x: u64| {
        let count = Arc::clone(&count);
        async move {
            tokio::time::sleep(Duration::from_micros(100)).await;
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(x)
        }
    });
    let stuck = cpu::map("stuck", move |x: u64| {
        held.pass_blocking();
        Ok::<_, Never>(x)
    });
    let run = numbers(300).0.then(fetch.workers(2)).then(stuck.workers(32)).run().expect("runs");
    until("32 calls are stuck", || gate.came() == 32);
    until("the rest is fetched", || fetched.load(SeqCst) == 300);
    gate.open();
    assert_eq!(outcome(run).0.len(), 300);
}

/// A stage that gives up most of its receives in the middle, as a `select!` would.
struct Impatient {
    given_up: Arc<AtomicU64>,
}

impl Stage for Impatient {
    type In = u64;
    type Out = u64;

    fn name(&self) -> &str {
        "impatient"
    }

    async fn run(self, inlet: &mut Inlet<u64>, outlet: &mut Outlet<u64>) -> Result<(), Stop> {
        loop {
            let received = {
                let mut receive = std::pin::pin!(inlet.recv());
                let first = std::future::poll_fn(|context: &mut Context<'_>| {
                    Poll::Ready(receive.as_mut().poll(context))
                });
                first.await
            };
            match received {
                Poll::Pending => {
                    self.given_up.fetch_add(1, SeqCst);
                    tokio::task::yield_now().await;
                }
                Poll::Ready(item) => match item? {
                    Some(item) => outlet.send(item).await?,
                    None => return Ok(()),
                },
            }
        }
    }
}

/// F10, F11 and F12: a receive that is given up loses neither the item nor the wake-up; the same
/// for the run's own `recv`. 19,200 items, one at a time.
#[test]
fn a_receive_that_is_given_up_loses_nothing() {
    let given_up = Arc::new(AtomicU64::new(0));
    let stage = Impatient { given_up: Arc::clone(&given_up) };
    let drip = cpu::map("drip", |x: u64| {
        if x.is_multiple_of(64) {
            pause(Duration::from_micros(50));
        }
        Ok::<_, Never>(x)
    });
    let pipeline = numbers(19_200).0.then(drip.buffer(1)).then(stage);
    let mut run = pipeline.run().expect("runs");
    let _watched = Watched::new(&run);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        for expected in 0..19_200 {
            let item = loop {
                tokio::select! {
                    biased;
                    item = run.recv() => break item,
                    () = tokio::time::sleep(Duration::from_micros(1)) => {}
                }
            };
            assert_eq!(item.expect("more").expect("no fault"), expected);
        }
        assert!(run.recv().await.is_none());
    });
    assert!(given_up.load(SeqCst) > 0);
}

// ------------------------------------------------------------------------- threads and pools

/// F18 and F27: many stages that block, buffers of one, fewer cores than stages, and a caller whose
/// runtime has a single blocking thread: no stage waits for another one's threads.
#[test]
fn stages_never_wait_for_each_others_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut pipeline = numbers(500).0;
        for i in 0..12 {
            let kind = KINDS[i % 3];
            pipeline = map_of(pipeline, kind, How::workers(2).buffer(1), |x| async move {
                tokio::task::yield_now().await;
                Ok::<_, Never>(x)
            });
        }
        let mut run = pipeline.run().expect("runs");
        let _watched = Watched::new(&run);
        for expected in 0..500 {
            assert_eq!(run.recv().await.expect("more").expect("no fault"), expected);
        }
    });
}

/// F19: the caller's code is never called under a lock of ours: whatever it does, it may ask the run
/// how it is.
#[test]
fn the_callers_code_may_ask_the_run_anything() {
    static HANDLE: std::sync::OnceLock<Handle> = std::sync::OnceLock::new();
    fn ask() {
        // The first calls may come before the run is known.
        if let Some(handle) = HANDLE.get() {
            assert!(handle.stats().stages.len() == 5);
        }
    }
    struct Asks(u64);
    impl Clone for Asks {
        fn clone(&self) -> Self {
            ask();
            Asks(self.0)
        }
    }
    impl Drop for Asks {
        fn drop(&mut self) {
            ask();
        }
    }
    let items = (0..300).map(|x| {
        ask();
        Asks(x)
    });
    let retry = Retry::times(3).backoff(Duration::ZERO, Duration::ZERO);
    let failing = AtomicU64::new(0);
    let pipeline = Pipeline::from(source::iter("asks", items))
        .then(
            cpu::with(|_| {
                ask();
                Ok::<_, Never>(())
            })
            .finish(|(), _| ask())
            .map("work", move |(), _, x: Asks| {
                ask();
                match failing.fetch_add(1, SeqCst).is_multiple_of(20) {
                    true => Err(Broken(x.0)),
                    false => Ok(x),
                }
            })
            .retry(retry)
            .weigh(|_| {
                ask();
                8
            })
            .buffer(2),
        )
        .then(io::map("pass", async |x: Asks| {
            ask();
            Ok::<_, Never>(x)
        }))
        .then(device::filter("drop", |x: &Asks| {
            ask();
            Ok::<_, Never>(x.0.is_multiple_of(3))
        }))
        .then(flow::shuffle(3).buffer(8));
    let run = pipeline.run().expect("runs");
    let _watched = Watched::new(&run);
    _ = HANDLE.set(run.handle());
    let (items, fault) = outcome(run);
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(items.len(), 100);
}

/// F20: a source and calls that compute in parallel themselves.
#[test]
fn sources_and_calls_may_compute_in_parallel() {
    use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
    fn sum(n: u64) -> u64 {
        (0..n).into_par_iter().sum()
    }
    let items = (0..300_u64).map(|x| sum(x) + x);
    let pipeline = Pipeline::from(source::iter("sums", items))
        .then(cpu::map("one", |x: u64| Ok::<_, Never>(sum(1000) + x)).workers(2).buffer(1))
        .then(cpu::map("two", |x: u64| Ok::<_, Never>(sum(1000) + x)).workers(2).buffer(1))
        .then(device::map("three", |x: u64| Ok::<_, Never>(sum(1000) + x)));
    let run = pipeline.run().expect("runs");
    let _watched = Watched::new(&run);
    let (items, fault) = outcome(run);
    assert!(fault.is_none());
    assert!(
        items.into_iter().eq((0..300_u64).map(|x| 3 * 499_500 + x + x * x.saturating_sub(1) / 2))
    );
}

/// F28: calls run on threads of ours that bear the stage's name, as many as it has workers; io
/// calls share the I/O runtime's.
#[test]
fn threads_are_known_by_name_and_number() {
    for (kind, named) in [(Kind::Cpu, "forebay:"), (Kind::Device, "forebay:")] {
        let names = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
        let seen = Arc::clone(&names);
        let pipeline = map_of(numbers(400).0, kind, How::workers(3), move |x: u64| {
            let thread = std::thread::current();
            let name = thread.name().expect("named").to_owned();
            seen.lock().expect("not poisoned").insert(name);
            async move {
                pause(Duration::from_micros(200));
                Ok::<_, Never>(x)
            }
        });
        assert_eq!(outcome(pipeline.run().expect("runs")).0.len(), 400);
        let names = names.lock().expect("not poisoned");
        let expected: Vec<_> = (0..3).map(|i| format!("{named}the_{kind}:{i}")).collect();
        assert!(names.iter().all(|name| expected.contains(name)), "{names:?}");
    }
}

/// F29: a stage whose calls hold a worker without computing looks busy; how much of that it was on
/// a core stands beside it.
#[test]
fn time_on_a_core_is_told_beside_time_at_work() {
    let share = |spin: bool| {
        let stage = cpu::map("work", move |x: u64| {
            let end = std::time::Instant::now() + Duration::from_millis(5);
            while std::time::Instant::now() < end {
                match spin {
                    true => std::hint::spin_loop(),
                    false => pause(Duration::from_millis(5)),
                }
            }
            Ok::<_, Never>(x)
        });
        let mut run = numbers(20).0.then(stage.workers(1)).run().expect("runs");
        run.by_ref().for_each(|item| _ = item.expect("no fault"));
        run.close().stages[1].on_core.expect("sampled")
    };
    let (spinning, sleeping) = (share(true), share(false));
    assert!(sleeping < 0.3, "{sleeping}");
    assert!(spinning > sleeping, "{spinning} {sleeping}");
}

/// F50: left to itself a run on a large machine leaves cores to the trainer; what it may use can be
/// said, and its cpu stages keep to it.
#[test]
fn cpu_stages_keep_to_the_core_budget() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pipeline = || numbers(1).0.then(cpu::map("work", Ok::<u64, Never>));
    let budget = pipeline().settings().core_budget();
    assert!(budget <= cores && (cores <= 4 || budget < cores), "{budget} of {cores}");
    let workers = |p: Pipeline<u64>| p.run().expect("runs").stats().stages[1].workers;
    assert!(workers(pipeline()) <= budget);
    let mut small = pipeline();
    small.settings_mut().cores = Some(1);
    assert_eq!(workers(small), 1);
}

// ---------------------------------------------------------------------- the pipeline as a whole

/// F30: a failure reaches a source that waits, and one that is blocked in a full link.
#[test]
fn a_failure_downstream_reaches_the_source() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    for sleeps in [true, false] {
        let told = Arc::new(AtomicBool::new(false));
        let tell = Told(Arc::clone(&told));
        let items = futures::stream::unfold((0_u64, tell), move |(x, tell)| async move {
            if sleeps && x > 0 {
                std::future::pending::<()>().await;
            }
            Some((x, (x + 1, tell)))
        });
        let pipeline = Pipeline::from(source::stream("source", items))
            .then(cpu::map("breaks", |x: u64| Err::<u64, _>(Broken(x))));
        let (_, fault) = outcome(pipeline.run().expect("runs"));
        assert_eq!(fault.expect("a fault").downcast_ref(), Some(&Broken(0)));
        until("the source was told", || told.load(SeqCst));
    }
}

/// F33: a buffer only buffers: nobody waits for it to fill.
#[test]
fn a_large_buffer_does_not_hold_back_the_first_item() {
    for kind in KINDS {
        let (send, items) = futures::channel::mpsc::unbounded();
        let source = Pipeline::from(source::stream("one", items));
        let pipeline =
            map_of(source, kind, How::workers(4).buffer(1_000_000), |x: u64| async move {
                Ok::<_, Never>(x)
            });
        let mut run = pipeline.run().expect("runs");
        for x in 0..3 {
            send.unbounded_send(x).expect("the source listens");
            assert_eq!(run.next().expect("an item").expect("no fault"), x, "{kind}");
        }
    }
}

type Apply = fn(Pipeline<u64>) -> Pipeline<u64>;

/// F32 and F35: every stage that is not made of calls is bounded too, and drops nothing.
#[test]
fn nothing_is_unbounded_and_nothing_is_dropped() {
    let stages: [(&str, Apply); 9] = [
        ("batch", |p| p.then(flow::batch(3)).then(flow::unbatch())),
        ("shuffle", |p| p.then(flow::shuffle(1).buffer(16))),
        ("skip", |p| p.then(flow::skip(0))),
        ("take", |p| p.then(flow::take(u64::MAX))),
        ("merge", |p| flow::merge([p, Pipeline::from(source::list("none", Vec::new()))])),
        ("concat", |p| flow::concat([p, Pipeline::from(source::list("none", Vec::new()))])),
        ("interleave", |p| flow::interleave([p, Pipeline::from(source::list("none", Vec::new()))])),
        ("zip", |p| {
            let [a, b] = flow::tee(p, 2).try_into().expect("two");
            flow::zip(a, b).then(io::map("left", async |(x, _): (u64, u64)| Ok::<_, Never>(x)))
        }),
        ("ordered", |p| p.then(flow::ordered(cpu::map("s", Ok::<u64, Never>).ordered(false), 8))),
    ];
    const N: u64 = 30_000;
    for (name, apply) in stages {
        let (source, pulled) = numbers(N);
        let run = apply(source).run().expect(name);
        let taken = settled(|| pulled.load(SeqCst));
        // At most five links of 1,024 items, and what stages have in hand.
        assert!(taken < 8 * 1024, "{name}: {taken} items taken while nobody reads");
        let (mut items, fault) = outcome(run);
        assert!(fault.is_none(), "{name}");
        items.sort_unstable();
        assert!(items.into_iter().eq(0..N), "{name}");
    }
}

/// F39: of a failure that many stages and workers meet, the caller hears once, from where it was.
#[test]
fn one_failure_is_one_fault() {
    let pipeline = map_of(numbers(1000).0, Kind::Io, How::workers(8), |x| async move {
        if x >= 100 { Err(Broken(x)) } else { Ok(x) }
    });
    let pipeline = (0..5).fold(pipeline, |pipeline, _| {
        pipeline.then(cpu::map("after", Ok::<u64, Never>).workers(2))
    });
    // `outcome` asserts that there is one.
    let (items, fault) = outcome(pipeline.run().expect("runs"));
    assert!(items.into_iter().eq(0..100));
    assert_eq!(fault.expect("a fault").stage(), "the_io");
}

/// F40: each stage has its own policy and its own limit.
#[test]
fn policies_are_each_stages_own() {
    let stage = |name: &'static str, every: u64| {
        cpu::map(name, move |x: u64| if x % every == 1 { Err(Broken(x)) } else { Ok(x) })
    };
    let mut run = numbers(100)
        .0
        .then(stage("loose", 10).on_error(OnError::skip()))
        .then(stage("strict", 25).on_error(OnError::skip_up_to(4)))
        .run()
        .expect("runs");
    let delivered = run.by_ref().filter(|item| item.is_ok()).count();
    let stats = run.close();
    // Of 1, 26, 51 and 76 the first and the third were left out before.
    assert_eq!((stats.stages[1].skipped, stats.stages[2].skipped), (10, 2));
    assert_eq!(delivered, 88);
}

// ----------------------------------------------------------------------------------- pypeln

/// D1: it gave 5 of 10.
#[test]
fn a_merge_of_a_quick_and_a_slow_branch_gives_both() {
    let quick = numbers(5).0.then(waiting("quick", Duration::ZERO));
    let slow = numbers(5).0.then(waiting("slow", Duration::from_millis(20)));
    let (mut items, fault) = outcome(flow::merge([quick, slow]).run().expect("runs"));
    items.sort_unstable();
    assert!(fault.is_none());
    assert_eq!(items, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

/// D2 and D8: it gave the others and no error, or nothing and no error.
#[test]
fn an_error_is_always_told() {
    for kind in KINDS {
        for workers in [1, 4] {
            for ordered in [true, false] {
                let how = How::workers(workers).ordered(ordered);
                let pipeline = map_of(numbers(10).0, kind, how, |x| async move {
                    if x == 3 { Err(Broken(x)) } else { Ok(x) }
                });
                let (_, fault) = outcome(pipeline.run().expect("runs"));
                assert_eq!(fault.expect("a fault").downcast_ref(), Some(&Broken(3)), "{kind}");
            }
        }
    }
}

/// D4: with bounds between async and threads it hung.
#[test]
fn bounded_stages_of_different_kinds_finish() {
    let flat = cpu::flat_map("flat", |x: u64| {
        Ok::<_, Never>((0..4).map(move |i| Ok::<_, Never>(4 * x + i)))
    });
    let pipeline = numbers(250).0.then(flat.workers(4).buffer(16));
    let pipeline = map_of(pipeline, Kind::Io, How::workers(100).buffer(100), |x| async move {
        tokio::time::sleep(Duration::from_micros(300)).await;
        Ok::<_, Never>(x)
    });
    let pipeline = pipeline.then(cpu::map("last", Ok::<u64, Never>).workers(4).buffer(25));
    let run = pipeline.run().expect("runs");
    let _watched = Watched::new(&run);
    assert!(outcome(run).0.into_iter().eq(0..1000));
}

/// D5 and D6: with a bound, an error or a consumer that left it hung.
#[test]
fn bounded_stages_end_after_an_error_and_after_a_break() {
    for kind in KINDS {
        let how = || How::workers(4).buffer(4);
        let pipeline = map_of(numbers(100).0, kind, how(), |x| async move {
            assert!(x != 10, "ten");
            Ok::<_, Never>(x)
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(items.into_iter().eq(0..10));
        assert_eq!(fault.expect("a fault").kind(), FaultKind::Panic);

        let pipeline =
            map_of(
                numbers(u64::MAX).0,
                kind,
                how().buffer(2),
                |x| async move { Ok::<_, Never>(x) },
            );
        let mut run = pipeline.run().expect("runs");
        assert_eq!(run.by_ref().take(3).count(), 3);
        // It returns only when nothing is left.
        assert_eq!(run.close().items, 3);
    }
}

/// D7: a worker that dies outside of a call ends the run with a fault, not in silence. Here an item
/// that is left out panics when it is dropped, which no call catches.
#[test]
fn a_worker_that_dies_is_a_fault() {
    struct Bomb(u64);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(self.0 != 5 || std::thread::panicking(), "a drop that panics");
        }
    }
    for kind in KINDS {
        let name = "bombs";
        let source = Pipeline::from(source::iter("numbers", (0..50).map(Bomb)));
        let pipeline = match kind {
            Kind::Io => source.then(io::map(name, async |x: Bomb| {
                drop(x);
                Ok::<_, Never>(())
            })),
            Kind::Cpu => source.then(cpu::filter(name, |x: &Bomb| Ok::<_, Never>(x.0 != 5))).then(
                cpu::map("count", |x: Bomb| {
                    drop(x);
                    Ok::<_, Never>(())
                }),
            ),
            _ => source.then(device::filter(name, |x: &Bomb| Ok::<_, Never>(x.0 != 5))).then(
                cpu::map("count", |x: Bomb| {
                    drop(x);
                    Ok::<_, Never>(())
                }),
            ),
        };
        let run = pipeline.run().expect("runs");
        let _watched = Watched::new(&run);
        let fault = outcome(run).1.expect("a fault");
        assert_eq!(fault.kind(), FaultKind::Panic, "{kind}");
        assert_eq!(fault.stage(), name, "{kind}");
    }
}

/// D9 and D10: the bound between two stages holds, whatever the two are; it stands behind the stage
/// that has it.
#[test]
fn the_bound_holds_between_stages_of_any_two_kinds() {
    for first in KINDS {
        for second in KINDS {
            let (source, _) = numbers(200);
            let calls = Arc::new(AtomicU64::new(0));
            let (count, gate) = (Arc::clone(&calls), Gate::closed());
            let held = gate.clone();
            let pipeline = map_of(source, first, How::workers(2).buffer(4), move |x| {
                count.fetch_add(1, SeqCst);
                async move { Ok::<_, Never>(x) }
            });
            let pipeline = map_of(pipeline, second, How::workers(1), move |x: u64| {
                let held = held.clone();
                async move {
                    held.pass().await;
                    Ok::<_, Never>(x)
                }
            });
            let run = pipeline.run().expect("runs");
            // One item is held by the second stage; 4 fill the buffer; 2 are in the first's hands.
            let started = settled(|| calls.load(SeqCst));
            assert!((7..=7 + 16).contains(&started), "{first} {second}: {started}");
            gate.open();
            assert_eq!(outcome(run).0.len(), 200);
        }
    }
}

/// D11: quick calls with a time limit and a slow consumer: it lost items, or hung.
#[test]
fn a_slow_consumer_times_nothing_out() {
    for kind in KINDS {
        let how = How::workers(1).buffer(1).timeout(Duration::from_millis(300));
        let pipeline = map_of(numbers(12).0, kind, how, |x| async move { Ok::<_, Never>(x) });
        let mut run = pipeline.run().expect("runs");
        let mut items = Vec::new();
        for i in 0..12 {
            pause(if i == 3 { Duration::from_millis(500) } else { Duration::ZERO });
            items.push(run.next().expect("more").expect("no fault"));
        }
        assert!(items.into_iter().eq(0..12), "{kind}");
        assert!(run.next().is_none());
    }
}
