//! Rules 1 and 7: nothing is lost or doubled; the first error is the error.

use std::error::Error as _;

use forebay::fault::FaultKind;
use forebay::prelude::*;

use crate::support::{Broken, How, KINDS, map_of, numbers, outcome};

const N: u64 = 60;

/// The positions at which things go wrong.
const PLACES: [u64; 3] = [0, N / 2, N - 1];

/// F21 to F24: a panic neither aborts nor hangs nor shortens, and its message is kept.
#[test]
fn a_panic_names_its_stage_and_item_and_comes_after_the_items_before_it() {
    for kind in KINDS {
        for workers in [1, 4] {
            for place in PLACES {
                let (source, _) = numbers(N);
                let before = source.then(cpu::map("before", Ok::<u64, Never>).workers(2));
                let pipeline = map_of(before, kind, How::workers(workers), move |x| async move {
                    assert!(x != place, "item {x} is unlucky");
                    Ok::<_, Never>(x)
                });
                let after = pipeline.then(cpu::map("after", Ok::<u64, Never>).workers(3));
                let (items, fault) = outcome(after.run().expect("runs"));
                assert!(items.into_iter().eq(0..place), "{kind} {workers} {place}");
                let fault = fault.expect("a fault");
                assert_eq!(fault.kind(), FaultKind::Panic);
                assert_eq!(fault.stage(), format!("the_{kind}"));
                assert_eq!(fault.item().map(|id| id.position()), Some(place));
                let text = format!(
                    "stage `the_{kind}` failed on item {place}: panic: item {place} is unlucky"
                );
                assert_eq!(fault.to_string(), text);
            }
        }
    }
}

#[test]
fn an_error_keeps_its_type_and_its_place() {
    for kind in KINDS {
        for place in PLACES {
            let (source, _) = numbers(N);
            let pipeline = map_of(source, kind, How::workers(4), move |x| async move {
                if x == place { Err(Broken(x)) } else { Ok(x) }
            });
            let (items, fault) = outcome(pipeline.run().expect("runs"));
            assert!(items.into_iter().eq(0..place));
            let fault = fault.expect("a fault");
            assert_eq!(fault.downcast_ref::<Broken>(), Some(&Broken(place)));
            assert_eq!(fault.source().expect("a cause").to_string(), Broken(place).to_string());
            assert_eq!(fault.item().map(|id| id.position()), Some(place));
        }
    }
}

/// F39: one cause.
#[test]
fn of_several_errors_the_first_in_order_is_told() {
    for kind in KINDS {
        let (source, _) = numbers(N);
        let pipeline = map_of(source, kind, How::workers(8), move |x| async move {
            if x >= 20 { Err(Broken(x)) } else { Ok(x) }
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(items.into_iter().eq(0..20));
        assert_eq!(fault.expect("a fault").downcast_ref(), Some(&Broken(20)));
    }
}

#[test]
fn an_error_without_order_is_told_once() {
    for kind in KINDS {
        let (source, _) = numbers(N);
        let how = How::workers(4).ordered(false);
        let pipeline = map_of(source, kind, how, move |x| async move {
            if x == 30 { Err(Broken(x)) } else { Ok(x) }
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(items.len() < N as usize && !items.contains(&30));
        assert_eq!(fault.expect("a fault").downcast_ref(), Some(&Broken(30)));
    }
}

#[test]
fn a_source_that_fails_or_panics_is_named() {
    let items = (0..10_u64).map(|x| if x == 7 { Err(Broken(x)) } else { Ok(x) });
    let run = Pipeline::from(source::try_iter("tape", items)).run().expect("runs");
    let (items, fault) = outcome(run);
    assert_eq!(items.len(), 7);
    assert_eq!(fault.expect("a fault").to_string(), "stage `tape` failed: number 7 is broken");

    let items = (0..10_u64).inspect(|x| assert!(*x != 7, "torn"));
    let (items, fault) = outcome(Pipeline::from(source::iter("tape", items)).run().expect("runs"));
    assert_eq!(items.len(), 7);
    assert_eq!(fault.expect("a fault").to_string(), "stage `tape` failed: panic: torn");

    let index = Index::new(10, |i| if i == 7 { panic!("torn") } else { i });
    let (items, fault) = outcome(Pipeline::from(source::index("tape", index)).run().expect("runs"));
    assert_eq!(items.len(), 7);
    assert_eq!(fault.expect("a fault").kind(), FaultKind::Panic);
}

#[test]
fn an_item_with_a_name_is_named() {
    struct Named;
    let run =
        Pipeline::from(source::iter("chunks", [1, 2, 3]))
            .then(cpu::map("decode", |x: i32| {
                if x == 2 { Err("unexpected end of data") } else { Ok(Named) }
            }))
            .run()
            .expect("runs");
    let (items, fault) = outcome(run);
    assert_eq!(items.len(), 1);
    assert_eq!(
        fault.expect("a fault").to_string(),
        "stage `decode` failed on item 1: unexpected end of data"
    );
}

/// F24: a payload that is neither text nor a string.
#[test]
fn any_panic_is_a_fault() {
    let run = Pipeline::from(source::iter("n", [1]))
        .then(cpu::map("odd", |_: i32| -> Result<(), Never> { std::panic::panic_any(42_u8) }))
        .run()
        .expect("runs");
    let fault = outcome(run).1.expect("a fault");
    assert_eq!(fault.to_string(), "stage `odd` failed on item 0: panic: a panic without a message");
}

/// F3: 0 is refused when the pipeline is built. (An empty source ends at once: the conformance suite.)
#[test]
fn plans_that_cannot_run_are_refused_before_they_do() {
    let (source, pulled) = numbers(5);
    let refused = source
        .then(io::map("fetch", async |x: u64| Ok::<_, Never>(x)).workers(0))
        .run()
        .expect_err("no workers");
    let text = "`workers` of stage `fetch` is 0: write 1 or more, or `auto`";
    assert_eq!(refused.to_string(), text);
    assert_eq!(pulled.load(std::sync::atomic::Ordering::SeqCst), 0);

    let (source, _) = numbers(5);
    assert!(source.then(cpu::map("c", Ok::<u64, Never>).buffer(0)).run().is_err());
    let (source, _) = numbers(5);
    assert!(source.then(cpu::map("c", Ok::<u64, Never>).window(0)).run().is_err());
    let (source, _) = numbers(5);
    let zero = std::time::Duration::ZERO;
    assert!(source.then(cpu::map("c", Ok::<u64, Never>).timeout(zero)).run().is_err());
    let (source, _) = numbers(5);
    let refused = source.then(flow::repeat(2)).run().expect_err("a stream");
    assert!(refused.to_string().contains("computed by position"), "{refused}");
    let (source, _) = numbers(5);
    let options = Options { workers: Some(3.into()), ..Options::default() };
    let refused = source.then_with(flow::skip(1), options).run().expect_err("no calls");
    assert!(refused.to_string().contains("does not apply to `skip`"), "{refused}");
}

#[test]
fn two_stages_of_one_name_get_two_ids_and_a_given_id_must_be_free() {
    let pass = || cpu::map("pass", Ok::<u64, Never>);
    let (source, _) = numbers(5);
    let pipeline = source.then(pass()).then(pass()).then(pass());
    let ids: Vec<_> = pipeline.nodes().iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["numbers", "pass", "pass-2", "pass-3"]);
    let refused = pipeline.then(pass().id("pass")).run().expect_err("taken");
    assert_eq!(refused.to_string(), "two stages are called `pass`: give one of them another `id`");
}

/// F8: what was under way at the failure is not lost without a count.
#[test]
fn what_was_under_way_at_the_fault_is_counted() {
    let (source, _) = numbers(1000);
    let mut run = source
        .then(cpu::map("early", Ok::<u64, Never>).workers(2).buffer(10))
        .then(cpu::map("late", |x: u64| if x == 5 { Err(Broken(x)) } else { Ok(x) }).workers(2))
        .run()
        .expect("runs");
    let delivered = run.by_ref().filter(|item| item.is_ok()).count() as u64;
    let stats = run.close();
    let failed = 1;
    assert_eq!(delivered, 5);
    assert!(stats.abandoned > 0);
    // Each item that the source gave was delivered, failed, or is counted as abandoned.
    assert_eq!(stats.read, delivered + failed + stats.abandoned, "{stats:#?}");
}
