//! Rule 2: the items of a run together take no more memory than it may take, and that never keeps it
//! from going on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::prelude::*;
use forebay::trace::{Cause, MemoryStats, RunStats, report, verdict};

use crate::support::{Gate, How, KINDS, Watched, map_of, pause, settled, until};

/// Bytes that are alive, and the most that were.
#[derive(Clone, Default)]
struct Alive(Arc<(AtomicU64, AtomicU64)>);

/// An item that knows that it is alive.
#[derive(Clone)]
struct Load {
    bytes: u64,
    alive: Option<Alive>,
}

impl Alive {
    fn load(&self, bytes: u64) -> Load {
        let now = self.0.0.fetch_add(bytes, SeqCst) + bytes;
        self.0.1.fetch_max(now, SeqCst);
        Load { bytes, alive: Some(self.clone()) }
    }

    fn most(&self) -> u64 {
        self.0.1.load(SeqCst)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(alive) = &self.alive {
            alive.0.0.fetch_sub(self.bytes, SeqCst);
        }
    }
}

/// Whether items of 100 bytes kept within it. On a busy machine what is about to go on can look like
/// standing still, and then one is let in too early.
fn keeps_within(memory: MemoryStats) -> bool {
    memory.above <= 3 && memory.peak <= memory.most + 100 * memory.above
}

/// Runs it to its end and gives the figures with how many items came.
fn drained<T: Send + 'static>(pipeline: Pipeline<T>) -> (RunStats, usize) {
    let mut run = pipeline.run().expect("runs");
    let watched = Watched::new(&run);
    let items =
        run.by_ref().inspect(|item| assert!(item.is_ok(), "{:?}", item.as_ref().err())).count();
    drop(watched);
    let stats = run.close();
    assert_eq!(stats.memory.expect("bounded").held, 0, "all of it is given back");
    assert_eq!(stats.unaccounted, 0);
    (stats, items)
}

#[test]
fn loads_of_every_kind_of_stage_keep_within_it() {
    for kind in KINDS {
        for ordered in [true, false] {
            let alive = Alive::default();
            let make = alive.clone();
            let how = || How::workers(8).buffer(64).ordered(ordered);
            let (source, _) = crate::support::numbers(500);
            let made = match kind {
                Kind::Io => source.then_with(
                    io::map("make", move |_| {
                        let load = make.load(100);
                        async move { Ok::<_, Never>(load) }
                    })
                    .weigh(|load: &Load| load.bytes),
                    how().0,
                ),
                Kind::Cpu => source.then_with(
                    cpu::map("make", move |_| Ok::<_, Never>(make.load(100)))
                        .weigh(|load: &Load| load.bytes),
                    how().0,
                ),
                _ => source.then_with(
                    device::map("make", move |_| Ok::<_, Never>(make.load(100)))
                        .weigh(|load: &Load| load.bytes),
                    how().0,
                ),
            };
            let passed = made
                .then(cpu::map("pass", Ok::<Load, Never>).weigh(|load: &Load| load.bytes))
                .memory(1_000);
            let (stats, items) = drained(passed);
            let memory = stats.memory.expect("bounded");
            assert_eq!(items, 500, "{kind}");
            assert!(keeps_within(memory), "{kind}: {memory:?}");
            // The consumer has one in its hand.
            let alive = alive.most();
            assert!(alive <= memory.peak.max(1_000) + 100, "{kind}: {alive} {memory:?}");
        }
    }
}

#[test]
fn with_a_stopped_consumer_no_more_calls_start_than_fit() {
    for kind in KINDS {
        let calls = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&calls);
        let (source, _) = crate::support::numbers(10_000);
        let how = How::workers(4).buffer(1_000);
        let pipeline = map_of(source, kind, how, move |x: u64| {
            count.fetch_add(1, SeqCst);
            async move { Ok::<_, Never>(vec![x as u8; 1_000]) }
        });
        let run = pipeline.memory(20_000).run().expect("runs");
        let started = settled(|| calls.load(SeqCst));
        // Beside them the numbers that wait before the stage take some.
        assert!((1..=20).contains(&started), "{kind}: {started}");
        assert_eq!(run.map(|item| item.expect("no failure").len()).sum::<usize>(), 10_000_000);
    }
}

/// A consumer that was cancelled in its wait looks as if it waited still.
#[test]
fn a_wait_that_was_given_up_lets_nothing_in() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let gate = Gate::closed();
    let inside = gate.clone();
    let (source, _) = crate::support::numbers(1_000);
    let how = How::workers(4).buffer(1_000);
    let pipeline = map_of(source, Kind::Io, how, move |x: u64| {
        count.fetch_add(1, SeqCst);
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok::<_, Never>(vec![x as u8; 1_000])
        }
    });
    let mut run = pipeline.memory(20_000).run().expect("runs");
    assert!(futures::FutureExt::now_or_never(run.recv()).is_none(), "nothing is there yet");
    gate.open();
    let started = settled(|| calls.load(SeqCst));
    let memory = run.stats().memory.expect("bounded");
    assert!(started <= 20 && memory.above == 0, "{started} {memory:?}");
    assert_eq!(run.map(|item| item.expect("no failure").len()).sum::<usize>(), 1_000_000);
}

#[test]
fn a_source_of_large_items_keeps_within_it() {
    let alive = Alive::default();
    let make = alive.clone();
    let source = source::iter(
        "loads",
        (0..300).map(move |_| {
            pause(Duration::from_micros(100));
            (make.load(100), vec![0_u8; 0])
        }),
    );
    let passed = Pipeline::from(source)
        .then(cpu::map("bytes", |(load, _): (Load, Vec<u8>)| {
            Ok::<_, Never>(vec![0_u8; load.bytes as usize])
        }))
        .memory(1_000);
    let (stats, items) = drained(passed);
    let memory = stats.memory.expect("bounded");
    assert_eq!(items, 300);
    assert!(keeps_within(memory), "{memory:?}");
}

#[test]
fn a_call_that_yields_many_stops_where_they_no_longer_fit() {
    for ordered in [true, false] {
        let made = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&made);
        let how = How::workers(2).buffer(1_000).ordered(ordered);
        let pipeline = Pipeline::from(source::iter("numbers", 0..10_u64))
            .then_with(
                cpu::flat_map("many", move |_| {
                    let count = Arc::clone(&count);
                    Ok::<_, Never>((0..100).map(move |_| {
                        count.fetch_add(1, SeqCst);
                        Ok::<_, Never>(vec![0_u8; 1_000])
                    }))
                }),
                how.0,
            )
            .memory(20_500);
        let mut run = pipeline.run().expect("runs");
        let rested = settled(|| made.load(SeqCst));
        assert!((1..=21).contains(&rested), "{rested}");
        assert_eq!(
            run.by_ref().map(|item| item.expect("no failure").len()).sum::<usize>(),
            1_000_000
        );
        assert_eq!(run.close().memory.expect("bounded").held, 0);
    }
}

/// Items of 100 bytes each from every number.
fn loads(n: u64) -> Pipeline<Vec<u8>> {
    Pipeline::from(source::iter("numbers", 0..n))
        .then(io::map("make", async |_| Ok::<_, Never>(vec![0_u8; 100])).workers(4))
}

#[test]
fn a_group_that_does_not_fit_is_made_all_the_same_and_told() {
    let (stats, groups) = drained(loads(100).then(flow::batch(20)).memory(500));
    let memory = stats.memory.expect("bounded");
    assert_eq!(groups, 5);
    assert!(memory.above > 0 && memory.peak < 4_000, "{memory:?}");
    let told = report(&stats, Default::default());
    assert!(told.contains("was let in above that because nothing else could move"), "{told}");
}

#[test]
fn branches_that_wait_for_each_other_go_on() {
    for memory in [1, 150, 1_000, 100_000] {
        // One branch needs three items for each of the other's.
        let groups = loads(90).then(flow::batch(3));
        let pairs = flow::zip(groups, loads(30)).memory(memory);
        let (stats, pairs) = drained(pairs);
        assert_eq!(pairs, 30, "{memory}");
        let above = stats.memory.expect("bounded").above;
        assert!(memory < 100_000 || above == 0, "{memory}: {above}");
    }
}

#[test]
fn what_pauses_or_is_limited_is_waited_for() {
    let how = How::workers(2).rate(Rate::requests(100.0));
    let (source, _) = crate::support::numbers(30);
    let slow = map_of(
        source.then(io::map("make", async |_| Ok::<_, Never>(vec![0_u8; 100])).workers(16)),
        Kind::Io,
        how,
        async |bytes: Vec<u8>| Ok::<_, Never>(bytes),
    );
    let (stats, items) = drained(slow.memory(700));
    let memory = stats.memory.expect("bounded");
    assert_eq!(items, 30);
    // It takes a third of a second, in which dozens could be let in.
    assert!(keeps_within(memory), "{memory:?}");
}

#[test]
fn the_state_and_the_verdict_name_the_memory() {
    let gate = Gate::closed();
    let inside = gate.clone();
    let (source, _) = crate::support::numbers(200);
    let pipeline = map_of(source, Kind::Io, How::workers(16).buffer(64), move |x: u64| {
        let gate = inside.clone();
        async move {
            if x > 0 {
                gate.pass().await;
            }
            Ok::<_, Never>(vec![0_u8; 1_000])
        }
    });
    let mut run = pipeline.memory(4_000).run().expect("runs");
    let opener = std::thread::spawn(move || {
        until("calls wait", || gate.came() > 0);
        pause(Duration::from_millis(300));
        // Beside what they yield, the numbers that wait before the stage take some.
        assert!((1..=4).contains(&gate.came()), "{}", gate.came());
        gate.open();
    });
    assert!(run.next().is_some() && run.next().is_some());
    let stats = run.stats();
    let stage = &stats.stages[1];
    assert!(stage.memory > Duration::ZERO && stage.states.limit > Duration::ZERO, "{stage:?}");
    let verdict = verdict(&stats);
    assert_eq!(verdict.cause, Cause::Memory, "{}", verdict.sentence);
    opener.join().expect("no panic");
    assert_eq!(run.count(), 198);
}

#[test]
fn an_early_end_gives_all_of_it_back() {
    for _ in 0..50 {
        let pipeline = loads(1_000).then(flow::shuffle(1).buffer(7)).then(flow::take(40));
        let (stats, items) = drained(pipeline.memory(2_000));
        assert!(items == 40 && stats.memory.expect("bounded").peak < 4_000);
        let mut run = loads(1_000).then(flow::batch(3)).memory(2_000).run().expect("runs");
        assert!(run.next().is_some());
        let stats = run.close();
        assert_eq!(stats.memory.expect("bounded").held, 0);
    }
}
