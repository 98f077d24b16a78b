//! What a run owns: its runtime, its threads, its meters, and the keeper that sees them all end.
//!
//! The runtime does nothing but I/O and the loops of the stages. Everything that the run starts is
//! counted here, so that `close` can say when nothing of it is left.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault::Fault;
use crate::item::Fingerprint;
use crate::link::Core;
use crate::stage::Kind;
use crate::trace::{Ended, Meter, RunStats, StageStats, YOU, together};

/// One run's machinery, shared by all its parts.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: String,
    /// Stops everything now.
    pub(crate) cancel: CancellationToken,
    /// Stops the sources; what is under way is delivered.
    pub(crate) stop: CancellationToken,
    pub(crate) consumer: Consumer,
    /// What the consumer's end of the last link counts: items that were never asked for.
    pub(crate) you: Arc<Meter>,
    started: Instant,
    ended: OnceLock<(Instant, Ended)>,
    handle: Handle,
    tasks: TaskTracker,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stages: Mutex<Vec<Metered>>,
    skip_logs: Mutex<BTreeMap<PathBuf, File>>,
    held: Mutex<BTreeMap<String, Duration>>,
    gone: Mutex<bool>,
    left: Condvar,
}

#[derive(Debug)]
struct Metered {
    meter: Arc<Meter>,
    /// One, or one for each branch.
    links: Vec<Arc<Core>>,
}

/// What the consumer received and how long it waited.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    pub(crate) items: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) fingerprint: AtomicU64,
    /// Since when it has been waiting, in nanoseconds from the start plus one; 0 if it is not.
    pub(crate) waiting_since_ns: AtomicU64,
}

impl Consumer {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from(self.fingerprint.load(Relaxed))
    }
}

impl Engine {
    /// A new run with `threads` I/O threads. The keeper must be [started](Engine::keep).
    pub(crate) fn new(name: String, threads: usize) -> io::Result<(Arc<Self>, Runtime)> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("forebay:io")
            .enable_all()
            .build()?;
        let started = Instant::now();
        let engine = Arc::new(Engine {
            name,
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
            consumer: Consumer::default(),
            you: Arc::new(Meter::new(YOU.to_owned(), Kind::Flow, 1, started)),
            started,
            ended: OnceLock::new(),
            handle: runtime.handle().clone(),
            tasks: TaskTracker::new(),
            threads: Mutex::new(Vec::new()),
            stages: Mutex::new(Vec::new()),
            skip_logs: Mutex::new(BTreeMap::new()),
            held: Mutex::new(BTreeMap::new()),
            gone: Mutex::new(false),
            left: Condvar::new(),
        });
        Ok((engine, runtime))
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.handle
    }

    /// Adds a stage's meter and a link behind it, in the order of the pipeline.
    pub(crate) fn metered(&self, meter: &Arc<Meter>, link: &Arc<Core>) {
        let mut stages = self.stages.lock();
        let link = Arc::clone(link);
        match stages.iter_mut().find(|stage| Arc::ptr_eq(&stage.meter, meter)) {
            Some(stage) => stage.links.push(link),
            None => stages.push(Metered { meter: Arc::clone(meter), links: vec![link] }),
        }
    }

    /// Spawns a task that the keeper waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn_on(task, &self.handle).abort_handle()
    }

    /// Spawns a thread that the keeper joins.
    pub(crate) fn spawn_thread(
        &self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(body)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Starts the keeper: a thread that waits until every task and thread of the run has ended.
    pub(crate) fn keep(self: &Arc<Self>, runtime: Runtime) -> io::Result<()> {
        self.tasks.close();
        let engine = Arc::clone(self);
        let keeper = move || {
            runtime.block_on(engine.tasks.wait());
            // Threads may start others until their stage has ended, which it has.
            loop {
                let Some(thread) = engine.threads.lock().pop() else {
                    break;
                };
                if thread.join().is_err() {
                    tracing::error!(run = engine.name, "a thread of the run panicked");
                }
            }
            // Nothing runs on it any more; its own threads end here.
            runtime.shutdown_timeout(Duration::from_secs(5));
            *engine.gone.lock() = true;
            engine.left.notify_all();
        };
        // The keeper is joined by waiting for `gone`, its last act.
        std::thread::Builder::new().name("forebay:keeper".into()).spawn(keeper).map(drop)
    }

    /// Waits until nothing of the run is left, or for `limit`; says whether it is.
    pub(crate) fn wait_until_gone(&self, limit: Option<Duration>) -> bool {
        let mut gone = self.gone.lock();
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !*gone {
            match deadline {
                Some(deadline) if self.left.wait_until(&mut gone, deadline).timed_out() => break,
                Some(_) => {}
                None => self.left.wait(&mut gone),
            }
        }
        *gone
    }

    /// The run has ended so; the first word counts.
    pub(crate) fn end(&self, how: Ended) {
        let stages = self.stages.lock();
        // Dropping a run that has finished does not cancel it.
        self.ended.get_or_init(|| {
            let (at, _) = together(stages.iter().map(|stage| &*stage.meter), true);
            (at, how)
        });
    }

    /// Appends a line about a skipped item to a log file.
    pub(crate) fn log_skipped(&self, path: &Path, fault: &Fault) -> io::Result<()> {
        let line = serde_json::json!({
            "stage": fault.stage(),
            "item": fault.item().map(|id| id.to_string()),
            "name": fault.item_name(),
            "attempts": fault.attempts(),
            "error": fault.cause(),
        });
        let mut logs = self.skip_logs.lock();
        let file = match logs.get_mut(path) {
            Some(file) => file,
            None => {
                let file = File::options().create(true).append(true).open(path)?;
                logs.entry(path.to_owned()).or_insert(file)
            }
        };
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Says once by name which io stage computes on the I/O runtime.
    pub(crate) fn report_held(&self, stage: &str, held: Duration) {
        let mut reported = self.held.lock();
        let first = !reported.contains_key(stage);
        let longest = reported.entry(stage.to_owned()).or_default();
        *longest = (*longest).max(held);
        if first {
            tracing::warn!(
                target: "forebay::stage",
                stage,
                held_ms = held.as_millis() as u64,
                "an io stage computed without awaiting and kept the I/O runtime waiting: \
                 move the work to a cpu stage"
            );
        }
    }

    /// The stages that computed on the I/O runtime, and for how long at most.
    pub(crate) fn held(&self) -> BTreeMap<String, Duration> {
        self.held.lock().clone()
    }

    /// The figures so far.
    pub(crate) fn stats(&self) -> RunStats {
        let metered = self.stages.lock();
        let ended = self.ended.get().copied();
        let (now, states) = together(metered.iter().map(|stage| &*stage.meter), false);
        let now = ended.map_or(now, |(at, _)| at);
        let stages: Vec<_> = metered
            .iter()
            .zip(states)
            .map(|(stage, states)| {
                // Of several branches the fullest buffer is the one that holds the stage up.
                let buffers = stage.links.iter().map(|link| link.stats(now));
                let fullest = buffers.max_by(|a, b| a.items_mean.total_cmp(&b.items_mean));
                stage.meter.figures(states, fullest.unwrap_or_default())
            })
            .collect();
        let elapsed = now - self.started;
        let since = self.consumer.waiting_since_ns.load(Relaxed);
        let waiting = if since == 0 || ended.is_some() {
            0
        } else {
            (elapsed.as_nanos() as u64).saturating_sub(since - 1)
        };
        let sum = |figure: fn(&StageStats) -> u64| stages.iter().map(figure).sum::<u64>();
        RunStats {
            name: self.name.clone(),
            elapsed,
            ended: ended.map(|(_, how)| how),
            items: self.consumer.items.load(Relaxed),
            bytes: self.consumer.bytes.load(Relaxed),
            fingerprint: self.consumer.fingerprint.load(Relaxed),
            waited: Duration::from_nanos(self.consumer.waited_ns.load(Relaxed) + waiting),
            read: stages
                .iter()
                .filter(|stage| stage.kind == Kind::Source)
                .map(|stage| stage.items_out)
                .sum(),
            skipped: sum(|stage| stage.skipped),
            abandoned: sum(|stage| stage.abandoned) + self.you.abandoned.load(Relaxed),
            stages,
        }
    }
}
