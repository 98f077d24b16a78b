//! What the device path does on a GPU, in one go: `benches/gpu.sh`. Needs a GPU, and says so where
//! there is none. One line of JSON per figure, each the median of five runs with the lowest and the
//! highest.
//!
//! - `copy`: bytes a second through `device::upload`, and of `cuMemcpyHtoDAsync` alone from the same
//!   pinned memory: the ratio should be 0.95 or more.
//! - `idle`: the share of the time that the GPU does nothing behind a kernel of 20 ms a batch: below
//!   0.01.
//! - `checksum`: 10,000 batches, each summed up on the GPU: none may differ.
//! - `normalize`: bytes a second that the kernel reads and writes, and of a copy on the GPU itself.
#![expect(unsafe_code, reason = "kernels are run and memory is copied by hand for comparison")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use forebay::device::cuda::{self, Argument, Cuda};
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
    // A tenth of everything shows whether it works.
    let quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if quick { 100 } else { 1 };
    copy(&device, (256 << 20) / scale, 200 / scale.min(10))?;
    idle(&device, 200 / scale.min(10))?;
    checksum(&device, 10_000 / scale)?;
    normalize(&device, (256 << 20) / scale, 100 / scale.min(10))
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

fn copy(device: &Arc<Cuda>, bytes: u64, n: u64) -> Result<(), Error> {
    let stream = device.stream()?;
    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        // Nothing is written to the memory: this is about copies.
        let mut run = batches(device, n, bytes, |_, _| ()).run()?;
        let first = run.next().ok_or("no batch")??;
        let begun = Instant::now();
        let mut last = first;
        for batch in run {
            last = batch?;
        }
        last.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        settle(&stream)?;
        ours.push((n - 1) as f64 * bytes as f64 / begun.elapsed().as_secs_f64());

        let from = batch(Device::host_pool(&**device), bytes, |_| ());
        let to = &last.tensors()[0];
        let to = to.memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
        let begun = Instant::now();
        for _ in 1..n {
            // SAFETY: both are there until the stream has come to an end below.
            unsafe {
                let from = from.tensors()[0].bytes();
                result::memcpy_htod_async(to.address(), from, stream.handle().cast())?;
            }
        }
        drop(to);
        settle(&stream)?;
        alone.push((n - 1) as f64 * bytes as f64 / begun.elapsed().as_secs_f64());
    }
    print("copy", "bytes/s", &mut ours);
    print("copy_alone", "bytes/s", &mut alone);
    Ok(())
}

/// Waits until the stream has done what it was told.
fn settle(stream: &cuda::Stream) -> Result<(), Error> {
    // SAFETY: the stream is alive.
    Ok(unsafe { result::stream::synchronize(stream.handle().cast()) }?)
}

fn idle(device: &Arc<Cuda>, n: u64) -> Result<(), Error> {
    const STEP: Duration = Duration::from_millis(20);
    let (module, stream) = (device.load(cuda::KERNELS)?, device.stream()?);
    let mut shares = Vec::new();
    for _ in 0..RUNS {
        let run = batches(device, n, 64 << 20, |_, _| ()).run()?;
        let mut begun = None;
        for batch in run {
            let batch = batch?;
            let _view =
                batch.tensors()[0].memory().as_cuda().ok_or("not on the GPU")?.on(&stream)?;
            begun.get_or_insert_with(Instant::now);
            let step = [Argument::U64(1), Argument::U64(STEP.as_nanos() as u64)];
            // SAFETY: the kernel touches no memory.
            unsafe { module.run(&stream, "spin", 1, 32, &step) }?;
        }
        settle(&stream)?;
        let took = begun.ok_or("no batch")?.elapsed().as_secs_f64();
        shares.push(1.0 - n as f64 * STEP.as_secs_f64() / took);
    }
    print("idle", "share", &mut shares);
    Ok(())
}

fn checksum(device: &Arc<Cuda>, n: u64) -> Result<(), Error> {
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
    if found != expected {
        return Err(
            format!("the sum of {n} batches is {found:#x} on the GPU, not {expected:#x}").into()
        );
    }
    eprintln!("{n} batches arrived whole");
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

fn print(what: &str, unit: &str, runs: &mut [f64]) {
    runs.sort_by(f64::total_cmp);
    let (median, min, max) = (runs[runs.len() / 2], runs[0], runs[runs.len() - 1]);
    println!(
        "{}",
        serde_json::json!({ "what": what, "unit": unit, "median": median, "min": min, "max": max })
    );
}
