//! `run`: runs a pipeline into a counting sink and reports where its time went.

use std::path::PathBuf;

use super::interrupt::Interrupted;
use super::progress::{self, Progress};
use super::terminal::{out, out_json, say, say_problems};
use super::{Exit, Format, assignment, assignments, files};
use crate::definition::{Built, Catalog, Definition, Problems};
use crate::fault::Fault;
use crate::store::sample;
use crate::trace::{Delivered, RunReport, report, serve};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The definition: a file, or a name in pipelines/
    file: PathBuf,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Stops after so many items (batches, if the pipeline makes batches)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Shows no progress
    #[arg(long)]
    no_progress: bool,
}

pub(super) fn run(args: Args, catalog: &Catalog) -> Exit {
    match prepare(&args, catalog) {
        Ok(built) => execute(&args, built),
        Err(problems) => {
            if args.format == Format::Json {
                out_json(&serde_json::json!({ "schema": 1, "errors": problems.to_json() }));
            } else {
                say_problems(&problems);
            }
            Exit::Wrong
        }
    }
}

fn prepare(args: &Args, catalog: &Catalog) -> Result<Built, Problems> {
    let file = files::find(&args.file);
    let definition = Definition::load(&file, catalog, &assignments(&args.set))?;
    if definition.mentions(&format!("sample://{}", sample::NAME))
        && let Err(error) = progress::make_sample(args.no_progress)
    {
        // The stage that opens the sample says so too, with its place.
        tracing::debug!(error, "no sample");
    }
    definition.build(catalog)
}

fn execute(args: &Args, built: Built) -> Exit {
    let pools = built.pools().clone();
    let pipeline = match args.limit {
        Some(limit) => built.pipeline.take(limit),
        None => built.pipeline,
    };
    let total = pipeline.len_known().or(args.limit);
    let mut run = match pipeline.run() {
        Ok(run) => run,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    let interrupted = Interrupted::default();
    let handle = run.handle();
    if let Err(error) = interrupted.watch(move || handle.cancel()) {
        tracing::warn!(%error, "Ctrl-C will end the run without a report");
    }
    // Others can look at the run and change its workers; one that nobody can reach runs as well.
    let serving = serve(&run.handle())
        .inspect_err(|error| tracing::info!(%error, "`forebay top` can't reach this run"));
    let shown = (!args.no_progress).then(|| Progress::show(run.handle(), total));
    let mut delivered = Delivered::default();
    let mut failed: Option<Fault> = None;
    for item in run.by_ref() {
        match item {
            Ok(item) => {
                delivered.items += item.items;
                delivered.batches += item.batches;
            }
            Err(fault) => failed = Some(fault),
        }
    }
    drop(shown);
    let stats = run.close();
    drop(serving);
    let failed = failed.filter(|_| !interrupted.is_set());
    match args.format {
        Format::Text => out(&report(&stats, delivered)),
        Format::Json => {
            let error = failed.as_ref().map(Fault::to_string);
            out_json(&RunReport::new(&stats, delivered, pools.stats(), error));
        }
    }
    if interrupted.is_set() {
        say("interrupted\n");
        return Exit::Interrupted;
    }
    if let Some(fault) = failed {
        say(&format!("error: {fault}\n"));
        let mut told = fault.to_string();
        let mut cause = std::error::Error::source(&fault);
        while let Some(error) = cause {
            let text = error.to_string();
            if !told.contains(&text) {
                say(&format!("  because: {text}\n"));
                told += &text;
            }
            cause = error.source();
        }
        return Exit::Failed;
    }
    if stats.skipped > 0 { Exit::Skipped } else { Exit::Done }
}
