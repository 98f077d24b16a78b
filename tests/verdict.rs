//! Pipelines with a known culprit: the verdict must name it, and say what a change would give.
//!
//! Calls sleep, so that a busy machine changes little; what is compared are names and ratios.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay::prelude::*;
use forebay::trace::{self, Cause, RunStats, Verdict, verdict};

type Numbers = Pipeline<u64>;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn numbers(n: u64) -> Numbers {
    Pipeline::from(source::iter("numbers", 0..n))
}

#[expect(clippy::disallowed_methods, reason = "a device or a consumer that takes its time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// On a core for so long.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// An io stage whose calls take as long as `time` says.
fn io_stage(
    name: &str,
    workers: usize,
    time: impl Fn(u64) -> Duration + Send + Sync + 'static,
) -> Staged<impl Work<In = u64, Out = u64>> {
    let time = Arc::new(time);
    let call = move |x: u64| {
        let time = Arc::clone(&time);
        async move {
            tokio::time::sleep(time(x)).await;
            Ok::<_, Never>(x)
        }
    };
    io::map(name.to_owned(), call).workers(workers).buffer(8)
}

fn device_stage(time: Duration) -> Staged<impl Work<In = u64, Out = u64>> {
    let call = move |x: u64| {
        pause(time);
        Ok::<_, Never>(x)
    };
    device::map("device", call).buffer(8)
}

/// Runs it with a consumer that takes `step` for each item.
fn consumed(pipeline: Numbers, step: Duration) -> RunStats {
    // One at a time: each would be a culprit of the others.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut run = pipeline.run().expect("runs");
    for item in run.by_ref() {
        item.expect("no fault");
        pause(step);
    }
    run.close()
}

fn judged(pipeline: Numbers, step: Duration) -> Verdict {
    verdict(&consumed(pipeline, step))
}

fn named(verdict: &Verdict, stage: &str, cause: Cause) {
    let found = (verdict.stage.as_deref(), verdict.cause);
    assert_eq!(found, (Some(stage), cause), "{}", verdict.sentence);
}

#[test]
fn slow_answers() {
    let stages = numbers(80).then(io_stage("fetch", 2, |_| ms(10)));
    let verdict = judged(stages.then(device_stage(ms(1))), ms(1));
    named(&verdict, "fetch", Cause::Working);
    assert!(verdict.sentence.contains("both workers are waiting for answers"), "{verdict:?}");
}

#[test]
fn heavy_computing() {
    let decode = cpu::map("decode", |x: u64| {
        compute(ms(8));
        Ok::<_, Never>(x)
    });
    let stages = numbers(60).then(io_stage("fetch", 4, |_| ms(2))).then(decode.workers(1));
    let verdict = judged(stages, ms(0));
    assert_eq!(verdict.stage.as_deref(), Some("decode"), "{}", verdict.sentence);
    // On a machine with other work the one core may be missing too.
    assert!(matches!(verdict.cause, Cause::Working | Cause::Cores), "{}", verdict.sentence);
}

#[test]
fn a_slow_device() {
    let stages = numbers(60).then(io_stage("fetch", 4, |_| ms(4))).then(device_stage(ms(8)));
    let verdict = judged(stages, ms(1));
    named(&verdict, "device", Cause::Working);
}

#[test]
fn a_slow_training_loop() {
    let stages = numbers(50).then(io_stage("fetch", 4, |_| ms(4))).then(device_stage(ms(1)));
    let verdict = judged(stages, ms(10));
    named(&verdict, "you", Cause::Consumer);
}

#[test]
fn one_straggler_in_an_ordered_stage() {
    let slow = |x: u64| if x.is_multiple_of(20) { ms(120) } else { ms(4) };
    let stages = numbers(160).then(io_stage("fetch", 4, slow).window(4));
    let verdict = judged(stages, ms(0));
    named(&verdict, "fetch", Cause::Turn);
    assert!(verdict.advice.is_some_and(|advice| advice.contains("window")));
}

#[test]
fn finished_items_that_fill_the_buffer_before_their_turn() {
    // Each weighs 8 bytes: two of them fill the buffer, and the window holds no more.
    let slow = |x: u64| if x.is_multiple_of(20) { ms(120) } else { ms(4) };
    let buffer = Buffer { items: 64, bytes: 16 };
    let stages = numbers(160).then(io_stage("fetch", 4, slow).window(64).buffer(buffer));
    named(&judged(stages, ms(0)), "fetch", Cause::Turn);
}

#[test]
fn a_rate_limit() {
    let fetch = io_stage("fetch", 4, |_| ms(1)).rate(Rate::requests(200.0));
    let verdict = judged(numbers(80).then(fetch), ms(1));
    named(&verdict, "fetch", Cause::Limit);
    let gain = &verdict.gains[0];
    assert!(gain.change.contains("rate") && gain.factor > 2.0, "{gain:?}");
}

#[test]
fn a_retry_storm() {
    let asked = AtomicU64::new(0);
    let fetch = io::map("fetch", move |x: u64| {
        // Every second call fails.
        let fails = asked.fetch_add(1, SeqCst).is_multiple_of(2);
        async move {
            tokio::time::sleep(ms(5)).await;
            if fails { Err("503 slow down") } else { Ok(x) }
        }
    });
    let fetch = fetch.workers(2).retry(Retry::times(20).backoff(ms(2), ms(5)));
    let verdict = judged(numbers(60).then(fetch), ms(0));
    named(&verdict, "fetch", Cause::Retries);
    assert!(verdict.sentence.contains("failed and were made again"), "{}", verdict.sentence);
}

#[test]
fn a_store_that_wants_to_be_asked_less() {
    let fetch = io::map("fetch", |x: u64| async move {
        if x.is_multiple_of(10) {
            trace::throttled();
        }
        tokio::time::sleep(ms(8)).await;
        Ok::<_, Never>(x)
    });
    let verdict = judged(numbers(60).then(fetch.workers(2)), ms(0));
    named(&verdict, "fetch", Cause::Throttled);
    assert!(verdict.sentence.contains("the store said 6 times"), "{}", verdict.sentence);
}

#[test]
fn too_few_cores() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let decode = cpu::map("decode", |x: u64| {
        compute(ms(6));
        Ok::<_, Never>(x)
    });
    let stages = numbers(200 * cores as u64 / 2).then(decode.workers(4 * cores));
    let verdict = judged(stages, ms(0));
    named(&verdict, "decode", Cause::Cores);
    assert!(verdict.sentence.contains("on a core"), "{}", verdict.sentence);
}

#[test]
fn a_cpu_stage_that_waits_instead_of_computing() {
    let read = cpu::map("read", |x: u64| {
        pause(ms(8));
        Ok::<_, Never>(x)
    });
    let verdict = judged(numbers(60).then(read.workers(2)), ms(0));
    assert_eq!(verdict.stage.as_deref(), Some("read"), "{}", verdict.sentence);
    // Where other programs hold the cores, it may wait longer for one than it sleeps.
    if verdict.cause != Cause::Cores {
        named(&verdict, "read", Cause::Working);
        assert!(verdict.sentence.contains("wait instead of computing"), "{}", verdict.sentence);
        assert!(verdict.advice.is_some_and(|advice| advice.contains("io stage")));
    }
}

#[test]
fn a_slow_source() {
    let items = (0..60).inspect(|_| pause(ms(8)));
    let stages = Pipeline::from(source::iter("listing", items));
    let verdict = judged(stages.then(io_stage("fetch", 4, |_| ms(4))), ms(0));
    named(&verdict, "listing", Cause::Working);
}

#[test]
fn short_buffers_around_a_batch() {
    let stages = numbers(320).then(io_stage("fetch", 2, |_| ms(4)).buffer(1));
    let batches =
        stages.then_with(flow::batch(16), Options { buffer: Some(1.into()), ..Default::default() });
    let sum = device::map("sum", |batch: Vec<u64>| {
        pause(ms(2));
        Ok::<_, Never>(batch.iter().sum::<u64>())
    });
    named(&judged(batches.then(sum.buffer(1)), ms(0)), "fetch", Cause::Working);
}

#[test]
fn two_that_are_equally_slow() {
    let pipeline = || numbers(80).then(io_stage("fetch", 2, |_| ms(12))).then(device_stage(ms(6)));
    // A machine that is busy with other things may make one of them the slower one.
    let verdicts = (0..4).map(|_| judged(pipeline(), ms(0)));
    let mut causes = verdicts.map(|verdict| verdict.cause);
    assert!(causes.any(|cause| cause == Cause::Balanced));
}

/// What the verdict on `before` says that `change` will give, and what it gives, as ratios of now.
/// Nothing if the verdict is another one.
fn predicted(
    before: impl Fn() -> Numbers,
    change: &str,
    after: impl Fn() -> Numbers,
) -> Option<(f64, f64)> {
    let rate = |stats: &RunStats| stats.items as f64 / stats.elapsed.as_secs_f64();
    let stats = consumed(before(), ms(1));
    let gains = verdict(&stats).gains;
    let gain = gains.iter().find(|gain| gain.change == change)?;
    Some((gain.factor, rate(&consumed(after(), ms(1))) / rate(&stats)))
}

/// A machine that is busy with other things may spoil a run; then it gets another.
fn within_15_percent(measure: impl Fn() -> Option<(f64, f64)>) {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let found = measure();
        if found.is_some_and(|(predicted, found)| (predicted / found - 1.0).abs() <= 0.15) {
            return;
        }
        seen.push(found);
    }
    panic!("predicted and found, as ratios of before: {seen:?}");
}

#[test]
fn one_more_worker_gives_what_was_said() {
    let with = |workers: usize| {
        numbers(150).then(io_stage("fetch", workers, |_| ms(12))).then(device_stage(ms(2)))
    };
    within_15_percent(|| predicted(|| with(2), "one more worker", || with(3)));
    // The device is the next limit.
    let with = |workers: usize| {
        numbers(150).then(io_stage("fetch", workers, |_| ms(10))).then(device_stage(ms(4)))
    };
    within_15_percent(|| predicted(|| with(2), "one more worker", || with(3)));
}

#[test]
fn half_the_time_of_a_call_gives_what_was_said() {
    let with = |time: Duration| {
        numbers(150).then(io_stage("fetch", 4, |_| ms(8))).then(device_stage(time))
    };
    within_15_percent(|| predicted(|| with(ms(10)), "half the time of a call", || with(ms(5))));
}
