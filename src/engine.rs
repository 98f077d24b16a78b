//! What a run owns: its runtime, its threads, its meters, and the keeper that sees them all end.
//!
//! The runtime does nothing but I/O and the loops of the stages. Everything that the run starts is
//! counted here, so that `close` can say when nothing of it is left.

mod crew;
mod metered;
mod notes;
mod stalls;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::metered::{Metered, unaccounted};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::item::{Fingerprint, ItemId};
use crate::pipeline::{RunSettings, TraceRule};
use crate::stage::Kind;
use crate::trace::{
    CallRecord, Ended, Meter, Process, Receipt, RunStats, Sample, Sampling, Series, StageStats,
    Stall, Traced, YOU, chrome, receipt, together,
};
use crate::work::wait_for;

/// How often the keeper looks whether anything moves.
const LOOK: Duration = Duration::from_millis(500);

/// One run's machinery, shared by all its parts.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: String,
    /// Stops everything now.
    pub(crate) cancel: CancellationToken,
    /// Stops the sources; what is under way is delivered.
    pub(crate) stop: CancellationToken,
    pub(crate) consumer: Consumer,
    /// What the items may take together, if that is bounded.
    pub(crate) budget: Option<Arc<Budget>>,
    /// What the consumer's end of the last link counts: items that were never asked for.
    pub(crate) you: Arc<Meter>,
    started: Instant,
    ended: OnceLock<(Instant, Ended)>,
    handle: Handle,
    tasks: TaskTracker,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stages: Mutex<Vec<Metered>>,
    settings: RunSettings,
    sampling: Mutex<Sampling>,
    stalls: Mutex<Vec<Stall>>,
    /// What the process had used when the run began.
    process: Option<Process>,
    /// The failure that the consumer was told.
    told: OnceLock<Fault>,
    /// Why the run was ended from outside its stages.
    failure: OnceLock<Fault>,
    skip_logs: Mutex<BTreeMap<PathBuf, File>>,
    held: Mutex<BTreeMap<String, Duration>>,
    gone: Mutex<bool>,
    left: Condvar,
}

/// What the consumer received and how long it waited.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    pub(crate) items: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    /// The most that was told of it so far.
    told_ns: AtomicU64,
    pub(crate) fingerprint: AtomicU64,
    /// Items that were received in the runs that this one goes on from.
    pub(crate) before: AtomicU64,
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
    pub(crate) fn new(settings: RunSettings, threads: usize) -> io::Result<(Arc<Self>, Runtime)> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("forebay:io")
            .enable_all()
            .build()?;
        let started = Instant::now();
        let engine = Arc::new(Engine {
            name: settings.name.clone(),
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
            consumer: Consumer::default(),
            budget: settings.memory.map(|most| Arc::new(Budget::new(most))),
            you: {
                let you = Meter::new(YOU.to_owned(), Kind::Flow, 1, started);
                if let Some(trace) = settings.trace {
                    you.trace(trace.calls());
                }
                Arc::new(you)
            },
            started,
            ended: OnceLock::new(),
            handle: runtime.handle().clone(),
            tasks: TaskTracker::new(),
            threads: Mutex::new(Vec::new()),
            stages: Mutex::new(Vec::new()),
            settings,
            sampling: Mutex::default(),
            stalls: Mutex::default(),
            process: Process::now(),
            told: OnceLock::new(),
            failure: OnceLock::new(),
            skip_logs: Mutex::new(BTreeMap::new()),
            held: Mutex::new(BTreeMap::new()),
            gone: Mutex::new(false),
            left: Condvar::new(),
        });
        Ok((engine, runtime))
    }

    /// How much is remembered for a trace, if one is kept.
    pub(crate) fn trace(&self) -> Option<TraceRule> {
        self.settings.trace
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.handle
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
        let mut threads = self.threads.lock();
        // Those of workers that have left: until it is joined a thread keeps its stack.
        let ended: Vec<_> = threads.extract_if(.., |thread| thread.is_finished()).collect();
        threads.push(thread);
        drop(threads);
        ended.into_iter().for_each(|thread| self.join(thread));
        Ok(())
    }

    fn join(&self, thread: JoinHandle<()>) {
        if thread.join().is_err() {
            tracing::error!(run = self.name, "a thread of the run panicked");
        }
    }

    /// Starts the keeper: a thread that waits until every task and thread of the run has ended.
    pub(crate) fn keep(self: &Arc<Self>, runtime: Runtime) -> io::Result<()> {
        self.tasks.close();
        let engine = Arc::clone(self);
        let keeper = move || {
            engine.watch();
            // Threads may start others until their stage has ended, which it has.
            loop {
                let Some(thread) = engine.threads.lock().pop() else {
                    break;
                };
                engine.join(thread);
            }
            // Nothing runs on it any more; its own threads end here.
            runtime.shutdown_timeout(Duration::from_secs(5));
            let lost = unaccounted(&engine.stages.lock());
            if lost > 0 {
                tracing::error!(run = engine.name, lost, "items were lost: a defect of forebay");
            }
            *engine.gone.lock() = true;
            engine.left.notify_all();
        };
        // The keeper is joined by waiting for `gone`, its last act.
        std::thread::Builder::new().name("forebay:keeper".into()).spawn(keeper).map(drop)
    }

    /// Waits until every task of the run has ended; meanwhile takes samples, and says what it waits
    /// for when nothing moves. On a thread of its own, so that it sees also a run whose threads are
    /// all held.
    fn watch(&self) {
        let mut ended = pin!(self.tasks.wait());
        let (mut progress, mut moved) = (0, self.started);
        let rule = self.settings.stall;
        let mut told = None;
        loop {
            let due = self.started + self.sampling.lock().due();
            let pause = due.saturating_duration_since(Instant::now()).min(LOOK);
            if wait_for(ended.as_mut(), pause) {
                return;
            }
            let now = Instant::now();
            if now >= due {
                self.sample();
            }
            let seen = self.progress();
            if std::mem::replace(&mut progress, seen) != seen {
                (moved, told) = (now, None);
            }
            // A stall is told when it is as old as the rule says, and again when twice as old.
            let next = told.map_or(rule.after, |last: Duration| Some(last * 2));
            let after = now - moved;
            if next.is_some_and(|next| after >= next) && self.ended.get().is_none() {
                told = Some(after);
                self.stalled(after, now, rule);
            }
        }
    }

    /// Ends the run with a failure that none of its stages tells.
    fn fail(&self, fault: Fault) {
        self.failure.get_or_init(|| fault);
        self.cancel.cancel();
    }

    /// The consumer was told this failure.
    pub(crate) fn tell(&self, fault: &Fault) {
        self.told.get_or_init(|| fault.clone());
    }

    /// The failure that the consumer was told, if there was one.
    pub(crate) fn told(&self) -> Option<Fault> {
        self.told.get().cloned()
    }

    /// Why the run was ended from outside its stages, if it was.
    pub(crate) fn failure(&self) -> Option<Fault> {
        self.failure.get().cloned()
    }

    /// What the run waited for when nothing moved.
    pub(crate) fn stalls(&self) -> Vec<Stall> {
        self.stalls.lock().clone()
    }

    /// Takes a sample of the figures that are kept over time.
    fn sample(&self) {
        let stages = self.stages.lock();
        let (now, states) = together(stages.iter().map(|stage| &*stage.meter), false);
        let now = self.ended.get().map_or(now, |(at, _)| *at);
        let each = stages.iter().zip(states);
        let each = each.map(|(stage, states)| stage.meter.sample(states, &stage.buffer(now)));
        let process = Process::now().unwrap_or_default();
        let sample = Sample {
            t: now - self.started,
            items: self.consumer.items.load(Relaxed),
            bytes: self.consumer.bytes.load(Relaxed),
            waited: self.waited(now),
            rss: process.rss,
            cpu: process.cpu.saturating_sub(self.process.unwrap_or_default().cpu),
            stages: each.collect(),
        };
        drop(stages);
        self.sampling.lock().push(&sample);
    }

    /// The figures over time.
    pub(crate) fn series(&self) -> Series {
        self.sampling.lock().series.clone()
    }

    /// What the item `id` went through, for which the consumer waited from `wait.0` to `wait.1`.
    pub(crate) fn receipt(&self, id: ItemId, wait: (u64, u64)) -> Receipt {
        let stages = self.stages.lock();
        // Items get new ids where pipelines are joined.
        let joined = |stage: &Metered| {
            let into = stages.iter().flat_map(|stage| &stage.links);
            into.filter(|(_, to)| Arc::ptr_eq(to, &stage.meter)).count() > 1
        };
        let first = stages.iter().rposition(joined).unwrap_or(0);
        let meters: Vec<_> = stages[first..].iter().map(|stage| &*stage.meter).collect();
        receipt(&meters, id, wait)
    }

    /// Writes the last seconds as a trace; see [`RunSettings::trace`].
    pub(crate) fn write_trace(&self, to: &mut impl io::Write) -> io::Result<()> {
        let last = self.settings.trace.unwrap_or_default().last;
        let end = self.ended.get().map_or_else(Instant::now, |(at, _)| *at);
        let from_ns = self.you.since_start(end).saturating_sub(last.as_nanos() as u64);
        let stages = self.stages.lock();
        let meters: Vec<_> = stages.iter().map(|stage| &*stage.meter).chain([&*self.you]).collect();
        let series = &self.series();
        chrome(&Traced { name: &self.name, stages: &meters, series, from_ns }, to)
    }

    /// The consumer waited for the item `id`.
    pub(crate) fn consumer_waited(&self, id: ItemId, (from_ns, until_ns): (u64, u64)) {
        if self.settings.trace.is_some() {
            let (ns, worker) = (until_ns.saturating_sub(from_ns), 0);
            let wait = CallRecord { id, worker, attempt: 1, from_ns, ns, bytes: 0, failed: false };
            self.you.served(&[wait]);
        }
    }

    /// How long the consumer has waited by `now`.
    fn waited(&self, now: Instant) -> Duration {
        let since = self.consumer.waiting_since_ns.load(Relaxed);
        let waiting = match since {
            1.. if self.ended.get().is_none() => {
                self.you.since_start(now).saturating_sub(since - 1)
            }
            _ => 0,
        };
        let waited = self.consumer.waited_ns.load(Relaxed) + waiting;
        // A wait that ends is in neither of the two for a moment, and the figure must not go back.
        Duration::from_nanos(self.consumer.told_ns.fetch_max(waited, Relaxed).max(waited))
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
        if self.ended.get().is_some() {
            return;
        }
        let (at, _) = together(stages.iter().map(|stage| &*stage.meter), true);
        self.ended.get_or_init(|| (at, how));
        drop(stages);
        self.sample();
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
            .map(|(stage, states)| stage.meter.figures(states, stage.buffer(now)))
            .collect();
        let elapsed = now - self.started;
        let sum = |figure: fn(&StageStats) -> u64| stages.iter().map(figure).sum::<u64>();
        RunStats {
            name: self.name.clone(),
            elapsed,
            ended: ended.map(|(_, how)| how),
            items: self.consumer.items.load(Relaxed),
            bytes: self.consumer.bytes.load(Relaxed),
            fingerprint: self.consumer.fingerprint.load(Relaxed),
            before: self.consumer.before.load(Relaxed),
            waited: self.waited(now),
            read: stages
                .iter()
                .filter(|stage| stage.kind == Kind::Source)
                .map(|stage| stage.items_out)
                .sum(),
            skipped: sum(|stage| stage.skipped),
            abandoned: sum(|stage| stage.abandoned) + self.you.abandoned.load(Relaxed),
            stages,
            unaccounted: if *self.gone.lock() { unaccounted(&metered) } else { 0 },
            process: self.process.zip(Process::now()).map(|(then, now)| now.since(&then)),
            memory: self.budget.as_ref().map(|budget| budget.stats()),
            stalls: self.stalls(),
        }
    }
}
