//! The runs that are kept in `.forebay/runs`, and `runs`, which lists them.

use std::io;
use std::path::{Path, PathBuf};

use super::terminal::{out, out_json, say};
use super::{Exit, Format};
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
    let runs: Vec<RunRecord> =
        kept().iter().filter_map(|file| RunRecord::read(file).ok()).collect();
    match args.format {
        Format::Json => {
            let each: Vec<_> = runs.iter().map(summary).collect();
            out_json(&serde_json::json!({ "schema": 1, "runs": each }));
        }
        Format::Text if runs.is_empty() => {
            say(&format!("no runs in {FOLDER}: `forebay run FILE` keeps one\n"));
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
    write_whole(&file, &text)?;
    let kept = kept();
    for old in &kept[..kept.len().saturating_sub(MOST)] {
        std::fs::remove_file(old)?;
    }
    Ok(file)
}

/// Writes a file that is whole or not there.
pub(super) fn write_whole(file: &Path, text: &[u8]) -> io::Result<()> {
    let mut aside = file.as_os_str().to_owned();
    aside.push(format!(".{}.part", std::process::id()));
    let written = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, file));
    if written.is_err() {
        // What could be written of it is of no use.
        let removed = std::fs::remove_file(&aside);
        tracing::debug!(?removed, "could not write {}", file.display());
    }
    written
}

/// The files of the runs that are kept, oldest first.
fn kept() -> Vec<PathBuf> {
    let Ok(entries) = Path::new(FOLDER).read_dir() else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// The run that `given` means: a file, a run's name or the beginning of one, a pipeline's name (its
/// last run), or `last`.
pub(super) fn find(given: Option<&str>) -> Result<RunRecord, String> {
    let read = |file: &Path| {
        RunRecord::read(file).map_err(|error| format!("{} is no run: {error}", file.display()))
    };
    let given = given.unwrap_or("last");
    if Path::new(given).is_file() {
        return read(Path::new(given));
    }
    let files = kept();
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let fits = |file: &&PathBuf| {
        let name = name(file);
        let pipeline = name.get(18..).unwrap_or_default();
        given == "last" || name == given || name.starts_with(given) || pipeline == given
    };
    match files.iter().rev().find(fits) {
        Some(file) => read(file),
        None if files.is_empty() => {
            Err(format!("there are no runs in {FOLDER}: `forebay run FILE` keeps one"))
        }
        None => {
            let names: Vec<_> = files.iter().map(name).collect();
            let names = names.iter().map(String::as_str);
            Err(format!("there is no run `{given}`: {}", crate::definition::suggest(given, names)))
        }
    }
}
