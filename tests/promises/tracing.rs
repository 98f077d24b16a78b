//! What a run remembers: receipts, stalls, slow calls, failures, figures over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::fault::FaultKind;
use forebay::pipeline::StallRule;
use forebay::prelude::*;
use forebay::trace::{self, Ended, Receipt, Whereabouts};

use crate::support::{Broken, Gate, numbers, pause, until};

fn soon() -> StallRule {
    StallRule { after: Some(Duration::from_millis(100)), fails: false }
}

/// A pipeline whose call on the number 3 waits at `gate`, saying whom it asks.
fn stuck(gate: &Gate) -> Pipeline<u64> {
    let gate = gate.clone();
    let fetch = io::map("fetch", move |x: u64| {
        let gate = gate.clone();
        async move {
            if x == 3 {
                let _request = trace::request(|| format!("GET store.example/{x}"));
                gate.pass().await;
            }
            Ok::<_, Never>(x)
        }
    });
    let decode = cpu::map("decode", |x: u64| Ok::<_, Never>(x));
    numbers(9).0.then(fetch.workers(4)).then(decode.workers(2))
}

#[test]
fn a_stalled_run_says_whom_it_waits_for() {
    let gate = Gate::closed();
    let mut pipeline = stuck(&gate);
    pipeline.settings_mut().stall = soon();
    let run = pipeline.run().expect("runs");
    let handle = run.handle();
    let consumer = std::thread::spawn(move || run.map(Result::unwrap).collect::<Vec<u64>>());
    until("it has stalled", || !handle.stats().stalls.is_empty());
    let stall = handle.stats().stalls.remove(0);
    assert_eq!((&*stall.stage, stall.item.as_deref(), stall.attempt), ("fetch", Some("3"), 1));
    assert_eq!(stall.outside.as_deref(), Some("GET store.example/3"));
    assert!(stall.age >= Duration::from_millis(100));
    let told = stall.to_string();
    let parts = ["you wait <- decode starved <- fetch item 3", "for GET store.example/3"];
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    gate.open();
    assert_eq!(consumer.join().expect("no panic").len(), 9, "a stall kills nothing");
}

#[test]
fn a_run_may_be_told_to_fail_when_it_stalls() {
    let gate = Gate::closed();
    let mut pipeline = stuck(&gate);
    pipeline.settings_mut().stall = StallRule { fails: true, ..soon() };
    let mut run = pipeline.run().expect("runs");
    let mut fault = None;
    for item in run.by_ref() {
        fault = item.err();
    }
    let fault = fault.expect("the run fails");
    assert_eq!((fault.kind(), fault.stage()), (FaultKind::Stall, "fetch"));
    assert!(fault.to_string().contains("nothing moved for"), "{fault}");
    assert_eq!(run.close().ended, Some(Ended::Failed));
}

#[test]
fn a_consumer_that_takes_its_time_is_no_stall() {
    let (source, _) = numbers(9);
    let mut pipeline = source.then(io::map("fetch", async |x: u64| Ok::<_, Never>(x)));
    pipeline.settings_mut().stall = StallRule { fails: true, ..soon() };
    let mut run = pipeline.run().expect("runs");
    assert!(run.next().is_some_and(|item| item.is_ok()));
    // Longer than the rule says, and than the keeper's look.
    pause(Duration::from_millis(900));
    assert_eq!(run.by_ref().filter(Result::is_ok).count(), 8);
    assert_eq!(run.close().stalls, []);
}

#[test]
fn a_retry_pause_is_told_as_one() {
    let asked = Arc::new(AtomicU64::new(0));
    let (source, _) = numbers(1);
    let fetch = io::map("fetch", move |x: u64| {
        let first = asked.fetch_add(1, SeqCst) == 0;
        async move { if first { Err(Broken(x)) } else { Ok(x) } }
    });
    let pauses = Retry::times(1).backoff(Duration::from_secs(600), Duration::from_secs(600));
    let mut pipeline = source.then(fetch.retry(pauses));
    pipeline.settings_mut().stall = soon();
    let run = pipeline.run().expect("runs");
    let handle = run.handle();
    let consumer = std::thread::spawn(move || run.for_each(drop));
    until("it has stalled", || !handle.stats().stalls.is_empty());
    let stall = handle.stats().stalls.remove(0);
    assert!(stall.to_string().contains("item 0 pauses after attempt 1"), "{stall}");
    handle.cancel();
    consumer.join().expect("no panic");
}

#[test]
fn a_receipt_says_what_was_waited_for() {
    let (source, _) = numbers(12);
    let failed = Arc::new(AtomicU64::new(0));
    let fetch = io::map("fetch", move |x: u64| {
        // The second try of 7 takes long.
        let again = x == 7 && failed.fetch_add(1, SeqCst) == 1;
        let fails = x == 7 && !again;
        async move {
            if again {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            if fails { Err(Broken(x)) } else { Ok(x) }
        }
    });
    let retry = Retry::times(1).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let pipeline = source
        .then(fetch.workers(3).retry(retry))
        .then(flow::batch(4))
        .then(cpu::map("sum", |numbers: Vec<u64>| Ok::<_, Never>(numbers.iter().sum::<u64>())));
    let mut run = pipeline.run().expect("runs");
    let mut receipts: Vec<Receipt> = Vec::new();
    while let Some(item) = run.next() {
        item.expect("no fault");
        receipts.extend(run.receipt());
    }
    assert_eq!(receipts.len(), 3);
    let late = &receipts[1];
    let stages: Vec<_> = late.steps.iter().map(|step| (&*step.stage, step.items)).collect();
    assert_eq!(stages, [("numbers", 1), ("fetch", 4), ("batch", 4), ("sum", 1)]);
    let fetch = &late.steps[1];
    assert_eq!((fetch.attempts, fetch.slowest.as_deref()), (2, Some("7")));
    assert!(late.waited > Duration::from_millis(100), "{late:?}");
    let cause = late.cause.as_ref().expect("it was waited for");
    assert_eq!((&*cause.stage, cause.at), ("fetch", Whereabouts::Called));
    assert!(cause.time > Duration::from_millis(100) && cause.time <= late.waited);
    let told = late.to_string();
    assert!(told.contains("item 4 came after") && told.contains("item 7, 2 attempts"), "{told}");
    for step in &late.steps {
        let left = step.left.expect("it was sent on");
        let finished = step.finished.unwrap_or(left);
        assert!(step.entered <= finished && finished <= left && left <= late.delivered);
    }
}

#[test]
fn slow_calls_and_failures_are_kept_by_name() {
    let (source, _) = numbers(40);
    let stage = cpu::map("work", |x: u64| {
        if x == 17 {
            pause(Duration::from_millis(30));
        }
        if x.is_multiple_of(10) { Err(Broken(x)) } else { Ok(x) }
    });
    let pipeline = source.then(stage.workers(2).on_error(OnError::skip()));
    let stats = pipeline.run().expect("runs").drain().expect("skips");
    let work = &stats.stages[1];
    assert_eq!((&*work.slowest[0].item, work.slowest[0].attempt), ("17", 1));
    assert!(work.slowest[0].ns >= 30_000_000);
    assert!(work.slowest.is_sorted_by(|a, b| a.ns >= b.ns));
    assert_eq!(work.failures.len(), 1, "one kind: {:?}", work.failures);
    // Which of the four comes first is the workers' race.
    let kept = &work.failures[0];
    let broken = [0, 10, 20, 30].map(|x| Broken(x).to_string());
    assert!(kept.count == 4 && broken.contains(&kept.error), "{kept:?}");
    assert_eq!(work.options, "workers 2, on_error skip");
}

#[test]
fn figures_over_time_end_where_the_run_did() {
    let (source, _) = numbers(30);
    let stage = io::map("wait", async |x: u64| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok::<_, Never>(x)
    });
    let mut run = source.then(stage.workers(2)).run().expect("runs");
    assert_eq!(run.by_ref().count(), 30);
    let handle = run.handle();
    let stats = run.close();
    let series = handle.series();
    assert!(series.t.len() > 1 && series.t.is_sorted(), "{:?}", series.t);
    let last = series.t.last().expect("there is one");
    assert!((last - stats.elapsed.as_secs_f64()).abs() < 1e-5);
    assert_eq!((series.items.last(), series.stages.len()), (Some(&30), 2));
    for (t, states) in series.t.iter().zip(&series.stages[1].states) {
        let (sum, whole) = (states.iter().sum::<f64>(), 2.0 * t);
        assert!((sum - whole).abs() < 1e-5, "{sum} of {whole}");
    }
}
