//! The stages of a run as its reports see them: each with its meter and its links.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Engine;
use crate::link::Core;
use crate::trace::{BufferStats, Meter};
use crate::work::Crew;

#[derive(Debug)]
pub(super) struct Metered {
    pub(super) meter: Arc<Meter>,
    /// One, or one for each branch, with the meter of who receives from it.
    pub(super) links: Vec<(Arc<Core>, Arc<Meter>)>,
    /// The link that it receives from, if each item that comes in is accounted for.
    pub(super) inlet: Option<Arc<Core>>,
    /// Who changes its workers, once it runs.
    pub(super) crew: Option<Weak<dyn Crew>>,
}

/// Items of which nothing is known any more, once nothing of the run is left: 0, or a defect.
pub(super) fn unaccounted(stages: &[Metered]) -> u64 {
    let lost = |Metered { meter, inlet, .. }: &Metered| {
        inlet.as_ref().map_or(0, |inlet| inlet.passed().abs_diff(meter.accounted()))
    };
    stages.iter().map(lost).sum()
}

impl Metered {
    /// Of several branches the fullest buffer is the one that holds the stage up.
    pub(super) fn buffer(&self, now: Instant) -> BufferStats {
        let buffers = self.links.iter().map(|(link, _)| link.stats(now));
        buffers.max_by(|a, b| a.items_mean.total_cmp(&b.items_mean)).unwrap_or_default()
    }
}

impl Engine {
    /// Adds a stage's meter and a link from it to `to`, in the order of the pipeline.
    pub(crate) fn metered(&self, meter: &Arc<Meter>, link: &Arc<Core>, to: &Arc<Meter>) {
        let mut stages = self.stages.lock();
        let link = (Arc::clone(link), Arc::clone(to));
        match stages.iter_mut().find(|stage| Arc::ptr_eq(&stage.meter, meter)) {
            Some(stage) => stage.links.push(link),
            None => {
                let meter = Arc::clone(meter);
                stages.push(Metered { meter, links: vec![link], inlet: None, crew: None });
            }
        }
    }

    /// The stage accounts for every item of `inlet`: it sends one for each, or counts it otherwise.
    pub(crate) fn accounted(&self, meter: &Arc<Meter>, inlet: &Arc<Core>) {
        let mut stages = self.stages.lock();
        if let Some(stage) = stages.iter_mut().find(|stage| Arc::ptr_eq(&stage.meter, meter)) {
            stage.inlet = Some(Arc::clone(inlet));
        }
    }
}
