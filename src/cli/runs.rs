//! The runs that are kept in `.forebay/runs`, and `runs`, which lists them.

use std::io;
use std::path::{Path, PathBuf};

use super::terminal::{note, out, out_json, say};
use super::{Exit, Format, outputs};
use crate::trace::{RunRecord, duration, rate};

const FOLDER: &str = ".forebay/runs";
/// So many are kept.
const MOST: usize = 100;

#[derive(clap::Args)]
pub(super) struct Args {
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn runs(args: &Args) -> Exit {
    let files = kept();
    let runs: Vec<RunRecord> = files.iter().filter_map(|file| RunRecord::read(file).ok()).collect();
    if runs.len() < files.len() {
        let n = files.len() - runs.len();
        say(&format!(
            "{n} files in {FOLDER} hold no run that this version can read
"
        ));
    }
    match args.format {
        Format::Json => {
            let each: Vec<_> = runs.iter().map(summary).collect();
            out_json(&serde_json::json!({ "schema": 1, "runs": each }));
        }
        Format::Text if runs.is_empty() => {
            note(&format!("no runs in {FOLDER}: `forebay run FILE` keeps one\n"));
        }
        Format::Text => {
            let width = runs.iter().map(|run| run.run.chars().count()).max().unwrap_or(0);
            out(&format!("{:width$}  ended            took   items/s  limit\n", "run"));
            for RunRecord { run, report, .. } in &runs {
                let ended = report.ended.map_or("?", |ended| ended.word());
                let took = duration((report.seconds * 1e9) as u64);
                let limit = report.verdict.stage.as_deref().unwrap_or("–");
                let per_s = rate(report.items_per_s);
                out(&format!("{run:width$}  {ended:9}  {took:>10}  {per_s:>8}  {limit}\n"));
            }
        }
    }
    Exit::Done
}

fn summary(record: &RunRecord) -> serde_json::Value {
    let RunRecord { run, started, report, .. } = record;
    serde_json::json!({
        "run": run, "started": started, "pipeline": report.pipeline, "ended": report.ended,
        "seconds": report.seconds, "items_per_s": report.items_per_s, "verdict": report.verdict,
    })
}

/// Keeps a run, under a name that no other has; the oldest make room.
pub(super) fn keep(record: &mut RunRecord) -> io::Result<PathBuf> {
    std::fs::create_dir_all(FOLDER)?;
    let name = record.run.clone();
    let free = |name: &str| !Path::new(FOLDER).join(format!("{name}.json")).exists();
    let names = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    record.run = names.into_iter().find(|name| free(name)).expect("some number is free");
    let file = Path::new(FOLDER).join(format!("{}.json", record.run));
    let text = serde_json::to_vec(&record)?;
    outputs::write(&file, &text)?;
    // The newest is this one.
    let kept = kept();
    for old in kept.iter().take(kept.len().saturating_sub(MOST)).filter(|old| **old != file) {
        if let Err(error) = std::fs::remove_file(old) {
            tracing::debug!(%error, "{} could not make room", old.display());
        }
    }
    Ok(file)
}

/// The files of the runs that are kept, oldest first. What is called otherwise is none of ours.
fn kept() -> Vec<PathBuf> {
    let Ok(entries) = Path::new(FOLDER).read_dir() else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| is_ours(file));
    // Those of one second by when they were written.
    let written = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
    files.sort_by_cached_key(|file| (name(file).get(..STARTED).map(str::to_owned), written(file)));
    files
}

/// So long is the time at the beginning of a name: `2026-12-02T143730`.
const STARTED: usize = 17;

fn is_ours(file: &Path) -> bool {
    let name = name(file);
    let time = name.get(..STARTED).unwrap_or_default();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let ends = file.extension().is_some_and(|extension| extension == "json");
    ends && shape == "0000-00-00T000000"
        && name.as_bytes().get(STARTED) == Some(&b'-')
        && file.is_file()
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The run that `given` means: a file, a run's name or the beginning of one, a pipeline's name (its
/// last run), or `last`.
pub(super) fn find(given: Option<&str>) -> Result<RunRecord, String> {
    let read = |file: &Path| {
        RunRecord::read(file).map_err(|error| {
            let file = file.display();
            format!("{file} is no run: {error}; name one of `forebay runs`, or what `run --format json` printed")
        })
    };
    let given = given.unwrap_or("last");
    if Path::new(given).is_file() {
        return read(Path::new(given));
    }
    let files = kept();
    let runs =
        files.iter().rev().filter_map(|file| Some((name(file), RunRecord::read(file).ok()?)));
    let fits = |(name, record): &(String, RunRecord)| {
        given == "last" || name == given || record.report.pipeline == given
    };
    let begins = |(name, _): &(String, RunRecord)| !given.is_empty() && name.starts_with(given);
    match runs.clone().find(fits).or_else(|| runs.clone().find(begins)) {
        Some((_, record)) => Ok(record),
        None if files.is_empty() => {
            Err(format!("there are no runs in {FOLDER}: `forebay run FILE` keeps one"))
        }
        None => {
            let names: Vec<_> = runs.map(|(name, _)| name).collect();
            let names = names.iter().map(String::as_str);
            Err(format!("there is no run `{given}`: {}", crate::definition::suggest(given, names)))
        }
    }
}
