//! `check`: everything that is wrong with definitions, without reading any data.

use std::path::{Path, PathBuf};

use super::terminal::{note, out, out_json, say, say_problems};
use super::{Exit, Format, assignment, assignments, files};
use crate::definition::{Catalog, Definition, cases};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The definitions: files, or names in pipelines/; all of pipelines/ if none is named
    files: Vec<PathBuf>,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn check(args: &Args, catalog: &Catalog) -> Exit {
    let files = match args.files.is_empty() {
        true => files::all(),
        false => args.files.iter().map(|file| files::find(file)).collect(),
    };
    if files.is_empty() {
        say("error: there is nothing to check: name a file, or put one into pipelines/\n");
        return Exit::Wrong;
    }
    let set = assignments(&args.set);
    let mut results = Vec::new();
    let mut exit = Exit::Done;
    for file in files {
        let shown = file.display().to_string();
        if files::is_cases(&file) {
            results.push(check_cases(&file, args.format, &mut exit));
            continue;
        }
        let result = match Definition::load(&file, catalog, &set) {
            Ok(definition) => {
                let stages: Vec<_> = definition
                    .stages()
                    .map(|(id, operator, yields)| {
                        let yields = yields.to_string();
                        serde_json::json!({ "id": id, "operator": operator, "yields": yields })
                    })
                    .collect();
                if args.format == Format::Text {
                    let (name, n) = (definition.name(), stages.len());
                    let yields = definition.yields();
                    out(&format!("{name:20} {n:2} stages   () -> {yields:24} ok   {shown}\n"));
                }
                serde_json::json!({
                    "file": shown,
                    "name": definition.name(),
                    "ok": true,
                    "yields": definition.yields().to_string(),
                    "stages": stages,
                })
            }
            Err(problems) => {
                exit = Exit::Wrong;
                if args.format == Format::Text {
                    say_problems(&problems);
                }
                serde_json::json!({ "file": shown, "ok": false, "errors": problems.to_json() })
            }
        };
        results.push(result);
    }
    match args.format {
        Format::Json => out_json(&serde_json::json!({ "schema": 1, "files": results })),
        Format::Text if exit == Exit::Done => {
            note(
                "checked: syntax, variables, arguments, types, runtime keys; no store was opened\n",
            );
        }
        Format::Text => {}
    }
    exit
}

/// A file of cases, such as `pipelines/*.yaml` also finds.
fn check_cases(file: &Path, format: Format, exit: &mut Exit) -> serde_json::Value {
    let shown = file.display().to_string();
    match cases(file) {
        Ok(cases) => {
            let n = cases.len();
            if format == Format::Text {
                let name = files::definition_of(file);
                let name = name.file_stem().unwrap_or_default().to_string_lossy();
                out(&format!("{name:20} {n:2} cases {:35} ok   {shown}\n", ""));
            }
            serde_json::json!({ "file": shown, "ok": true, "cases": n })
        }
        Err(problems) => {
            *exit = Exit::Wrong;
            if format == Format::Text {
                say_problems(&problems);
            }
            serde_json::json!({ "file": shown, "ok": false, "errors": problems.to_json() })
        }
    }
}
