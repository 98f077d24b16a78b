//! `diff`: two runs that were kept, stage by stage.

use super::terminal::{out, out_json, say};
use super::{Exit, Format, runs};
use crate::trace::compare;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The first run: its name or the beginning of it, a pipeline (its last run), a file, or `last`
    first: String,
    /// The second run
    second: String,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn diff(args: &Args) -> Exit {
    let (first, second) = (runs::find(Some(&args.first)), runs::find(Some(&args.second)));
    match (first, second) {
        (Ok(first), Ok(second)) => {
            let comparison = compare(&first, &second);
            match args.format {
                Format::Text => out(&comparison.to_string()),
                Format::Json => {
                    let sentence = comparison.sentence();
                    let json = serde_json::json!({
                        "schema": 1, "sentence": sentence, "comparison": comparison,
                    });
                    out_json(&json);
                }
            }
            Exit::Done
        }
        (first, second) => {
            let mut errors: Vec<_> = [first.err(), second.err()].into_iter().flatten().collect();
            errors.dedup();
            for error in errors {
                say(&format!("error: {error}\n"));
            }
            Exit::Wrong
        }
    }
}
