//! A run under way as lines for a terminal: a bar for each stage, and the verdict under the one that
//! limits.

use std::fmt::Write as _;

use super::text::{bytes, count, duration, percent, rate};
use super::verdict::{YOU, verdict};
use super::{RunStats, StageStats};

/// A bar's width.
const BAR: usize = 20;

/// The five states in a bar, in the order of the shares: what they look like without colors, and
/// their ANSI color. What stays empty is starved.
const STATES: [(char, &str); 5] = [('█', "34"), (' ', "0"), ('░', "90"), ('▒', "33"), ('▓', "35")];

/// What is drawn first: what costs time, from the left.
const ORDER: [usize; 5] = [0, 4, 3, 2, 1];

/// Lines on a run, as many every time. `recent` is what was done lately, `total` how many items there
/// will be.
pub fn live(stats: &RunStats, recent: &RunStats, total: Option<u64>, color: bool) -> Vec<String> {
    let width = stats.stages.iter().map(|stage| stage.id.chars().count()).chain([6]).max();
    let width = width.unwrap_or(6);
    let verdict = verdict(recent);
    let told = format!("▶ {}", verdict.sentence);
    let told = if color { format!("\x1b[1m{told}\x1b[0m") } else { told };
    let mut lines = vec![head(stats, recent, total), header(width)];
    for (stage, recent) in stats.stages.iter().zip(&recent.stages) {
        lines.push(line(stage, recent, width, color));
        if verdict.stage.as_ref() == Some(&stage.id) {
            lines.push(told.clone());
        }
    }
    lines.push(you(recent, width, color));
    if lines.len() < stats.stages.len() + 4 {
        lines.push(told);
    }
    lines
}

fn head(stats: &RunStats, recent: &RunStats, total: Option<u64>) -> String {
    let seconds = recent.elapsed.as_secs_f64();
    let per_s = if seconds > 0.0 { recent.items as f64 / seconds } else { 0.0 };
    let bytes_per_s = if seconds > 0.0 { recent.bytes as f64 / seconds } else { 0.0 };
    let mut line = format!("{}   {}   ", stats.name, clock(stats.elapsed.as_secs()));
    match total {
        Some(total) => {
            let done = stats.items as f64 / total.max(1) as f64;
            line +=
                &format!("{} of {} delivered, {}", count(stats.items), count(total), percent(done));
            // By the whole run: a moment says little of what is to come.
            let left = total.saturating_sub(stats.items) as f64 / stats.items as f64;
            let left = left * stats.elapsed.as_nanos() as f64;
            if left.is_finite() && left > 0.0 {
                line += &format!("   ETA {}", duration(left as u64));
            }
        }
        None => line += &format!("{} delivered", count(stats.items)),
    }
    line + &format!("   {}/s   {}/s", rate(per_s), bytes(bytes_per_s))
}

fn header(width: usize) -> String {
    format!("  {:width$}  {:>8}  {:>7}  {:BAR$}  {:>7}", "", "items/s", "workers", "", "busy")
}

fn line(stage: &StageStats, recent: &StageStats, width: usize, color: bool) -> String {
    let shares = recent.states.shares();
    let elapsed = recent.states.total().as_secs_f64() / stage.workers as f64;
    let moved = recent.items_in.max(recent.items_out) as f64;
    let per_s = if elapsed > 0.0 { moved / elapsed } else { 0.0 };
    let buffer = &stage.buffer;
    let mut line = format!(
        "  {:width$}  {:>8}  {:>7}  {}  {:>7}  {}/{}",
        stage.id,
        rate(per_s),
        stage.workers,
        bar(shares, color),
        percent(recent.states.busy()),
        buffer.items,
        buffer.items_max,
    );
    for (n, what) in
        [(stage.errors, "failed"), (stage.retries, "retried"), (stage.skipped, "skipped")]
    {
        if n > 0 {
            write!(line, "  {} {what}", count(n)).expect("writing to a string cannot fail");
        }
    }
    line
}

fn you(recent: &RunStats, width: usize, color: bool) -> String {
    let seconds = recent.elapsed.as_secs_f64();
    let waited = recent.waited_share();
    let per_s = if seconds > 0.0 { recent.items as f64 / seconds } else { 0.0 };
    let bar = bar([1.0 - waited, waited, 0.0, 0.0, 0.0], color);
    let (per_s, busy) = (rate(per_s), percent(1.0 - waited));
    format!("  {YOU:width$}  {per_s:>8}  {:>7}  {bar}  {busy:>7}  waiting {}", "–", percent(waited))
}

/// Shares of time as a bar.
fn bar(shares: [f64; 5], color: bool) -> String {
    let mut out = String::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for state in ORDER {
        sum += shares[state];
        let until = ((sum * BAR as f64).round() as usize).min(BAR);
        let (glyph, ansi) = STATES[state];
        let part: String = std::iter::repeat_n(glyph, until.saturating_sub(drawn)).collect();
        drawn = drawn.max(until);
        match color && !part.is_empty() {
            true => out += &format!("\x1b[{ansi}m{part}\x1b[0m"),
            false => out += &part,
        }
    }
    out.extend(std::iter::repeat_n(' ', BAR - drawn));
    out
}

fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_it_says() {
        assert_eq!(bar([0.5, 0.2, 0.1, 0.1, 0.1], false), "██████████▓▓▒▒░░    ");
        assert_eq!(bar([0.0; 5], false), " ".repeat(BAR));
        assert_eq!(bar([1.0, 0.0, 0.0, 0.0, 0.0], false), "█".repeat(BAR));
        let thirds = bar([1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0, 0.0], true);
        assert_eq!(console::measure_text_width(&thirds), BAR);
    }
}
