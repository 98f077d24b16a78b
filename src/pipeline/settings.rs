//! What holds for a whole run.

use std::num::NonZero;
use std::time::Duration;

/// What holds for a whole run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunSettings {
    /// The pipeline's name in reports.
    pub name: String,
    /// Cores that cpu stages may use. Default: all of up to 4, else three quarters, because a
    /// loader that takes every core delays the launches on the device that it feeds.
    pub cores: Option<usize>,
    /// Threads of the I/O runtime. Default: the cores, at most 4.
    pub io_threads: Option<usize>,
    /// Bytes of host memory that the items of the run may take together: in buffers, while they wait
    /// for their turn, and in calls. Default: what the buffers of the stages allow.
    ///
    /// A call starts only once what it is expected to yield fits, as much as the largest item of its
    /// stage so far; until the first has yielded something there is one at a time. What lies on a device does not count, nor do items that the consumer has taken,
    /// caches, and memory that a call takes beside its items.
    pub memory: Option<u64>,
    /// What happens when nothing moves. Default: after 10 s a warning says what is waited for.
    pub stall: StallRule,
    /// Remembers calls for a trace, see [`Handle::write_trace`](crate::running::Handle::write_trace). Default:
    /// not.
    pub trace: Option<TraceRule>,
}

/// What happens when nothing moves in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallRule {
    /// After how long it is said what the run waits for; `None` is never.
    pub after: Option<Duration>,
    /// Whether the run then also fails.
    pub fails: bool,
}

impl Default for StallRule {
    fn default() -> Self {
        StallRule { after: Some(Duration::from_secs(10)), fails: false }
    }
}

/// How much a trace remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRule {
    /// The last so many seconds are shown.
    pub last: Duration,
    /// Memory for each stage, in bytes, at most.
    pub bytes: usize,
}

impl Default for TraceRule {
    fn default() -> Self {
        TraceRule { last: Duration::from_secs(10), bytes: 16 << 20 }
    }
}

impl TraceRule {
    /// How many calls of a stage are remembered: each is kept as a call, as sent, and perhaps with a
    /// request.
    pub(crate) fn calls(&self) -> usize {
        const EACH: usize = 160;
        (self.bytes / EACH).max(1)
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            name: "pipeline".to_owned(),
            cores: None,
            io_threads: None,
            memory: None,
            stall: StallRule::default(),
            trace: None,
        }
    }
}

impl RunSettings {
    /// The core budget.
    pub fn core_budget(&self) -> usize {
        self.cores.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            if cores <= 4 { cores } else { (cores * 3).div_ceil(4) }
        })
    }
}
