//! What this process uses, as the system tells it.

use std::num::NonZero;
use std::time::Duration;

use super::stats::Process;

impl Process {
    /// The figures now; `None` where the system does not tell them in `/proc`.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<Process> {
        let myself = procfs::process::Process::myself().ok()?;
        let stat = myself.stat().ok()?;
        let rss = stat.rss * procfs::page_size();
        let most = myself.status().ok()?.vmhwm.map_or(rss, |kib| kib << 10);
        let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        Some(Process {
            rss,
            rss_max: most.max(rss),
            cpu: Duration::from_secs_f64(ticks),
            minor_faults: stat.minflt,
            cores: cores(),
        })
    }

    /// What was used since `then`.
    pub(crate) fn since(&self, then: &Process) -> Process {
        Process {
            cpu: self.cpu.saturating_sub(then.cpu),
            minor_faults: self.minor_faults.saturating_sub(then.minor_faults),
            ..*self
        }
    }

    /// The figures now; `None` where the system does not tell them in `/proc`.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Option<Process> {
        None
    }
}

/// The most memory in use at a time is counted anew from now on, where the system allows that.
pub(crate) fn forget_most_memory() {
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "5") {
        tracing::debug!(%error, "the most memory in use counts from the process's start");
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
