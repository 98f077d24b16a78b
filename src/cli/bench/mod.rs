//! `bench`: how fast a pipeline is, over several runs; and how fast with other settings, each in turn
//! so that all meet the same moods of the machine.

mod result;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use parking_lot::Mutex;
use result::{Bench, Setting};

use super::interrupt::Interrupted;
use super::job::{Consumer, Ended, Which};
use super::terminal::{out, out_json, say, tell_problems};
use super::{Exit, Format, duration_of, outputs};
use crate::definition::{Catalog, Set};
use crate::running::Handle;
use crate::trace::forget_most_memory;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Runs of each setting
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// First runs without measuring for so long
    #[arg(long, value_name = "TIME", value_parser = duration_of)]
    warmup: Option<Duration>,
    /// Ends each run after so long
    #[arg(long = "for", value_name = "TIME", value_parser = duration_of)]
    leaves: Option<Duration>,
    /// Runs once for each value: `decode.workers=1,2,4`; several give every combination
    #[arg(long, value_name = "KEY=VALUES", value_parser = scan)]
    scan: Vec<(String, Vec<String>)>,
    /// A training loop that takes so long for each item (batch) is imitated, and both ceilings are
    /// measured: without the loop, and without the data
    #[arg(long, value_name = "TIME", value_parser = duration_of)]
    step: Option<Duration>,
    /// Compares with what an earlier bench wrote
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Fails if less than this share of the earlier speed is reached
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = share, requires = "against")]
    fail_below: f64,
    /// Writes the result, for --against
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn scan(text: &str) -> Result<(String, Vec<String>), String> {
    let (key, values) =
        text.split_once('=').ok_or("write KEY=VALUE,VALUE: `decode.workers=1,2`")?;
    let values: Vec<_> = values.split(',').map(str::trim).map(str::to_owned).collect();
    match key.is_empty() || values.iter().any(String::is_empty) {
        true => Err("write KEY=VALUE,VALUE: `decode.workers=1,2`".to_owned()),
        false => Ok((key.to_owned(), values)),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    match number {
        Ok(number) if text.ends_with('%') && (0.0..=1000.0).contains(&number) => Ok(number / 100.0),
        _ => Err("write a share such as `95%`".to_owned()),
    }
}

pub(super) fn bench(args: &Args, catalog: &Catalog) -> Exit {
    let earlier = match args.against.as_deref().map(read).transpose() {
        Ok(earlier) => earlier,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    if let Err(error) = outputs::check(&[args.output.as_ref()], Some(&args.which.file())) {
        say(&format!("error: {error}\n"));
        return Exit::Wrong;
    }
    let stop = Stop::default();
    if let Err(error) = stop.watch() {
        tracing::warn!(%error, "Ctrl-C will end the bench without its figures");
    }
    let found = match measure(args, catalog, &stop) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    match args.format {
        Format::Text => out(&result::text(&found)),
        Format::Json => out_json(&found),
    }
    if let Some(file) = &args.output {
        let json = serde_json::to_vec_pretty(&found).expect("plain data");
        if let Err(error) = outputs::write(file, &json) {
            say(&format!("error: {} can't be written: {error}\n", file.display()));
            return Exit::Failed;
        }
    }
    if let Some(exit) = stop.interrupted.exit() {
        say("interrupted\n");
        return exit;
    }
    match earlier {
        Some(earlier) => result::against(&found, &earlier, args.fail_below),
        None => Exit::Done,
    }
}

/// Ends the run under way, and the bench with it, when the process is asked to end.
#[derive(Default)]
struct Stop {
    interrupted: Interrupted,
    run: Arc<Mutex<Option<Handle>>>,
}

impl Stop {
    fn watch(&self) -> io::Result<()> {
        let run = Arc::clone(&self.run);
        self.interrupted.watch(move || {
            if let Some(run) = &*run.lock() {
                run.cancel();
            }
        })
    }
}

fn read(file: &Path) -> Result<Bench, String> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|error| format!("can't read {shown}: {error}"))?;
    let wrong = |error| format!("{shown} is not what `bench --output` writes: {error}");
    let bench: Bench = serde_json::from_slice(&text).map_err(wrong)?;
    let measured = |setting: &Setting| {
        !setting.items_per_s.is_empty() && setting.items_per_s.iter().all(|rate| *rate > 0.0)
    };
    if bench.schema != result::SCHEMA || !bench.settings.iter().any(measured) {
        return Err(format!("{shown} holds no figures that this version can compare with"));
    }
    Ok(bench)
}

/// Every combination of the values to try.
fn combinations(scans: &[(String, Vec<String>)]) -> Vec<Set> {
    let mut all = vec![Set::new()];
    for (key, values) in scans {
        let with = |set: &Set| {
            let each = values.iter().map(|value| {
                let mut set = set.clone();
                set.insert(key.clone(), value.clone());
                set
            });
            each.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

fn measure(args: &Args, catalog: &Catalog, stop: &Stop) -> Result<Bench, Exit> {
    let sets = combinations(&args.scan);
    let each = if args.step.is_some() { 2 } else { 1 };
    let bar = ProgressBar::new(args.runs * sets.len() as u64 * each);
    if let Some(warmup) = args.warmup {
        let leaves = Some(args.leaves.map_or(warmup, |leaves| leaves.min(warmup)));
        once(args, catalog, stop, &sets[0], Consumer { leaves, ..Consumer::default() })?;
    }
    let mut settings: Vec<Setting> = sets.iter().map(Setting::new).collect();
    let mut pipeline = String::new();
    let rounds = (0..args.runs).flat_map(|_| 0..sets.len());
    for n in rounds.take_while(|_| !stop.interrupted.is_set()) {
        let (set, setting) = (&sets[n], &mut settings[n]);
        let consumer = Consumer { step: args.step, leaves: args.leaves, keeps: false };
        let report = once(args, catalog, stop, set, consumer)?.record.report;
        if stop.interrupted.is_set() {
            // What was cut short is no figure.
            break;
        }
        setting.add(&report);
        pipeline.clone_from(&report.pipeline);
        bar.inc(1);
        if args.step.is_some() {
            let free = Consumer { step: None, ..consumer };
            let report = once(args, catalog, stop, set, free)?.record.report;
            setting.add_free(&report);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let items_a_step = settings[0].items_a_step;
    let data_free_items_per_s = args.step.map(|step| items_a_step / step.as_secs_f64());
    Ok(Bench { schema: result::SCHEMA, pipeline, settings, data_free_items_per_s })
}

/// One run.
fn once(
    args: &Args,
    catalog: &Catalog,
    stop: &Stop,
    set: &Set,
    consumer: Consumer,
) -> Result<Ended, Exit> {
    let job = args.which.prepare(catalog, set, true).map_err(|problems| {
        tell_problems(&problems, args.format);
        Exit::Wrong
    })?;
    forget_most_memory();
    let ended = job.run(consumer, |handle, _| *stop.run.lock() = Some(handle))?;
    match &ended.fault {
        Some(fault) if !stop.interrupted.is_set() => {
            say(&format!("error: {fault}\n"));
            Err(Exit::Failed)
        }
        None if ended.record.report.items == 0 && !stop.interrupted.is_set() => {
            say("error: nothing was delivered, so there is nothing to measure\n");
            Err(Exit::Failed)
        }
        _ => Ok(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_combine() {
        let scans = [scan("a.workers=1,2"), scan("batch=4, 8")].map(|scan| scan.expect("good"));
        let names: Vec<_> = combinations(&scans).iter().map(|set| Setting::new(set).name).collect();
        let expected = [
            "a.workers=1 batch=4",
            "a.workers=1 batch=8",
            "a.workers=2 batch=4",
            "a.workers=2 batch=8",
        ];
        assert_eq!(names, expected);
        assert!(scan("workers").is_err() && scan("a=1,").is_err() && scan("=1").is_err());
        assert_eq!((share("95%"), share("95").is_err()), (Ok(0.95), true));
    }
}
