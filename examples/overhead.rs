//! What the engine itself costs. Prints one JSON line for each workload and setting; a value is the
//! median of five runs, and `runs` holds them all.
//!
//!     cargo run --release --example overhead
//!
//! `--quick` does each once and small, to see that it works.
#![expect(clippy::print_stdout, reason = "an example tells what it found")]

use std::time::{Duration, Instant};

use forebay::prelude::*;

type Numbers = Pipeline<u64>;
type Failure = Box<dyn std::error::Error>;

struct Bench {
    quick: bool,
}

impl Bench {
    fn runs(&self) -> usize {
        if self.quick { 1 } else { 5 }
    }

    /// Measures `value` several times and prints the line.
    fn line(
        &self,
        (workload, kind, workers): (&str, &str, usize),
        unit: &str,
        ideal: Option<f64>,
        mut value: impl FnMut() -> Result<f64, Failure>,
    ) -> Result<(), Failure> {
        let mut runs = (0..self.runs()).map(|_| value()).collect::<Result<Vec<_>, _>>()?;
        let all = runs.clone();
        runs.sort_by(f64::total_cmp);
        let line = serde_json::json!({
            "workload": workload, "kind": kind, "workers": workers,
            "value": runs[runs.len() / 2], "unit": unit, "ideal": ideal, "runs": all,
        });
        println!("{line}");
        Ok(())
    }
}

/// Adds a stage of a kind to a pipeline of numbers.
fn add(numbers: Numbers, kind: Kind, workers: usize, name: &str, f: fn(u64) -> u64) -> Numbers {
    match kind {
        Kind::Io => {
            let stage = io::map(name, move |x| std::future::ready(Ok::<_, Never>(f(x))));
            numbers.then(stage.workers(workers))
        }
        Kind::Cpu => numbers.then(cpu::map(name, move |x| Ok::<_, Never>(f(x))).workers(workers)),
        _ => numbers.then(device::map(name, move |x| Ok::<_, Never>(f(x))).workers(workers)),
    }
}

const KINDS: [Kind; 3] = [Kind::Io, Kind::Cpu, Kind::Device];

/// Tiny items through three stages: x + 1, x * 2, x - 3.
fn tiny(bench: &Bench) -> Result<(), Failure> {
    let n: u64 = if bench.quick { 10_000 } else { 1_000_000 };
    for kind in KINDS {
        for workers in [1, 2, 4] {
            bench.line(("tiny", &kind.to_string(), workers), "us/item", None, || {
                let numbers = Pipeline::from(source::iter("numbers", 0..n));
                let one = add(numbers, kind, workers, "add", |x| x + 1);
                let two = add(one, kind, workers, "double", |x| x * 2);
                let three = add(two, kind, workers, "subtract", |x| x.wrapping_sub(3));
                let start = Instant::now();
                let mut sum = 0_u64;
                for x in three.run()? {
                    sum = sum.wrapping_add(x?);
                }
                let elapsed = start.elapsed();
                assert_eq!(
                    sum,
                    (0..n).fold(0, |sum: u64, x| sum.wrapping_add((x + 1) * 2).wrapping_sub(3))
                );
                Ok(elapsed.as_secs_f64() * 1e6 / n as f64)
            })?;
        }
    }
    Ok(())
}

/// Computes for a time.
fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[expect(clippy::disallowed_methods, reason = "stands for a device that is busy")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Fetch waits 10 ms, the cpu works 3 ms, the device waits 2 ms and is serial.
fn mixed(bench: &Bench) -> Result<(), Failure> {
    let n = if bench.quick { 20 } else { 1000 };
    let device_alone = || {
        let start = Instant::now();
        (0..n).for_each(|_| sleep(Duration::from_millis(2)));
        start.elapsed().as_secs_f64()
    };
    // The cpu stage is the serial one where the cores can't do 3 ms in 2 ms.
    let cores = std::thread::available_parallelism()?.get();
    let cpu_bound = n as f64 * 0.003 / cores as f64;
    let ideal = device_alone().max(cpu_bound);
    bench.line(("mixed", "io+cpu+device", 16), "s", Some(ideal), || {
        let fetch = io::map("fetch", async |x: u64| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, Never>(x)
        });
        let work = cpu::map("work", |x: u64| {
            spin(Duration::from_millis(3));
            Ok::<_, Never>(x)
        });
        let use_it = device::map("device", |x: u64| {
            sleep(Duration::from_millis(2));
            Ok::<_, Never>(x)
        });
        let pipeline = Pipeline::from(source::iter("numbers", 0..n as u64))
            .then(fetch.workers(16))
            .then(work)
            .then(use_it.workers(1));
        let start = Instant::now();
        assert_eq!(pipeline.run()?.drain()?.items, n as u64);
        Ok(start.elapsed().as_secs_f64())
    })
}

/// 200 items in order; one in 20 takes 400 ms, the rest 10 ms; 4 workers. With the default window
/// of 8 x workers two stragglers are under way at a time, with one of 128 items four are.
fn stragglers(bench: &Bench) -> Result<(), Failure> {
    for (kind, window) in [("io, window 128", Some(128)), ("io, default window", None)] {
        stragglers_within(bench, kind, window)?;
    }
    Ok(())
}

fn stragglers_within(bench: &Bench, kind: &str, window: Option<usize>) -> Result<(), Failure> {
    let n = if bench.quick { 20 } else { 200 };
    bench.line(("stragglers", kind, 4), "s", Some(1.48), || {
        let fetch = io::map("fetch", async |x: u64| {
            let ms = if x.is_multiple_of(20) { 400 } else { 10 };
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, Never>(x)
        });
        let fetch = fetch.workers(4).ordered(Ordered::Window(window));
        let pipeline = Pipeline::from(source::iter("numbers", 0..n)).then(fetch);
        let start = Instant::now();
        let items: Vec<u64> = pipeline.run()?.collect::<Result<_, _>>()?;
        assert!(items.into_iter().eq(0..n));
        Ok(start.elapsed().as_secs_f64())
    })
}

fn first_item(bench: &Bench) -> Result<(), Failure> {
    bench.line(("first_item", "io+cpu+device", 16), "ms", Some(0.0), || {
        let numbers = Pipeline::from(source::iter("numbers", 0..1000_u64));
        let numbers = add(numbers, Kind::Io, 16, "io", |x| x);
        let numbers = add(numbers, Kind::Cpu, 2, "cpu", |x| x);
        let numbers = add(numbers, Kind::Device, 1, "device", |x| x);
        let start = Instant::now();
        let mut run = numbers.run()?;
        let first = run.next();
        let elapsed = start.elapsed();
        assert!(matches!(first, Some(Ok(0))));
        Ok(elapsed.as_secs_f64() * 1e3)
    })
}

/// A drop with 64 calls in flight that take 100 ms each.
fn drops(bench: &Bench) -> Result<(), Failure> {
    for kind in [Kind::Io, Kind::Cpu] {
        bench.line(("drop", &kind.to_string(), 64), "ms", Some(0.0), || {
            let numbers = Pipeline::from(source::iter("numbers", 0..1000_u64));
            let pipeline = match kind {
                Kind::Io => numbers.then(
                    io::map("slow", async |x: u64| {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        Ok::<_, Never>(x)
                    })
                    .workers(64),
                ),
                _ => numbers.then(
                    cpu::map("slow", |x: u64| {
                        sleep(Duration::from_millis(100));
                        Ok::<_, Never>(x)
                    })
                    .workers(64),
                ),
            };
            let run = pipeline.run()?;
            while run.stats().stages[1].items_in < 64 {
                sleep(Duration::from_millis(1));
            }
            let start = Instant::now();
            drop(run);
            let elapsed = start.elapsed();
            sleep(Duration::from_millis(120));
            Ok(elapsed.as_secs_f64() * 1e3)
        })?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let bench = Bench { quick: std::env::args().any(|arg| arg == "--quick") };
    tiny(&bench)?;
    mixed(&bench)?;
    stragglers(&bench)?;
    first_item(&bench)?;
    drops(&bench)?;
    bench.line(("measuring", "cpu", 1), "us/item/stage", Some(0.0), || {
        Ok(forebay::trace::measuring_cost().as_secs_f64() * 1e6)
    })
}
