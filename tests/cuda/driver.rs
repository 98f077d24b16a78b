//! A driver of GPUs that are not there, for tests: a library with the functions of `libcuda.so` that
//! this project calls, built by the tests with rustc alone.
//!
//! Streams are threads that work in order. Copies share one engine with a set bandwidth and latency,
//! kernels another with a set time each. Beside doing what it is told it checks how it is told:
//! every byte on the GPU knows who wrote and read it last, in clocks that streams, events and the host
//! hand to each other, so that a use that is not ordered after another is found although it happens to
//! come out right. What is wrong is kept as text: see `simulated_wrong`.
//!
//! Kernels are known by name and done on the host; of PTX only the heads of its kernels are read.
#![expect(clippy::missing_safety_doc, reason = "the contracts are those of the real driver")]

#[cfg(not(without_cufile))]
mod cufile;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Code = c_int;
const OK: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const NO_DEVICE: Code = 100;
const INVALID_CONTEXT: Code = 201;
const ECC: Code = 214;
const NOT_FOUND: Code = 500;
const NOT_READY: Code = 600;
const LAUNCH_FAILED: Code = 719;
const DEVICE_LOST: Code = 46;

/// Who did something: how far each stream had come.
type Clock = BTreeMap<usize, u64>;

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &at) in other {
        let known = clock.entry(stream).or_default();
        *known = at.max(*known);
    }
}

/// Something done on a stream, as its number there.
#[derive(Clone, Copy)]
struct Access {
    stream: usize,
    at: u64,
}

impl Access {
    fn before(&self, clock: &Clock) -> bool {
        clock.get(&self.stream).is_some_and(|&at| at >= self.at)
    }
}

#[derive(Default)]
struct World {
    settings: HashMap<String, f64>,
    counts: HashMap<&'static str, f64>,
    wrong: Vec<String>,
    blocks: BTreeMap<u64, Block>,
    pinned: BTreeMap<u64, u64>,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    modules: HashMap<usize, BTreeMap<String, Vec<Param>>>,
    functions: Vec<(String, Vec<Param>)>,
    host: Clock,
    next: usize,
    /// What the GPU failed with: for good.
    failed: Code,
    log: Vec<(char, Instant, Instant)>,
}

struct Block {
    bytes: u64,
    data: Arc<Mutex<Vec<u8>>>,
    written: Option<Access>,
    read: Vec<Access>,
}

struct Stream {
    clock: Clock,
    at: u64,
    ops: Sender<Op>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Event {
    clock: Clock,
    done: Option<Arc<Done>>,
}

/// One recording of an event.
#[derive(Default)]
struct Done {
    when: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Done {
    fn wait(&self) {
        let mut when = self.when.lock().unwrap();
        while when.is_none() {
            when = self.changed.wait(when).unwrap();
        }
    }

    fn set(&self) {
        *self.when.lock().unwrap() = Some(Instant::now());
        self.changed.notify_all();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Param {
    Word,
    Half,
    Eight,
}

enum Op {
    Upload { from: usize, bytes: usize, sum: u64, to: Arc<Mutex<Vec<u8>>>, at: usize },
    Download { from: Arc<Mutex<Vec<u8>>>, to: usize, bytes: usize },
    Kernel { name: String, arguments: Vec<Vec<u8>>, data: Vec<Option<Arc<Mutex<Vec<u8>>>>> },
    Record(Arc<Done>),
    Wait(Arc<Done>),
}

fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(Mutex::default).lock().unwrap()
}

/// One copy, or one kernel, at a time.
static COPIES: Mutex<()> = Mutex::new(());
static KERNELS: Mutex<()> = Mutex::new(());

thread_local! {
    static CURRENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl World {
    fn setting(&self, name: &str, default: f64) -> f64 {
        self.settings.get(name).copied().unwrap_or(default)
    }

    fn count(&mut self, name: &'static str, by: f64) {
        *self.counts.entry(name).or_default() += by;
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    /// Whether the n-th call of this name shall fail.
    fn fails(&mut self, name: &str) -> bool {
        let Some(left) = self.settings.get_mut(name) else { return false };
        *left -= 1.0;
        *left < 0.0
    }

    fn steady(&mut self, what: &'static str) {
        self.count(what, 1.0);
        if self.setting("steady", 0.0) > 0.0 {
            self.wrong(format!("{what} in steady state"));
        }
    }

    /// The block that an address is in, and how far in.
    fn block(&mut self, address: u64) -> Option<(u64, &mut Block)> {
        let (&at, block) = self.blocks.range_mut(..=address).next_back()?;
        (address < at + block.bytes).then(|| (address - at, block))
    }

    /// `stream` uses the memory at `address` from now on.
    fn access(&mut self, stream: usize, address: u64, bytes: u64, writes: bool, what: &str) -> bool {
        let host = self.host.clone();
        let Some(of) = self.streams.get_mut(&stream) else { return false };
        join(&mut of.clock, &host);
        let (clock, now) = (of.clock.clone(), Access { stream, at: of.at });
        let Some((offset, block)) = self.block(address) else {
            self.wrong(format!("{what}: {address:#x} is no memory of the GPU"));
            return false;
        };
        let mut wrong = Vec::new();
        if offset + bytes > block.bytes {
            wrong.push(format!("{what}: {bytes} bytes reach beyond a block of {}", block.bytes));
        }
        match block.written {
            Some(written) if !written.before(&clock) => {
                wrong.push(format!("{what}: before what was written there had arrived"));
            }
            None if !writes => wrong.push(format!("{what}: nothing was written there")),
            _ => {}
        }
        if writes {
            if block.read.iter().any(|read| !read.before(&clock)) {
                wrong.push(format!("{what}: while it was still being read"));
            }
            block.written = Some(now);
            block.read.clear();
        } else {
            block.read.retain(|read| !read.before(&clock));
            block.read.push(now);
        }
        let fine = wrong.is_empty();
        self.wrong.extend(wrong);
        fine
    }

    /// Tells a stream something; its clock goes on by one.
    fn tell(&mut self, stream: usize, op: Op) -> Code {
        if let Some(of) = self.streams.get_mut(&stream)
            && of.ops.send(op).is_ok()
        {
            return OK;
        }
        self.wrong("a stream that is not there was told something");
        INVALID_VALUE
    }

    fn begin(&mut self, stream: usize) {
        let host = self.host.clone();
        if let Some(of) = self.streams.get_mut(&stream) {
            join(&mut of.clock, &host);
            of.at += 1;
            let at = of.at;
            of.clock.insert(stream, at);
        }
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

/// What every call checks first.
fn enter(what: &str) -> Result<MutexGuard<'static, World>, Code> {
    let mut world = world();
    if !CURRENT.get() {
        world.wrong(format!("{what} without a context"));
        return Err(INVALID_CONTEXT);
    }
    if world.failed != OK { Err(world.failed) } else { Ok(world) }
}

macro_rules! enter {
    ($what:expr) => {
        match enter($what) {
            Ok(world) => world,
            Err(code) => return code,
        }
    };
}

/// The words of memory added up: tells whether it changed.
unsafe fn sum(from: usize, bytes: usize) -> u64 {
    let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let rest: u64 = bytes.chunks_exact(8).remainder().iter().map(|&byte| u64::from(byte)).sum();
    words.fold(rest, |sum, word| sum.rotate_left(1).wrapping_add(word))
}

fn busy(engine: &'static Mutex<()>, what: char, time: Duration, work: impl FnOnce()) {
    let _engine = engine.lock().unwrap();
    let from = Instant::now();
    work();
    std::thread::sleep(time.saturating_sub(from.elapsed()));
    world().log.push((what, from, Instant::now()));
}

fn copy_time(bytes: usize) -> Duration {
    let world = world();
    let seconds = bytes as f64 / world.setting("copy_bytes_per_s", 1e12);
    Duration::from_secs_f64(seconds + world.setting("copy_latency_s", 0.0))
}

fn run(op: Op) {
    let failed = world().failed != OK;
    match op {
        // What waits for a GPU that failed is told so.
        Op::Record(done) => done.set(),
        _ if failed => {}
        Op::Wait(done) => done.wait(),
        Op::Upload { from, bytes, sum: before, to, at } => {
            if world().fails("silent_after_copies") {
                while world().setting("answers", 0.0) == 0.0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            busy(&COPIES, 'c', copy_time(bytes), || {
                let source = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
                to.lock().unwrap()[at..at + bytes].copy_from_slice(source);
            });
            if unsafe { sum(from, bytes) } != before {
                world().wrong("memory of the host changed before it was copied");
            }
            if world().fails("ecc_after_copies") {
                world().failed = ECC;
            }
            if world().fails("lost_after_copies") {
                world().failed = DEVICE_LOST;
            }
        }
        Op::Download { from, to, bytes } => busy(&COPIES, 'd', copy_time(bytes), || {
            let to = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
            to.copy_from_slice(&from.lock().unwrap()[..bytes]);
        }),
        Op::Kernel { name, arguments, data } => {
            let time = Duration::from_secs_f64(world().setting("kernel_s", 0.0));
            busy(&KERNELS, 'k', time, || kernel(&name, &arguments, &data));
            if world().fails("launch_failure_after_kernels") {
                world().failed = LAUNCH_FAILED;
            }
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn kernel(name: &str, arguments: &[Vec<u8>], data: &[Option<Arc<Mutex<Vec<u8>>>>]) {
    let block = |i: usize| data[i].as_ref().unwrap().lock().unwrap();
    let f32_of = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let f64_of = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    match name {
        "normalize_f32" | "scale" => {
            let (n, mut of) = (word(&arguments[1]) as usize, block(0));
            let numbers: Vec<f32> = arguments[2..].iter().map(|bytes| f32_of(bytes)).collect();
            for x in of[..n * 4].chunks_exact_mut(4) {
                let old = f32_of(x);
                let new = if name == "scale" { old * numbers[0] } else { (old - numbers[0]) * numbers[1] };
                x.copy_from_slice(&new.to_le_bytes());
            }
        }
        "spin" => std::thread::sleep(Duration::from_nanos(word(&arguments[1]))),
        "checksum" => {
            let (n, from, mut to) = (word(&arguments[2]) as usize, block(0), block(1));
            let words = from.chunks_exact(4).take(n);
            let more: u64 =
                words.map(|bytes| u64::from(u32::from_le_bytes(bytes.try_into().unwrap()))).sum();
            let sum = word(&to[..8]).wrapping_add(more);
            to[..8].copy_from_slice(&sum.to_le_bytes());
        }
        "normalize_f64" => {
            let (n, mut of) = (word(&arguments[1]) as usize, block(0));
            for x in of[..n * 8].chunks_exact_mut(8) {
                let new = (f64_of(x) - f64_of(&arguments[2])) * f64_of(&arguments[3]);
                x.copy_from_slice(&new.to_le_bytes());
            }
        }
        "cast_i16_f32" => {
            let (n, from, mut to) = (word(&arguments[2]) as usize, block(0), block(1));
            for (x, y) in from.chunks_exact(2).zip(to.chunks_exact_mut(4)).take(n) {
                let new = f32::from(i16::from_le_bytes(x.try_into().unwrap()));
                y.copy_from_slice(&new.to_le_bytes());
            }
        }
        "cast_f32_f64" => {
            let (n, from, mut to) = (word(&arguments[2]) as usize, block(0), block(1));
            for (x, y) in from.chunks_exact(4).zip(to.chunks_exact_mut(8)).take(n) {
                y.copy_from_slice(&f64::from(f32_of(x)).to_le_bytes());
            }
        }
        "pick_1" | "pick_2" | "pick_4" | "pick_8" => {
            let size: usize = name[5..].parse().unwrap();
            let (n, from, mut to) = (word(&arguments[2]) as usize, block(0), block(1));
            let eight = |bytes: &[u8]| -> Vec<i64> { bytes.chunks(8).map(|b| word(b) as i64).collect() };
            let (shape, strides) = (eight(&arguments[3]), eight(&arguments[4]));
            for i in 0..n {
                let (mut left, mut at) = (i as i64, word(&arguments[5]) as i64);
                for dim in (0..8).rev() {
                    at += left % shape[dim] * strides[dim];
                    left /= shape[dim];
                }
                let at = at as usize * size;
                to[i * size..(i + 1) * size].copy_from_slice(&from[at..at + size]);
            }
        }
        other => world().wrong(format!("the simulated GPU does not know the kernel `{other}`")),
    }
}

/// The kernels of PTX, and what they take.
fn heads(ptx: &str) -> BTreeMap<String, Vec<Param>> {
    let mut heads = BTreeMap::new();
    for part in ptx.split(".entry ").skip(1) {
        let (name, rest) = part.split_once('(').unwrap_or((part, ""));
        let (head, _) = rest.split_once(')').unwrap_or((rest, ""));
        let params = head.split(".param").skip(1).map(|param| match param {
            param if param.contains(".b8") => Param::Eight,
            param if param.contains("32 ") => Param::Half,
            _ => Param::Word,
        });
        heads.insert(name.trim().to_owned(), params.collect());
    }
    heads
}

// What tests ask of it.

/// Sets a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_set(name: *const c_char, value: f64) {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    world().settings.insert(name, value);
}

/// How often something happened; -1 for what is not counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_count(name: *const c_char) -> f64 {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let world = world();
    match &*name {
        "blocks" => world.blocks.len() as f64,
        "pinned" => world.pinned.len() as f64,
        "streams" => world.streams.len() as f64,
        "events" => world.events.len() as f64,
        "modules" => world.modules.len() as f64,
        // Copies that ran while a kernel did.
        "overlapped" => {
            let ran = |what| world.log.iter().filter(move |(kind, ..)| *kind == what);
            let beside = |&&(_, from, to): &&(char, Instant, Instant)| {
                ran('k').any(|&(_, begun, ended)| begun < to && from < ended)
            };
            ran('c').filter(beside).count() as f64
        }
        // The time from the end of the first kernel to the end of the last, in seconds.
        "kernel_span_s" => {
            let mut ends = world.log.iter().filter(|(kind, ..)| *kind == 'k').map(|(.., end)| *end);
            let first = ends.next();
            first.zip(ends.next_back()).map_or(0.0, |(first, last)| (last - first).as_secs_f64())
        }
        name => world.counts.get(name).copied().unwrap_or(0.0),
    }
}

/// Writes what was wrong, one line each, and gives its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simulated_wrong(to: *mut u8, room: usize) -> usize {
    let text = world().wrong.join("\n");
    let bytes = text.len().min(room);
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, bytes) };
    bytes
}

// The driver.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_: c_uint) -> Code {
    if std::env::var("SIMULATED_GPUS").is_ok_and(|gpus| gpus == "0") { NO_DEVICE } else { OK }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(to: *mut c_int) -> Code {
    let version = std::env::var("SIMULATED_VERSION").ok().and_then(|text| text.parse().ok());
    unsafe { *to = version.unwrap_or(12_000) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(to: *mut c_int) -> Code {
    let gpus = std::env::var("SIMULATED_GPUS").ok().and_then(|text| text.parse().ok());
    unsafe { *to = gpus.unwrap_or(1) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> Code {
    unsafe { *to = ordinal };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, room: c_int, _: c_int) -> Code {
    let name = c"Simulated GPU".to_bytes_with_nul();
    if (room as usize) < name.len() {
        return INVALID_VALUE;
    }
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len()) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, _: c_int) -> Code {
    unsafe { *to = world().setting("memory_bytes", 64e9) as usize };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int) -> Code {
    world().count("contexts", 1.0);
    unsafe { *to = 0x1000 + device as usize };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> Code {
    world().count("contexts", -1.0);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    CURRENT.set(context != 0);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    let world = enter!("asking for memory");
    let all = world.setting("memory_bytes", 64e9) as usize;
    let used: u64 = world.blocks.values().map(|block| block.bytes).sum();
    unsafe { (*free, *total) = (all - used as usize, all) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> Code {
    let mut world = enter!("allocating");
    let used: u64 = world.blocks.values().map(|block| block.bytes).sum();
    if used as f64 + bytes as f64 > world.setting("memory_bytes", 64e9) {
        return OUT_OF_MEMORY;
    }
    // No address of the host, and a gap behind each block.
    let last = world.blocks.last_key_value().map_or(1 << 60, |(at, block)| at + block.bytes);
    let at = (last + 8192).next_multiple_of(4096);
    let data = Arc::new(Mutex::new(vec![0xAB; bytes]));
    world.blocks.insert(at, Block { bytes: bytes as u64, data, written: None, read: Vec::new() });
    unsafe { *to = at };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: u64) -> Code {
    if !CURRENT.get() {
        world().wrong("freeing without a context");
    }
    settle();
    let mut world = world();
    world.steady("frees");
    if world.blocks.remove(&at).is_none() {
        world.wrong("memory of the GPU was freed that is not there");
    }
    OK
}

/// Waits until all streams have done what they were told.
fn settle() {
    let ends: Vec<_> = {
        let mut world = world();
        let streams: Vec<_> = world.streams.keys().copied().collect();
        let end = |stream| {
            let done = Arc::new(Done::default());
            world.tell(stream, Op::Record(Arc::clone(&done)));
            done
        };
        streams.into_iter().map(end).collect()
    };
    ends.iter().for_each(|done| done.wait());
    let mut world = world();
    let clocks: Vec<_> = world.streams.values().map(|stream| stream.clock.clone()).collect();
    clocks.iter().for_each(|clock| join(&mut world.host, clock));
}

#[cfg(not(without_host_memory))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code {
    let mut world = enter!("pinning");
    world.count("pinnings", 1.0);
    if flags & 4 != 0 {
        world.wrong("memory that decoders read is write-combined");
    }
    if world.counts.get("copies").is_some_and(|copies| *copies > 0.0) {
        world.count("pinnings_behind_copies", 1.0);
    }
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
    let at = unsafe { std::alloc::alloc(layout) };
    world.pinned.insert(at as u64, bytes as u64);
    unsafe { *to = at.cast() };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> Code {
    settle();
    let mut world = world();
    world.count("unpinnings", 1.0);
    match world.pinned.remove(&(at as u64)) {
        Some(bytes) => {
            let layout = std::alloc::Layout::from_size_align(bytes as usize, 4096).unwrap();
            unsafe { std::alloc::dealloc(at.cast(), layout) };
        }
        None => world.wrong("pinned memory was freed that is not there"),
    }
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(to: *mut usize, _: c_uint) -> Code {
    let mut world = enter!("making a stream");
    let (ops, told) = channel();
    let thread = std::thread::spawn(move || told.into_iter().for_each(run));
    let id = world.id();
    let stream = Stream { clock: Clock::new(), at: 0, ops, thread: Some(thread) };
    world.streams.insert(id, stream);
    unsafe { *to = id };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> Code {
    let gone = world().streams.remove(&stream);
    match gone {
        // The real one returns at once; here what it was told is done first.
        Some(Stream { ops, mut thread, clock, .. }) => {
            drop(ops);
            if let Some(thread) = thread.take() {
                let _ended = thread.join();
            }
            join(&mut world().host, &clock);
        }
        None => world().wrong("a stream was destroyed that is not there"),
    }
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(_: usize) -> Code {
    world().steady("syncs");
    settle();
    world().failed
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _: c_uint) -> Code {
    let mut world = enter!("waiting for an event");
    world.begin(stream);
    let Some(Event { clock, done }) = world.events.get(&event) else {
        world.wrong("a stream waits for an event that is not there");
        return INVALID_VALUE;
    };
    let (clock, done) = (clock.clone(), done.clone());
    if let Some(of) = world.streams.get_mut(&stream) {
        join(&mut of.clock, &clock);
    }
    done.map_or(OK, |done| world.tell(stream, Op::Wait(done)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(to: *mut usize, _: c_uint) -> Code {
    let mut world = enter!("making an event");
    let id = world.id();
    world.events.insert(id, Event::default());
    unsafe { *to = id };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: usize) -> Code {
    let mut world = world();
    if world.events.remove(&event).is_none() {
        world.wrong("an event was destroyed that is not there");
    }
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: usize, stream: usize) -> Code {
    let mut world = enter!("recording an event");
    world.begin(stream);
    let done = Arc::new(Done::default());
    let clock = world.streams.get(&stream).map(|of| of.clock.clone()).unwrap_or_default();
    world.events.insert(event, Event { clock, done: Some(Arc::clone(&done)) });
    world.tell(stream, Op::Record(done))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: usize) -> Code {
    let mut world = enter!("asking for an event");
    let Some(Event { clock, done }) = world.events.get(&event) else { return INVALID_VALUE };
    if done.as_ref().is_some_and(|done| done.when.lock().unwrap().is_none()) {
        return NOT_READY;
    }
    let clock = clock.clone();
    join(&mut world.host, &clock);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(to: *mut f32, from: usize, until: usize) -> Code {
    let world = enter!("asking for a time");
    let when = |event| *world.events.get(&event)?.done.as_ref()?.when.lock().unwrap();
    let (Some(from), Some(until)) = (when(from), when(until)) else { return NOT_READY };
    unsafe { *to = until.saturating_duration_since(from).as_secs_f32() * 1e3 };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: usize) -> Code {
    let mut world = enter!("copying to the GPU");
    world.count("copies", 1.0);
    let within = |(at, len): (&u64, &u64)| from as u64 + bytes as u64 <= at + len;
    if !world.pinned.range(..=from as u64).next_back().is_some_and(within) {
        world.wrong("memory is copied that is not pinned");
    }
    world.begin(stream);
    if !world.access(stream, to, bytes as u64, true, "a copy to the GPU") {
        return INVALID_VALUE;
    }
    let sum = unsafe { sum(from, bytes) };
    let Some((at, block)) = world.block(to) else { return INVALID_VALUE };
    let to = Arc::clone(&block.data);
    world.tell(stream, Op::Upload { from, bytes, sum, to, at: at as usize })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: usize) -> Code {
    let mut world = enter!("copying from the GPU");
    world.begin(stream);
    if !world.access(stream, from, bytes as u64, false, "a copy from the GPU") {
        return INVALID_VALUE;
    }
    let Some((_, block)) = world.block(from) else { return INVALID_VALUE };
    let from = Arc::clone(&block.data);
    world.tell(stream, Op::Download { from, to, bytes })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: usize,
) -> Code {
    let mut world = enter!("copying on the GPU");
    world.begin(stream);
    let bytes = bytes as u64;
    let fine = world.access(stream, from, bytes, false, "a copy on the GPU")
        && world.access(stream, to, bytes, true, "a copy on the GPU");
    if fine { OK } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(to: *mut usize, image: *const c_char) -> Code {
    let mut world = enter!("loading kernels");
    let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
    let id = world.id();
    world.modules.insert(id, heads(&text));
    unsafe { *to = id };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: usize) -> Code {
    settle();
    world().modules.remove(&module);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(to: *mut usize, module: usize, name: *const c_char) -> Code {
    let mut world = enter!("looking for a kernel");
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let Some(params) = world.modules.get(&module).and_then(|kernels| kernels.get(&name)) else {
        return NOT_FOUND;
    };
    let function = (name, params.clone());
    let known = world.functions.iter().position(|known| *known == function);
    let at = known.unwrap_or_else(|| {
        world.functions.push(function);
        world.functions.len() - 1
    });
    unsafe { *to = at + 1 };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    _: c_uint,
    _: c_uint,
    block_x: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: usize,
    params: *const *const u8,
    _: *const c_void,
) -> Code {
    let mut world = enter!("running a kernel");
    world.count("kernels", 1.0);
    if grid_x == 0 || block_x == 0 || block_x > 1024 {
        world.wrong(format!("a kernel in {grid_x} blocks of {block_x} threads"));
        return INVALID_VALUE;
    }
    let (name, kinds) = world.functions[function - 1].clone();
    let arguments: Vec<Vec<u8>> = kinds.iter().enumerate().map(|(i, kind)| {
        let bytes = match kind {
            Param::Word => 8,
            Param::Half => 4,
            Param::Eight => 64,
        };
        unsafe { std::slice::from_raw_parts(*params.add(i), bytes) }.to_vec()
    }).collect();
    world.begin(stream);
    let is_address = |bytes: &Vec<u8>| bytes.len() == 8 && word(bytes) > 1 << 60;
    let addresses = arguments.iter().filter(|bytes| is_address(bytes)).count();
    let mut data = Vec::new();
    for (i, argument) in arguments.iter().enumerate() {
        if !is_address(argument) {
            data.push(None);
            continue;
        }
        // With two addresses the first is read and the second written; one alone is both.
        let at = word(argument);
        let reads = i == 0;
        let writes = addresses == 1 || i > 0;
        let read = !reads || world.access(stream, at, 1, false, &name);
        if !read || (writes && !world.access(stream, at, 1, true, &name)) {
            return INVALID_VALUE;
        }
        data.push(world.block(at).map(|(_, block)| Arc::clone(&block.data)));
    }
    world.tell(stream, Op::Kernel { name, arguments, data })
}

fn name_of(code: Code) -> &'static CStr {
    match code {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        ECC => c"CUDA_ERROR_ECC_UNCORRECTABLE",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        DEVICE_LOST => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Code, to: *mut *const c_char) -> Code {
    unsafe { *to = name_of(code).as_ptr() };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Code, to: *mut *const c_char) -> Code {
    let says = match code {
        ECC => c"uncorrectable ECC error encountered",
        LAUNCH_FAILED => c"unspecified launch failure",
        DEVICE_LOST => c"the GPU is gone",
        NOT_FOUND => c"named symbol not found",
        _ => c"simulated failure",
    };
    unsafe { *to = says.as_ptr() };
    OK
}
