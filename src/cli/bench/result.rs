//! What `bench` found, and how it is told.

use serde::{Deserialize, Serialize};

use crate::cli::Exit;
use crate::cli::terminal::say;
use crate::definition::Set;
use crate::trace::{RunReport, StageReport, bytes, percent, rate};

/// What `bench` found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Bench {
    /// The version of this schema: fields are added, never changed.
    pub(super) schema: u32,
    pub(super) pipeline: String,
    pub(super) settings: Vec<Setting>,
    /// Items a second of a consumer that finds every item there.
    #[serde(default)]
    pub(super) data_free_items_per_s: Option<f64>,
}

/// What was measured with one setting.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    /// What differs from the definition; empty for the definition itself.
    pub(super) name: String,
    pub(super) items_per_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
    waited_share: Vec<f64>,
    rss_max: u64,
    /// Each stage's mean time of a call in milliseconds, run by run.
    stages: Vec<StageTimes>,
    /// The limit in each run.
    limits: Vec<String>,
    /// Without the imitated training loop.
    #[serde(default)]
    pub(super) consumer_free_items_per_s: Vec<f64>,
    throttled: u64,
    /// Items in what the consumer takes at a time.
    pub(super) items_a_step: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StageTimes {
    id: String,
    mean_ms: Vec<f64>,
    could_do_per_s: Vec<f64>,
}

impl Setting {
    pub(super) fn new(set: &Set) -> Self {
        let name: Vec<_> = set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Setting {
            name: name.join(" "),
            items_per_s: Vec::new(),
            bytes_per_s: Vec::new(),
            waited_share: Vec::new(),
            rss_max: 0,
            stages: Vec::new(),
            limits: Vec::new(),
            consumer_free_items_per_s: Vec::new(),
            throttled: 0,
            items_a_step: 1.0,
        }
    }

    pub(super) fn add(&mut self, report: &RunReport) {
        self.items_per_s.push(report.items_per_s);
        self.bytes_per_s.push(report.bytes as f64 / report.seconds);
        self.waited_share.push(report.waited_share);
        self.rss_max = self.rss_max.max(report.process.map_or(0, |process| process.rss_max));
        self.limits.push(report.verdict.stage.clone().unwrap_or_default());
        if report.batches > 0 {
            self.items_a_step = report.items as f64 / report.batches as f64;
        }
        for stage in report.stages.iter().filter(|stage| stage.attempts > 0) {
            let place = self.stages.iter().position(|times| times.id == stage.id);
            let place = place.unwrap_or_else(|| {
                let (mean_ms, could_do_per_s) = (Vec::new(), Vec::new());
                self.stages.push(StageTimes { id: stage.id.clone(), mean_ms, could_do_per_s });
                self.stages.len() - 1
            });
            self.stages[place].mean_ms.push(stage.service_ms.mean);
            self.stages[place].could_do_per_s.push(could_do(report, stage));
            self.throttled += stage.traffic.map_or(0, |traffic| traffic.throttled);
        }
    }

    /// The run beside the one that was added last, without the imitated training loop. What stages
    /// could do is taken from it: where a loop makes them wait, their calls take longer.
    pub(super) fn add_free(&mut self, report: &RunReport) {
        self.consumer_free_items_per_s.push(report.items_per_s);
        for stage in report.stages.iter().filter(|stage| stage.attempts > 0) {
            let times = self.stages.iter_mut().find(|times| times.id == stage.id);
            if let Some(last) = times.and_then(|times| times.could_do_per_s.last_mut()) {
                *last = could_do(report, stage);
            }
        }
    }

    fn shown(&self) -> &str {
        if self.name.is_empty() { "as it is" } else { &self.name }
    }
}

/// What a stage's workers would do if they never waited: not of its calls, which may be on batches, but of
/// the items that the consumer counts.
fn could_do(report: &RunReport, stage: &StageReport) -> f64 {
    let items_a_call = report.items as f64 / stage.attempts as f64;
    stage.could_do_per_s.unwrap_or(f64::INFINITY) * items_a_call
}

/// The median, the least and the most of some figures.
fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = match sorted.len() {
        0 => return (0.0, 0.0, 0.0),
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    };
    (median, sorted[0], sorted[sorted.len() - 1])
}

fn median(figures: &[f64]) -> f64 {
    spread(figures).0
}

/// What comes most often.
fn usual(words: &[String]) -> &str {
    let count = |word: &&String| words.iter().filter(|other| other == word).count();
    words.iter().max_by_key(count).map_or("", String::as_str)
}

pub(super) fn text(found: &Bench) -> String {
    let width = found.settings.iter().map(|s| s.shown().chars().count()).max().unwrap_or(0);
    let best = found.settings.iter().map(|s| median(&s.items_per_s)).fold(0.0, f64::max);
    let runs = found.settings.first().map_or(0, |setting| setting.items_per_s.len());
    let measured = match runs {
        1 => "one run".to_owned(),
        _ => format!("the median of {runs} runs"),
    };
    let mut out = format!(
        "{}: {measured}, [least, most]\n\n{:width$}  {:>8}  {:18}  {:>9}  {:>7}  {:>8}  \
         {:>8}  limit\n",
        found.pipeline, "", "items/s", "", "bytes/s", "of best", "you wait", "memory",
    );
    for setting in &found.settings {
        let (middle, least, most) = spread(&setting.items_per_s);
        let range = format!("[{}, {}]", rate(least), rate(most));
        let throttled = match setting.throttled {
            0 => String::new(),
            n => format!(", throttled {n} times"),
        };
        out += &format!(
            "{:width$}  {:>8}  {range:18}  {:>9}  {:>7}  {:>8}  {:>8}  {}{throttled}\n",
            setting.shown(),
            rate(middle),
            bytes(median(&setting.bytes_per_s)),
            format!("{:.2}x", middle / best),
            percent(median(&setting.waited_share)),
            bytes(setting.rss_max as f64),
            usual(&setting.limits),
        );
    }
    out.push('\n');
    for setting in &found.settings {
        let ceilings = setting
            .stages
            .iter()
            .map(|stage| format!("{} {}/s", stage.id, rate(median(&stage.could_do_per_s))));
        let ceilings: Vec<_> = ceilings.collect();
        out += &format!("ceilings, {}: {}\n", setting.shown(), ceilings.join(" · "));
        if let Some(data_free) = found.data_free_items_per_s {
            let free = median(&setting.consumer_free_items_per_s);
            let reached = median(&setting.items_per_s) / data_free.min(free);
            out += &format!(
                "  data free {}/s, consumer free {}/s: {} of the lower one is reached\n",
                rate(data_free),
                rate(free),
                percent(reached)
            );
        }
    }
    out += &recommended(&found.settings, best);
    out
}

/// The setting to take: of those that are as fast as the fastest within the noise, the one that
/// needs the least memory.
fn recommended(settings: &[Setting], best: f64) -> String {
    if settings.len() < 2 {
        return String::new();
    }
    let as_fast = |setting: &&Setting| {
        let (middle, _, most) = spread(&setting.items_per_s);
        most >= best && middle >= 0.95 * best
    };
    match settings.iter().filter(as_fast).min_by_key(|setting| setting.rss_max) {
        Some(setting) => format!("recommended: {}\n", setting.shown()),
        None => String::new(),
    }
}

/// The version of what `bench` writes.
pub(super) const SCHEMA: u32 = 1;

/// Says what changed since `earlier`; fails if it is too much, or if nothing can be compared.
pub(super) fn against(found: &Bench, earlier: &Bench, least: f64) -> Exit {
    if found.pipeline != earlier.pipeline {
        let (now, then) = (&found.pipeline, &earlier.pipeline);
        say(&format!("error: the earlier bench is one of `{then}`, not of `{now}`\n"));
        return Exit::Wrong;
    }
    let mut exit = Exit::Done;
    let mut compared = 0;
    for setting in &found.settings {
        let name = setting.shown();
        let Some(before) = earlier.settings.iter().find(|before| before.name == setting.name)
        else {
            say(&format!("{name}: not in the earlier bench\n"));
            continue;
        };
        compared += 1;
        let (then, least_then, _) = spread(&before.items_per_s);
        let (now, _, most_now) = spread(&setting.items_per_s);
        let ratio = now / then;
        // Runs that overlap may be the same in another mood of the machine.
        let noise = if most_now >= least_then && ratio < 1.0 { ", within the noise" } else { "" };
        say(&format!(
            "{name}: {} of the earlier {}/s{noise}: {}\n",
            percent(ratio),
            rate(then),
            culprits(before, setting),
        ));
        if ratio < least && noise.is_empty() {
            say(&format!("error: that is below {}\n", percent(least)));
            exit = Exit::Failed;
        }
    }
    if compared == 0 {
        say("error: no setting is in the earlier bench, so nothing was compared\n");
        return Exit::Wrong;
    }
    exit
}

/// The stages whose calls take longer than they did, whatever the noise.
fn culprits(before: &Setting, now: &Setting) -> String {
    let mut slower = Vec::new();
    for stage in &now.stages {
        let Some(then) = before.stages.iter().find(|then| then.id == stage.id) else { continue };
        let (was, _, most) = spread(&then.mean_ms);
        let (is, least, _) = spread(&stage.mean_ms);
        if is > 1.05 * was && least > most {
            slower.push(format!("{} {} -> {} ms a call", stage.id, rate(was), rate(is)));
        }
    }
    match slower.is_empty() {
        true => "no stage's calls take longer".to_owned(),
        false => slower.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_middle() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
        let words = ["a", "b", "b"].map(str::to_owned);
        assert_eq!(usual(&words), "b");
    }
}
