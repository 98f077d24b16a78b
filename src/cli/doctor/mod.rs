//! `doctor`: whether this machine is fit to run pipelines, and what to do where it is not.

mod gpu;
mod machine;
#[cfg(test)]
mod made_up;
mod places;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::terminal::{out, out_json};
use super::{Exit, Format, assignment, assignments, files};
use crate::definition::Catalog;

/// Says whether this machine is fit to run pipelines, and what to do where it is not
///
/// With a pipeline, its stores are opened, too. Each line ends with what to do.
///
/// Example: forebay doctor quickstart
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A definition whose stores are to be reached: a file, or a name in pipelines/
    file: Option<PathBuf>,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What was found of one thing.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    health: Health,
    found: String,
    advice: String,
}

/// How well it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    /// Pipelines run, but not as they could.
    Warn,
    /// Pipelines can't run.
    Fail,
}

impl Finding {
    fn new(what: &'static str, health: Health, found: impl Into<String>, advice: &str) -> Self {
        let advice = if advice.is_empty() { "nothing to do" } else { advice }.to_owned();
        Finding { what, health, found: found.into(), advice }
    }

    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Finding::new(what, Health::Ok, found, "")
    }
}

pub(super) fn doctor(args: &Args, catalog: &Catalog) -> Exit {
    let root = Path::new("/");
    let gpu = gpu::gpu(root);
    let mut findings = vec![
        machine::cores(root),
        machine::memory(root),
        machine::open_files(),
        machine::locked_memory(gpu.health == Health::Ok && gpu.found.starts_with("driver")),
        gpu,
        places::folder(Path::new(".forebay")),
        places::clock(),
    ];
    if let Some(file) = &args.file {
        findings.push(places::store(&files::find(file), &assignments(&args.set), catalog));
    }
    match args.format {
        Format::Json => out_json(&serde_json::json!({ "schema": 1, "findings": findings })),
        Format::Text => out(&table(&findings)),
    }
    let is_bad = |finding: &Finding| finding.health == Health::Fail;
    if findings.iter().any(is_bad) { Exit::Failed } else { Exit::Done }
}

fn table(findings: &[Finding]) -> String {
    let width = |text: fn(&Finding) -> &str| {
        findings.iter().map(|finding| text(finding).chars().count()).max().unwrap_or(0)
    };
    let (what, found) = (width(|finding| finding.what), width(|finding| &finding.found).min(60));
    let line = |finding: &Finding| {
        let health = match finding.health {
            Health::Ok => "ok  ",
            Health::Warn => "warn",
            Health::Fail => "FAIL",
        };
        let Finding { what: name, found: is, advice, .. } = finding;
        format!("{health}  {name:what$}  {is:found$}  {advice}\n")
    };
    findings.iter().map(line).collect()
}
