//! Thousands of random graphs: whatever the stages, workers, also when they are changed on the way,
//! buffers, memory and failures, each item that goes in comes out, is left out and counted, or is
//! abandoned and counted; and order holds.

use std::time::Duration;

use forebay::prelude::*;
use proptest::prelude::*;

use crate::support::{Broken, How, Watched, map_of};

#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    workers: usize,
    buffer: usize,
    /// Items weigh 8 bytes each.
    bytes: u64,
    window: usize,
    /// Items with this remainder of 11 fail.
    fails: Option<u64>,
    skips: bool,
    panics: bool,
    /// Every so many calls the worker gives way.
    yields: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let shape = (0..8_u8, 1..5_usize, 1..9_usize, 1..100_u64, 1..20_usize, 1..5_u64);
    let failing = (prop::option::weighted(0.3, 0..11_u64), any::<bool>(), any::<bool>());
    (shape, failing).prop_map(
        |((kind, workers, buffer, bytes, window, yields), (fails, skips, panics))| Step {
            kind,
            workers,
            buffer,
            bytes,
            window,
            fails,
            skips,
            panics,
            yields,
        },
    )
}

fn add(pipeline: Pipeline<u64>, step: &Step) -> Pipeline<u64> {
    let Step { kind, workers, buffer, bytes, window, fails, skips, panics, yields } = step.clone();
    let buffer = Buffer { items: buffer, bytes };
    let kind = match kind {
        0 => return pipeline.then(flow::batch(workers)).then(flow::unbatch()),
        1 => return pipeline.then(flow::skip(0)),
        2 | 3 => Kind::Io,
        4..=6 => Kind::Cpu,
        _ => Kind::Device,
    };
    let policy = if skips { OnError::skip() } else { OnError::Fail };
    let ordered = Ordered::Window(Some(window));
    let how = How::workers(workers).buffer(buffer).ordered(ordered).on_error(policy);
    map_of(pipeline, kind, how, move |x: u64| async move {
        if x.is_multiple_of(yields) {
            tokio::task::yield_now().await;
        }
        if fails == Some(x % 11) {
            assert!(!panics, "unlucky");
            return Err(Broken(x));
        }
        Ok(x)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_is_lost_and_nothing_is_doubled(
        steps in prop::collection::vec(step(), 0..6),
        n in 0..200_u64,
        wanted in prop::option::of(0..200_usize),
        changes in prop::option::weighted(0.3, 1..7_usize),
        memory in prop::option::weighted(0.4, 1..3_000_u64),
    ) {
        let mut pipeline = Pipeline::from(source::iter("numbers", 0..n));
        for step in &steps {
            pipeline = add(pipeline, step);
        }
        pipeline.settings_mut().memory = memory;
        let mut run = pipeline.run().expect("runs");
        let _watched = Watched::new(&run);
        let handle = run.handle();
        let stages = handle.stats().stages;
        let mut items: Vec<u64> = Vec::new();
        let mut fault = None;
        while wanted.is_none_or(|wanted| items.len() < wanted) {
            if let Some(every) = changes
                && items.len().is_multiple_of(every)
            {
                for stage in &stages {
                    // Some make no calls, others have ended.
                    _ = handle.set_workers(&stage.id, 1 + (items.len() + stage.workers) % 4);
                }
            }
            match run.next() {
                Some(Ok(item)) => items.push(item),
                Some(Err(error)) => fault = Some(error),
                None => break,
            }
        }
        let failed = u64::from(fault.is_some());
        let stats = run.close();
        prop_assert_eq!(stats.memory.map_or(0, |memory| memory.held), 0, "all memory is given back");
        // Order.
        prop_assert!(items.is_sorted());
        // What the steps let through comes out, up to the first failure, and nothing else.
        let failing = |x: &u64| steps.iter().find(|s| s.kind >= 2 && s.fails == Some(x % 11));
        let mut expected = Vec::new();
        let mut fails = false;
        for x in 0..n {
            match failing(&x) {
                None => expected.push(x),
                Some(step) if step.skips => {}
                Some(_) => {
                    fails = true;
                    break;
                }
            }
        }
        // A group that a failure cut short does not come out.
        let groups = steps.iter().any(|step| step.kind == 0);
        match wanted {
            _ if groups && fails => {
                prop_assert!(expected.starts_with(&items));
                prop_assert!(fault.is_some() || wanted.is_some_and(|n| n == items.len()));
            }
            Some(wanted) if wanted <= expected.len() => {
                prop_assert_eq!(&items[..], &expected[..wanted]);
            }
            _ => {
                prop_assert_eq!(&items, &expected);
                prop_assert_eq!(fault.is_some(), fails);
            }
        }
        // In = out + skipped + failed + abandoned. Of several failures the consumer sees one; the
        // others are "stopped because of it", so as many items may be missing from the sum. A group
        // counts as one item, so behind `batch` the sum is no longer one of numbers.
        let out = stats.items + stats.skipped + failed + stats.abandoned;
        let unseen = steps.iter().filter(|s| s.fails.is_some() && !s.skips).count() as u64;
        prop_assert!(
            groups || (out..=out + unseen).contains(&stats.read),
            "read {} = delivered {} + skipped {} + failed {failed} + abandoned {}",
            stats.read, stats.items, stats.skipped, stats.abandoned
        );
        prop_assert_eq!(stats.unaccounted, 0, "each stage accounts for each item: {:#?}", stats);
        for stage in &stats.stages {
            let whole = stats.elapsed * stage.workers as u32;
            prop_assert!(changes.is_some() || stage.states.total().abs_diff(whole) < Duration::from_micros(1));
        }
    }
}
