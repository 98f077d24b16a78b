//! `ops`: what a pipeline can be built of.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::terminal::{out, out_json, say};
use super::{Exit, Format};
use crate::definition::{Catalog, Operator, first_sentence, suggest};

/// Lists the operators that a pipeline can be built of, or shows one with its arguments
///
/// Example: forebay ops zarr.windows
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Shows one operator with its arguments
    name: Option<String>,
    #[command(subcommand)]
    what: Option<What>,
    /// Only operators that take this type, such as `Vec<Window>`
    #[arg(long, value_name = "TYPE", global = true)]
    takes: Option<String>,
    /// Only operators that yield this type
    #[arg(long, value_name = "TYPE", global = true)]
    yields: Option<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t, global = true)]
    format: Format,
}

#[derive(clap::Subcommand)]
enum What {
    /// Lists them
    ///
    /// Example: forebay ops list --takes Encoded
    #[command(verbatim_doc_comment)]
    List,
    /// Shows one with its arguments
    ///
    /// Example: forebay ops show batch
    #[command(verbatim_doc_comment)]
    Show {
        /// Its name
        name: String,
    },
    /// Lists those that have a word in their name, their help or their arguments
    ///
    /// Example: forebay ops search random
    #[command(verbatim_doc_comment)]
    Search {
        /// The word, or a part of one
        word: String,
    },
}

pub(super) fn ops(args: &Args, catalog: &Catalog) -> Exit {
    let name = match &args.what {
        Some(What::Show { name }) => Some(name),
        Some(What::List | What::Search { .. }) => None,
        None => args.name.as_ref(),
    };
    let shown = match (name, &args.what) {
        (Some(name), _) => show(name, catalog),
        (None, Some(What::Search { word })) => search(word, args, catalog),
        (None, _) => list(args, catalog),
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    match args.format {
        Format::Json => {
            let all: Vec<_> = shown.iter().map(|operator| json(operator)).collect();
            out_json(&serde_json::json!({ "schema": 1, "operators": all }));
        }
        Format::Text if name.is_some() => out(&details(shown[0])),
        Format::Text => {
            let width = shown.iter().map(|o| o.name().len()).max().unwrap_or(0);
            for operator in shown {
                let first = first_sentence(operator.doc());
                let types = operator.types().join(", ");
                let (name, kind) = (operator.name(), operator.kind());
                out(&format!("{name:width$}  {kind:6}  {first}\n{:width$}          {types}\n", ""));
            }
        }
    }
    Exit::Done
}

type Found<'a> = Result<Vec<&'a Operator>, String>;

fn show<'a>(name: &str, catalog: &'a Catalog) -> Found<'a> {
    catalog.get(name).map(|operator| vec![operator]).ok_or_else(|| {
        let help = suggest(name, catalog.operators().map(Operator::name));
        format!("there is no operator `{name}`: {help}")
    })
}

/// Those that fit the types that were given.
fn list<'a>(args: &Args, catalog: &'a Catalog) -> Found<'a> {
    let known: BTreeSet<String> = catalog
        .operators()
        .flat_map(Operator::types)
        .flat_map(|types| types.split(" -> ").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let wanted = [&args.takes, &args.yields];
    if let Some(wanted) = wanted.into_iter().flatten().find(|wanted| !known.contains(*wanted)) {
        let help = suggest(wanted, known.iter().map(String::as_str));
        return Err(format!("no operator takes or yields `{wanted}`: {help}"));
    }
    let found: Vec<_> = catalog.operators().filter(|operator| fits(operator, args)).collect();
    if found.is_empty() { Err("no operator has both types".to_owned()) } else { Ok(found) }
}

/// Those that have `word` in their names, then those that have it in what is said of them.
fn search<'a>(word: &str, args: &Args, catalog: &'a Catalog) -> Found<'a> {
    let word = word.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&word);
    let (mut found, others): (Vec<_>, Vec<_>) =
        list(args, catalog)?.into_iter().partition(|operator| has(operator.name()));
    found.extend(others.into_iter().filter(|operator| {
        let arguments = arguments(operator).iter().any(|(name, property)| {
            has(name) || property.get("description").and_then(Json::as_str).is_some_and(has)
        });
        has(operator.doc()) || operator.types().iter().any(|types| has(types)) || arguments
    }));
    if found.is_empty() {
        return Err(format!("nothing is said of `{word}`: `forebay ops` lists all operators"));
    }
    Ok(found)
}

/// The arguments of an operator with their schemas.
fn arguments(operator: &Operator) -> Vec<(&String, &Json)> {
    let properties = operator.schema().get("properties").and_then(Json::as_object);
    properties.into_iter().flatten().collect()
}

fn fits(operator: &Operator, args: &Args) -> bool {
    operator.types().iter().any(|types| {
        let (takes, yields) = types.split_once(" -> ").unwrap_or((types, types));
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found || found == "T")
        };
        is(&args.takes, takes) && is(&args.yields, yields)
    })
}

fn json(operator: &Operator) -> Json {
    serde_json::json!({
        "name": operator.name(),
        "kind": operator.kind(),
        "doc": operator.doc(),
        "types": operator.types(),
        "main": operator.main_argument(),
        "arguments": operator.schema(),
    })
}

fn details(operator: &Operator) -> String {
    let mut text = format!("{}  ({})\n\n{}\n", operator.name(), operator.kind(), operator.doc());
    for types in operator.types() {
        text += &format!("  {types}\n");
    }
    let properties = arguments(operator);
    text += if properties.is_empty() { "\nno arguments\n" } else { "\narguments\n" };
    for (name, property) in properties {
        let doc = property.get("description").and_then(Json::as_str).unwrap_or_default();
        let note = match (operator.requires(name), operator.main_argument() == Some(name.as_str()))
        {
            (true, true) => " (required, main)",
            (true, false) => " (required)",
            (false, true) => " (main)",
            (false, false) => "",
        };
        text += &format!("  {name}{note}\n      {}\n", doc.replace('\n', "\n      "));
    }
    if let Some(main) = operator.main_argument() {
        text += &format!("\nin a pipeline\n  - {}: <{main}>\n", operator.name());
    } else {
        text += &format!("\nin a pipeline\n  - {}:\n", operator.name());
    }
    text
}
