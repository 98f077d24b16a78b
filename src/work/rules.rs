//! What holds for every call of a stage, as its options say.

use std::time::{Duration, Instant};

use crate::limits;
use crate::options::{OnError, Options, Ordered, Retry};
use crate::stage::Kind;

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Until it is given up.
    pub(super) left: Duration,
    /// What was said: of a deadline, for all calls on the item.
    pub(super) said: Duration,
}

/// What holds for every call of a stage.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) kind: Kind,
    ordered: Ordered,
    pub(super) retry: Option<Retry>,
    pub(super) timeout: Option<Duration>,
    deadline: Option<Duration>,
    pub(super) on_error: OnError,
    /// One item a call at a time: its calls are limited, timed or can yield many.
    pub(super) single: bool,
}

impl Rules {
    pub(super) fn new(options: &Options, kind: Kind, yields_many: bool) -> Self {
        Rules {
            kind,
            ordered: options.ordered.unwrap_or(Ordered::Window(None)),
            retry: options.retry.clone(),
            timeout: options.timeout,
            deadline: options.deadline,
            on_error: options.on_error.clone().unwrap_or_default(),
            single: options.rate.is_some()
                || ((options.timeout.is_some() || options.deadline.is_some()) && kind != Kind::Io)
                || options.retry.is_some()
                || yields_many,
        }
    }

    /// How long a call may take that begins `now`, on an item whose first call began at `began`.
    pub(super) fn limit(&self, began: Option<Instant>, now: Instant) -> Option<Limit> {
        let timeout = self.timeout.map(|limit| Limit { left: limit, said: limit });
        let deadline = self.deadline.map(|said| {
            let gone = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
            Limit { left: said.saturating_sub(gone), said }
        });
        timeout.into_iter().chain(deadline).min_by_key(|limit| limit.left)
    }

    /// Whether a call may begin at `then` on an item whose first call began at `began`.
    pub(super) fn in_time(&self, began: Instant, then: Instant) -> bool {
        self.deadline.is_none_or(|deadline| then.saturating_duration_since(began) < deadline)
    }

    /// The reorder window of so many workers; `None` is out of order.
    pub(super) fn window(&self, workers: usize) -> Option<u64> {
        limits::window(self.ordered, workers)
    }
}
