//! Retry, timeout, rate and `on_error`: what a failed call does, the same for every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay::fault::FaultKind;
use forebay::options::RetryOn;
use forebay::prelude::*;

use crate::support::{Broken, How, KINDS, map_of, numbers, outcome, pause};

fn quick(max: u32) -> Retry {
    Retry::times(max).backoff(Duration::from_millis(1), Duration::from_millis(2))
}

/// Fails the first `times` calls on each item.
fn flaky(kind: Kind, how: How, times: u64) -> (Pipeline<u64>, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let seen = Arc::new(parking_lot_like::Counts::default());
    let (source, _) = numbers(20);
    let pipeline = map_of(source, kind, how, move |x: u64| {
        count.fetch_add(1, SeqCst);
        let so_far = seen.next(x);
        async move { if so_far < times { Err(Broken(x)) } else { Ok(x) } }
    });
    (pipeline, calls)
}

mod parking_lot_like {
    use std::collections::HashMap;
    use std::sync::Mutex;

    /// How often each number was seen.
    #[derive(Default)]
    pub(crate) struct Counts(Mutex<HashMap<u64, u64>>);

    impl Counts {
        pub(crate) fn next(&self, x: u64) -> u64 {
            let mut counts = self.0.lock().expect("not poisoned");
            let count = counts.entry(x).or_default();
            *count += 1;
            *count - 1
        }
    }
}

#[test]
fn failed_calls_are_made_again_and_order_is_kept() {
    for kind in KINDS {
        let (pipeline, calls) = flaky(kind, How::workers(3).retry(quick(2)), 2);
        let mut run = pipeline.run().expect("runs");
        let items: Vec<_> = run.by_ref().map(|item| item.expect("no fault")).collect();
        let stats = run.close();
        assert!(items.into_iter().eq(0..20));
        assert_eq!(calls.load(SeqCst), 60, "{kind}");
        let stage = &stats.stages[1];
        assert_eq!((stage.attempts, stage.retries, stage.errors), (60, 40, 40));
        assert!(stage.states.limit > Duration::ZERO, "a retry pause is the state `limit`");
    }
}

#[test]
fn retries_end_and_the_fault_says_how_many_there_were() {
    for kind in KINDS {
        let (pipeline, _) = flaky(kind, How::workers(3).retry(quick(2)), 5);
        let fault = outcome(pipeline.run().expect("runs")).1.expect("a fault");
        assert_eq!(fault.attempts(), 3);
        let text =
            format!("stage `the_{kind}` failed on item 0 after 3 attempts: number 0 is broken");
        assert_eq!(fault.to_string(), text);
    }
}

#[test]
fn only_the_failures_that_are_meant_are_tried_again() {
    fn is_even(error: &(dyn std::error::Error + 'static)) -> bool {
        error.downcast_ref::<Broken>().is_some_and(|broken| broken.0 % 2 == 0)
    }
    for kind in KINDS {
        let how = How::workers(1).retry(quick(3).on(RetryOn::When(is_even)));
        let (pipeline, calls) = flaky(kind, how, 1);
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        // Item 0 is tried twice, item 1 once.
        assert_eq!(items, [0]);
        assert_eq!(fault.expect("a fault").downcast_ref(), Some(&Broken(1)));
        assert!(calls.load(SeqCst) >= 3);
    }
}

#[test]
fn a_panic_is_never_tried_again() {
    for kind in KINDS {
        let calls = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&calls);
        let (source, _) = numbers(1);
        let pipeline = map_of(source, kind, How::workers(1).retry(quick(5)), move |_| {
            count.fetch_add(1, SeqCst);
            async move { if true { panic!("a defect") } else { Ok::<u64, Never>(1) } }
        });
        let fault = outcome(pipeline.run().expect("runs")).1.expect("a fault");
        assert_eq!((fault.kind(), calls.load(SeqCst)), (FaultKind::Panic, 1));
    }
}

#[test]
fn items_are_left_out_and_counted() {
    for kind in KINDS {
        let (source, _) = numbers(100);
        let how = How::workers(4).on_error(OnError::skip());
        let pipeline = map_of(source, kind, how, |x| async move {
            if x % 10 == 3 { Err(Broken(x)) } else { Ok(x) }
        });
        let mut run = pipeline.run().expect("runs");
        let items: Vec<_> = run.by_ref().map(|item| item.expect("no fault")).collect();
        let stats = run.close();
        assert!(items.into_iter().eq((0..100).filter(|x| x % 10 != 3)));
        assert_eq!((stats.skipped, stats.stages[1].skipped), (10, 10));
        assert_eq!(stats.read, stats.items + stats.skipped);
    }
}

/// A panic counts as an error of its item.
#[test]
fn panics_can_be_left_out_too() {
    for kind in KINDS {
        let (source, _) = numbers(30);
        let how = How::workers(2).on_error(OnError::skip());
        let pipeline = map_of(source, kind, how, |x| async move {
            assert!(x % 5 != 0, "unlucky");
            Ok::<_, Never>(x)
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(fault.is_none());
        assert!(items.into_iter().eq((0..30).filter(|x| x % 5 != 0)));
    }
}

#[test]
fn too_many_left_out_fail_the_run() {
    for kind in KINDS {
        let (source, _) = numbers(100);
        let how = How::workers(1).on_error(OnError::skip_up_to(3));
        let pipeline = map_of(source, kind, how, |x| async move {
            if x % 10 == 0 { Err(Broken(x)) } else { Ok(x) }
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        // 0, 10 and 20 are left out; 30 is one too many.
        assert!(items.into_iter().eq((0..30).filter(|x| x % 10 != 0)));
        let text = fault.expect("a fault").to_string();
        assert!(text.contains("item 30") && text.contains("and 3 of "), "{text}");
    }
}

#[test]
fn a_share_of_the_items_may_be_left_out() {
    let run = |share: f64| {
        let (source, _) = numbers(200);
        let policy = OnError::Skip { max: SkipLimit::Share(share), log: None };
        let how = How::workers(1).on_error(policy);
        let pipeline = map_of(source, Kind::Cpu, how, |x| async move {
            if x % 20 == 19 { Err(Broken(x)) } else { Ok(x) }
        });
        outcome(pipeline.run().expect("runs")).1
    };
    assert!(run(0.06).is_none());
    assert!(run(0.01).is_some());
}

#[test]
fn what_is_left_out_is_written_to_a_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("bad.jsonl");
    let (source, _) = numbers(10);
    let policy = OnError::Skip { max: SkipLimit::Any, log: Some(log.clone()) };
    let pipeline = map_of(source, Kind::Io, How::workers(2).on_error(policy), |x| async move {
        if x == 4 || x == 7 { Err(Broken(x)) } else { Ok(x) }
    });
    assert_eq!(outcome(pipeline.run().expect("runs")).0.len(), 8);
    let text = std::fs::read_to_string(&log).expect("written");
    let mut lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    lines.sort_by_key(|line| line["item"].to_string());
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["stage"], "the_io");
    assert_eq!(lines[0]["item"], "4");
    assert_eq!(lines[1]["error"], "number 7 is broken");

    // A log that can't be written is said, not swallowed.
    let (source, _) = numbers(10);
    let policy = OnError::Skip { max: SkipLimit::Any, log: Some(folder.path().to_owned()) };
    let pipeline = map_of(source, Kind::Io, How::workers(2).on_error(policy), |x| async move {
        Err::<u64, _>(Broken(x))
    });
    let fault = outcome(pipeline.run().expect("runs")).1.expect("a fault");
    assert!(fault.to_string().contains("can't be written"), "{fault}");
}

/// Where pypeln drops the item without a word.
#[test]
fn a_call_that_takes_too_long_fails_its_item() {
    for kind in KINDS {
        let (source, _) = numbers(4);
        let how = How::workers(2).timeout(Duration::from_millis(40));
        let pipeline = map_of(source, kind, how, move |x: u64| async move {
            if x == 2 {
                match tokio::runtime::Handle::try_current() {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(400)).await,
                    Err(_) => pause(Duration::from_millis(400)),
                }
            }
            Ok::<_, Never>(x)
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert_eq!(items, [0, 1], "{kind}");
        let fault = fault.expect("a fault");
        assert_eq!(fault.kind(), FaultKind::Timeout);
        let text = format!("stage `the_{kind}` failed on item 2: timed out after 40ms");
        assert_eq!(fault.to_string(), text);
    }
}

#[test]
fn items_that_take_too_long_can_be_left_out_or_tried_again() {
    for kind in KINDS {
        let (source, _) = numbers(6);
        let how = How::workers(3).timeout(Duration::from_millis(40)).on_error(OnError::skip());
        let pipeline = map_of(source, kind, how, move |x: u64| async move {
            if x == 2 {
                match tokio::runtime::Handle::try_current() {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(300)).await,
                    Err(_) => pause(Duration::from_millis(300)),
                }
            }
            Ok::<_, Never>(x)
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(fault.is_none());
        assert_eq!(items, [0, 1, 3, 4, 5], "{kind}");
    }
    // Slow once, quick the second time.
    let first = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&first);
    let (source, _) = numbers(1);
    let how = How::workers(1).timeout(Duration::from_millis(30)).retry(quick(1));
    let pipeline = map_of(source, Kind::Io, how, move |x: u64| {
        let slow = count.fetch_add(1, SeqCst) == 0;
        async move {
            if slow {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Ok::<_, Never>(x)
        }
    });
    assert_eq!(outcome(pipeline.run().expect("runs")).0, [0]);
}

/// Pauses of up to 1 ms make thousands of calls last for longer than the deadline.
#[test]
fn no_call_is_made_again_behind_the_deadline() {
    for kind in KINDS {
        let often =
            Retry::times(10_000).backoff(Duration::from_millis(1), Duration::from_millis(1));
        let how = How::workers(1).deadline(Duration::from_millis(30)).retry(often);
        let (pipeline, calls) = flaky(kind, how, u64::MAX);
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(items.is_empty());
        let text = fault.expect("a fault").to_string();
        assert!(text.contains("and its deadline leaves no time for another try"), "{text}");
        assert!((1..10_000).contains(&calls.load(SeqCst)), "{kind}");
        // One that is far away changes nothing.
        let how = How::workers(3).deadline(Duration::from_secs(3600)).retry(quick(2));
        let (pipeline, calls) = flaky(kind, how, 2);
        assert!(outcome(pipeline.run().expect("runs")).0.into_iter().eq(0..20));
        assert_eq!(calls.load(SeqCst), 60, "{kind}");
    }
}

/// The call never ends; its own timeout is far away.
#[test]
fn a_call_is_given_up_at_the_deadline_of_its_item() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let (source, _) = numbers(1);
    let how = How::workers(1).timeout(Duration::from_secs(3600)).retry(quick(5));
    let how = how.deadline(Duration::from_millis(60));
    let pipeline = map_of(source, Kind::Io, how, move |x: u64| {
        count.fetch_add(1, SeqCst);
        async move { if x == 0 { std::future::pending().await } else { Ok::<_, Never>(x) } }
    });
    let (items, fault) = outcome(pipeline.run().expect("runs"));
    let fault = fault.expect("a fault");
    assert_eq!((items.len(), fault.kind()), (0, FaultKind::Timeout), "{fault}");
    assert!(fault.to_string().contains("timed out after 60ms"), "{fault}");
    assert_eq!(calls.load(SeqCst), 1);
}

/// Its deadline and its call's return both tell that it failed.
#[test]
fn an_item_that_takes_too_long_is_left_out_once() {
    for kind in KINDS {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("late.jsonl");
        let policy = OnError::Skip { max: SkipLimit::Count(12), log: Some(log.clone()) };
        let (source, _) = numbers(12);
        let how = How::workers(2).timeout(Duration::from_millis(2)).on_error(policy);
        let pipeline = map_of(source, kind, how, move |x: u64| async move {
            match tokio::runtime::Handle::try_current() {
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => pause(Duration::from_millis(10)),
            }
            Ok::<_, Never>(x)
        });
        let (items, fault) = outcome(pipeline.run().expect("runs"));
        assert!(fault.is_none() && items.is_empty(), "{kind}: {fault:?}");
        let text = std::fs::read_to_string(&log).expect("written");
        assert_eq!(text.lines().count(), 12, "{kind}:\n{text}");
    }
}

/// The clock covers the call alone: a stopped consumer times nothing out.
#[test]
fn waiting_for_room_is_no_timeout() {
    for kind in KINDS {
        let (source, _) = numbers(50);
        let how = How::workers(2).buffer(1).timeout(Duration::from_millis(50));
        let pipeline = map_of(source, kind, how, |x| async move { Ok::<_, Never>(x) });
        let mut run = pipeline.run().expect("runs");
        assert!(run.next().is_some());
        pause(Duration::from_millis(200));
        let (items, fault) = outcome_from(run, 1);
        assert!(fault.is_none(), "{kind}: {fault:?}");
        assert_eq!(items, 49);
    }
}

fn outcome_from(mut run: Running<u64>, _taken: usize) -> (usize, Option<Fault>) {
    let (mut items, mut fault) = (0, None);
    for item in run.by_ref() {
        match item {
            Ok(_) => items += 1,
            Err(error) => fault = Some(error),
        }
    }
    (items, fault)
}

#[test]
fn calls_start_no_faster_than_the_rate() {
    for kind in KINDS {
        let (source, _) = numbers(11);
        let how = How::workers(8).rate(Rate::requests(100.0));
        let pipeline = map_of(source, kind, how, |x| async move { Ok::<_, Never>(x) });
        let start = Instant::now();
        let mut run = pipeline.run().expect("runs");
        run.by_ref().for_each(|item| _ = item.expect("no fault"));
        // The first starts at once, ten more at 10 ms each.
        assert!(start.elapsed() >= Duration::from_millis(100), "{kind}");
        assert!(run.stats().stages[1].states.limit > Duration::ZERO);
    }
}

#[test]
fn bytes_flow_no_faster_than_the_rate() {
    let (source, _) = numbers(6);
    let stage = cpu::map("read", |_: u64| Ok::<_, Never>(vec![0_u8; 10_000]));
    let start = Instant::now();
    let run = source.then(stage.rate(Rate::bytes(1e6)).workers(1)).run().expect("runs");
    assert_eq!(outcome(run).0.len(), 6);
    // 10 kB cost 10 ms each; the last need not be paid before the end.
    assert!(start.elapsed() >= Duration::from_millis(45));
}
