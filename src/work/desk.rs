//! Where the workers of a stage leave what they finished and take what they do next.
//!
//! The desk decides what may start (order, room, limits), restores the order of what is finished,
//! and knows the state of every worker. Everything happens under one short lock per burst of items;
//! no user code runs under it, and nothing here waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::floor::{Done, Floor, Memory, Overdue, Resting};
use super::kept::Kept;
use super::place::{Job, Place};
use super::rules::Rules;
use super::staged::{Copy, Staged, Weigh};
use super::worker::{Entry, Hand, Wage};
use super::{Finish, Work, worker};
use crate::fault::Fault;
use crate::item::{Item, ItemId};
use crate::link::{Inlet, Outlet};
use crate::options::OnError;
use crate::site::Site;
use crate::stage::{Stop, Worker};
use crate::trace::{CallSpan, working_for};

/// A stage's desk: its rules, and behind a lock the [`Floor`] on which they are kept.
pub(crate) struct Desk<W: Work> {
    pub(super) work: Arc<W>,
    pub(super) copy: Option<Copy<W::In>>,
    pub(super) rules: Rules,
    pub(super) site: Arc<Site>,
    pub(super) workers: Vec<Worker>,
    /// Items that were judged to be left out. The meter counts them once the floor has them.
    left_out: AtomicU64,
    weigh: Option<Weigh<W::Out>>,
    pub(super) place: Place,
    pub(super) floor: Mutex<Floor<W>>,
    pub(super) changed: Notify,
    /// Whether a poll of an io call was once long.
    pub(super) suspect: AtomicBool,
    closed: AtomicBool,
    /// Held by whoever hires workers or closes the desk.
    pub(super) staffing: Mutex<()>,
    pub(super) reason: Arc<AtomicU8>,
    pub(super) finishing: TaskTracker,
}

/// What the loop has to wait for.
pub(super) struct View {
    pub(super) finished: Option<Result<(), Stop>>,
    pub(super) wants_input: bool,
    pub(super) wants_room: Option<u64>,
    pub(super) wants_memory: bool,
    pub(super) timer: Option<Instant>,
}

/// What a worker brings to the desk.
pub(super) struct Return<W: Work> {
    /// Finished items by sequence number.
    pub(super) done: Vec<(u64, Done<W::Out>)>,
    /// Items it had in hand and did not start.
    pub(super) back: std::collections::VecDeque<Entry<W::In>>,
    /// What it will go on with later.
    pub(super) rest: Option<(Hand<W>, Option<Instant>)>,
    pub(super) wage: Wage,
}

impl<W: Work> Desk<W> {
    pub(super) fn new(
        staged: Staged<W>,
        place: Place,
        inlet: &Inlet<W::In>,
        outlet: &Outlet<W::Out>,
    ) -> Arc<Self> {
        let site = Arc::clone(outlet.site());
        let options = &site.options;
        let (kind, workers) = (staged.work.kind(), site.meter.workers());
        let rules = Rules::new(options, kind, staged.work.yields_many());
        Arc::new(Desk {
            work: Arc::new(staged.work),
            copy: staged.copy,
            left_out: AtomicU64::new(0),
            weigh: staged.weigh,
            workers: (0..site.meter.under_way.len())
                .map(|index| {
                    let cancel = site.engine.cancel.clone();
                    Worker { meter: Arc::clone(&site.meter), index, cancel }
                })
                .collect(),
            place,
            floor: Mutex::new(Floor::new(
                inlet.tap(),
                outlet.feed(),
                workers,
                rules.window(workers),
                options.rate.as_ref(),
                Memory::of::<W>(&site),
                Arc::clone(&site.meter),
            )),
            rules,
            site,
            changed: Notify::new(),
            suspect: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            staffing: Mutex::new(()),
            reason: Arc::new(AtomicU8::new(Finish::Cancelled as u8)),
            finishing: TaskTracker::new(),
        })
    }

    /// Returns when something changed that the loop must know. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when memory may have become free for a worker that waits for it. Cancel-safe.
    pub(super) async fn memory_freed(&self) {
        match self.site.account() {
            Some(account) => account.freed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The loop's turn: starts what can start and says what to wait for.
    pub(super) fn step(self: &Arc<Self>) -> View {
        let now = Instant::now();
        self.expire(now);
        let mut floor = self.floor.lock();
        floor.deliver(false);
        let started = floor.schedule(&self.rules, now);
        let view = floor.view(now);
        floor.census(now);
        drop(floor);
        self.launch(started);
        view
    }

    /// A worker's turn: takes what it finished, and gives it what it does next. `None` sends it to
    /// rest, and the desk then keeps its state; or it leaves.
    pub(super) fn turn(
        self: &Arc<Self>,
        worker: usize,
        kept: &mut Option<Kept<W>>,
        mut brought: Return<W>,
    ) -> Option<Hand<W>> {
        let mut late = Vec::new();
        let mut leaves = false;
        let mut floor = self.floor.lock();
        if self.is_closed() {
            return None;
        }
        let now = Instant::now();
        floor.leave(worker, &brought.wage, now);
        for (seq, done) in brought.done.drain(..) {
            late.extend(floor.put(seq, done));
        }
        let back = brought.back.iter().map(|entry| entry.bytes).sum();
        match brought.rest {
            Some(_) => floor.put_back(worker, back),
            None => floor.put_down(worker, back),
        }
        floor.give_back(&mut brought.back);
        floor.balance();
        floor.deliver(true);
        let next = match brought.rest.take() {
            Some((hand, until)) => {
                floor.resting.push(Resting { worker, kept: kept.take(), hand, until });
                None
            }
            None if floor.has_too_many() => {
                floor.hired -= 1;
                leaves = true;
                None
            }
            None => {
                let next = floor.take(worker, &self.rules, now);
                if next.is_none() {
                    floor.idle.push(worker);
                    floor.states[worker] = kept.take();
                }
                next.map(Hand::Burst)
            }
        };
        let started = floor.schedule(&self.rules, now);
        floor.census(now);
        if next.is_none() {
            floor.nudge();
        }
        let tell = next.is_none() || floor.needs_loop();
        drop(floor);
        self.launch(started);
        if tell {
            self.changed.notify_one();
        }
        // Dropped without the lock: an item's drop is its owner's code.
        drop(late);
        if leaves {
            self.leave(worker, kept.take());
        }
        next
    }

    /// What `worker` has done, and what it has in hand beside, while its call turned out to wait.
    pub(super) fn hand_in(
        self: &Arc<Self>,
        worker: usize,
        done: &mut Vec<(u64, Done<W::Out>)>,
        back: &mut std::collections::VecDeque<Entry<W::In>>,
    ) {
        let now = Instant::now();
        let mut floor = self.floor.lock();
        if self.is_closed() {
            return;
        }
        floor.hands[worker] -= back.len() + done.len();
        let late: Vec<_> = done.drain(..).filter_map(|(seq, done)| floor.put(seq, done)).collect();
        floor.put_back(worker, back.iter().map(|entry| entry.bytes).sum());
        floor.give_back(back);
        floor.balance();
        floor.deliver(false);
        let started = floor.schedule(&self.rules, now);
        floor.census(now);
        drop(floor);
        self.launch(started);
        self.changed.notify_one();
        drop(late);
    }

    /// Takes some items of a call that yields many; says how many more it may make now.
    pub(super) fn offer(
        self: &Arc<Self>,
        (seq, id): (u64, ItemId),
        items: &mut std::collections::VecDeque<Item<W::Out>>,
    ) -> usize {
        let mut floor = self.floor.lock();
        if self.is_closed() {
            return 0;
        }
        floor.add(seq, items);
        floor.deliver(false);
        let allowed = floor.allowed(seq, id);
        if floor.needs_loop() {
            self.changed.notify_one();
        }
        allowed
    }

    /// Cpu and device calls cannot be interrupted: their items are given up at the deadline.
    fn expire(&self, now: Instant) {
        if self.rules.limit(None, now).is_none() {
            return;
        }
        let due = self.floor.lock().overdue(now);
        for Overdue { seq, fault } in due {
            let done = self.judge(fault, &CallSpan::over(self.site.span()));
            let mut floor = self.floor.lock();
            drop(floor.settle(seq, done));
        }
    }

    /// What the item `seq`, whose call failed for good, does to the run: nothing more if it was given
    /// up at its deadline.
    pub(super) fn judge_call(&self, seq: u64, fault: Fault, span: &CallSpan<'_>) -> Done<W::Out> {
        if self.floor.lock().claim(seq) { self.judge(fault, span) } else { Done::Nothing }
    }

    /// What an item that failed for good, in a call that is told in `span`, does to the run.
    fn judge(&self, fault: Fault, span: &CallSpan<'_>) -> Done<W::Out> {
        let meter = &self.site.meter;
        let fault = fault.at(&meter.id);
        let OnError::Skip { max, log } = &self.rules.on_error else {
            return Done::Fault(fault);
        };
        let skipped = self.left_out.fetch_add(1, Relaxed) + 1;
        let seen = meter.items_in.load(Relaxed);
        if max.exceeded(skipped, seen) {
            let note = format!("and {} of {seen} items had been skipped before", skipped - 1);
            return Done::Fault(fault.noting(note));
        }
        span.skipped(&meter.id, &fault);
        if let Some(path) = log
            && let Err(error) = self.site.engine.log_skipped(path, &fault)
        {
            let path = path.display();
            return Done::Fault(fault.noting(format!("and {path} can't be written: {error}")));
        }
        Done::Skipped
    }

    pub(super) fn weighed(&self, id: ItemId, value: W::Out) -> Item<W::Out> {
        match &self.weigh {
            Some(weigh) => Item { id, bytes: weigh(&value), value },
            None => Item::new(id, value),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(super) fn launch(self: &Arc<Self>, started: Vec<(usize, Option<Kept<W>>, Hand<W>)>) {
        for (worker, kept, hand) in started {
            self.spawn(worker, kept, hand);
        }
    }

    /// Sends `worker` to work on `hand`, in the place of its kind.
    pub(super) fn spawn(self: &Arc<Self>, worker: usize, kept: Option<Kept<W>>, hand: Hand<W>) {
        let desk = Arc::clone(self);
        let job: Job = Box::pin(async move {
            let working = worker::work(Arc::clone(&desk), worker, kept, hand);
            let working = working_for(Arc::clone(&desk.site.meter), worker, working);
            // Calls are caught one by one; this catches what runs beside them, such as the drop of
            // an item. A worker that vanished must not leave the stage waiting for it.
            if let Err(panic) = std::panic::AssertUnwindSafe(working).catch_unwind().await {
                let fault = Fault::panic(panic).at(&desk.site.meter.id);
                desk.floor.lock().break_down(fault);
                desk.changed.notify_one();
            }
        });
        self.place.spawn(worker, job);
    }

    /// Ends everything: calls are stopped where they can be, items dropped, states finished.
    fn close(&self, reason: Finish) {
        let staffing = self.staffing.lock();
        if self.closed.swap(true, Relaxed) {
            return;
        }
        drop(staffing);
        self.reason.store(reason as u8, Relaxed);
        self.place.abort();
        let (left, states) = self.floor.lock().clear();
        self.site.meter.abandoned.fetch_add(left.count as u64, Relaxed);
        drop(left);
        for (worker, kept) in states {
            let token = self.finishing.token();
            let finish = async move {
                drop(kept);
                drop(token);
            };
            self.place.spawn(worker, Box::pin(finish));
        }
    }

    /// Returns once the workers' states are finished.
    pub(super) async fn finished(&self) {
        self.finishing.close();
        self.finishing.wait().await;
    }
}

/// Closes the desk when the loop's future ends, even by being dropped.
pub(super) struct Open<'a, W: Work>(&'a Desk<W>);

impl<'a, W: Work> Open<'a, W> {
    pub(super) fn new(desk: &'a Desk<W>) -> Self {
        Open(desk)
    }

    pub(super) fn close(self, reason: Finish) {
        self.0.close(reason);
    }
}

impl<W: Work> Drop for Open<'_, W> {
    fn drop(&mut self) {
        self.0.close(Finish::Cancelled);
    }
}
