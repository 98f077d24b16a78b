//! `test`: runs the cases that stand beside pipelines, and says what came out otherwise.

use std::any::Any;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::job::Job;
use super::terminal::{out, out_json, say, say_problems};
use super::{Exit, Format, files};
use crate::definition::{Case, Catalog, Expect, Problems, cases};
use crate::device::DeviceBatch;
use crate::item::{Batch, Spec};
use crate::trace::Delivered;

/// Runs the cases beside pipelines: what each is given, and what is expected of it
///
/// The cases of pipelines/quickstart.yaml are in pipelines/quickstart.test.yaml:
///
///   cases:
///     - name: an epoch has every window
///       set: { epochs: 1 }
///       expect: { items: 16, batches: 4 }
///
/// `forebay explain forebay::case` says what can be expected.
///
/// Example: forebay test quickstart
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The definitions: files, or names in pipelines/; all that have cases there if none is named
    files: Vec<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What became of a case.
#[derive(Serialize)]
struct Tried {
    file: String,
    name: String,
    passed: bool,
    differences: Vec<Difference>,
}

/// What came out otherwise.
#[derive(Serialize)]
struct Difference {
    what: &'static str,
    expected: String,
    found: String,
}

pub(super) fn test(args: &Args, catalog: &Catalog) -> Exit {
    let files = match args.files.is_empty() {
        true => files::all_cases(),
        false => args.files.iter().map(|file| files::cases_of(&files::find(file))).collect(),
    };
    if files.is_empty() {
        say(
            "error: there are no cases: name a pipeline, or put a NAME.test.yaml into pipelines/\n",
        );
        return Exit::Wrong;
    }
    // What is wrong with any file is told before the first case runs.
    let read: Vec<_> = files.iter().map(|file| cases(file)).collect();
    let mut all = Vec::new();
    let mut wrong = Vec::new();
    for (file, read) in files.into_iter().zip(read) {
        match read {
            Ok(cases) => all.extend(cases.into_iter().map(|case| (file.clone(), case))),
            Err(problems) => {
                wrong.push(problems);
            }
        }
    }
    if !wrong.is_empty() {
        match args.format {
            Format::Text => wrong.iter().for_each(say_problems),
            Format::Json => {
                let errors = wrong.iter().map(Problems::to_json);
                let errors = errors.flat_map(|one| one.as_array().cloned().unwrap_or_default());
                let errors: Vec<_> = errors.collect();
                out_json(&serde_json::json!({ "schema": 1, "errors": errors }));
            }
        }
        return Exit::Wrong;
    }
    let mut tried = Vec::new();
    for (file, case) in all {
        let definition = files::definition_of(&file);
        let differences = differences(&definition, &case, catalog);
        let file = definition.display().to_string();
        let one = Tried { file, name: case.name, passed: differences.is_empty(), differences };
        if args.format == Format::Text {
            out(&one.to_string());
        }
        tried.push(one);
    }
    let passed = tried.iter().filter(|one| one.passed).count();
    let failed = tried.len() - passed;
    match args.format {
        Format::Text => out(&format!("{passed} passed, {failed} failed\n")),
        Format::Json => out_json(&serde_json::json!({
            "schema": 1, "passed": passed, "failed": failed, "cases": tried,
        })),
    }
    if failed == 0 { Exit::Done } else { Exit::Failed }
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tried { file, name, passed, differences } = self;
        writeln!(f, "{}  {file}: {name}", if *passed { "pass" } else { "FAIL" })?;
        for Difference { what, expected, found } in differences {
            writeln!(
                f,
                "      {what}: expected {expected}\n      {:1$}  found    {found}",
                "",
                what.len()
            )?;
        }
        Ok(())
    }
}

/// What a run gave.
struct Given {
    delivered: Delivered,
    fingerprint: String,
    /// The tensors of the first item, if it is a batch.
    specs: Vec<Spec>,
}

/// What is otherwise than `case` expects.
fn differences(file: &Path, case: &Case, catalog: &Catalog) -> Vec<Difference> {
    let given = Job::prepare(file, &case.set(), case.limit.map(|limit| limit.get()), catalog, true)
        .map_err(|problems| messages(&problems))
        .and_then(run);
    let mut differences = Vec::new();
    let mut compare = |what, expected: String, found: String, same: bool| {
        if !same {
            differences.push(Difference { what, expected, found });
        }
    };
    let Expect { items, batches, fingerprint, specs, error } = &case.expect;
    let given = match (given, error) {
        (Ok(given), None) => given,
        (Ok(_), Some(part)) => {
            compare("error", format!("one with `{part}`"), "none".to_owned(), false);
            return differences;
        }
        (Err(found), Some(part)) => {
            let same = found.contains(part);
            compare("error", format!("one with `{part}`"), found, same);
            return differences;
        }
        (Err(found), None) => {
            compare("error", "none".to_owned(), found, false);
            return differences;
        }
    };
    let Given { delivered, fingerprint: order, specs: tensors } = given;
    for (what, expected, found) in
        [("items", items, delivered.items), ("batches", batches, delivered.batches)]
    {
        if let Some(expected) = expected {
            compare(what, expected.to_string(), found.to_string(), *expected == found);
        }
    }
    if let Some(expected) = fingerprint {
        compare("fingerprint", expected.clone(), order.clone(), *expected == order);
    }
    if let Some(expected) = specs {
        let same = expected.len() == tensors.len()
            && expected.iter().zip(&tensors).all(|(expected, found)| expected.fits(found));
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        let found =
            tensors.iter().map(|spec| format!("{} {} {:?}", spec.name, spec.dtype, spec.shape));
        let found = found.collect::<Vec<_>>().join(", ");
        compare("specs", expected.join(", "), found, same);
    }
    differences
}

/// Runs a pipeline to its end.
fn run(job: Job) -> Result<Given, String> {
    let mut run = job.limited().run().map_err(|error| error.to_string())?;
    let mut delivered = Delivered::default();
    let mut specs = None;
    let mut see = |item: &dyn Any| {
        specs.get_or_insert_with(|| specs_of(item));
    };
    while let Some(item) = run.next_seen(&mut see) {
        let item = item.map_err(|fault| fault.to_string())?;
        delivered.items += item.items;
        delivered.batches += item.batches;
    }
    let fingerprint = run.handle().fingerprint().to_string();
    run.close();
    Ok(Given { delivered, fingerprint, specs: specs.unwrap_or_default() })
}

/// The tensors of a batch, on whichever device it is.
fn specs_of(item: &dyn Any) -> Vec<Spec> {
    if let Some(batch) = item.downcast_ref::<DeviceBatch>() {
        batch.tensors().iter().map(|tensor| tensor.spec().clone()).collect()
    } else if let Some(batch) = item.downcast_ref::<Batch>() {
        batch.tensors().iter().map(|tensor| tensor.spec().clone()).collect()
    } else {
        Vec::new()
    }
}

/// What is wrong with a definition, in one line.
fn messages(problems: &Problems) -> String {
    problems.messages().collect::<Vec<_>>().join("; ")
}
