//! A driver of GPUs that are not there, for tests: a library with the functions of `libcuda.so` that
//! this project calls, built by the tests with rustc alone.
//!
//! Streams are threads that work in order. Copies share one engine with a set bandwidth and latency,
//! kernels another with a set time each. Beside doing what it is told it checks how it is told:
//! every byte on the GPU knows who wrote and read it last, in clocks that streams, events and the host
//! hand to each other, so that a use that is not ordered after another is found although it happens to
//! come out right. Each thing belongs to one of several GPUs, and is used with that alone. A call that
//! would wait for a GPU that does not answer is wrong, and does not wait. What is wrong is kept as text: see
//! `simulated_wrong`.
//!
//! Kernels are known by name and done on the host; of PTX only its target and the heads of its kernels are
//! read.
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
const NO_BINARY: Code = 209;
const ECC: Code = 214;
const OPERATING_SYSTEM: Code = 304;
const INVALID_HANDLE: Code = 400;
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
    /// How long, and of which GPU.
    pinned: BTreeMap<u64, (u64, usize)>,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    modules: HashMap<usize, (usize, BTreeMap<String, Vec<Param>>)>,
    functions: Vec<(usize, String, Vec<Param>)>,
    host: Clock,
    next: usize,
    /// What a GPU failed with: for good.
    failed: BTreeMap<usize, Code>,
    log: Vec<(char, Instant, Instant)>,
}

struct Block {
    device: usize,
    bytes: u64,
    data: Arc<Mutex<Vec<u8>>>,
    written: Option<Access>,
    read: Vec<Access>,
}

struct Stream {
    device: usize,
    clock: Clock,
    at: u64,
    ops: Sender<Op>,
    thread: Option<JoinHandle<()>>,
}

struct Event {
    device: usize,
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
    Double,
    Half,
    Eight,
}

enum Op {
    Upload { from: usize, bytes: usize, sum: u64, to: Arc<Mutex<Vec<u8>>>, at: usize },
    Download { from: Arc<Mutex<Vec<u8>>>, at: usize, to: usize, bytes: usize },
    Kernel { name: String, arguments: Vec<Vec<u8>>, data: Vec<Option<Arc<Mutex<Vec<u8>>>>> },
    Record(Arc<Done>),
    Wait(Arc<Done>),
}

fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(Mutex::default).lock().unwrap()
}

const GPUS_MOST: usize = 8;
/// Each GPU does one copy, and one kernel, at a time.
static COPIES: [Mutex<()>; GPUS_MOST] = [const { Mutex::new(()) }; GPUS_MOST];
static KERNELS: [Mutex<()>; GPUS_MOST] = [const { Mutex::new(()) }; GPUS_MOST];

/// The context of GPU n.
const CONTEXT: usize = 0x1000;

thread_local! {
    static CURRENT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
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

    /// Whether the n-th call of this name shall fail, and no other.
    fn fails_once(&mut self, name: &str) -> bool {
        self.fails(name) && self.setting(name, 0.0) == -1.0
    }

    fn is_silent(&self) -> bool {
        self.counts.get("silent").is_some_and(|&silent| silent > 0.0)
    }

    fn failed(&self, device: usize) -> Code {
        self.failed.get(&device).copied().unwrap_or(OK)
    }

    /// Whether `stream` is of the GPU that is current.
    fn is_current(&mut self, stream: usize, what: &str) -> bool {
        let of = self.streams.get(&stream).map(|stream| stream.device);
        let fine = of == CURRENT.get();
        if !fine {
            self.wrong(format!("{what}: on a stream of GPU {of:?} beside {:?}", CURRENT.get()));
        }
        fine
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
        let device = of.device;
        let Some((offset, block)) = self.block(address) else {
            self.wrong(format!("{what}: {address:#x} is no memory of the GPU"));
            return false;
        };
        let mut wrong = Vec::new();
        if block.device != device {
            wrong.push(format!("{what}: memory of GPU {} on GPU {device}", block.device));
        }
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

    fn is_pinned(&self, at: usize, bytes: usize) -> bool {
        let before = self.pinned.range(..=at as u64).next_back();
        before.is_some_and(|(from, &(len, _))| at as u64 + bytes as u64 <= from + len)
    }

    /// Memory of the GPU that is current.
    fn used(&self) -> u64 {
        let here = self.blocks.values().filter(|block| Some(block.device) == CURRENT.get());
        here.map(|block| block.bytes).sum()
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

/// What every call checks first.
fn enter(what: &str) -> Result<MutexGuard<'static, World>, Code> {
    let mut world = world();
    let Some(device) = CURRENT.get() else {
        world.wrong(format!("{what} without a context"));
        return Err(INVALID_CONTEXT);
    };
    let failed = world.failed(device);
    if failed != OK { Err(failed) } else { Ok(world) }
}

/// The GPU that is current, where [`enter`] has looked.
fn current() -> usize {
    CURRENT.get().unwrap_or(0)
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

/// From the n-th on nothing more happens, until the GPU is told to answer.
fn silent(setting: &str) {
    if world().fails(setting) {
        world().count("silent", 1.0);
        while world().setting("answers", 0.0) == 0.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        world().count("silent", -1.0);
    }
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

fn run(device: usize, op: Op) {
    let failed = world().failed(device) != OK;
    match op {
        // What waits for a GPU that failed is told so.
        Op::Record(done) => done.set(),
        _ if failed => {}
        Op::Wait(done) => done.wait(),
        Op::Upload { from, bytes, sum: before, to, at } => {
            silent("silent_after_copies");
            busy(&COPIES[device], 'c', copy_time(bytes), || {
                let source = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
                to.lock().unwrap()[at..at + bytes].copy_from_slice(source);
            });
            if unsafe { sum(from, bytes) } != before {
                world().wrong("memory of the host changed before it was copied");
            }
            fail(device, "ecc_after_copies", ECC);
            fail(device, "lost_after_copies", DEVICE_LOST);
            let code = world().setting("fails_with", 0.0) as Code;
            fail(device, "fails_after_copies", code);
        }
        Op::Download { from, at, to, bytes } => {
            silent("silent_after_downloads");
            busy(&COPIES[device], 'd', copy_time(bytes), || {
                let to = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
                to.copy_from_slice(&from.lock().unwrap()[at..at + bytes]);
            });
        }
        Op::Kernel { name, arguments, data } => {
            let time = Duration::from_secs_f64(world().setting("kernel_s", 0.0));
            silent("silent_after_kernels");
            busy(&KERNELS[device], 'k', time, || kernel(&name, &arguments, &data));
            fail(device, "launch_failure_after_kernels", LAUNCH_FAILED);
        }
    }
}

fn fail(device: usize, setting: &str, code: Code) {
    let mut world = world();
    if world.fails(setting) {
        world.failed.insert(device, code);
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
        "negate_f16" => {
            let (n, mut of) = (word(&arguments[1]) as usize, block(0));
            of[..n * 2].chunks_exact_mut(2).for_each(|x| x[1] ^= 0x80);
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

/// How many bytes a kernel uses from the address that is its `i`-th argument.
fn reach(name: &str, i: usize, arguments: &[Vec<u8>]) -> u64 {
    let size = |kind: &str| match kind {
        "bool" | "i8" | "u8" | "1" => 1,
        "i16" | "u16" | "f16" | "bf16" | "2" => 2,
        "i32" | "u32" | "f32" | "4" => 4,
        _ => 8,
    };
    let n = |at: usize| word(&arguments[at]);
    let parts: Vec<_> = name.split('_').collect();
    match parts[..] {
        ["scale"] => n(1) * 4,
        ["normalize" | "negate", kind] => n(1) * size(kind),
        ["checksum"] => if i == 0 { n(2) * 4 } else { 8 },
        ["cast", from, to] => n(2) * size(if i == 0 { from } else { to }),
        ["pick", kind] if i == 1 => n(2) * size(kind),
        ["pick", kind] => {
            let eight = |bytes: &[u8]| -> Vec<i64> { bytes.chunks(8).map(|b| word(b) as i64).collect() };
            let (shape, strides) = (eight(&arguments[3]), eight(&arguments[4]));
            let steps = shape.iter().zip(&strides).map(|(n, stride)| (n - 1) * (*stride).max(0));
            (n(5) + steps.sum::<i64>() as u64 + 1) * size(kind)
        }
        _ => 1,
    }
}

/// What PTX is made for: 90 is compute capability 9.0.
fn target(ptx: &str) -> f64 {
    let target = ptx.split(".target sm_").nth(1).unwrap_or_default();
    target.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

/// The kernels of PTX, and what they take.
fn heads(ptx: &str) -> BTreeMap<String, Vec<Param>> {
    let mut heads = BTreeMap::new();
    for part in ptx.split(".entry ").skip(1) {
        let (name, rest) = part.split_once('(').unwrap_or((part, ""));
        let (head, _) = rest.split_once(')').unwrap_or((rest, ""));
        let params = head.split(".param").skip(1).map(|param| match param {
            param if param.contains(".f64") => Param::Double,
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
    if let Some(code) = std::env::var("SIMULATED_INIT").ok().and_then(|text| text.parse().ok()) {
        return code;
    }
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
pub unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, _: c_int) -> Code {
    let capability = world().setting("capability", 90.0) as c_int;
    let value = match attribute {
        75 => capability / 10,
        76 => capability % 10,
        _ => return INVALID_VALUE,
    };
    unsafe { *to = value };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int) -> Code {
    world().count("contexts", 1.0);
    unsafe { *to = CONTEXT + device as usize };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> Code {
    world().count("contexts", -1.0);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    CURRENT.set(context.checked_sub(CONTEXT));
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    let world = enter!("asking for memory");
    let all = world.setting("memory_bytes", 64e9) as usize;
    let used = world.used();
    unsafe { (*free, *total) = (all - used as usize, all) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> Code {
    let mut world = enter!("allocating");
    let used = world.used();
    if used as f64 + bytes as f64 > world.setting("memory_bytes", 64e9) {
        return OUT_OF_MEMORY;
    }
    // No address of the host, and a gap behind each block.
    let last = world.blocks.last_key_value().map_or(1 << 60, |(at, block)| at + block.bytes);
    let at = (last + 8192).next_multiple_of(4096);
    let data = Arc::new(Mutex::new(vec![0xAB; bytes]));
    let (bytes, device) = (bytes as u64, current());
    world.blocks.insert(at, Block { device, bytes, data, written: None, read: Vec::new() });
    unsafe { *to = at };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: u64) -> Code {
    settle("freeing memory");
    let mut world = world();
    world.steady("frees");
    match world.blocks.remove(&at) {
        Some(block) if Some(block.device) == CURRENT.get() => {}
        Some(_) => world.wrong("memory of the GPU was freed without its context"),
        None => world.wrong("memory of the GPU was freed that is not there"),
    }
    OK
}

/// Waits until all streams have done what they were told; not for a GPU that does not answer.
fn settle(what: &str) {
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
    let is_over = || ends.iter().all(|end| end.when.lock().unwrap().is_some());
    loop {
        // Also for what it does on streams that are gone.
        let mut world = world();
        if world.is_silent() {
            world.wrong(format!("{what} waits for a GPU that does not answer"));
            return;
        }
        drop(world);
        if is_over() {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
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
    let pinned: u64 = world.pinned.values().map(|&(bytes, _)| bytes).sum();
    if pinned as f64 + bytes as f64 > world.setting("pinned_bytes_max", 1e15) {
        return OUT_OF_MEMORY;
    }
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
    let at = unsafe { std::alloc::alloc(layout) };
    world.pinned.insert(at as u64, (bytes as u64, current()));
    unsafe { *to = at.cast() };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> Code {
    settle("unpinning memory");
    let mut world = world();
    world.count("unpinnings", 1.0);
    match world.pinned.remove(&(at as u64)) {
        Some((bytes, device)) => {
            if Some(device) != CURRENT.get() {
                world.wrong("pinned memory was freed without its context");
            }
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
    let device = current();
    let thread = std::thread::spawn(move || told.into_iter().for_each(|op| run(device, op)));
    let id = world.id();
    let stream = Stream { device, clock: Clock::new(), at: 0, ops, thread: Some(thread) };
    world.streams.insert(id, stream);
    unsafe { *to = id };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> Code {
    let gone = world().streams.remove(&stream);
    match gone {
        // The real one returns at once; here what it was told is done first, unless the GPU is silent.
        Some(Stream { ops, mut thread, clock, .. }) => {
            drop(ops);
            while thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                if world().is_silent() {
                    return OK;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
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
    settle("ending a stream");
    world().failed(current())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(_: usize) -> Code {
    unsafe { cuStreamSynchronize(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> Code {
    unsafe { cuStreamSynchronize(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _: c_uint) -> Code {
    let mut world = enter!("waiting for an event");
    if !world.is_current(stream, "waiting for an event") {
        return INVALID_HANDLE;
    }
    world.begin(stream);
    let Some(Event { clock, done, .. }) = world.events.get(&event) else {
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
    world.events.insert(id, Event { device: current(), clock: Clock::new(), done: None });
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
    let device = world.events.get(&event).map(|event| event.device);
    if !world.is_current(stream, "recording an event") || device != CURRENT.get() {
        return INVALID_HANDLE;
    }
    world.count("records", 1.0);
    let refused = world.setting("records_fail_on", -1.0) == stream as f64;
    if refused || world.fails("records_fail_after") || world.fails_once("record_fails_after") {
        world.count("records_refused", 1.0);
        return OPERATING_SYSTEM;
    }
    world.begin(stream);
    let done = Arc::new(Done::default());
    let clock = world.streams.get(&stream).map(|of| of.clock.clone()).unwrap_or_default();
    let device = current();
    world.events.insert(event, Event { device, clock, done: Some(Arc::clone(&done)) });
    world.tell(stream, Op::Record(done))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: usize) -> Code {
    let mut world = enter!("asking for an event");
    let Some(Event { clock, done, .. }) = world.events.get(&event) else { return INVALID_VALUE };
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
    if !world.is_pinned(from, bytes) {
        world.wrong("memory is copied that is not pinned");
    }
    if !world.is_current(stream, "copying to the GPU") {
        return INVALID_HANDLE;
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
    if !world.is_current(stream, "copying from the GPU") {
        return INVALID_HANDLE;
    }
    world.begin(stream);
    if !world.access(stream, from, bytes as u64, false, "a copy from the GPU") {
        return INVALID_VALUE;
    }
    let Some((at, block)) = world.block(from) else { return INVALID_VALUE };
    let (at, from) = (at as usize, Arc::clone(&block.data));
    world.tell(stream, Op::Download { from, at, to, bytes })
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
    if let Some(code) = std::env::var("SIMULATED_LOAD").ok().and_then(|text| text.parse().ok()) {
        return code;
    }
    let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
    let target = target(&text);
    if target > world.setting("capability", 90.0) {
        return NO_BINARY;
    }
    world.counts.insert("last_target", target);
    let id = world.id();
    world.modules.insert(id, (current(), heads(&text)));
    unsafe { *to = id };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: usize) -> Code {
    settle("unloading kernels");
    world().modules.remove(&module);
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(to: *mut usize, module: usize, name: *const c_char) -> Code {
    let mut world = enter!("looking for a kernel");
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let Some((device, kernels)) = world.modules.get(&module) else { return NOT_FOUND };
    let Some(params) = kernels.get(&name) else { return NOT_FOUND };
    let function = (*device, name, params.clone());
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
    world.counts.insert("last_blocks", f64::from(grid_x));
    if grid_x == 0 || block_x == 0 || block_x > 1024 {
        world.wrong(format!("a kernel in {grid_x} blocks of {block_x} threads"));
        return INVALID_VALUE;
    }
    let (device, name, kinds) = world.functions[function - 1].clone();
    if Some(device) != CURRENT.get() || !world.is_current(stream, "running a kernel") {
        world.wrong(format!("the kernel `{name}` of GPU {device} on another"));
        return INVALID_HANDLE;
    }
    let arguments: Vec<Vec<u8>> = kinds.iter().enumerate().map(|(i, kind)| {
        let bytes = match kind {
            Param::Word | Param::Double => 8,
            Param::Half => 4,
            Param::Eight => 64,
        };
        unsafe { std::slice::from_raw_parts(*params.add(i), bytes) }.to_vec()
    }).collect();
    world.begin(stream);
    let is_address = |i: usize| kinds[i] == Param::Word && word(&arguments[i]) > 1 << 60;
    let addresses = (0..kinds.len()).filter(|&i| is_address(i)).count();
    let mut data = Vec::new();
    for (i, argument) in arguments.iter().enumerate() {
        if !is_address(i) {
            data.push(None);
            continue;
        }
        // With two addresses the first is read and the second written; one alone is both.
        let at = word(argument);
        let reads = i == 0;
        let writes = addresses == 1 || i > 0;
        let bytes = reach(&name, i, &arguments);
        let read = !reads || world.access(stream, at, bytes, false, &name);
        if !read || (writes && !world.access(stream, at, bytes, true, &name)) {
            return INVALID_VALUE;
        }
        data.push(world.block(at).map(|(_, block)| Arc::clone(&block.data)));
    }
    world.tell(stream, Op::Kernel { name, arguments, data })
}

/// What the driver calls its errors, and says of them.
const NAMES: [(Code, &CStr, &CStr); 20] = [
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
    (DEVICE_LOST, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (ECC, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error detected during the execution"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the provided PTX was compiled with an unsupported toolchain."),
    (OPERATING_SYSTEM, c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system has unsupported display driver / cuda driver combination"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"forward compatibility was attempted on non supported HW"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

fn named(code: Code) -> (&'static CStr, &'static CStr) {
    let found = NAMES.iter().find(|(known, ..)| *known == code);
    found.map_or((c"CUDA_ERROR_UNKNOWN", c"simulated failure"), |&(_, name, says)| (name, says))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Code, to: *mut *const c_char) -> Code {
    unsafe { *to = named(code).0.as_ptr() };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Code, to: *mut *const c_char) -> Code {
    unsafe { *to = named(code).1.as_ptr() };
    OK
}
