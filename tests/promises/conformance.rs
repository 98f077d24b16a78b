//! The suite that every stage and every source passes, whatever it does to items: a fault is not an
//! end, an end is an end, and stopping is prompt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::prelude::*;

use crate::support::{Broken, outcome, until};

/// A stage under test, as what it does to a pipeline of numbers. What it yields is made numbers
/// again, so that one suite fits all.
type Apply = fn(Pipeline<u64>) -> Pipeline<u64>;

/// The stages. A new one is a new line.
const STAGES: [(&str, Apply); 22] = [
    ("io::map", |p| p.then(io::map("s", async |x: u64| Ok::<_, Never>(x)))),
    ("io::filter", |p| p.then(io::filter("s", async |_: u64| Ok::<_, Never>(true)))),
    ("io::flat_map", |p| {
        p.then(io::flat_map("s", async |x: u64| {
            Ok::<_, Never>(futures::stream::iter([Ok::<_, Never>(x)]))
        }))
    }),
    ("cpu::map", |p| p.then(cpu::map("s", Ok::<u64, Never>))),
    ("cpu::map, one worker", |p| p.then(cpu::map("s", Ok::<u64, Never>).workers(1))),
    ("cpu::map, unordered", |p| p.then(cpu::map("s", Ok::<u64, Never>).workers(2).ordered(false))),
    ("cpu::filter", |p| p.then(cpu::filter("s", |_: &u64| Ok::<_, Never>(true)))),
    ("cpu::flat_map", |p| p.then(cpu::flat_map("s", |x: u64| Ok::<_, Never>([Ok::<_, Never>(x)])))),
    ("device::map", |p| p.then(device::map("s", Ok::<u64, Never>))),
    ("device::filter", |p| p.then(device::filter("s", |_: &u64| Ok::<_, Never>(true)))),
    ("device::flat_map", |p| {
        p.then(device::flat_map("s", |x: u64| Ok::<_, Never>([Ok::<_, Never>(x)])))
    }),
    ("flow::batch and unbatch", |p| p.then(flow::batch(3)).then(flow::unbatch())),
    ("flow::batch within a time", |p| {
        p.then(flow::batch(3).within(Duration::from_millis(1))).then(flow::unbatch())
    }),
    ("flow::shuffle", |p| p.then(flow::shuffle(1).buffer(4))),
    ("flow::take", |p| p.then(flow::take(1 << 60))),
    ("flow::skip", |p| p.then(flow::skip(0))),
    ("flow::merge", |p| {
        let [a, b] = flow::tee(p, 2).try_into().expect("two");
        let b = b.then(cpu::filter("none", |_: &u64| Ok::<_, Never>(false)));
        flow::merge([a, b])
    }),
    ("flow::interleave", |p| {
        let [a, b] = flow::tee(p, 2).try_into().expect("two");
        flow::interleave([
            a.then(cpu::filter("even", |x: &u64| Ok::<_, Never>(x.is_multiple_of(2)))),
            b.then(cpu::filter("odd", |x: &u64| Ok::<_, Never>(x % 2 == 1))),
        ])
    }),
    ("flow::concat", |p| {
        flow::concat([p, Pipeline::from(source::list("nothing", Vec::<u64>::new()))])
    }),
    ("flow::zip", |p| {
        let [a, b] = flow::tee(p, 2).try_into().expect("two");
        flow::zip(a, b).then(cpu::map("left", |(x, _): (u64, u64)| Ok::<_, Never>(x)))
    }),
    ("flow::ordered", |p| p.then(flow::ordered(cpu::map("s", Ok::<u64, Never>).ordered(false), 5))),
    ("a stage of the user's", |p| p.then(EveryItem)),
];

/// A stage that a user wrote.
struct EveryItem;

impl Stage for EveryItem {
    type In = u64;
    type Out = u64;

    fn name(&self) -> &str {
        "every"
    }

    async fn run(self, inlet: &mut Inlet<u64>, outlet: &mut Outlet<u64>) -> Result<(), Stop> {
        while let Some(item) = inlet.recv().await? {
            outlet.send(item).await?;
        }
        Ok(())
    }
}

fn stream(n: u64) -> Pipeline<u64> {
    Pipeline::from(source::iter("numbers", 0..n))
}

#[test]
fn all_items_pass_and_then_the_end() {
    for (name, apply) in STAGES {
        for n in [0, 1, 2, 100] {
            let (mut items, fault) = outcome(apply(stream(n)).run().expect(name));
            assert!(fault.is_none(), "{name}: {fault:?}");
            items.sort_unstable();
            assert!(items.into_iter().eq(0..n), "{name} with {n} items");
        }
    }
}

/// F23: an end is an end only if all before it ended well.
#[test]
fn a_fault_upstream_is_never_an_end() {
    for (name, apply) in STAGES {
        for place in [0, 1, 50] {
            let items = (0..100).map(move |x| if x == place { Err(Broken(x)) } else { Ok(x) });
            let pipeline = Pipeline::from(source::try_iter("tape", items));
            let (items, fault) = outcome(apply(pipeline).run().expect(name));
            assert!(items.len() as u64 <= place, "{name}");
            let fault = fault.unwrap_or_else(|| panic!("{name}: the fault was taken for an end"));
            assert_eq!(fault.stage(), "tape", "{name}");
            assert_eq!(fault.downcast_ref(), Some(&Broken(place)), "{name}");
        }
    }
}

#[test]
fn a_fault_downstream_ends_it() {
    for (name, apply) in STAGES {
        let pipeline = apply(stream(100_000))
            .then(cpu::map("after", |x: u64| if x == 40 { Err(Broken(x)) } else { Ok(x) }));
        let (_, fault) = outcome(pipeline.run().expect(name));
        assert_eq!(fault.expect(name).downcast_ref(), Some(&Broken(40)), "{name}");
    }
}

#[test]
fn a_consumer_that_leaves_ends_it() {
    for (name, apply) in STAGES {
        let mut run = apply(stream(u64::MAX)).run().expect(name);
        for _ in 0..10 {
            assert!(run.next().is_some_and(|item| item.is_ok()), "{name}");
        }
        // `close` returns only when nothing is left.
        let stats = run.close();
        assert_eq!(stats.items, 10, "{name}");
    }
}

#[test]
fn a_run_that_is_asked_to_stop_delivers_what_is_under_way_and_ends() {
    for (name, apply) in STAGES {
        let mut run = apply(stream(u64::MAX)).run().expect(name);
        assert!(run.next().is_some_and(|item| item.is_ok()), "{name}");
        run.stop();
        let mut delivered = 1;
        for item in run.by_ref() {
            assert!(item.is_ok(), "{name}: {item:?}");
            delivered += 1;
        }
        let stats = run.close();
        assert_eq!(stats.items, delivered, "{name}");
        assert_eq!(stats.abandoned, 0, "{name}");
    }
}

#[test]
fn a_cancelled_run_says_so_and_ends() {
    for (name, apply) in STAGES {
        let mut run = apply(stream(u64::MAX)).run().expect(name);
        assert!(run.next().is_some_and(|item| item.is_ok()), "{name}");
        run.handle().cancel();
        let last = run.by_ref().find_map(Result::err).expect(name);
        assert_eq!(last.to_string(), "the run was cancelled", "{name}");
        assert!(run.next().is_none(), "{name}");
    }
}

#[test]
fn ids_do_not_depend_on_timing() {
    for (name, apply) in STAGES {
        if ["flow::merge", "cpu::map, unordered", "flow::batch within a time"].contains(&name) {
            continue;
        }
        let fingerprint = || {
            let mut run = apply(stream(300)).run().expect(name);
            run.by_ref().for_each(|item| _ = item.expect(name));
            run.close().fingerprint
        };
        assert_eq!(fingerprint(), fingerprint(), "{name}");
    }
}

type Make = fn(u64) -> Pipeline<u64>;

/// The sources. A new one is a new line.
const SOURCES: [(&str, Make); 6] = [
    ("source::iter", |n| Pipeline::from(source::iter("s", 0..n))),
    ("source::try_iter", |n| Pipeline::from(source::try_iter("s", (0..n).map(Ok::<_, Never>)))),
    ("source::list", |n| Pipeline::from(source::list("s", (0..n).collect::<Vec<_>>()))),
    ("source::index", |n| Pipeline::from(source::index("s", Index::new(n, |i| i)))),
    ("source::stream", |n| Pipeline::from(source::stream("s", futures::stream::iter(0..n)))),
    ("source::try_stream", |n| {
        let items = futures::stream::iter((0..n).map(Ok::<_, Never>));
        Pipeline::from(source::try_stream("s", items))
    }),
];

#[test]
fn every_source_gives_all_its_items_with_their_numbers() {
    for (name, make) in SOURCES {
        for n in [0, 1, 1000] {
            let mut run = make(n).run().expect(name);
            let mut seen = 0;
            while let Some(item) = run.next() {
                assert_eq!(item.expect(name), seen, "{name}");
                assert_eq!(run.last_id().map(|id| id.position()), Some(seen), "{name}");
                seen += 1;
            }
            assert_eq!(seen, n, "{name}");
            assert_eq!(run.close().read, n, "{name}");
        }
    }
}

#[test]
fn every_source_stops_when_nobody_wants_more() {
    for (name, make) in SOURCES {
        let n = if name == "source::list" { 1_000_000 } else { u64::MAX };
        let mut run = make(n).run().expect(name);
        assert!(run.next().is_some(), "{name}");
        assert!(run.close().read < 1_000_000, "{name}");
    }
}

/// A source that hangs holds nothing up: it is dropped where it waits.
#[test]
fn a_source_that_never_gives_is_dropped() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let drops = Arc::new(AtomicU64::new(0));
    let held = Dropped(Arc::clone(&drops));
    let items = futures::stream::once(async move {
        let _held = held;
        std::future::pending::<u64>().await
    });
    let run = Pipeline::from(source::stream("never", items)).run().expect("runs");
    drop(run);
    until("it was dropped", || drops.load(SeqCst) == 1);
}
