//! Gates, counters and stages of every kind, for tests that count instead of hoping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use forebay::prelude::*;
use tokio::sync::watch;

/// How long anything may take before a test calls it a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Calls wait here until it is opened. Counts who came.
#[derive(Clone)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    came: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Gate { open: watch::channel(false).0, came: Arc::default() }
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// How many calls came so far.
    pub(crate) fn came(&self) -> u64 {
        self.came.load(SeqCst)
    }

    pub(crate) async fn pass(&self) {
        self.came.fetch_add(1, SeqCst);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the gate lives as long as its sender");
    }

    pub(crate) fn pass_blocking(&self) {
        futures::executor::block_on(self.pass());
    }
}

/// Waits until `done` holds; a hang is a failure.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        pause(Duration::from_millis(1));
    }
}

/// Waits until `value` has not changed for a while, and gives it.
pub(crate) fn settled(mut value: impl FnMut() -> u64) -> u64 {
    let (mut last, mut since) = (value(), Instant::now());
    let start = Instant::now();
    while since.elapsed() < Duration::from_millis(150) {
        assert!(start.elapsed() < PATIENCE, "it never came to rest");
        pause(Duration::from_millis(2));
        let now = value();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

#[expect(clippy::disallowed_methods, reason = "tests poll for a state with a deadline")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The kinds that make calls.
pub(crate) const KINDS: [Kind; 3] = [Kind::Io, Kind::Cpu, Kind::Device];

/// How a stage of any kind is told to run.
#[derive(Clone, Default)]
pub(crate) struct How(pub(crate) Options);

impl How {
    pub(crate) fn workers(n: usize) -> Self {
        How(Options { workers: Some(n.into()), ..Options::default() })
    }

    pub(crate) fn buffer(mut self, buffer: impl Into<Buffer>) -> Self {
        self.0.buffer = Some(buffer.into());
        self
    }

    pub(crate) fn ordered(mut self, ordered: impl Into<Ordered>) -> Self {
        self.0.ordered = Some(ordered.into());
        self
    }

    pub(crate) fn on_error(mut self, on_error: OnError) -> Self {
        self.0.on_error = Some(on_error);
        self
    }

    pub(crate) fn retry(mut self, retry: Retry) -> Self {
        self.0.retry = Some(retry);
        self
    }

    pub(crate) fn timeout(mut self, time: Duration) -> Self {
        self.0.timeout = Some(time);
        self
    }

    pub(crate) fn deadline(mut self, time: Duration) -> Self {
        self.0.deadline = Some(time);
        self
    }

    pub(crate) fn rate(mut self, rate: Rate) -> Self {
        self.0.rate = Some(rate);
        self
    }
}

/// Adds a map of any kind, whose calls may wait: in io by awaiting, elsewhere by blocking.
pub(crate) fn map_of<T, U, E, F, Fut>(
    pipeline: Pipeline<T>,
    kind: Kind,
    how: How,
    f: F,
) -> Pipeline<U>
where
    T: Clone + Send + 'static,
    U: Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, E>> + Send + 'static,
{
    let name = format!("the_{kind}");
    match kind {
        Kind::Io => pipeline.then_with(io::map(name, f).retryable(), how.0),
        Kind::Cpu => {
            let f = move |item| futures::executor::block_on(f(item));
            pipeline.then_with(cpu::map(name, f).retryable(), how.0)
        }
        _ => {
            let f = move |item| futures::executor::block_on(f(item));
            pipeline.then_with(device::map(name, f).retryable(), how.0)
        }
    }
}

/// The numbers below `n`, counting how many were taken from the source.
pub(crate) fn numbers(n: u64) -> (Pipeline<u64>, Arc<AtomicU64>) {
    let pulled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pulled);
    let items = (0..n).inspect(move |_| {
        count.fetch_add(1, SeqCst);
    });
    (Pipeline::from(source::iter("numbers", items)), pulled)
}

/// An error with a number in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) u64);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} is broken", self.0)
    }
}

impl std::error::Error for Broken {}

/// What a run yields until its end or its fault.
pub(crate) fn outcome<T: Send + 'static>(run: Running<T>) -> (Vec<T>, Option<Fault>) {
    let mut items = Vec::new();
    let mut run = run;
    let mut fault = None;
    for item in run.by_ref() {
        match item {
            Ok(item) => {
                assert!(fault.is_none(), "an item after the fault");
                items.push(item);
            }
            Err(error) => {
                assert!(fault.is_none(), "two faults");
                fault = Some(error);
            }
        }
    }
    assert!(run.next().is_none(), "the end is the end");
    let stats = run.close();
    assert_eq!(stats.items, items.len() as u64);
    assert_eq!(stats.unaccounted, 0, "{stats:#?}");
    for stage in &stats.stages {
        let (total, whole) = (stage.states.total(), stats.elapsed * stage.workers as u32);
        let apart = total.abs_diff(whole);
        assert!(apart < Duration::from_micros(1), "{}: {total:?} of {whole:?}", stage.id);
    }
    (items, fault)
}

/// Says what a run was doing if it has not ended after a time in which anything ends, and cancels
/// it: a hang is a failure that says where, not a test that never returns.
pub(crate) struct Watched {
    done: std::sync::mpsc::Sender<()>,
    watch: Option<std::thread::JoinHandle<()>>,
}

impl Watched {
    #[expect(clippy::print_stderr, reason = "what a test that hangs has to say")]
    pub(crate) fn new<T: Send + 'static>(run: &Running<T>) -> Self {
        let (done, ended) = std::sync::mpsc::channel();
        let handle = run.handle();
        let watch = std::thread::spawn(move || {
            let ended = ended.recv_timeout(Duration::from_secs(120));
            if ended == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the run does not end: {:#?}", handle.stats());
                handle.cancel();
            }
        });
        Watched { done, watch: Some(watch) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        _ = self.done.send(());
        if let Some(watch) = self.watch.take() {
            _ = watch.join();
        }
    }
}
