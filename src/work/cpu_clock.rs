//! How long this thread was on a core, and how long it waited for one. Reading costs 0.6 us and
//! about 2 us, so it is sampled.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// How long the calling thread was ready to run and had no core; `None` where the system does not say.
pub(crate) fn thread_delay() -> Option<Duration> {
    thread_local! {
        static STATISTICS: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    STATISTICS.with(|file| {
        let mut text = [0; 96];
        let read = file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        let delay = text.split_ascii_whitespace().nth(1)?;
        delay.parse().ok().map(Duration::from_nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_is_on_a_core() {
        let wall = std::time::Instant::now();
        let (start, delay) = (thread_time(), thread_delay());
        while thread_time() - start < Duration::from_millis(5) {}
        let delayed = thread_delay().zip(delay).map(|(now, before)| now - before);
        assert!(thread_time() - start <= wall.elapsed());
        assert!(delayed.is_none_or(|delayed| delayed <= wall.elapsed()), "{delayed:?}");
    }
}
