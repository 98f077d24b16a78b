//! Rule 6, counted: a thousand early drops leave threads, file descriptors and memory where they
//! were, and so do workers that come and go. A process of its own, because it counts what the process has.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay::prelude::*;

/// Drops; the first few warm up what the process keeps for good.
const DROPS: usize = 1000;

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("procfs").count()
}

/// Memory in use, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// An item with a buffer, that counts how many of it exist.
struct Counted(Arc<AtomicI64>, forebay::item::Buffer);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
        assert!(self.1.len() == 1000);
    }
}

fn drop_one(i: usize, alive: &Arc<AtomicI64>, pool: &Pool) {
    let (make, buffers) = (Arc::clone(alive), pool.clone());
    let items = (0..1_000_000_u64).map(move |_| {
        make.fetch_add(1, SeqCst);
        Counted(Arc::clone(&make), buffers.take(1000))
    });
    let pipeline = Pipeline::from(source::iter("counted", items))
        .then(
            io::map("wait", async |x: Counted| {
                tokio::time::sleep(Duration::from_micros(200)).await;
                Ok::<_, Never>(x)
            })
            .workers(4),
        )
        .then(cpu::map("work", Ok::<Counted, Never>).workers(2))
        .then(flow::batch(2))
        .then(device::map("use", Ok::<Vec<Counted>, Never>));
    let mut run = pipeline.run().expect("runs");
    let _serving =
        i.is_multiple_of(5).then(|| forebay::trace::serve(&run.handle()).expect("serves"));
    if i.is_multiple_of(3) {
        for stage in ["wait", "work", "use"] {
            run.handle().set_workers(stage, 1 + i % 4).expect("it goes on");
        }
    }
    // Dropped at once, after an item, in the middle, and when everything is full.
    match i % 4 {
        0 => {}
        1 => assert!(run.next().is_some()),
        2 => assert!(run.by_ref().take(5).all(|item| item.is_ok())),
        _ => while run.stats().stages[3].items_out == 0 {},
    }
    drop(run);
}

/// Within one run, whose consumer stops: threads of workers that have left are joined.
fn change_often() {
    let numbers = Pipeline::from(source::iter("numbers", 0..u64::MAX));
    let run = numbers
        .then(cpu::map("work", Ok::<u64, Never>).workers(2))
        .then(device::map("use", Ok::<u64, Never>))
        .run()
        .expect("runs");
    let set = |work, lanes| {
        run.handle().set_workers("work", work).expect("it goes on");
        run.handle().set_workers("use", lanes).expect("it goes on");
    };
    // Once items come out, all that was started runs.
    while run.stats().stages[2].items_out == 0 {}
    let threads = entries("/proc/self/task");
    for i in 0..200 {
        set(1 + i % 4, 1 + i % 3);
    }
    set(2, 1);
    let start = Instant::now();
    while entries("/proc/self/task") != threads {
        assert!(start.elapsed() < Duration::from_secs(20), "a thread is left");
    }
}

#[test]
fn a_thousand_drops_leave_nothing_behind() {
    let alive = Arc::new(AtomicI64::new(0));
    let pool = Pool::default();
    for i in 0..50 {
        drop_one(i, &alive, &pool);
    }
    change_often();
    let at_rest = |what: &str| {
        let start = Instant::now();
        while alive.load(SeqCst) > 0 || entries("/proc/self/task") > 2 {
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(20), "{what}: something is left");
        }
        (entries("/proc/self/task"), entries("/proc/self/fd"), memory_kib())
    };
    let (threads, fds, memory) = at_rest("before");
    for i in 0..DROPS {
        drop_one(i, &alive, &pool);
    }
    let (threads_after, fds_after, memory_after) = at_rest("after");
    assert_eq!(threads_after, threads);
    assert_eq!(fds_after, fds);
    assert_eq!(pool.stats().lent_bytes, 0, "every buffer is back in its pool");
    // Allocators keep what they had; a leak of 16 KiB a run would show.
    let grown = memory_after.saturating_sub(memory);
    assert!(grown < 16 * 1024, "memory grew from {memory} to {memory_after} KiB");
}
