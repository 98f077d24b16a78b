//! `ops`: what a pipeline can be built of.

use serde_json::Value as Json;

use super::terminal::{out, out_json, say};
use super::{Exit, Format};
use crate::definition::{Catalog, Operator};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Shows one operator with its arguments
    name: Option<String>,
    /// Lists only operators that take this type, such as `Vec<Window>`
    #[arg(long, value_name = "TYPE")]
    takes: Option<String>,
    /// Lists only operators that yield this type
    #[arg(long, value_name = "TYPE")]
    yields: Option<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn ops(args: &Args, catalog: &Catalog) -> Exit {
    let shown: Vec<&Operator> = match &args.name {
        Some(name) => match catalog.get(name) {
            Some(operator) => vec![operator],
            None => {
                let names = catalog.operators().map(Operator::name);
                let help = crate::definition::suggest(name, names);
                say(&format!("error: there is no operator `{name}`: {help}\n"));
                return Exit::Wrong;
            }
        },
        None => catalog.operators().filter(|operator| fits(operator, args)).collect(),
    };
    match args.format {
        Format::Json => {
            let all: Vec<_> = shown.iter().map(|operator| json(operator)).collect();
            out_json(&serde_json::json!({ "schema": 1, "operators": all }));
        }
        Format::Text if args.name.is_some() => out(&details(shown[0])),
        Format::Text => {
            let width = shown.iter().map(|o| o.name().len()).max().unwrap_or(0);
            for operator in shown {
                let first = operator.doc().lines().next().unwrap_or_default();
                let types = operator.types().join(", ");
                let (name, kind) = (operator.name(), operator.kind());
                out(&format!("{name:width$}  {kind:6}  {first}\n{:width$}          {types}\n", ""));
            }
        }
    }
    Exit::Done
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
    let schema = operator.schema();
    let empty = serde_json::Map::new();
    let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&empty);
    text += if properties.is_empty() { "\nno arguments\n" } else { "\narguments\n" };
    for (name, property) in properties {
        let doc = property.get("description").and_then(Json::as_str).unwrap_or_default();
        let note = match (operator.requires(name), operator.main_argument() == Some(name)) {
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
