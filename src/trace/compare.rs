//! Two runs side by side, stage by stage: which got slower, and whether that is more than noise.

use std::fmt;

use serde::Serialize;

use super::text::{duration, percent, rate};
use super::{RunRecord, StageSeries};

/// A run is cut into so many slices at most, whose differences tell its noise.
const SLICES: usize = 24;
/// Fewer tell nothing.
const SLICES_LEAST: usize = 5;
/// Changes below this share are not worth a word, however certain.
const SMALL: f64 = 0.03;
/// A change counts if it is so many times its standard error.
const CERTAIN: f64 = 3.0;

/// Two runs compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The names of the two runs.
    pub runs: [String; 2],
    /// What was delivered, in items a second.
    pub items_per_s: Change,
    /// The shares of time that the consumers waited.
    pub waited_share: [f64; 2],
    /// The bottlenecks' names.
    pub limits: [Option<String>; 2],
    /// Stages that both have: milliseconds a call.
    pub stages: Vec<(String, Change)>,
    /// Stages that only one has.
    pub only: [Vec<String>; 2],
}

/// A figure of two runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Change {
    /// The figure in both.
    pub values: [f64; 2],
    /// The second over the first, less 1.
    pub change: f64,
    /// The change that chance may make, as a share of the first value; not known of short runs.
    pub noise: Option<f64>,
}

impl Change {
    fn new(values: [f64; 2], errors: [Option<f64>; 2]) -> Self {
        let [a, b] = values;
        let noise = errors[0].zip(errors[1]).map(|(x, y)| CERTAIN * x.hypot(y) / a);
        Change { values, change: b / a - 1.0, noise }
    }

    /// Whether it is more than noise, as far as that is known, and worth a word.
    pub fn counts(&self) -> bool {
        self.change.abs() > self.noise.unwrap_or(0.1).max(SMALL)
    }
}

/// Compares two runs.
pub fn compare(a: &RunRecord, b: &RunRecord) -> Comparison {
    let runs = [a, b];
    let rates = runs.map(|run| run.report.items_per_s);
    let rate_errors = runs.map(|run| {
        let counts: Vec<_> = run.series.items.iter().map(|n| *n as f64).collect();
        // Of the rate of items as the consumer counts them; the share is that of batches.
        let (mean, error) = slices(&run.series.t, &counts)?;
        (mean > 0.0).then(|| error / mean * run.report.items_per_s)
    });
    let mut stages = Vec::new();
    let mut only = [Vec::new(), Vec::new()];
    for (n, stage) in a.report.stages.iter().enumerate() {
        let other = b.report.stages.iter().position(|other| other.id == stage.id);
        let Some(m) = other else {
            only[0].push(stage.id.clone());
            continue;
        };
        let means = [stage.service_ms.mean, b.report.stages[m].service_ms.mean];
        if means.iter().all(|mean| *mean > 0.0) {
            let errors = [a.series.stages.get(n), b.series.stages.get(m)];
            stages.push((stage.id.clone(), Change::new(means, errors.map(error_ms))));
        }
    }
    let missing = |id: &String| a.report.stages.iter().all(|stage| stage.id != *id);
    only[1].extend(b.report.stages.iter().map(|stage| stage.id.clone()).filter(missing));
    Comparison {
        runs: runs.map(|run| run.run.clone()),
        items_per_s: Change::new(rates, rate_errors),
        waited_share: runs.map(|run| run.report.waited_share),
        limits: runs.map(|run| run.report.verdict.stage.clone()),
        stages,
        only,
    }
}

/// The standard error of the mean time of a stage's calls, in milliseconds.
fn error_ms(series: Option<&StageSeries>) -> Option<f64> {
    let series = series?;
    let calls: Vec<_> = series.calls.iter().map(|n| *n as f64).collect();
    slices(&calls, &series.service_s).map(|(_, error)| error * 1e3)
}

/// How fast `y` grows for each unit of `x`, both growing, and the standard error of that: its mean
/// over slices of equal `x`.
fn slices(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    let (first, last) = (*x.first()?, *x.last()?);
    let mut slopes = Vec::new();
    let mut begun = 0;
    for n in 1..x.len().min(y.len()) {
        let wide = (last - first) / SLICES as f64;
        if x[n] - x[begun] >= wide && x[n] > x[begun] {
            slopes.push((y[n] - y[begun]) / (x[n] - x[begun]));
            begun = n;
        }
    }
    let count = slopes.len() as f64;
    if slopes.len() < SLICES_LEAST {
        return None;
    }
    let mean = slopes.iter().sum::<f64>() / count;
    let variance = slopes.iter().map(|slope| (slope - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some((mean, (variance / count).sqrt()))
}

impl Comparison {
    /// The stages whose calls take longer or shorter, the largest change first.
    pub fn changed(&self) -> Vec<&(String, Change)> {
        let mut changed: Vec<_> = self.stages.iter().filter(|(_, c)| c.counts()).collect();
        changed.sort_by(|a, b| b.1.change.abs().total_cmp(&a.1.change.abs()));
        changed
    }

    /// The whole in one sentence.
    pub fn sentence(&self) -> String {
        let whole = match self.items_per_s {
            change if !change.counts() => "the same, within the noise".to_owned(),
            Change { change, .. } if change < 0.0 => format!("{} slower", percent(-change)),
            Change { change, .. } => format!("{} faster", percent(change)),
        };
        let stages = match &self.changed()[..] {
            [] if self.items_per_s.counts() => {
                "; no stage's calls changed, so look at workers, limits and the consumer".to_owned()
            }
            [] => String::new(),
            [(id, change), others @ ..] => {
                let [a, b] = change.values.map(ms);
                let others = match others.len() {
                    0 => "the others are unchanged".to_owned(),
                    1 => format!("`{}` changed too", others[0].0),
                    n => format!("{n} others changed too"),
                };
                format!(
                    ": `{id}` takes {b} a call instead of {a} ({}); {others}",
                    signed(change.change)
                )
            }
        };
        let limits = match &self.limits {
            [Some(a), Some(b)] if a != b => format!("; the limit was {a} and is {b}"),
            _ => String::new(),
        };
        format!("the second run is {whole}{stages}{limits}")
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.runs;
        writeln!(f, "A  {a}\nB  {b}\n")?;
        let width = self.stages.iter().map(|(id, _)| id.chars().count()).chain([7]).max();
        let width = width.unwrap_or(7);
        writeln!(f, "{:width$}  {:>10}  {:>10}  {:>7}", "", "A", "B", "change")?;
        let mut line = |name: &str, [a, b]: [String; 2], change: &Change| {
            let noise = match change.noise {
                Some(noise) if change.counts() => {
                    format!("more than the noise, {}", percent(noise))
                }
                Some(noise) => format!("within the noise, {}", percent(noise)),
                None => "too short to tell the noise".to_owned(),
            };
            let change = signed(change.change);
            writeln!(f, "{name:width$}  {a:>10}  {b:>10}  {change:>7}  {noise}")
        };
        let per_s = |value: f64| format!("{}/s", rate(value));
        line("items/s", self.items_per_s.values.map(per_s), &self.items_per_s)?;
        for (id, change) in &self.stages {
            line(id, change.values.map(ms), change)?;
        }
        let [a, b] = self.waited_share.map(percent);
        writeln!(f, "{:width$}  {a:>10}  {b:>10}", "waited")?;
        for (run, only) in ["A", "B"].iter().zip(&self.only).filter(|(_, only)| !only.is_empty()) {
            writeln!(f, "only in {run}: {}", only.join(", "))?;
        }
        let sentence = self.sentence();
        let (first, rest) = sentence.split_at(1);
        writeln!(f, "\n{}{rest}.", first.to_uppercase())
    }
}

fn ms(value: f64) -> String {
    duration((value * 1e6) as u64)
}

fn signed(change: f64) -> String {
    format!("{:+.0} %", change * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_tell_the_noise() {
        let x: Vec<_> = (0..=240).map(f64::from).collect();
        let even: Vec<_> = x.iter().map(|x| 3.0 * x).collect();
        let (mean, error) = slices(&x, &even).expect("long enough");
        assert!((mean - 3.0).abs() < 1e-9 && error < 1e-9);
        // Every second slice of ten grows by 2, the others by 4.
        let uneven = |x: &f64| {
            let (whole, rest) = ((x / 20.0).floor(), x % 20.0);
            whole * 60.0 + rest.min(10.0) * 2.0 + (rest - 10.0).max(0.0) * 4.0
        };
        let uneven: Vec<_> = x.iter().map(uneven).collect();
        let (mean, error) = slices(&x, &uneven).expect("long enough");
        assert!((mean - 3.0).abs() < 1e-9, "{mean}");
        assert!((0.19..0.23).contains(&error), "{error}");
        assert_eq!(slices(&x[..3], &even[..3]), None);
        assert_eq!(slices(&[], &[]), None);
    }

    #[test]
    fn a_change_counts_if_it_is_more_than_noise() {
        assert!(Change::new([20.0, 29.0], [Some(0.2), Some(0.3)]).counts());
        assert!(!Change::new([20.0, 29.0], [Some(3.0), Some(3.0)]).counts());
        assert!(!Change::new([20.0, 20.2], [Some(0.0), Some(0.0)]).counts(), "too small");
        assert!(!Change::new([20.0, 21.0], [None, None]).counts());
    }
}
