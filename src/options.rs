//! What can be said about how a stage runs. The same for every kind; nothing here acts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::trace::bytes;

/// Options of a stage. `None` means "nothing said": the kind's default holds.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The stage's id in errors, reports and traces. Default: its name.
    pub id: Option<String>,
    /// How many items are worked on at once. Default: io 16, cpu [`Workers::Auto`], device 1.
    pub workers: Option<Workers>,
    /// How much finished output may wait. Default: [`Buffer::default`].
    pub buffer: Option<Buffer>,
    /// Whether items leave in the order in which they came. Default: yes.
    pub ordered: Option<Ordered>,
    /// Whether and how a failed call is made again. Default: not.
    pub retry: Option<Retry>,
    /// How long one call may take. Default: no limit.
    pub timeout: Option<Duration>,
    /// How long all calls on an item may take, from the start of the first, with the pauses between them.
    /// Default: no limit.
    pub deadline: Option<Duration>,
    /// How fast calls may start. Default: no limit.
    pub rate: Option<Rate>,
    /// What an item that failed for good does to the run. Default: [`OnError::Fail`].
    pub on_error: Option<OnError>,
}

impl Options {
    /// These options, with `others` where those say something.
    pub fn overridden_by(self, others: Options) -> Options {
        Options {
            id: others.id.or(self.id),
            workers: others.workers.or(self.workers),
            buffer: others.buffer.or(self.buffer),
            ordered: others.ordered.or(self.ordered),
            retry: others.retry.or(self.retry),
            timeout: others.timeout.or(self.timeout),
            deadline: others.deadline.or(self.deadline),
            rate: others.rate.or(self.rate),
            on_error: others.on_error.or(self.on_error),
        }
    }
}

/// What was said, for people: `workers 8, retry 5`.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { id: _, workers, buffer, ordered, retry, timeout, deadline, rate, on_error } =
            self;
        let mut said = Vec::new();
        said.extend(workers.map(|workers| match workers {
            Workers::Auto => "workers auto".to_owned(),
            Workers::Count(n) => format!("workers {n}"),
            Workers::Share(share) => format!("workers {:.0}%", share * 100.0),
        }));
        said.extend(buffer.map(|Buffer { items, bytes: most }| {
            format!("buffer {items} | {}", bytes(most as f64))
        }));
        said.extend(ordered.map(|ordered| match ordered {
            Ordered::No => "unordered".to_owned(),
            Ordered::Window(None) => "ordered".to_owned(),
            Ordered::Window(Some(items)) => format!("window {items}"),
        }));
        said.extend(retry.as_ref().map(|retry| format!("retry {}", retry.max)));
        said.extend(timeout.map(|limit| format!("timeout {limit:?}")));
        said.extend(deadline.map(|limit| format!("deadline {limit:?}")));
        if let Some(Rate { requests_per_s, bytes_per_s, burst: _ }) = rate {
            said.extend(requests_per_s.map(|per_s| format!("rate {per_s}/s")));
            said.extend(bytes_per_s.map(|per_s| format!("rate {}/s", bytes(per_s))));
        }
        if matches!(on_error, Some(OnError::Skip { .. })) {
            said.push("on_error skip".to_owned());
        }
        f.write_str(&said.join(", "))
    }
}

/// How many workers a stage has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workers {
    /// As many as the run's core budget (cpu), else the kind's default.
    Auto,
    /// Exactly so many, at least 1.
    Count(usize),
    /// This share of the core budget, above 0 and at most 1, rounded up.
    Share(f64),
}

impl From<usize> for Workers {
    fn from(n: usize) -> Self {
        Workers::Count(n)
    }
}

/// The bound of a link: whichever is reached first; one item always fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Items that may wait, at least 1.
    pub items: usize,
    /// Bytes that may wait.
    pub bytes: u64,
}

impl Default for Buffer {
    /// 1,024 items or 128 MiB.
    fn default() -> Self {
        Buffer { items: 1024, bytes: 128 << 20 }
    }
}

impl From<usize> for Buffer {
    /// So many items, of 1 GiB in all at most.
    fn from(items: usize) -> Self {
        Buffer { items, bytes: 1 << 30 }
    }
}

/// Whether items leave a stage in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// As they finish.
    No,
    /// In order. The window is how far ahead of the oldest unfinished item others may run;
    /// `None` is 8 x workers.
    Window(Option<usize>),
}

impl From<bool> for Ordered {
    fn from(ordered: bool) -> Self {
        if ordered { Ordered::Window(None) } else { Ordered::No }
    }
}

/// When and how a failed call is made again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Calls after the first, at most.
    pub max: u32,
    /// The pause before retry `n` is drawn between 0 and `backoff` x 2^n (full jitter) ...
    pub backoff: Duration,
    /// ... and this at most.
    pub backoff_max: Duration,
    /// Which failures are worth another try.
    pub on: RetryOn,
}

impl Retry {
    /// Up to `max` retries of any error or timeout, pausing 100 ms at first and 20 s at most.
    pub fn times(max: u32) -> Self {
        Retry {
            max,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(20),
            on: RetryOn::default(),
        }
    }

    /// The same with pauses from `first` to `most`.
    pub fn backoff(self, first: Duration, most: Duration) -> Self {
        Retry { backoff: first, backoff_max: most, ..self }
    }

    /// The same for failures that `on` names.
    pub fn on(self, on: RetryOn) -> Self {
        Retry { on, ..self }
    }
}

/// Which failures are worth another try. A panic never is: it is a defect, not weather.
#[derive(Clone, Copy, Debug, Default)]
pub enum RetryOn {
    /// Errors and timeouts.
    #[default]
    Any,
    /// Timeouts of the stage's own `timeout`.
    Timeouts,
    /// Errors that say they are passing: those for which the function returns true.
    When(fn(&(dyn std::error::Error + 'static)) -> bool),
}

/// How fast calls may start. A worker that is held by it is in the state `limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Calls a second.
    pub requests_per_s: Option<f64>,
    /// Bytes a second, by the weight of what calls yield; paid after the call.
    pub bytes_per_s: Option<f64>,
    /// Calls that may start at once after a pause. Default 1.
    pub burst: Option<u32>,
}

impl Rate {
    /// So many calls a second.
    pub fn requests(per_s: f64) -> Self {
        Rate { requests_per_s: Some(per_s), ..Rate::default() }
    }

    /// So many bytes a second.
    pub fn bytes(per_s: f64) -> Self {
        Rate { bytes_per_s: Some(per_s), ..Rate::default() }
    }
}

/// What an item that failed for good (its retries used up) does to the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OnError {
    /// The run fails, after the items that precede the failure.
    #[default]
    Fail,
    /// The item is left out and counted.
    Skip {
        /// How many may be left out before the run fails all the same.
        max: SkipLimit,
        /// A file to which a JSON line is appended for each.
        log: Option<PathBuf>,
    },
}

impl OnError {
    /// Any number of items may be left out.
    pub fn skip() -> Self {
        OnError::Skip { max: SkipLimit::Any, log: None }
    }

    /// At most `n` items may be left out.
    pub fn skip_up_to(n: u64) -> Self {
        OnError::Skip { max: SkipLimit::Count(n), log: None }
    }
}

/// How many items may be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SkipLimit {
    /// Any number.
    Any,
    /// So many.
    Count(u64),
    /// This share of the items so far, 0 to 1. The first one is always allowed, so that an early
    /// failure among few items does not end the run.
    Share(f64),
}

impl SkipLimit {
    /// Whether `skipped` of `seen` items are too many.
    pub fn exceeded(self, skipped: u64, seen: u64) -> bool {
        match self {
            SkipLimit::Any => false,
            SkipLimit::Count(max) => skipped > max,
            SkipLimit::Share(share) => skipped as f64 > (share * seen as f64).max(1.0),
        }
    }
}
