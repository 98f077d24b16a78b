//! Spans and events for anyone's own subscriber: `forebay.stage` for as long as a stage lives, and in
//! it `forebay.item` around each call. Nothing is built where nobody listens: the macros look at their
//! callsite first, which is one branch.
//!
//! Invariant: every parent is said, never taken from the thread, because a thread of a pool may be in
//! the middle of another call when it starts one.

use std::time::Duration;

use tracing::Span;

use super::{BufferStats, Meter, together};
use crate::fault::Fault;
use crate::stage::Stop;
use crate::work::Call;

/// The span of a stage of the run `run`.
pub(crate) fn stage_span(meter: &Meter, run: &str) -> Span {
    tracing::info_span!(
        target: "forebay::stage",
        parent: None,
        "forebay.stage",
        stage = meter.id,
        kind = %meter.kind,
        workers = meter.workers(),
        run,
    )
}

/// What one call is told in: its own span within that of its stage.
///
/// Both are entered, because one subscriber may want stages only while another wants each call.
#[derive(Debug)]
pub(crate) struct CallSpan<'a> {
    stage: &'a Span,
    item: Span,
}

impl<'a> CallSpan<'a> {
    /// A call on an item that people call `name`.
    pub(crate) fn new(stage: &'a Span, call: &Call<'_>, name: Option<&str>) -> Self {
        let item = tracing::trace_span!(
            target: "forebay::item",
            parent: stage,
            "forebay.item",
            stage = call.worker.stage(),
            item = %call.id,
            name,
            attempt = call.attempt,
            worker = call.worker.index(),
        );
        CallSpan { stage, item }
    }

    /// A call that is not under way any more.
    pub(crate) fn over(stage: &'a Span) -> Self {
        CallSpan { stage, item: Span::none() }
    }

    /// Runs a part of the call.
    pub(crate) fn in_scope<T>(&self, part: impl FnOnce() -> T) -> T {
        self.stage.in_scope(|| self.item.in_scope(part))
    }

    /// It failed and is made again after `pause`.
    pub(crate) fn retried(&self, stage: &str, fault: &Fault, pause: Duration) {
        self.in_scope(|| {
            tracing::debug!(
                target: "forebay::item",
                stage,
                item = fault.item().map(display),
                name = fault.item_name(),
                attempt = fault.attempts(),
                pause_ms = pause.as_micros() as f64 / 1e3,
                error = fault.cause(),
                "failed and is tried again",
            );
        });
    }

    /// It failed and its item is left out.
    pub(crate) fn skipped(&self, stage: &str, fault: &Fault) {
        self.in_scope(|| {
            tracing::debug!(
                target: "forebay::item",
                stage,
                item = fault.item().map(display),
                name = fault.item_name(),
                attempt = fault.attempts(),
                error = fault.cause(),
                "skipped",
            );
        });
    }
}

/// A stage has ended so; what it did goes with it.
pub(crate) fn stage_ended(span: &Span, meter: &Meter, result: &Result<(), Stop>) {
    if !tracing::enabled!(target: "forebay::stage", tracing::Level::DEBUG) {
        return;
    }
    let (ended, fault) = match result {
        Ok(()) => ("finished", None),
        Err(Stop::Downstream) => ("not wanted", None),
        Err(Stop::Cancelled) => ("cancelled", None),
        Err(Stop::Failed(fault)) => ("failed", Some(fault.clone().at(&meter.id))),
        Err(Stop::Upstream(fault)) => ("stopped", Some(fault.clone())),
    };
    let (_, states) = together(std::iter::once(meter), false);
    let stats = meter.figures(states[0], BufferStats::default());
    let seconds = stats.states;
    tracing::debug!(
        target: "forebay::stage",
        parent: span,
        stage = stats.id,
        ended,
        fault = fault.map(display),
        items_in = stats.items_in,
        items_out = stats.items_out,
        bytes_out = stats.bytes_out,
        calls = stats.service.count,
        retries = stats.retries,
        errors = stats.errors,
        skipped = stats.skipped,
        p50_ms = stats.service.p50_ns as f64 / 1e6,
        p99_ms = stats.service.p99_ns as f64 / 1e6,
        working_s = seconds.working.as_secs_f64(),
        starved_s = seconds.starved.as_secs_f64(),
        blocked_s = seconds.blocked.as_secs_f64(),
        turn_s = seconds.turn.as_secs_f64(),
        limit_s = seconds.limit.as_secs_f64(),
        "the stage has ended",
    );
}
