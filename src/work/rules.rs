//! What holds for every call of a stage, as its options say.

use std::time::Duration;

use crate::limits;
use crate::options::{OnError, Options, Ordered, Retry};
use crate::stage::Kind;

/// What holds for every call of a stage.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) kind: Kind,
    ordered: Ordered,
    pub(super) retry: Option<Retry>,
    pub(super) timeout: Option<Duration>,
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
            on_error: options.on_error.clone().unwrap_or_default(),
            single: options.rate.is_some()
                || (options.timeout.is_some() && kind != Kind::Io)
                || options.retry.is_some()
                || yields_many,
        }
    }

    /// The reorder window of so many workers; `None` is out of order.
    pub(super) fn window(&self, workers: usize) -> Option<u64> {
        limits::window(self.ordered, workers)
    }
}
