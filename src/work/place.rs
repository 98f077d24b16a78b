//! Where the calls of a kind run: tasks for io, the stage's own pool for cpu, a thread per lane
//! for device. A stage never shares blocking threads with another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::task::AbortHandle;

use crate::engine::Engine;
use crate::site::Site;
use crate::stage::Kind;

/// A worker's activation: it works until nothing can start, then comes to rest.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) enum Place {
    Tasks {
        engine: Arc<Engine>,
        running: Mutex<Vec<Option<AbortHandle>>>,
    },
    Pool(RwLock<rayon::ThreadPool>),
    /// None where no worker is.
    Lanes(RwLock<Vec<Option<SyncSender<Job>>>>),
}

impl Place {
    pub(crate) fn new(kind: Kind, site: &Site) -> io::Result<Self> {
        let workers = site.meter.workers();
        Ok(match kind {
            Kind::Cpu => Place::Pool(RwLock::new(pool(site, workers)?)),
            Kind::Device => {
                let lanes = (0..workers).map(|worker| lane(site, worker).map(Some));
                Place::Lanes(RwLock::new(lanes.collect::<io::Result<_>>()?))
            }
            _ => {
                let (engine, running) = (Arc::clone(&site.engine), vec![None; workers]);
                Place::Tasks { engine, running: Mutex::new(running) }
            }
        })
    }

    /// Makes place for `workers` workers, of whom these are `new`.
    ///
    /// A pool can't grow, so another takes its place: workers move there with their next item, and
    /// the threads of the old one end when its last job has.
    pub(crate) fn resize(&self, site: &Site, workers: usize, new: &[usize]) -> io::Result<()> {
        let most = new.iter().map(|worker| worker + 1).max().unwrap_or(0);
        match self {
            Place::Tasks { running, .. } => {
                let mut running = running.lock();
                let most = most.max(running.len());
                running.resize(most, None);
            }
            Place::Pool(place) => {
                let threads = place.read().current_num_threads();
                if threads != workers {
                    match pool(site, workers) {
                        Ok(new) => drop(std::mem::replace(&mut *place.write(), new)),
                        // One that is too large does as well: the desk lets no more work.
                        Err(_) if workers < threads => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Place::Lanes(lanes) => {
                let new = new.iter().map(|&worker| Ok((worker, lane(site, worker)?)));
                let new = new.collect::<io::Result<Vec<_>>>()?;
                let mut lanes = lanes.write();
                let most = most.max(lanes.len());
                lanes.resize(most, None);
                for (worker, lane) in new {
                    lanes[worker] = Some(lane);
                }
            }
        }
        Ok(())
    }

    /// `worker` has left.
    pub(crate) fn vacate(&self, worker: usize) {
        if let Place::Lanes(lanes) = self {
            // Its thread ends after the job that it is in.
            lanes.write()[worker] = None;
        }
    }

    pub(crate) fn spawn(&self, worker: usize, job: Job) {
        match self {
            // The engine waits for its tasks; `abort` stops them early.
            Place::Tasks { engine, running } => {
                // Under the lock, so that the handle kept is that of the last activation.
                let mut running = running.lock();
                running[worker] = Some(engine.spawn(job));
            }
            Place::Pool(pool) => pool.read().spawn(move || block_on(job)),
            Place::Lanes(lanes) => {
                let lane = lanes.read()[worker].clone();
                // It fails only when the lane's thread is gone, which outlives its sender.
                if lane.is_none_or(|lane| lane.send(job).is_err()) {
                    tracing::error!("the thread of a lane is gone");
                }
            }
        }
    }

    /// Stops calls that can be stopped: those that await. Threads finish the call they are in.
    pub(crate) fn abort(&self) {
        if let Place::Tasks { running, .. } = self {
            for task in running.lock().iter().flatten() {
                task.abort();
            }
        }
    }
}

fn pool(site: &Site, workers: usize) -> io::Result<rayon::ThreadPool> {
    let (id, engine) = (&site.meter.id, &site.engine);
    rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .spawn_handler(|thread| {
            let name = format!("forebay:{id}:{}", thread.index());
            engine.spawn_thread(name, move || thread.run())
        })
        .build()
        .map_err(io::Error::other)
}

fn lane(site: &Site, worker: usize) -> io::Result<SyncSender<Job>> {
    // A lane has one activation at a time; the next may be sent while the last one is returning.
    let (tx, rx) = sync_channel::<Job>(2);
    site.engine.spawn_thread(format!("forebay:{}:{worker}", site.meter.id), move || {
        for job in rx {
            block_on(job);
        }
    })?;
    Ok(tx)
}

struct Unpark(Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. Unlike the executors of the runtimes it may be called anywhere.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

/// Runs a future on this thread for `limit` at most; says whether it has ended.
pub(crate) fn wait_for(mut future: Pin<&mut impl Future<Output = ()>>, limit: Duration) -> bool {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let deadline = Instant::now() + limit;
    loop {
        if future.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
}
