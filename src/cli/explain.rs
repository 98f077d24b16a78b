//! `explain`: what the code of a problem means, at length.

use serde_json::json;

use super::terminal::{out, out_json, say};
use super::{Exit, Format};
use crate::definition::{Explanation, explain as explanation_of, explanations, suggest};

/// Explains the code of a problem: what it means, an example that is wrong, and one that is right
///
/// Example: forebay explain forebay::type::mismatch
#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, with `forebay::` or without; without one, all codes are listed
    code: Option<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn explain(args: &Args) -> Exit {
    let found: Vec<_> = match &args.code {
        None => explanations().collect(),
        Some(code) => match explanation_of(code) {
            Some(found) => vec![found],
            None => {
                let full = format!("forebay::{}", code.trim_start_matches("forebay::"));
                let help = suggest(&full, explanations().map(|known| known.code));
                say(&format!("error: there is no code `{code}`: {help}\n"));
                return Exit::Wrong;
            }
        },
    };
    match (args.format, &args.code, &found[..]) {
        (Format::Json, ..) => {
            let one = |Explanation { code, text }| json!({ "code": code, "text": text });
            let all: Vec<_> = found.into_iter().map(one).collect();
            out_json(&json!({ "schema": 1, "codes": all }));
        }
        (Format::Text, Some(_), [one]) => {
            out(&format!("{}\n\n{}", one.code, plain(one.text)));
        }
        (Format::Text, ..) => {
            let width = found.iter().map(|known| known.code.len()).max().unwrap_or(0);
            for known in found {
                out(&format!("{:width$}  {}\n", known.code, known.summary()));
            }
        }
    }
    Exit::Done
}

/// The Markdown for a terminal: examples are indented, and said to be wrong or right.
fn plain(text: &str) -> String {
    let (mut out, mut is_code) = (String::new(), false);
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(fence) => {
                is_code = !fence.is_empty();
                if let Some((_, which)) = fence.split_once(' ') {
                    out += &format!("{which}:\n\n");
                }
            }
            None if is_code => out += &format!("    {line}\n"),
            None => out += &format!("{line}\n"),
        }
    }
    out
}
