//! The command line: `run`, `top`, `check`, `plan`, `ops`, `schema`. A library, so that a user's binary has
//! the same commands with their stages in them.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 the run failed, 2 the file or the
//! command is wrong, 3 done but items were skipped, 130 interrupted.

mod check;
mod files;
mod interrupt;
mod ops;
mod plan;
mod progress;
mod run;
mod terminal;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::definition::{Catalog, Set};

/// Keeps GPUs fed: runs pipelines and says where their time goes.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a pipeline and reports where its time went
    Run(run::Args),
    /// Shows a run that goes on, where its time goes now, and changes its workers
    Top(top::Args),
    /// Checks pipelines without reading any data: syntax, variables, arguments, types
    Check(check::Args),
    /// Says what one pass over a pipeline's windows will cost, without reading any data
    Plan(plan::Args),
    /// Lists the operators that a pipeline can be built of
    Ops(ops::Args),
    /// Prints the JSON Schema of definitions, for editors: begin a file with
    /// `# yaml-language-server: $schema=forebay.schema.json`
    Schema,
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
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
    log_to_stderr();
    let parsed = Cli::command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    let exit = match parsed {
        Ok(Cli { command }) => match command {
            Command::Run(args) => run::run(args, &catalog),
            Command::Top(args) => top::top(&args),
            Command::Check(args) => check::check(&args, &catalog),
            Command::Plan(args) => plan::plan(&args, &catalog),
            Command::Ops(args) => ops::ops(&args, &catalog),
            Command::Schema => {
                terminal::out_json(&catalog.schema());
                Exit::Done
            }
            Command::Completions { shell } => {
                let mut command = Cli::command();
                let name = command.get_name().to_owned();
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command, name, &mut script);
                terminal::out(&String::from_utf8_lossy(&script));
                Exit::Done
            }
        },
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Wrong } else { Exit::Done };
            if error.print().is_err() { Exit::Wrong } else { exit }
        }
    };
    ExitCode::from(exit as u8)
}

/// Warnings, and what `FOREBAY_LOG` asks for, such as `debug` or `forebay::item=trace`.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal::has_color())
        .with_target(false)
        .without_time();
    // It fails if the program has a subscriber of its own, which then has its way.
    if let Err(error) = logger.try_init() {
        tracing::debug!(%error, "another subscriber is in place");
    }
}

/// `NAME=VALUE`, as `--set` takes it.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn assignments(given: &[(String, String)]) -> Set {
    given.iter().cloned().collect()
}
