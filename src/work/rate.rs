//! When the next call may start: a rate limit in calls and in bytes.
//!
//! Each bound is one number, the time at which the next unit is due (GCRA). Bytes are paid after
//! the call, when they are known: a large item makes the next one wait. That is why this is not a
//! library: those at hand must know the cost beforehand.

use std::time::{Duration, Instant};

use crate::options::Rate;

#[derive(Debug)]
pub(crate) struct Limiter {
    calls: Option<Bound>,
    bytes: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    per_unit: Duration,
    tolerance: Duration,
    due: Instant,
}

impl Bound {
    fn new(per_s: f64, burst: f64, now: Instant) -> Self {
        let per_unit = Duration::from_secs_f64(1.0 / per_s);
        Bound { per_unit, tolerance: per_unit.mul_f64((burst - 1.0).max(0.0)), due: now }
    }

    /// When the next unit may be taken.
    fn free_at(&self) -> Instant {
        self.due.checked_sub(self.tolerance).unwrap_or(self.due)
    }

    fn pay(&mut self, units: f64, now: Instant) {
        self.due = self.due.max(now) + self.per_unit.mul_f64(units);
    }
}

impl Limiter {
    pub(crate) fn new(rate: &Rate, now: Instant) -> Self {
        let burst = f64::from(rate.burst.unwrap_or(1));
        Limiter {
            calls: rate.requests_per_s.map(|per_s| Bound::new(per_s, burst, now)),
            bytes: rate.bytes_per_s.map(|per_s| Bound::new(per_s, 1.0, now)),
        }
    }

    /// Takes leave for one call.
    ///
    /// # Errors
    /// The time from which on to ask again.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let free_at = [&self.calls, &self.bytes].into_iter().flatten().map(Bound::free_at).max();
        if let Some(at) = free_at
            && at > now
        {
            return Err(at);
        }
        if let Some(calls) = &mut self.calls {
            calls.pay(1.0, now);
        }
        Ok(())
    }

    /// A call yielded so many bytes.
    pub(crate) fn paid(&mut self, bytes: u64, now: Instant) {
        if let Some(bound) = &mut self.bytes {
            bound.pay(bytes as f64, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_start_at_the_rate_and_a_pause_saves_up_no_more_than_the_burst() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let rate = Rate { requests_per_s: Some(100.0), burst: Some(3), ..Rate::default() };
        let mut limiter = Limiter::new(&rate, start);
        // After a long pause: three at once, then one each 10 ms.
        let now = at(10_000);
        assert_eq!((0..5).map(|_| limiter.take(now).is_ok()).filter(|ok| *ok).count(), 3);
        assert_eq!(limiter.take(now), Err(at(10_010)));
        assert_eq!(limiter.take(at(10_010)), Ok(()));
        assert_eq!(limiter.take(at(10_010)), Err(at(10_020)));
    }

    #[test]
    fn bytes_are_paid_afterwards() {
        let start = Instant::now();
        let mut limiter = Limiter::new(&Rate::bytes(1000.0), start);
        assert_eq!(limiter.take(start), Ok(()));
        limiter.paid(500, start);
        assert_eq!(limiter.take(start), Err(start + Duration::from_millis(500)));
    }
}
