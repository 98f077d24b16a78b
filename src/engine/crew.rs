//! Changes the workers of a stage while the run goes on.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use super::Engine;
use crate::fault::WorkersError;
use crate::nearest::nearest;
use crate::trace::Meter;
use crate::work::Crew;

impl Engine {
    /// From now on `crew` changes the workers of a stage.
    pub(crate) fn enlist(&self, meter: &Arc<Meter>, crew: Weak<dyn Crew>) {
        let mut stages = self.stages.lock();
        if let Some(stage) = stages.iter_mut().find(|stage| Arc::ptr_eq(&stage.meter, meter)) {
            stage.crew = Some(crew);
        }
    }

    /// Gives a stage so many workers; says how many it was to have before.
    pub(crate) fn set_workers(&self, id: &str, workers: usize) -> Result<usize, WorkersError> {
        let stage = id.to_owned();
        let stages = self.stages.lock();
        let Some(found) = stages.iter().find(|stage| stage.meter.id == id) else {
            let makes_calls = |meter: &&Arc<Meter>| !meter.under_way.is_empty();
            let known = stages.iter().map(|stage| &stage.meter).filter(makes_calls);
            let known: Vec<_> = known.map(|meter| meter.id.as_str()).collect();
            let meant = nearest(id, &known).map(str::to_owned);
            let known = known.into_iter().map(str::to_owned).collect();
            return Err(WorkersError::Unknown { stage, meant, known });
        };
        let (meter, crew) = (Arc::clone(&found.meter), found.crew.clone());
        let most = meter.under_way.len();
        match workers {
            _ if most == 0 => return Err(WorkersError::NoCalls { stage }),
            0 => return Err(WorkersError::Zero { stage }),
            n if n > most => return Err(WorkersError::TooMany { stage, workers, most }),
            _ => {}
        }
        if self.ended.get().is_some() {
            return Err(WorkersError::Ended { stage });
        }
        let before = meter.workers_set.swap(workers, Relaxed);
        drop(stages);
        let Some(crew) = crew else {
            // It has not started yet, and will start with so many.
            return Ok(before);
        };
        match crew.upgrade().map(Crew::follow) {
            Some(Ok(true)) => Ok(before),
            Some(Ok(false)) | None => Err(WorkersError::Ended { stage }),
            Some(Err(error)) => Err(WorkersError::Machine { stage, error: error.to_string() }),
        }
    }
}
