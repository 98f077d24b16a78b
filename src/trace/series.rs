//! How the figures of a run grew over time: a few hundred samples, however long it takes. When they
//! are too many every second one is dropped, and from then on half as many are taken.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// So many samples at most.
const MOST: usize = 480;
/// How far apart the first samples are.
const FIRST: Duration = Duration::from_millis(20);

/// Figures over time, a column each. All columns have one entry for each of `t`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// Seconds from the run's start.
    pub t: Vec<f64>,
    /// Items that the consumer had received.
    pub items: Vec<u64>,
    /// Bytes that it had received.
    pub bytes: Vec<u64>,
    /// Seconds that it had waited.
    pub waited_s: Vec<f64>,
    /// Memory of the process, in bytes; 0 where it is not known.
    pub rss: Vec<u64>,
    /// Seconds that the process had been on cores.
    pub cpu_s: Vec<f64>,
    /// The stages in order.
    pub stages: Vec<StageSeries>,
}

/// A stage's figures over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StageSeries {
    /// Seconds of worker time in each state so far: working, starved, blocked, turn, limit.
    pub states: Vec<[f64; 5]>,
    /// Items that it had sent.
    pub items: Vec<u64>,
    /// Seconds that its calls had taken.
    pub service_s: Vec<f64>,
    /// Calls that it had made.
    pub calls: Vec<u64>,
    /// Items in the buffer behind it.
    pub buffer_items: Vec<u64>,
    /// Bytes in the buffer behind it.
    pub buffer_bytes: Vec<u64>,
}

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) t: Duration,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) waited: Duration,
    pub(crate) rss: u64,
    pub(crate) cpu: Duration,
    pub(crate) stages: Vec<StageSample>,
}

#[derive(Clone, Debug)]
pub(crate) struct StageSample {
    pub(crate) states: [Duration; 5],
    pub(crate) items: u64,
    pub(crate) service: Duration,
    pub(crate) calls: u64,
    pub(crate) buffer_items: u64,
    pub(crate) buffer_bytes: u64,
}

/// How often samples are taken.
#[derive(Debug)]
pub(crate) struct Sampling {
    pub(crate) series: Series,
    every: Duration,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { series: Series::default(), every: FIRST }
    }
}

impl Sampling {
    /// When the next sample is due, from the run's start.
    pub(crate) fn due(&self) -> Duration {
        let last = self.series.t.last().copied().unwrap_or(0.0);
        Duration::from_secs_f64(last) + self.every
    }

    pub(crate) fn push(&mut self, sample: &Sample) {
        if self.series.t.len() >= MOST {
            self.series.halve();
            self.every *= 2;
        }
        self.series.push(sample);
    }
}

impl Series {
    fn push(&mut self, sample: &Sample) {
        self.t.push(seconds(sample.t));
        self.items.push(sample.items);
        self.bytes.push(sample.bytes);
        self.waited_s.push(seconds(sample.waited));
        self.rss.push(sample.rss);
        self.cpu_s.push(seconds(sample.cpu));
        self.stages.resize_with(sample.stages.len(), StageSeries::default);
        for (series, stage) in self.stages.iter_mut().zip(&sample.stages) {
            series.states.push(stage.states.map(seconds));
            series.items.push(stage.items);
            series.service_s.push(seconds(stage.service));
            series.calls.push(stage.calls);
            series.buffer_items.push(stage.buffer_items);
            series.buffer_bytes.push(stage.buffer_bytes);
        }
    }

    fn halve(&mut self) {
        halve(&mut self.t);
        halve(&mut self.items);
        halve(&mut self.bytes);
        halve(&mut self.waited_s);
        halve(&mut self.rss);
        halve(&mut self.cpu_s);
        for stage in &mut self.stages {
            halve(&mut stage.states);
            halve(&mut stage.items);
            halve(&mut stage.service_s);
            halve(&mut stage.calls);
            halve(&mut stage.buffer_items);
            halve(&mut stage.buffer_bytes);
        }
    }
}

/// To the microsecond: more digits only make files long.
fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// Keeps every second entry, of which the last is one.
fn halve<T>(column: &mut Vec<T>) {
    let mut keep = column.len() % 2 == 1;
    column.retain(|_| {
        keep = !keep;
        !keep
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_has_as_many_samples_as_a_minute() {
        let mut sampling = Sampling::default();
        let mut t = Duration::ZERO;
        while t < Duration::from_secs(7 * 86_400) {
            t = sampling.due();
            sampling.push(&Sample {
                t,
                items: t.as_secs(),
                bytes: 0,
                waited: Duration::ZERO,
                rss: 0,
                cpu: Duration::ZERO,
                stages: Vec::new(),
            });
        }
        let t = &sampling.series.t;
        assert!((MOST / 2..=MOST).contains(&t.len()), "{}", t.len());
        assert_eq!(sampling.series.items.len(), t.len());
        let gaps: Vec<_> = t.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (least, most) = gaps.iter().fold((f64::MAX, 0_f64), |(a, b), &g| (a.min(g), b.max(g)));
        assert!(most < 2.1 * least, "the samples are evenly spread: {least} to {most}");
    }
}
