//! What the device path does on a GPU, in one go: `benches/gpu.sh`. Needs a GPU, and says so where
//! there is none. One line of JSON per figure, each the median of five runs with the lowest and the
//! highest. What a figure should be at least or at most is judged, `ok` or `MISSED`, and the program fails
//! if one is missed.
//!
//! - `copy`: bytes a second through `device::upload`, and of `cuMemcpyHtoDAsync` alone from the same
//!   pinned memory: the ratio should be 0.95 or more.
//! - `idle`: the share of the time that the GPU does nothing behind a kernel of 20 ms a batch: below
//!   0.01.
//! - `pace`: seconds a batch with 8 ms to decode, 5 ms to copy and 10 ms to compute, and the ideal's
//!   share of that, 10 ms: 0.97 or more.
//! - `checksum`: 10,000 batches, each summed up on the GPU: none may differ.
//! - `normalize`: bytes a second that the kernel reads and writes, and of a copy on the GPU itself.
#![expect(unsafe_code, reason = "kernels are run and memory is copied by hand for comparison")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use forebay::device::cuda::{self, Argument, Cuda, Module, Stream};
use forebay::item::Spec;
use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;

const RUNS: usize = 5;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let device = match cuda::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped: {error}");
            return Ok(());
        }
    };
    eprintln!("{} with {} GiB", device.model(), device.memory_bytes() >> 30);
    // A part of everything shows whether it works; what it measures says nothing.
    let quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if quick { 100 } else { 1 };
    let mut judged = Judged::default();
    let per_s = copy(&device, (256 << 20) / scale, 200 / scale.min(10), &mut judged)?;
    idle(&device, 200 / scale.min(10), &mut judged)?;
    let copied = ((per_s * PACE_COPY.as_secs_f64()) as u64).min(1 << 30) / scale / 4096 * 4096;
    pace(&device, copied.max(4096), 200 / scale.min(10), &mut judged)?;
    checksum(&device, 10_000 / scale, &mut judged)?;
    normalize(&device, (256 << 20) / scale, 100 / scale.min(10))?;
    judged.end()
}

/// What was judged so far.
#[derive(Default)]
struct Judged {
    all: usize,
    missed: usize,
}

impl Judged {
    fn judge(&mut self, what: &str, figure: impl std::fmt::Display, should: &str, is_so: bool) {
        self.all += 1;
        self.missed += usize::from(!is_so);
        let verdict = if is_so { "ok    " } else { "MISSED" };
        eprintln!("{verdict} {what}: {figure} (should be {should})");
    }

    fn end(self) -> Result<(), Error> {
        let Judged { all, missed } = self;
        eprintln!("{} of {all} as they should be", all - missed);
        if missed == 0 { Ok(()) } else { Err(format!("{missed} of {all} missed").into()) }
    }
}

/// A batch of one tensor of f32, of so many bytes.
fn batch(pool: &Pool, bytes: u64, fill: impl FnOnce(&mut Tensor)) -> Batch {
    let dims = Arc::from([Arc::from("x")]);
    let shape = Arc::from([bytes / 4]);
    let spec = Spec { name: Arc::from("x"), dtype: DType::F32, dims, shape };
    let mut tensor = Tensor::take(pool, spec);
    fill(&mut tensor);
    Batch::new(vec![tensor], Vec::new())
}

fn batches(
    device: &Arc<Cuda>,
    n: u64,
    bytes: u64,
    fill: impl Fn(u64, &mut Tensor) + Send + Sync + 'static,
) -> Pipeline<DeviceBatch> {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    let pool = device.host_pool().clone();
    let decode = move |i: u64| Ok::<_, Never>(batch(&pool, bytes, |tensor| fill(i, tensor)));
    Pipeline::from(source::iter("numbers", 0..n))
        .then(cpu::map("decode", decode).workers(4).buffer(4))
        .then(device::upload(&device))
}

/// Gives the bytes a second of copies alone.
fn copy(device: &Arc<Cuda>, bytes: u64, n: u64, judged: &mut Judged) -> Result<f64, Error> {
    let stream = device.stream()?;
    // Pins the memory that the runs below take, which is not what is measured.
    batches(device, n.min(30), bytes, |_, _| ()).run()?.drain()?;
    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        // Nothing is written to the memory: this is about copies. The clock begins before the first of
        // them; once a batch is here, some of those behind it are copied already.
        let begun = Instant::now();
        let mut last = None;
        for batch in batches(device, n, bytes, |_, _| ()).run()? {
            last = Some(batch?);
        }
        let last = last.ok_or("no batch")?;
        last.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        settle(&stream)?;
        ours.push(n as f64 * bytes as f64 / begun.elapsed().as_secs_f64());

        let from = batch(Device::host_pool(&**device), bytes, |_| ());
        let to = &last.tensors()[0];
        let to = to.memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        let begun = Instant::now();
        for _ in 0..n {
            // SAFETY: both are there until the stream has come to an end below.
            unsafe {
                let from = from.tensors()[0].bytes();
                result::memcpy_htod_async(to.address(), from, stream.handle().cast())?;
            }
        }
        drop(to);
        settle(&stream)?;
        alone.push(n as f64 * bytes as f64 / begun.elapsed().as_secs_f64());
    }
    let ours = print("copy", "bytes/s", &mut ours);
    let alone = print("copy_alone", "bytes/s", &mut alone);
    let share = ours / alone;
    let figure = format!("{share:.3} of cuMemcpyHtoDAsync alone");
    judged.judge("copy", figure, "0.95 or more", share >= 0.95);
    Ok(alone)
}

/// Waits until the stream has done what it was told.
fn settle(stream: &cuda::Stream) -> Result<(), Error> {
    // SAFETY: the stream is alive.
    Ok(unsafe { result::stream::synchronize(stream.handle().cast()) }?)
}

fn idle(device: &Arc<Cuda>, n: u64, judged: &mut Judged) -> Result<(), Error> {
    const STEP: Duration = Duration::from_millis(20);
    let (module, stream) = (device.load(cuda::KERNELS)?, device.stream()?);
    let mut shares = Vec::new();
    for _ in 0..RUNS {
        let run = batches(device, n, 64 << 20, |_, _| ()).run()?;
        let took = used(run, STEP, &module, &stream)?;
        shares.push(1.0 - n as f64 * STEP.as_secs_f64() / took);
    }
    let idle = print("idle", "share", &mut shares);
    judged.judge("idle", format!("{idle:.4}"), "below 0.01", idle < 0.01);
    Ok(())
}

/// Seconds from the first batch of `run` to the end of the last, each of which is used for `step`.
fn used(
    run: Running<DeviceBatch>,
    step: Duration,
    module: &Module,
    stream: &Stream,
) -> Result<f64, Error> {
    let mut begun = None;
    for batch in run {
        let batch = batch?;
        let _view = batch.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(stream)?;
        begun.get_or_insert_with(Instant::now);
        let spin = [Argument::U64(1), Argument::U64(step.as_nanos() as u64)];
        // SAFETY: the kernel touches no memory.
        unsafe { module.run(stream, "spin", 1, 32, &spin) }?;
    }
    settle(stream)?;
    Ok(begun.ok_or("no batch")?.elapsed().as_secs_f64())
}

const PACE_COPY: Duration = Duration::from_millis(5);

/// With `bytes` bytes that take 5 ms to copy.
fn pace(device: &Arc<Cuda>, bytes: u64, n: u64, judged: &mut Judged) -> Result<(), Error> {
    const DECODE: Duration = Duration::from_millis(8);
    const STEP: Duration = Duration::from_millis(10);
    let (module, stream) = (device.load(cuda::KERNELS)?, device.stream()?);
    let (mut each, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let there: Arc<dyn Device> = Arc::clone(device) as _;
        let pool = there.host_pool().ring(12);
        let decode = move |_: u64| {
            let begun = Instant::now();
            let made = batch(&pool, bytes, |_| ());
            std::thread::park_timeout(DECODE.saturating_sub(begun.elapsed()));
            Ok::<_, Never>(made)
        };
        let run = Pipeline::from(source::iter("numbers", 0..n))
            .then(cpu::map("decode", decode).workers(1).buffer(2))
            .then(device::upload(&there))
            .run()?;
        let took = used(run, STEP, &module, &stream)?;
        each.push(took / n as f64);
        shares.push(STEP.as_secs_f64() * n as f64 / took);
    }
    print("pace", "s/batch", &mut each);
    let share = print("pace_of_ideal", "share", &mut shares);
    judged.judge("pace", format!("{share:.3} of the ideal"), "0.97 or more", share >= 0.97);
    Ok(())
}

fn checksum(device: &Arc<Cuda>, n: u64, judged: &mut Judged) -> Result<(), Error> {
    let (module, stream) = (device.load(cuda::KERNELS)?, device.stream()?);
    let fill = |i: u64, tensor: &mut Tensor| {
        for (at, word) in
            bytemuck::cast_slice_mut::<u8, u32>(tensor.bytes_mut()).iter_mut().enumerate()
        {
            *word = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(at as u32);
        }
    };
    let bytes = 1 << 20;
    let expected: u64 = (0..n)
        .map(|i| {
            let first = (i as u32).wrapping_mul(2_654_435_761);
            (0..bytes as u32 / 4).map(|at| u64::from(first.wrapping_add(at))).sum::<u64>()
        })
        .fold(0, u64::wrapping_add);
    // The sum is a tensor on the GPU itself, zero at first.
    let zero = batches(device, 1, 4096, |_, tensor| tensor.bytes_mut().fill(0));
    let sum = zero.run()?.next().ok_or("no batch")??;
    let begun = Instant::now();
    for batch in batches(device, n, bytes, fill).run()? {
        let batch = batch?;
        let from = batch.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        let to = sum.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        let arguments = [
            Argument::Address(from.address()),
            Argument::Address(to.address()),
            Argument::U64(bytes / 4),
        ];
        // SAFETY: these are what the kernel takes, and both views are there.
        unsafe { module.run(&stream, "checksum", bytes / 4, 256, &arguments) }?;
    }
    let sum = sum.tensors()[0].to_host(&Pool::default())?;
    let found = bytemuck::cast_slice::<u8, u64>(sum.bytes())[0];
    let batches_per_s = n as f64 / begun.elapsed().as_secs_f64();
    print("checksum", "batches/s", &mut [batches_per_s]);
    let figure = format!("the sum of {n} batches is {found:#x} on the GPU");
    judged.judge("checksum", figure, &format!("{expected:#x}"), found == expected);
    Ok(())
}

fn normalize(device: &Arc<Cuda>, bytes: u64, n: u64) -> Result<(), Error> {
    let stream = device.stream()?;
    let stats = || Stats::Given([("x".to_owned(), MeanStd { mean: 1.0, std: 2.0 })].into());
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let mut run =
            batches(device, n, bytes, |_, _| ()).then(device::normalize(stats())).run()?;
        let mut last = Vec::new();
        for batch in run.by_ref() {
            last.push(batch?);
            if last.len() > 2 {
                last.remove(0);
            }
        }
        let kernels = run.close().stages[3].device;
        ours.push(
            2.0 * bytes as f64 * kernels.kernel_batches as f64 / (kernels.kernel_ns as f64 / 1e9),
        );
        let views = last.iter().map(|batch| {
            Ok(batch.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?)
        });
        let views = views.collect::<Result<Vec<_>, Error>>()?;
        let begun = Instant::now();
        for _ in 0..n {
            // SAFETY: both are there until the stream has come to an end below.
            unsafe {
                let (to, from) = (views[0].address(), views[1].address());
                result::memcpy_dtod_async(to, from, bytes as usize, stream.handle().cast())?;
            }
        }
        drop(views);
        settle(&stream)?;
        copies.push(2.0 * bytes as f64 * n as f64 / begun.elapsed().as_secs_f64());
    }
    print("normalize", "bytes/s", &mut ours);
    print("copy_on_gpu", "bytes/s", &mut copies);
    Ok(())
}

/// Prints the figure, and gives its median.
fn print(what: &str, unit: &str, runs: &mut [f64]) -> f64 {
    runs.sort_by(f64::total_cmp);
    let (median, min, max) = (runs[runs.len() / 2], runs[0], runs[runs.len() - 1]);
    println!(
        "{}",
        serde_json::json!({ "what": what, "unit": unit, "median": median, "min": min, "max": max })
    );
    median
}
