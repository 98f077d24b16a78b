//! The command line. A library, so that a user's binary has
//! the same commands with their stages in them.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 the run failed, 2 the file or the
//! command is wrong, 3 done but items were skipped, 130 interrupted, 143 terminated.

mod bench;
mod check;
mod completions;
mod diff;
mod doctor;
mod explain;
mod files;
mod fmt;
mod graph;
mod interrupt;
mod job;
mod manner;
mod metrics;
mod new;
mod ops;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "otlp_absent.rs"]
mod otlp;
mod outputs;
mod plan;
mod progress;
mod report;
mod resume;
mod run;
mod runs;
mod terminal;
mod test;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use self::manner::Manner;
use crate::definition::{Catalog, Set};

/// Keeps GPUs fed: runs pipelines and says where their time goes.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    manner: Manner,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::NewArgs),
    Init(new::InitArgs),
    /// Runs a pipeline and reports where its time went
    ///
    /// Example: forebay run quickstart --set batch=8 --limit 10 --report run.html
    Run(run::Args),
    /// Shows a run that goes on, where its time goes now, and changes its workers
    ///
    /// Example: forebay top quickstart
    Top(top::Args),
    /// Checks pipelines without reading any data: syntax, variables, arguments, types
    ///
    /// Example: forebay check pipelines/*.yaml
    Check(check::Args),
    /// Says what one pass over a pipeline's windows will cost, without reading any data
    ///
    /// Example: forebay plan quickstart --link 10Gbit,30ms
    Plan(plan::Args),
    Fmt(fmt::Args),
    Graph(graph::Args),
    Test(test::Args),
    /// Lists the runs that were kept
    ///
    /// Example: forebay runs
    Runs(runs::Args),
    /// Makes a page about a run that was kept: one HTML file that needs nothing else
    ///
    /// Example: forebay report last -o run.html
    Report(report::Args),
    /// Compares two runs that were kept, stage by stage: which got slower, and is it more than noise
    ///
    /// Example: forebay diff 2026-12-02T1437 last
    Diff(diff::Args),
    /// Measures how fast a pipeline is, over several runs and with several settings
    ///
    /// Example: forebay bench quickstart --scan decode.workers=1,2,4
    Bench(bench::Args),
    Ops(ops::Args),
    Explain(explain::Args),
    Doctor(doctor::Args),
    /// Prints the JSON Schema of definitions, for editors: begin a file with
    /// `# yaml-language-server: $schema=forebay.schema.json`
    ///
    /// Example: forebay schema > pipelines/forebay.schema.json
    Schema,
    Completions(completions::Args),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON object
    Json,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done = 0,
    Failed = 1,
    Wrong = 2,
    Skipped = 3,
    Interrupted = 130,
    Terminated = 143,
}

/// The command line with the operators of `catalog`: a binary's whole `main`.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use forebay::definition::Catalog;
///
/// fn main() -> ExitCode {
///     forebay::cli::main(Catalog::builtin())
/// }
/// ```
pub fn main(catalog: Catalog) -> ExitCode {
    let parsed = Cli::command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    let exit = match parsed {
        Ok(Cli { manner, command }) => {
            let telemetry = match &command {
                Command::Run(args) => args.telemetry(),
                _ => None,
            };
            manner.adopt(telemetry.as_ref());
            match command {
                Command::New(args) => new::new(&args),
                Command::Init(args) => new::init(&args, &catalog),
                Command::Run(args) => run::run(&args, &catalog, telemetry),
                Command::Top(args) => top::top(&args),
                Command::Check(args) => check::check(&args, &catalog),
                Command::Plan(args) => plan::plan(&args, &catalog),
                Command::Fmt(args) => fmt::fmt(&args),
                Command::Graph(args) => graph::graph(&args, &catalog),
                Command::Test(args) => test::test(&args, &catalog),
                Command::Runs(args) => runs::runs(&args),
                Command::Report(args) => report::report(&args),
                Command::Diff(args) => diff::diff(&args),
                Command::Bench(args) => bench::bench(&args, &catalog),
                Command::Ops(args) => ops::ops(&args, &catalog),
                Command::Doctor(args) => doctor::doctor(&args, &catalog),
                Command::Explain(args) => explain::explain(&args),
                Command::Schema => {
                    terminal::out_json(&catalog.schema());
                    Exit::Done
                }
                Command::Completions(args) => completions::completions(&args, &catalog),
            }
        }
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Wrong } else { Exit::Done };
            match error.print() {
                // A reader that has gone away wants no more.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Failed,
                _ => exit,
            }
        }
    };
    // What was to be read and could not be written is a failure.
    let exit = if exit == Exit::Done && terminal::out_failed() { Exit::Failed } else { exit };
    ExitCode::from(exit as u8)
}

/// `NAME=VALUE`, as `--set` takes it.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// A time, as definitions write it.
fn duration_of(text: &str) -> Result<std::time::Duration, String> {
    crate::definition::duration(text)
}

fn assignments(given: &[(String, String)]) -> Set {
    given.iter().cloned().collect()
}
