//! Who works on a floor: workers come and go while the run goes on. One that is to go first finishes
//! the call it is in.

use super::Floor;
use crate::work::Work;
use crate::work::kept::Kept;

impl<W: Work> Floor<W> {
    /// From now on there shall be so many workers. Gives the places of those to hire for it; while
    /// there are too many, those that come back to the desk leave.
    pub(in crate::work) fn aim(&mut self, workers: usize, window: Option<u64>) -> Vec<usize> {
        (self.workers, self.window) = (workers, window);
        let missing = workers.saturating_sub(self.hired);
        (0..missing).map_while(|_| self.free_place()).collect()
    }

    fn free_place(&mut self) -> Option<usize> {
        self.free.pop_first().or_else(|| {
            let next = self.hands.len();
            (next < self.meter.under_way.len()).then(|| {
                self.hands.push(0);
                self.states.push(None);
                next
            })
        })
    }

    /// One more worker, who has nothing to do yet.
    pub(in crate::work) fn hire(&mut self, worker: usize) {
        self.hired += 1;
        self.idle.push(worker);
    }

    /// Whether one of the workers is to leave.
    pub(in crate::work) fn has_too_many(&self) -> bool {
        self.hired > self.workers
    }

    /// A worker has left, and its state is finished: another may have its place. Says whether one is
    /// wanted.
    pub(in crate::work) fn vacate(&mut self, worker: usize) -> bool {
        self.free.insert(worker);
        self.hired < self.workers
    }

    /// Those of the idle workers that are too many, the last ones hired first, with their states.
    pub(in crate::work) fn dismiss(&mut self) -> Vec<(usize, Option<Kept<W>>)> {
        let mut leaving = Vec::new();
        while self.has_too_many() {
            let last = (0..self.idle.len()).max_by_key(|&i| self.idle[i]);
            let Some(worker) = last.map(|i| self.idle.remove(i)) else {
                break;
            };
            self.hired -= 1;
            leaving.push((worker, self.states[worker].take()));
        }
        leaving
    }
}
