//! What the options of a stage may say, checked when the stage is added to a plan.

use crate::fault::PlanError;
use crate::options::{Options, Ordered, Workers};
use crate::pipeline::Node;
use crate::stage::Kind;

/// Adds what keeps `node` from running.
pub(crate) fn check(node: &Node, can_retry: bool, problems: &mut Vec<PlanError>) {
    let Options { id: _, workers, buffer, ordered, retry, timeout, deadline, rate, on_error } =
        &node.options;
    let stage = || node.id.clone();
    let mut zero = |what, hint| problems.push(PlanError::Zero { stage: stage(), what, hint });
    if *workers == Some(Workers::Count(0)) {
        zero("workers", ", or `auto`");
    }
    if buffer.is_some_and(|buffer| buffer.items == 0) {
        zero("buffer.items", "");
    }
    if buffer.is_some_and(|buffer| buffer.bytes == 0) {
        zero("buffer.bytes", "; one item always fits");
    }
    if *ordered == Some(Ordered::Window(Some(0))) {
        zero("ordered.window", ", or `ordered: false`");
    }
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        zero("timeout", "; leave it out for no limit");
    }
    if deadline.is_some_and(|deadline| deadline.is_zero()) {
        zero("deadline", "; leave it out for no limit");
    }
    let mut range = |what, value: String, range| {
        problems.push(PlanError::Range { stage: stage(), what, value, range });
    };
    match *workers {
        Some(Workers::Count(n)) if n > WORKERS_MAX => {
            range("workers", n.to_string(), "at most 65536");
        }
        Some(Workers::Share(share)) if !(share > 0.0 && share <= 1.0) => {
            range("workers", format!("{}%", share * 100.0), "a share above 0 % up to 100 %");
        }
        _ => {}
    }
    if let Some(buffer) = buffer
        && buffer.items > BUFFER_ITEMS_MAX
    {
        range("buffer.items", buffer.items.to_string(), "at most 16777216");
    }
    if let Some(rate) = rate {
        for (what, value) in
            [("rate.requests", rate.requests_per_s), ("rate.bytes", rate.bytes_per_s)]
        {
            if let Some(value) = value
                && !(value.is_finite() && value > 1e-9)
            {
                range(what, format!("{value}/s"), "more than 0 a second");
            }
        }
    }
    let mut not_applicable = |what, because| {
        problems.push(PlanError::NotApplicable { stage: stage(), what, because });
    };
    if !node.makes_calls {
        let because = "which runs in one task and makes no calls";
        let said = [
            ("workers", workers.is_some()),
            ("ordered", ordered.is_some()),
            ("retry", retry.is_some()),
            ("timeout", timeout.is_some()),
            ("deadline", deadline.is_some()),
            ("rate", rate.is_some()),
            ("on_error", on_error.is_some()),
        ];
        for (what, _) in said.into_iter().filter(|(_, said)| *said) {
            not_applicable(what, because);
        }
    } else if retry.is_some() && !can_retry {
        not_applicable(
            "retry",
            "whose items can't be copied for another try: add `.retryable()` where the stage is made",
        );
    }
}

/// How many workers a stage of a kind starts with.
pub(crate) fn workers(kind: Kind, options: &Options, cores: usize) -> usize {
    let auto = match kind {
        Kind::Io => 16,
        Kind::Cpu => cores,
        Kind::Source | Kind::Device | Kind::Flow => 1,
    };
    match options.workers {
        None | Some(Workers::Auto) => auto,
        Some(Workers::Count(n)) => n,
        Some(Workers::Share(share)) => ((cores as f64 * share).ceil() as usize).max(1),
    }
}

/// The reorder window of so many workers; `None` is out of order.
pub(crate) fn window(ordered: Ordered, workers: usize) -> Option<u64> {
    match ordered {
        Ordered::No => None,
        Ordered::Window(items) => Some(items.unwrap_or(8 * workers).max(workers) as u64),
    }
}

/// Bytes that wait behind a stage at most, if each of its `items` has `each`.
pub(crate) fn buffered(options: &Options, each: u64, items: Option<u64>) -> u64 {
    let buffer = options.buffer.unwrap_or_default();
    let items = items.unwrap_or(u64::MAX).min(buffer.items as u64);
    each.saturating_mul(items).min(buffer.bytes.max(each))
}

/// Above this a number of workers is surely a mistake.
pub(crate) const WORKERS_MAX: usize = 65_536;
/// Above this a number of items is surely a mistake.
const BUFFER_ITEMS_MAX: usize = 1 << 24;
