//! What a run shows at its end: a table of the stages and one sentence.

use std::fmt::Write as _;

use super::text::{bytes, count, duration, percent, rate};
use super::verdict::{YOU, verdict};
use super::{DeviceStats, Ended, Failures, Gain, MemoryStats, RunStats, Slow, StageStats, Traffic};
use crate::item::Fingerprint;
use crate::stage::Kind;

/// Shorter calls are not worth a line, however long for their stage.
const SLOW_NS: u64 = 100_000_000;

/// What only the consumer of a run knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Windows, or other single items, that were in what was received.
    pub items: u64,
    /// Batches received; 0 if single items were.
    pub batches: u64,
}

/// The table of a run and the sentence that names its bottleneck, for people.
pub fn report(stats: &RunStats, delivered: Delivered) -> String {
    let seconds = stats.elapsed.as_secs_f64();
    let how = match stats.ended {
        None => "running for",
        Some(Ended::Finished) => "finished in",
        Some(Ended::Stopped) => "stopped after",
        Some(Ended::Failed) => "failed after",
        Some(Ended::Cancelled) => "cancelled after",
    };
    let mut out = format!(
        "{}  {how} {}   {} items",
        stats.name,
        duration(stats.elapsed.as_nanos() as u64),
        delivered.items
    );
    if delivered.batches > 0 {
        write_to(&mut out, format_args!(", {} batches", delivered.batches));
    }
    write_to(
        &mut out,
        format_args!(
            ", {} delivered   {} items/s   {}/s\n\n",
            bytes(stats.bytes as f64),
            rate(delivered.items as f64 / seconds),
            bytes(stats.bytes as f64 / seconds)
        ),
    );
    out.push_str(&table(stats));
    let verdict = verdict(stats);
    write_to(
        &mut out,
        format_args!(
            "\nYou waited {} of the time ({}). {}.\n",
            percent(stats.waited_share()),
            duration(stats.waited.as_nanos() as u64),
            verdict.sentence
        ),
    );
    if let Some(advice) = &verdict.advice {
        write_to(&mut out, format_args!("  try: {advice}\n"));
    }
    // Windows and batches: the table and the head count different things.
    let items_a_time = delivered.items as f64 / stats.items.max(1) as f64;
    for gain in verdict.gains {
        let Gain { change, items_per_s, factor } = gain.times(items_a_time);
        let (per_s, more) = (rate(items_per_s), percent(factor - 1.0));
        write_to(&mut out, format_args!("  {change}: about {per_s} items/s (+{more})\n"));
    }
    for StageStats { id, traffic, .. } in &stats.stages {
        let Traffic { requests, bytes: read, throttled, retries_refused, .. } = traffic;
        if *requests > 0 {
            let each = bytes(*read as f64 / *requests as f64);
            let (requests, read) = (count(*requests), bytes(*read as f64));
            write_to(
                &mut out,
                format_args!("{id} asked for {read} in {requests} requests, {each} each"),
            );
            if let Some(times) = traffic.amplification() {
                let text = format_args!("; {times:.2} bytes decoded for each that a window uses");
                write_to(&mut out, text);
            }
            if *throttled > 0 {
                let times = count(*throttled);
                write_to(&mut out, format_args!("; {times} times it was told to ask less"));
            }
            if *retries_refused > 0 {
                let times = count(*retries_refused);
                write_to(&mut out, format_args!("; {times} times its retry budget was spent"));
            }
            out.push('\n');
        }
    }
    for StageStats { id, device, .. } in &stats.stages {
        if let Some(line) = on_device(device) {
            write_to(&mut out, format_args!("{id} {line}\n"));
        }
    }
    if let Some(MemoryStats { most, peak, above, .. }) = stats.memory {
        let (most, peak) = (bytes(most as f64), bytes(peak as f64));
        write_to(&mut out, format_args!("items took {peak} of {most} of memory at most"));
        if above > 0 {
            let times = if above == 1 { "once".to_owned() } else { format!("{above} times") };
            let text = format_args!(
                "; {times} one was let in above that because nothing else could move: `memory` is \
                 too little for what has to be there at once\n"
            );
            write_to(&mut out, text);
        } else {
            out.push('\n');
        }
    }
    out.push_str(&slow_and_failed(stats));
    for stall in &stats.stalls {
        write_to(&mut out, format_args!("stalled: {stall}\n"));
    }
    if stats.skipped > 0 {
        write_to(&mut out, format_args!("{} skipped after errors\n", items_were(stats.skipped)));
    }
    if stats.abandoned > 0 {
        let items = items_were(stats.abandoned);
        write_to(&mut out, format_args!("{items} under way and abandoned\n"));
    }
    if stats.before > 0 {
        let what = if delivered.batches > 0 { "batches" } else { "items" };
        let before = count(stats.before);
        write_to(&mut out, format_args!("went on after {before} {what} of earlier runs\n"));
    }
    write_to(
        &mut out,
        format_args!("order fingerprint {}\n", Fingerprint::from(stats.fingerprint)),
    );
    out
}

/// `1 item was`, `3 items were`.
fn items_were(n: u64) -> String {
    if n == 1 { "1 item was".to_owned() } else { format!("{n} items were") }
}

/// What a stage did on its device: `copied 1.2 GB in 12 batches, 8.1 ms each, 12.3 GB/s`.
fn on_device(device: &DeviceStats) -> Option<String> {
    let each = |ns: u64, batches: u64| duration(ns / batches.max(1));
    let mut parts = Vec::new();
    if device.copies > 0 {
        let per_s = device.copied_bytes as f64 / (device.copy_ns.max(1) as f64 / 1e9);
        parts.push(format!(
            "copied {} in {} batches, {} each, {}/s",
            bytes(device.copied_bytes as f64),
            count(device.copies),
            each(device.copy_ns, device.copies),
            bytes(per_s),
        ));
    }
    if device.overlap_ns > 0 {
        let share = device.overlap_ns as f64 / device.copy_ns.max(1) as f64;
        parts.push(format!("{} of that while kernels ran", percent(share)));
    }
    if device.kernel_batches > 0 {
        parts.push(format!(
            "ran kernels on {} batches, {} each",
            count(device.kernel_batches),
            each(device.kernel_ns, device.kernel_batches),
        ));
    }
    if device.pageable_copies > 0 {
        parts.push(format!(
            "the host copied {} tensors to pinned memory first",
            count(device.pageable_copies)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The slowest items and what failed, by name.
fn slow_and_failed(stats: &RunStats) -> String {
    let mut out = String::new();
    for StageStats { id, failures, .. } in &stats.stages {
        for Failures { error, count, example } in failures {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            write_to(&mut out, format_args!("failed in {id}, {times}: {error} ({example})\n"));
        }
    }
    let all = stats.stages.iter().flat_map(|stage| stage.slowest.iter().map(move |s| (stage, s)));
    // Only those that stand out from the others of their stage.
    let stands_out = |(stage, slow): &(&StageStats, &Slow)| slow.ns > 4 * stage.service.p50_ns;
    let mut slow: Vec<_> = all.filter(stands_out).filter(|(_, s)| s.ns > SLOW_NS).collect();
    slow.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.ns));
    let told = slow.iter().take(3).map(|(stage, slow)| {
        let name = slow.name.as_ref().map_or_else(String::new, |name| format!("{name}, "));
        let again =
            if slow.attempt > 1 { format!(", attempt {}", slow.attempt) } else { String::new() };
        format!("{} ({name}{} in {}{again})", slow.item, duration(slow.ns), stage.id)
    });
    let told: Vec<_> = told.collect();
    if !told.is_empty() {
        write_to(&mut out, format_args!("slowest items: {}\n", told.join(", ")));
    }
    out
}

/// The stages of a run, a line each.
fn table(stats: &RunStats) -> String {
    let width =
        stats.stages.iter().map(|stage| stage.id.chars().count()).chain([5]).max().unwrap_or(5);
    let mut out = format!(
        "{:width$}                                                      share of worker time, %\n\
         {:width$}  kind    workers  items/s  could do       p50       p99  working starved \
         blocked  turn limit  errors\n",
        "", "stage"
    );
    let seconds = stats.elapsed.as_secs_f64();
    for stage in &stats.stages {
        line(&mut out, stage, seconds, width);
    }
    let waited = stats.waited_share();
    write_to(
        &mut out,
        format_args!(
            "{YOU:width$}  {:6}  {:>7}  {:>7}  {:>8}  {:>8}  {:>8}  {:>7} {:>7}\n",
            "",
            "–",
            rate(stats.items as f64 / seconds),
            rate(stats.items as f64 / (seconds * (1.0 - waited))),
            "",
            "",
            whole(1.0 - waited),
            whole(waited),
        ),
    );
    out
}

fn line(out: &mut String, stage: &StageStats, seconds: f64, width: usize) {
    let calls = stage.service.count > 0;
    let or_dash = |text: String| if calls { text } else { "–".to_owned() };
    let items = if stage.kind == Kind::Source { stage.items_out } else { stage.items_in };
    let [working, starved, blocked, turn, limit] = stage.states.shares().map(whole);
    write_to(
        out,
        format_args!(
            "{:width$}  {:6}  {:>7}  {:>7}  {:>8}  {:>8}  {:>8}  {working:>7} {starved:>7} \
             {blocked:>7} {turn:>5} {limit:>5}  {}",
            stage.id,
            stage.kind,
            stage.workers,
            rate(items as f64 / seconds),
            or_dash(rate(stage.could_do_per_s())),
            or_dash(duration(stage.service.p50_ns)),
            or_dash(duration(stage.service.p99_ns)),
            stage.errors,
        ),
    );
    if stage.retries > 0 {
        write_to(out, format_args!(", {} retried", stage.retries));
    }
    if stage.skipped > 0 {
        write_to(out, format_args!(", {} skipped", stage.skipped));
    }
    if let Some(share) = stage.on_core
        && share < 0.9
    {
        write_to(out, format_args!("  ({} on a core)", percent(share)));
    }
    out.push('\n');
}

fn whole(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

/// One line on a run under way: `t=60s  181 items/s, limit fetch (wait for answers), you wait 36 %`.
pub fn line_of(stats: &RunStats) -> String {
    let seconds = stats.elapsed.as_secs_f64();
    let verdict = verdict(stats);
    let limit = verdict.stage.map_or_else(String::new, |stage| format!(", limit {stage}"));
    format!(
        "t={:.0}s  {} received, {}/s, {}/s{limit}, you wait {}",
        seconds,
        stats.items,
        rate(stats.items as f64 / seconds),
        bytes(stats.bytes as f64 / seconds),
        percent(stats.waited_share()),
    )
}
