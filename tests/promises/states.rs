//! Rule 9 and section 8: every worker is always in one of five states, and the shares say where the
//! time goes.

use std::time::Duration;

use forebay::prelude::*;
use forebay::trace::{Cause, Delivered, RunReport, report, verdict};

use crate::support::{Gate, How, KINDS, map_of, numbers, pause, until};

#[test]
fn shares_add_up_to_one_at_any_time() {
    for kind in KINDS {
        let (source, _) = numbers(3000);
        let how = How::workers(4).buffer(2).rate(Rate::requests(20_000.0));
        let pipeline = map_of(source, kind, how, |x| async move {
            tokio::task::yield_now().await;
            Ok::<_, Never>(x)
        });
        let mut run = pipeline.run().expect("runs");
        for _ in 0..200 {
            assert!(run.next().is_some());
            let stats = run.stats();
            for stage in &stats.stages {
                let sum = stage.states.shares().iter().sum::<f64>() + stage.states.ended_share();
                assert!((sum - 1.0).abs() < 1e-9, "{kind} {sum}");
                let whole = stats.elapsed * stage.workers as u32;
                assert!(stage.states.total().abs_diff(whole) < Duration::from_micros(1));
            }
        }
    }
}

/// Runs two stages that wait as told, with a consumer that waits too, and gives the verdict.
fn judged(fetch_ms: u64, work_ms: u64, consumer_ms: u64) -> (Option<String>, Cause) {
    let (source, _) = numbers(30);
    let fetch = io::map("fetch", move |x: u64| async move {
        tokio::time::sleep(Duration::from_millis(fetch_ms)).await;
        Ok::<_, Never>(x)
    });
    let work = device::map("work", move |x: u64| {
        pause(Duration::from_millis(work_ms));
        Ok::<_, Never>(x)
    });
    let mut run = source
        .then(fetch.workers(1).buffer(2))
        .then(work.workers(1).buffer(2))
        .run()
        .expect("runs");
    for item in run.by_ref() {
        _ = item.expect("no fault");
        pause(Duration::from_millis(consumer_ms));
    }
    let verdict = verdict(&run.close());
    (verdict.stage, verdict.cause)
}

#[test]
fn the_culprit_is_named() {
    assert_eq!(judged(10, 1, 0), (Some("fetch".into()), Cause::Working));
    assert_eq!(judged(1, 10, 0), (Some("work".into()), Cause::Working));
    assert_eq!(judged(1, 1, 10), (Some("you".into()), Cause::Consumer));
}

#[test]
fn a_rate_limit_is_named() {
    let (source, _) = numbers(30);
    let stage = io::map("asked", async |x: u64| Ok::<_, Never>(x));
    let mut run = source.then(stage.workers(2).rate(Rate::requests(200.0))).run().expect("runs");
    run.by_ref().for_each(|item| _ = item.expect("no fault"));
    let verdict = verdict(&run.close());
    assert_eq!((verdict.stage.as_deref(), verdict.cause), (Some("asked"), Cause::Limit));
    assert!(verdict.sentence.contains("rate limit"), "{}", verdict.sentence);
}

#[test]
fn service_times_are_of_the_call_alone() {
    let (source, _) = numbers(20);
    let stage = io::map("quick", async |x: u64| Ok::<_, Never>(x));
    let mut run = source.then(stage.workers(1).buffer(1)).run().expect("runs");
    for _ in 0..20 {
        // The consumer is slow; the calls are not.
        pause(Duration::from_millis(5));
        assert!(run.next().is_some());
    }
    let stats = run.close();
    let service = stats.stages[1].service;
    assert_eq!(service.count, 20);
    assert!(service.p50_ns < 4_000_000, "{service:?}");
}

#[test]
fn the_waiting_of_the_consumer_is_measured() {
    let gate = Gate::closed();
    let inside = gate.clone();
    let (source, _) = numbers(1);
    let stage = io::map("gated", move |x: u64| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok::<_, Never>(x)
        }
    });
    let mut run = source.then(stage).run().expect("runs");
    let handle = run.handle();
    let opener = std::thread::spawn(move || {
        // Seen while it waits, not only afterwards.
        until("the consumer waits", || handle.stats().waited > Duration::from_millis(20));
        gate.open();
    });
    assert!(run.next().is_some());
    opener.join().expect("no panic");
    let stats = run.close();
    assert!(stats.waited >= Duration::from_millis(20) && stats.waited <= stats.elapsed);
}

/// F6 and F7: an io stage that computes is reported by name.
#[test]
fn an_io_stage_that_computes_is_named() {
    let (source, _) = numbers(6);
    let stage = io::map("guilty", async |x: u64| {
        let until = std::time::Instant::now() + Duration::from_millis(40);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok::<_, Never>(x)
    });
    let mut run = source.then(stage.workers(1)).run().expect("runs");
    run.by_ref().for_each(|item| _ = item.expect("no fault"));
    let held = run.handle().held();
    assert!(held.contains_key("guilty"), "{held:?}");
}

#[test]
fn the_report_and_its_json_say_the_same() {
    let (source, _) = numbers(50);
    let mut run = source.then(cpu::map("work", Ok::<u64, Never>).workers(2)).run().expect("runs");
    run.by_ref().for_each(|item| _ = item.expect("no fault"));
    let stats = run.close();
    let delivered = Delivered { items: 50, batches: 0 };
    let text = report(&stats, delivered);
    assert!(text.contains("finished in") && text.contains("50 items"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("work")), "{text}");
    assert!(text.contains("You waited"), "{text}");
    let json = serde_json::to_value(RunReport::new(&stats, delivered, [], None)).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["items"], 50);
    assert_eq!(json["stages"][1]["id"], "work");
    let shares = ["working", "starved", "blocked", "turn", "limit"];
    let sum: f64 =
        shares.iter().map(|share| json["stages"][1][share].as_f64().expect("a share")).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

/// A source that has given all it has is not starved for the rest of the run: nothing is wrong with it.
#[test]
fn a_source_that_has_ended_is_in_no_state() {
    let slow = io::map("slow", async |x: u64| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok::<_, Never>(x)
    });
    let run = Pipeline::from(source::iter("numbers", 0..10_u64)).then(slow.workers(1)).run();
    let stats = run.expect("runs").drain().expect("no fault");
    let source = &stats.stages[0];
    assert_eq!(source.states.starved, Duration::ZERO);
    assert!(source.states.ended >= Duration::from_millis(50), "{:?}", source.states);
    assert_eq!(source.workers, 1);
    assert!(source.states.total().abs_diff(stats.elapsed) < Duration::from_micros(1));
    let json = RunReport::new(&stats, Delivered::default(), [], None);
    let shares = &json.stages[0];
    assert!(shares.ended > 0.5 && shares.starved == 0.0, "{shares:?}");
}

#[test]
fn what_a_stage_could_do_is_at_most_its_rate() {
    for rate in [Rate::requests(200.0), Rate::bytes(8.0 * 200.0)] {
        let limited = io::map("limited", async |x: u64| Ok::<_, Never>(x)).workers(4).rate(rate);
        let run = Pipeline::from(source::iter("numbers", 0..20_u64)).then(limited).run();
        let stats = run.expect("runs").drain().expect("no fault");
        assert_eq!(stats.stages[1].rate_per_s, Some(200.0));
        assert_eq!(stats.stages[1].could_do_per_s(), 200.0);
        let json = RunReport::new(&stats, Delivered::default(), [], None);
        assert_eq!(json.stages[1].could_do_per_s, Some(200.0));
    }
}
