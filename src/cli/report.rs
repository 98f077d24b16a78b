//! `report`: a run that is kept, as one HTML page.

use std::path::PathBuf;

use super::terminal::{out, out_json, say};
use super::{Exit, Format, outputs, runs};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run: its name or the beginning of it, a pipeline (its last run), a file, or `last`
    run: Option<String>,
    /// The page; without it, RUN.html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// `json` prints the run itself
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn report(args: &Args) -> Exit {
    let record = match runs::find(args.run.as_deref()) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    if args.format == Format::Json {
        out_json(&record);
        return Exit::Done;
    }
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(page_name(&record.run)));
    match outputs::write(&file, record.to_html().as_bytes()) {
        Ok(()) => {
            out(&format!("{}\n", file.display()));
            Exit::Done
        }
        Err(error) => {
            say(&format!("error: {} can't be written: {error}\n", file.display()));
            Exit::Failed
        }
    }
}

/// A file's name for a run's page, here, whatever the run says that it is called.
fn page_name(run: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = run.chars().map(plain).take(64).collect();
    format!("{name}.html")
}
