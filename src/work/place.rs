//! Where the calls of a kind run: tasks for io, the stage's own pool for cpu, a thread per lane
//! for device. A stage never shares blocking threads with another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::engine::Engine;
use crate::site::Site;
use crate::stage::Kind;

/// A worker's activation: it works until nothing can start, then comes to rest.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) enum Place {
    Tasks { engine: Arc<Engine>, running: Mutex<Vec<Option<AbortHandle>>> },
    Pool(rayon::ThreadPool),
    Lanes(Vec<SyncSender<Job>>),
}

impl Place {
    pub(crate) fn new(kind: Kind, site: &Arc<Site>) -> io::Result<Self> {
        let (id, workers) = (&site.meter.id, site.meter.workers);
        let engine = Arc::clone(&site.engine);
        Ok(match kind {
            Kind::Cpu => {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(workers)
                    .spawn_handler(|thread| {
                        let name = format!("forebay:{id}:{}", thread.index());
                        engine.spawn_thread(name, move || thread.run())
                    })
                    .build()
                    .map_err(io::Error::other)?;
                Place::Pool(pool)
            }
            Kind::Device => {
                let lanes = (0..workers).map(|lane| {
                    // A lane has one activation at a time; the next may be sent while the last
                    // one is returning.
                    let (tx, rx) = sync_channel::<Job>(2);
                    engine.spawn_thread(format!("forebay:{id}:{lane}"), move || {
                        for job in rx {
                            block_on(job);
                        }
                    })?;
                    Ok(tx)
                });
                Place::Lanes(lanes.collect::<io::Result<_>>()?)
            }
            _ => Place::Tasks { engine, running: Mutex::new(vec![None; workers]) },
        })
    }

    pub(crate) fn spawn(&self, worker: usize, job: Job) {
        match self {
            // The engine waits for its tasks; `abort` stops them early.
            Place::Tasks { engine, running } => {
                // Under the lock, so that the handle kept is that of the last activation.
                let mut running = running.lock();
                running[worker] = Some(engine.spawn(job));
            }
            Place::Pool(pool) => pool.spawn(move || block_on(job)),
            Place::Lanes(lanes) => {
                // It fails only when the lane's thread is gone, which outlives its sender.
                if lanes[worker].send(job).is_err() {
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
