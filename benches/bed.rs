//! Workloads that loaders are compared on: `bed W1 --store DIR_OR_URL [--n N]`, `bed W5`, `bed W6`.
//! Ends with one JSON line, whose checksum says that the same work was done.
//!
//!     cargo bench --bench bed -- W1 --store era5-v3.zarr --n 96
//!
//! W1: four steps of all variables to a batch, normalized; the device stage copies each batch and the
//! consumer checksums the copy. W2: the same over HTTP. W3: patches of 128 x 128 at random places, 32
//! to a batch, normalized and flipped; `--dense CROPS` instead takes so many from each of 32 fields at
//! a time, so that patches share chunks. W5: integers through x + 1, x * 2, x - 3. W6: fetch waits 10 ms,
//! the cpu works 3 ms, the device waits 2 ms and is serial. tax: a whole variable by zarrs alone, and
//! through the engine.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use forebay::prelude::*;

type Failure = Box<dyn std::error::Error>;
type Step = (&'static str, fn(u64) -> u64);

struct Args {
    work: String,
    store: String,
    /// The bed's `bench.json`, if it does not lie in a folder of the store's name.
    stats: Option<String>,
    kind: String,
    workers: usize,
    fetchers: usize,
    n: u64,
    /// Patches of each field, if they share fields.
    dense: u64,
    /// Bytes of chunks that are kept for later patches.
    cache: u64,
    /// Bytes that the run's items may take.
    memory: Option<u64>,
    /// Items that wait behind each stage.
    buffer: usize,
    /// Whether a stage of its own normalizes what was decoded.
    apart: bool,
}

fn args() -> Result<Args, Failure> {
    let mut args = Args {
        work: String::new(),
        store: String::new(),
        stats: None,
        kind: "io".into(),
        workers: 2,
        fetchers: 4,
        n: 0,
        dense: 0,
        cache: 512 << 20,
        memory: None,
        buffer: 2,
        apart: false,
    };
    // `cargo bench` adds a flag of its own.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    args.work = given.next().ok_or("say which workload: W1, W2, W3, W5, W6 or tax")?;
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--store" => args.store = value,
            "--stats" => args.stats = Some(value),
            "--mode" => args.kind = value,
            "--workers" => args.workers = value.parse()?,
            "--depth" => args.fetchers = value.parse()?,
            "--n" => args.n = value.parse()?,
            "--dense" => args.dense = value.parse()?,
            "--cache" => args.cache = value.parse()?,
            "--memory" => args.memory = Some(value.parse()?),
            "--buffer" => args.buffer = value.parse()?,
            "--apart" => args.apart = value.parse()?,
            other => return Err(format!("{other} is no option").into()),
        }
    }
    Ok(args)
}

/// Processor seconds of this process so far.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The sum over rows of their words, each row weighted by its place.
fn checksum(batch: &DeviceBatch) -> Result<u64, Failure> {
    let mut sum = 0_u64;
    for (variable, tensor) in batch.tensors().iter().enumerate() {
        let shape = &tensor.spec().shape;
        let (rows, width) = (shape[shape.len() - 2], shape[shape.len() - 1] as usize);
        let values = tensor.as_host::<f32>().ok_or("this benchmark runs on the host device")?;
        for (row, values) in values.chunks_exact(width).enumerate() {
            let words = values.chunks_exact(2).fold(0_u64, |sum, pair| {
                let word = u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32;
                sum.wrapping_add(word)
            });
            let place = variable as u64 * rows + row as u64 % rows;
            sum = sum.wrapping_add(words.wrapping_mul(2 * place + 1));
        }
    }
    Ok(sum)
}

fn stats(args: &Args, variables: &[&str]) -> Result<ops::Stats, Failure> {
    let beside = || format!("{}/bench.json", args.store);
    let text = std::fs::read_to_string(args.stats.clone().unwrap_or_else(beside))?;
    let bench: serde_json::Value = serde_json::from_str(&text)?;
    let number = |list: &str, i: usize| bench[list][i].as_f64().ok_or("no number");
    let mut all = BTreeMap::new();
    for (i, name) in variables.iter().enumerate() {
        let (mean, inverse) = (number("mean", i)?, number("inv_std", i)?);
        all.insert((*name).to_owned(), ops::MeanStd { mean, std: 1.0 / inverse });
    }
    Ok(ops::Stats::Given(all))
}

fn load(args: &Args) -> Result<(), Failure> {
    let variables = ["t2m", "u10", "msl"];
    let (start, cpu) = (Instant::now(), cpu_s());
    let n = if args.n == 0 { 48 } else { args.n };
    let stats = stats(args, &variables)?;
    let store = Store::open(&args.store)?;
    let spec = WindowsSpec {
        variables: variables.map(str::to_owned).into(),
        window: [("time", 4)].into(),
        // The same windows come again, and the peers read them again.
        cache: Some(0),
        ..WindowsSpec::default()
    };
    let windows = Pipeline::from(zarr::windows(&store, &spec)?);
    let fetched = windows
        .then(flow::repeat(n))
        .then(flow::take(n))
        .then(io::map("fetch", zarr::fetch::<Window>).workers(args.fetchers).buffer(args.buffer));
    let uploaded = normalized(fetched, args, stats).then(device::upload(&device::host()).buffer(1));
    let run = match args.memory {
        Some(bytes) => uploaded.memory(bytes).run()?,
        None => uploaded.run()?,
    };
    consume(run, (start, cpu), 4, &store)
}

fn normalized(fetched: Pipeline<zarr::Encoded>, args: &Args, stats: ops::Stats) -> Pipeline<Batch> {
    let pool = Pool::default();
    if args.apart {
        let decode =
            cpu::map("decode", zarr::decode(&pool)).workers(args.workers).buffer(args.buffer);
        let normalize = cpu::map("normalize", ops::normalize(stats)).workers(1).buffer(1);
        return fetched.then(decode).then(normalize);
    }
    let decode = cpu::map("decode", zarr::decode_normalized(&pool, stats));
    fetched.then(decode.workers(args.workers).buffer(args.buffer))
}

/// Checksums every batch and prints what it took; `each` items for each window.
fn consume(
    mut run: Running<DeviceBatch>,
    (start, cpu): (Instant, f64),
    each: u64,
    store: &Store,
) -> Result<(), Failure> {
    let (mut sum, mut items, mut bytes, mut first) = (0_u64, 0, 0, None);
    for batch in run.by_ref() {
        let batch = batch?;
        sum = sum.wrapping_add(checksum(&batch)?);
        bytes += batch.bytes();
        items += batch.len() as u64 * each;
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
    }
    let wall = start.elapsed().as_secs_f64();
    let asked = store.stats();
    let work_cpu_s = cpu_s() - cpu;
    let report = run.close();
    println!(
        "{}",
        serde_json::json!({
            "items": items, "bytes": bytes, "wall_s": wall, "first_s": first,
            "work_cpu_s": work_cpu_s, "checksum": format!("{sum:016x}"),
            "items_per_s": items as f64 / wall, "requests": asked.requests,
            "wire_bytes": asked.bytes, "verdict": forebay::trace::verdict(&report).sentence,
            "memory": report.memory.map(|memory| memory.peak), "peak_rss": peak_rss(),
        })
    );
    Ok(())
}

/// The most memory that this process had, in bytes.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// A patch's rows and columns.
const PATCH: u64 = 128;
/// Fields that dense patches are drawn from at a time.
const FIELDS: u64 = 32;

/// The peers' random numbers.
fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn patches(args: &Args) -> Result<(), Failure> {
    let variables = ["t2m", "u10", "msl"];
    let (start, cpu) = (Instant::now(), cpu_s());
    let n = if args.n == 0 { 1024 } else { args.n };
    let stats = stats(args, &variables)?;
    let store = Store::open(&args.store)?;
    let spec = WindowsSpec {
        variables: variables.map(str::to_owned).into(),
        window: [("time", 1), ("latitude", PATCH), ("longitude", PATCH)].into(),
        stride: [("time", 1), ("latitude", 1), ("longitude", 1)].into(),
        cache: Some(args.cache),
        ..WindowsSpec::default()
    };
    let windows = zarr::windows(&store, &spec)?.into_index();
    let windows = windows.map_err(|_| "windows are computed by position")?;
    let (rows, columns) = (721 - PATCH + 1, 1440 - PATCH + 1);
    let steps = windows.len() / (rows * columns);
    let dense = args.dense;
    let place = move |i: u64| {
        let random = |k: u64, n: u64| splitmix(4 * i + k) % n;
        let time = match dense {
            0 => random(0, steps),
            // Of so many fields at a time, each as often as the others in the mean.
            crops => (i / (FIELDS * crops) * FIELDS + random(0, FIELDS)) % steps,
        };
        (time * rows + random(1, rows)) * columns + random(2, columns)
    };
    // Two patches may have one place. Batches come in order.
    let mut flips = HashMap::<u64, VecDeque<u64>>::new();
    for i in 0..n {
        flips.entry(place(i)).or_default().push_back(splitmix(4 * i + 3) & 3);
    }
    let flips = std::sync::Mutex::new(flips);
    let flip = move |mut batch: Batch| {
        let mut coming = flips.lock().expect("no panic");
        let mut next = |window: &Window| coming.get_mut(&window.number())?.pop_front();
        let flips: Vec<u64> = batch.windows().iter().filter_map(&mut next).collect();
        drop(coming);
        for tensor in batch.tensors_mut() {
            let patches = tensor.elements_mut::<f32>().chunks_exact_mut((PATCH * PATCH) as usize);
            for (patch, flip) in patches.zip(&flips) {
                if flip & 1 == 1 {
                    patch.chunks_exact_mut(PATCH as usize).for_each(<[f32]>::reverse);
                }
                if flip & 2 == 2 {
                    let (top, bottom) = patch.split_at_mut(patch.len() / 2);
                    let rows = top.chunks_exact_mut(PATCH as usize);
                    let others = bottom.chunks_exact_mut(PATCH as usize).rev();
                    rows.zip(others).for_each(|(row, other)| row.swap_with_slice(other));
                }
            }
        }
        Ok::<_, Never>(batch)
    };
    let fetched = Pipeline::from(source::index("patches", windows.select(n, place)))
        .then(flow::batch(32))
        .then(io::map("fetch", zarr::fetch::<Vec<Window>>).workers(args.fetchers).buffer(2));
    let run = normalized(fetched, args, stats)
        .then(cpu::map("flip", flip).workers(1).buffer(1))
        .then(device::upload(&device::host()).buffer(1))
        .run()?;
    consume(run, (start, cpu), 1, &store)
}

/// What the engine costs: all of one variable, by zarrs alone on all cores into a warm buffer, and
/// through fetch and decode. Prints both and their ratio, five runs each, one after the other.
fn tax(args: &Args) -> Result<(), Failure> {
    use rayon::prelude::*;
    use zarrs::array::codec::api::ArrayToBytesCodecTraits as _;
    use zarrs::array::{Array, ArrayBytesDecodeIntoTarget, ArrayMetadata, CodecOptions};
    let text = std::fs::read(format!("{}/t2m/zarr.json", args.store))?;
    let metadata: ArrayMetadata = serde_json::from_slice(&text)?;
    let memory = std::sync::Arc::new(zarrs::storage::store::MemoryStore::new());
    let array = Array::new_with_metadata(memory, "/t2m", metadata)?;
    let (shape, chunk) = (array.shape().to_vec(), array.chunk_shape(&[0; 3])?);
    if chunk.iter().skip(1).zip(&shape[1..]).any(|(chunk, len)| chunk.get() != *len) {
        return Err("give a store whose chunks are whole fields".into());
    }
    let chunk_bytes = chunk.iter().map(|n| n.get() as usize).product::<usize>() * 4;
    let chunks = (shape[0] / chunk[0].get()) as usize;
    let mut whole = vec![1_u8; chunks * chunk_bytes];
    let mut bare = || -> Result<f64, Failure> {
        let start = Instant::now();
        let options = CodecOptions::default().with_concurrent_target(1);
        let chunk_shape: Vec<u64> = chunk.iter().map(|n| n.get()).collect();
        whole.par_chunks_mut(chunk_bytes).enumerate().try_for_each(|(at, to)| {
            let key = array.chunk_key(&[at as u64, 0, 0]);
            let encoded = std::fs::read(format!("{}/{key}", args.store))
                .map_err(|error| error.to_string())?;
            let cells = unsafe_cell_slice::UnsafeCellSlice::new(to);
            let region = zarrs::array::ArraySubset::new_with_shape(chunk_shape.clone());
            #[expect(unsafe_code, reason = "the only view of the chunk's memory")]
            // SAFETY: no other view of this slice exists.
            let view = unsafe {
                zarrs::array::ArrayBytesFixedDisjointView::new(cells, 4, &chunk_shape, region)
            };
            let mut view = view.map_err(|error| error.to_string())?;
            let target = ArrayBytesDecodeIntoTarget::from(&mut view);
            array
                .codecs()
                .decode_into(
                    (&encoded[..]).into(),
                    &chunk,
                    array.data_type(),
                    array.fill_value(),
                    target,
                    &options,
                )
                .map_err(|error| error.to_string())
        })?;
        Ok(start.elapsed().as_secs_f64())
    };
    let store = Store::open(&args.store)?;
    let pool = Pool::default();
    let ours = || -> Result<f64, Failure> {
        let start = Instant::now();
        let spec = WindowsSpec {
            variables: vec!["t2m".into()],
            window: [("time", 4)].into(),
            ..WindowsSpec::default()
        };
        let run = Pipeline::from(zarr::windows(&store, &spec)?)
            .then(io::map("fetch", zarr::fetch::<Window>).workers(args.fetchers).buffer(2))
            .then(cpu::map("decode", zarr::decode(&pool)).workers(args.workers).buffer(2))
            .run()?;
        for batch in run {
            std::hint::black_box(batch?);
        }
        Ok(start.elapsed().as_secs_f64())
    };
    bare()?;
    ours()?;
    let (mut bare_s, mut ours_s) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        bare_s.push(bare()?);
        ours_s.push(ours()?);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (bare_s, ours_s) = (median(&mut bare_s), median(&mut ours_s));
    let mb = (chunks * chunk_bytes) as f64 / 1e6;
    println!(
        "{}",
        serde_json::json!({
            "zarrs_mb_s": mb / bare_s, "forebay_mb_s": mb / ours_s, "ratio": bare_s / ours_s,
        })
    );
    Ok(())
}

fn tiny(args: &Args) -> Result<(), Failure> {
    let n = if args.n == 0 { 1_000_000 } else { args.n };
    let steps: [Step; 3] =
        [("add", |x| x + 1), ("double", |x| x * 2), ("subtract", |x| x.wrapping_sub(3))];
    let mut pipeline = Pipeline::from(source::iter("numbers", 0..n));
    for (name, f) in steps {
        let w = args.workers;
        pipeline = match args.kind.as_str() {
            "io" => {
                let stage = io::map(name, move |x| std::future::ready(Ok::<_, Never>(f(x))));
                pipeline.then(stage.workers(w))
            }
            "cpu" => pipeline.then(cpu::map(name, move |x| Ok::<_, Never>(f(x))).workers(w)),
            "device" => pipeline.then(device::map(name, move |x| Ok::<_, Never>(f(x))).workers(w)),
            other => return Err(format!("{other} is no kind").into()),
        };
    }
    let start = Instant::now();
    let mut sum = 0_u64;
    for x in pipeline.run()? {
        sum = sum.wrapping_add(x?);
    }
    let wall = start.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "items": n, "wall_s": wall, "items_per_s": n as f64 / wall,
            "checksum": format!("{sum:x}"),
        })
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "stands for a device that is busy")]
fn busy_device(x: u64) -> Result<u64, Never> {
    std::thread::sleep(Duration::from_millis(2));
    Ok(x)
}

/// 3 ms of this thread's processor time.
fn compute(x: u64) -> Result<u64, Never> {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    };
    let end = now() + Duration::from_millis(3);
    while now() < end {
        std::hint::spin_loop();
    }
    Ok(x)
}

fn overlap(args: &Args) -> Result<(), Failure> {
    let n = if args.n == 0 { 500 } else { args.n };
    let fetch = io::map("fetch", async |x: u64| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok::<_, Never>(x)
    });
    let start = Instant::now();
    let mut run = Pipeline::from(source::iter("numbers", 0..n))
        .then(fetch.workers(16))
        .then(cpu::map("work", compute).workers(2))
        .then(device::map("device", busy_device).workers(1))
        .run()?;
    let mut sum = 0;
    for x in run.by_ref() {
        sum += x?;
    }
    let (wall, ideal) = (start.elapsed().as_secs_f64(), n as f64 * 0.002 + 0.013);
    println!(
        "{}",
        serde_json::json!({
            "items": n, "wall_s": wall, "items_per_s": n as f64 / wall, "ideal_s": ideal,
            "efficiency": ideal / wall, "checksum": format!("{sum:x}"),
            "verdict": forebay::trace::verdict(&run.close()).sentence,
        })
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let args = args()?;
    match args.work.as_str() {
        "W1" | "W2" => load(&args),
        "W3" => patches(&args),
        "tax" => tax(&args),
        "W5" => tiny(&args),
        "W6" => overlap(&args),
        other => Err(format!("{other} is no workload: write W1, W2, W3, W5, W6 or tax").into()),
    }
}
