//! What a run waits for when nothing moves.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Engine;
use crate::fault::Fault;
use crate::pipeline::StallRule;
use crate::trace::{Flow, Stall, stall, stall_of_consumer};

/// So many stalls are remembered.
const STALLS: usize = 16;

impl Engine {
    /// A number that grows whenever anything moves.
    pub(super) fn progress(&self) -> u64 {
        let stages = self.stages.lock();
        let stages = stages.iter().map(|stage| stage.meter.progress());
        stages.fold(self.consumer.items.load(Relaxed), u64::wrapping_add)
    }

    pub(super) fn stalled(&self, after: Duration, now: Instant, rule: StallRule) {
        let consumer_waits = self.consumer.waiting_since_ns.load(Relaxed) > 0;
        if !consumer_waits {
            // That is its business; a training loop may well stop to evaluate.
            let stall = stall_of_consumer(after);
            tracing::info!(target: "forebay::stall", run = self.name, "{stall}");
            return;
        }
        let stall = self.waited_for(after, now);
        tracing::warn!(target: "forebay::stall", run = self.name, stage = stall.stage, "{stall}");
        let fault = rule.fails.then(|| Fault::stall(&stall));
        let mut stalls = self.stalls.lock();
        if stalls.len() < STALLS {
            stalls.push(stall);
        }
        drop(stalls);
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// What the consumer waits for.
    fn waited_for(&self, after: Duration, now: Instant) -> Stall {
        let stages = self.stages.lock();
        let flows = stages.iter().flat_map(|stage| {
            stage.links.iter().map(|(link, to)| Flow {
                from: &stage.meter,
                to,
                holds: link.holds(),
            })
        });
        let flows: Vec<_> = flows.collect();
        stall(&flows, self.you.since_start(now), after)
    }

    /// Who waits for whom at this moment, from the consumer on.
    pub(crate) fn waits(&self) -> Vec<String> {
        if self.ended.get().is_some() {
            return vec!["the run has ended".to_owned()];
        }
        if self.consumer.waiting_since_ns.load(Relaxed) == 0 {
            return vec!["you are at work on the last item: nobody waits".to_owned()];
        }
        self.waited_for(Duration::ZERO, Instant::now()).chain
    }
}
