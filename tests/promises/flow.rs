//! What the flow stages do to items.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use forebay::prelude::*;

use crate::support::{Gate, numbers, outcome, settled};

fn all<T: Send + 'static>(pipeline: Pipeline<T>) -> Vec<T> {
    let (items, fault) = outcome(pipeline.run().expect("runs"));
    assert!(fault.is_none(), "{fault:?}");
    items
}

/// Both ways to run a flow stage: over items computed by position, and over a stream.
fn both(n: u64) -> [Pipeline<u64>; 2] {
    [
        Pipeline::from(source::index("numbers", Index::new(n, |i| i))),
        Pipeline::from(source::iter("numbers", 0..n)),
    ]
}

#[test]
fn batches_are_full_but_the_last() {
    for p in both(7) {
        assert_eq!(all(p.then(flow::batch(3))), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    }
    for p in both(7) {
        assert_eq!(all(p.then(flow::batch(3).drop_last())), [vec![0, 1, 2], vec![3, 4, 5]]);
    }
    for p in both(2) {
        assert!(all(p.then(flow::batch(3).drop_last())).is_empty());
    }
}

#[test]
fn a_batch_that_waits_too_long_is_sent_as_it_is() {
    let gate = Gate::closed();
    let wait = gate.clone();
    let items = futures::stream::unfold(0_u64, move |i| {
        let wait = wait.clone();
        async move {
            if i == 5 {
                wait.pass().await;
            }
            (i < 8).then_some((i, i + 1))
        }
    });
    let within = std::time::Duration::from_millis(20);
    let mut run = Pipeline::from(source::stream("slow", items))
        .then(flow::batch(3).within(within))
        .run()
        .expect("runs");
    assert_eq!(run.next().expect("one").expect("no fault"), [0, 1, 2]);
    // The other two don't wait for the gate.
    assert_eq!(run.next().expect("one").expect("no fault"), [3, 4]);
    gate.open();
    assert_eq!(run.next().expect("one").expect("no fault"), [5, 6, 7]);
    assert!(run.next().is_none());
}

#[test]
fn shuffles_are_permutations_of_their_seed() {
    for make in [0, 1] {
        let shuffled =
            |seed| all(both(100).into_iter().nth(make).expect("two").then(flow::shuffle(seed)));
        let first = shuffled(1);
        assert_eq!(first, shuffled(1));
        assert_ne!(first, shuffled(2));
        assert!(!first.is_sorted());
        assert_eq!(first.into_iter().collect::<BTreeSet<_>>().len(), 100);
    }
}

#[test]
fn take_skip_and_repeat_count() {
    for p in both(10) {
        assert_eq!(all(p.then(flow::skip(3)).then(flow::take(4))), [3, 4, 5, 6]);
    }
    for p in both(3) {
        assert!(all(p.then(flow::skip(9))).is_empty());
    }
    for p in both(3) {
        assert!(all(p.then(flow::take(0))).is_empty());
    }
    let [index, _] = both(3);
    assert_eq!(all(index.then(flow::repeat(3))), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

/// Each epoch has an order of its own, a function of the seed, and its groups stay within it.
#[test]
fn epochs_are_shuffled_anew() {
    let epochs = |seed| {
        let [index, _] = both(50);
        let items = index.then(flow::shuffle(seed)).then(flow::batch(8)).then(flow::repeat(3));
        all(items)
    };
    let first = epochs(4);
    assert_eq!(first, epochs(4));
    assert_eq!(first.len(), 21);
    let orders: Vec<Vec<u64>> = first.chunks(7).map(|epoch| epoch.concat()).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..50));
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    // The first is that of one epoch alone.
    let [index, _] = both(50);
    assert_eq!(all(index.then(flow::shuffle(4))), orders[0]);
    // Without a shuffle they are the same, and a later shuffle mixes them.
    let [index, _] = both(4);
    assert_eq!(all(index.then(flow::skip(2)).then(flow::repeat(2))), [2, 3, 2, 3]);
}

#[test]
fn take_stops_what_comes_before_it() {
    let (source, pulled) = numbers(u64::MAX);
    assert_eq!(all(source.then(flow::take(5))).len(), 5);
    assert!(pulled.load(SeqCst) < 100_000);
}

#[test]
fn merge_brings_everything_and_interleave_takes_turns() {
    let parts = || (0..3).map(|b| Pipeline::from(source::iter("part", b * 10..b * 10 + b + 2)));
    let mut merged = all(flow::merge(parts()));
    merged.sort_unstable();
    assert_eq!(merged, [0, 1, 10, 11, 12, 20, 21, 22, 23]);
    assert_eq!(all(flow::interleave(parts())), [0, 10, 20, 1, 11, 21, 12, 22, 23]);
    assert_eq!(all(flow::concat(parts())), [0, 1, 10, 11, 12, 20, 21, 22, 23]);
    assert!(all(flow::merge(Vec::<Pipeline<u64>>::new())).is_empty());
}

/// A branch that never gives anything holds up `interleave`, which is its meaning, not `merge`.
#[test]
fn merge_does_not_wait_for_a_slow_branch() {
    let never = Pipeline::from(source::stream("never", futures::stream::pending::<u64>()));
    let mut run =
        flow::merge([never, Pipeline::from(source::iter("n", 0..500))]).run().expect("runs");
    for _ in 0..500 {
        assert!(run.next().is_some());
    }
}

#[test]
fn zip_pairs_until_one_side_ends() {
    let left = Pipeline::from(source::iter("left", 0..5));
    let right = Pipeline::from(source::iter("right", ["a", "b", "c"]));
    assert_eq!(all(flow::zip(left, right)), [(0, "a"), (1, "b"), (2, "c")]);
}

/// Where pypeln, used twice across kinds, runs it twice.
#[test]
fn the_parent_of_a_tee_runs_once() {
    let (source, pulled) = numbers(50);
    let [a, b, c] = flow::tee(source, 3).try_into().expect("three");
    let zipped = flow::zip(flow::zip(a, b), c);
    assert!(all(zipped).into_iter().eq((0..50).map(|x| ((x, x), x))));
    assert_eq!(pulled.load(SeqCst), 50);
}

#[test]
fn the_branch_that_lags_holds_up_the_others() {
    let gate = Gate::closed();
    let (source, pulled) = numbers(100_000);
    let [quick, slow] = flow::tee(source, 2).try_into().expect("two");
    let wait = gate.clone();
    let passed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&passed);
    let quick = quick.then(cpu::map("quick", move |x: u64| {
        count.fetch_add(1, SeqCst);
        Ok::<_, Never>(x)
    }));
    let slow = slow.then(
        cpu::map("slow", move |x: u64| {
            wait.pass_blocking();
            Ok::<_, Never>(x)
        })
        .workers(1),
    );
    let mut run = flow::merge([quick, slow]).run().expect("runs");
    let mut seen = 0;
    // What the quick branch gets before the slow one has taken one item is bounded by buffers.
    let bound = 12_000;
    while seen < 256 {
        assert!(run.next().is_some());
        seen += 1;
    }
    let taken = settled(|| pulled.load(SeqCst));
    assert!(taken < bound, "{taken} items taken while a branch stands still");
    gate.open();
    let rest = run.by_ref().filter(|item| item.is_ok()).count();
    assert_eq!(seen + rest, 200_000);
}

#[test]
fn a_branch_that_leaves_does_not_stop_the_others() {
    let (source, _) = numbers(100);
    let [short, long] = flow::tee(source, 2).try_into().expect("two");
    let mut merged = all(flow::merge([short.then(flow::take(3)), long]));
    merged.sort_unstable();
    assert_eq!(merged.len(), 103);
}

/// D12 of pypeln: `each` with `run=True` behind a pipe ran nothing.
#[test]
fn for_each_yields_nothing_and_sees_everything() {
    for kind in crate::support::KINDS {
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        let (source, _) = numbers(100);
        let add = move |x: u64| {
            count.fetch_add(x, SeqCst);
            Ok::<_, Never>(())
        };
        let pipeline = match kind {
            Kind::Io => source.then(io::for_each("sum", move |x| std::future::ready(add(x)))),
            Kind::Cpu => source.then(cpu::for_each("sum", add)),
            _ => source.then(device::for_each("sum", add)),
        };
        let stats = pipeline.run().expect("runs").drain().expect("no fault");
        assert_eq!((stats.items, seen.load(SeqCst)), (0, 4950));
    }
}

#[test]
fn an_index_is_entered_anywhere_at_once() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let index = Index::new(1 << 40, move |i| {
        count.fetch_add(1, SeqCst);
        i
    });
    let pipeline = Pipeline::from(source::index("windows", index))
        .then(flow::shuffle(7))
        .then(flow::skip(1 << 39))
        .then(flow::take(2))
        .then(flow::batch(2));
    assert_eq!(pipeline.len_known(), Some(1));
    assert_eq!(all(pipeline).len(), 1);
    assert_eq!(calls.load(SeqCst), 2);
}
