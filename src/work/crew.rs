//! Changes how many workers a stage has while its run goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Work;
use super::desk::Desk;
use super::kept::Kept;

/// A stage whose workers can be changed.
pub(crate) trait Crew: Send + Sync {
    /// Hires workers, or lets some go, so that there are as many as the stage's meter says. Those
    /// that are in a call leave after it. Says whether the stage still runs.
    ///
    /// # Errors
    /// The machine gives no threads; the meter then has the number of before.
    fn follow(self: Arc<Self>) -> io::Result<bool>;
}

impl<W: Work> Crew for Desk<W> {
    fn follow(self: Arc<Self>) -> io::Result<bool> {
        let _one_at_a_time = self.staffing.lock();
        if self.is_closed() {
            return Ok(false);
        }
        let workers = self.site.meter.workers_set.load(Relaxed);
        let (before, hired) = {
            let mut floor = self.floor.lock();
            (floor.workers, floor.aim(workers, self.rules.window(workers)))
        };
        if let Err(error) = self.place.resize(&self.site, workers, &hired) {
            self.site.meter.workers_set.store(before, Relaxed);
            let mut floor = self.floor.lock();
            let also = floor.aim(before, self.rules.window(before));
            for worker in hired.into_iter().chain(also) {
                floor.vacate(worker);
            }
            return Err(error);
        }
        let now = Instant::now();
        let mut floor = self.floor.lock();
        for worker in hired {
            floor.hire(worker);
        }
        let leaving = floor.dismiss();
        let started = floor.schedule(&self.rules, now);
        floor.census(now);
        drop(floor);
        self.launch(started);
        for (worker, kept) in leaving {
            self.see_off(worker, kept);
        }
        self.changed.notify_one();
        Ok(true)
    }
}

impl<W: Work> Desk<W> {
    /// Lets the run change the stage's workers.
    pub(super) fn enlist(self: &Arc<Self>) {
        let myself: Arc<dyn Crew> = Arc::<Self>::clone(self);
        self.site.engine.enlist(&self.site.meter, Arc::downgrade(&myself));
        // They may have been changed before.
        self.follow_or_warn();
    }

    fn follow_or_warn(self: &Arc<Self>) {
        if let Err(error) = Arc::clone(self).follow() {
            tracing::warn!(stage = %self.site.meter.id, %error, "workers could not be started");
        }
    }

    /// An idle worker leaves: its state is finished where it worked.
    fn see_off(self: &Arc<Self>, worker: usize, kept: Option<Kept<W>>) {
        let Some(kept) = kept else {
            self.place.vacate(worker);
            self.floor.lock().vacate(worker);
            return;
        };
        let (desk, token) = (Arc::clone(self), self.finishing.token());
        let leave = async move {
            desk.leave(worker, Some(kept));
            drop(token);
        };
        self.place.spawn(worker, Box::pin(leave));
    }

    /// A worker leaves from where it works.
    pub(super) fn leave(self: &Arc<Self>, worker: usize, kept: Option<Kept<W>>) {
        if let Some(kept) = kept {
            kept.finish();
        }
        // Only now may another have its place: no two have the same number at a time.
        self.place.vacate(worker);
        let is_short = self.floor.lock().vacate(worker);
        if is_short {
            self.follow_or_warn();
        }
    }
}
