//! `test`: runs the cases that stand beside pipelines, and says what came out otherwise.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::job::Job;
use super::terminal::{out, out_json, say, say_problems};
use super::{Exit, Format, files};
use crate::definition::{Case, Catalog, Expect, Numbers, Problems, cases};
use crate::device::DeviceBatch;
use crate::fault::BoxError;
use crate::item::{Batch, Pool, Spec, Tensor};
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
    /// The numbers in the tensors of each batch, of those that are expected.
    values: Vec<Vec<(String, Numbers)>>,
}

/// What is otherwise than `case` expects.
fn differences(file: &Path, case: &Case, catalog: &Catalog) -> Vec<Difference> {
    let wanted = case.expect.values.as_ref().map_or(0, Vec::len);
    let given = Job::of_case(file, case, catalog)
        .map_err(|problems| messages(&problems))
        .and_then(|job| run(job, wanted));
    let mut differences = Vec::new();
    let mut compare = |what, expected: String, found: String, same: bool| {
        if !same {
            differences.push(Difference { what, expected, found });
        }
    };
    let Expect { items, batches, fingerprint, specs, values, error } = &case.expect;
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
    let Given { delivered, fingerprint: order, specs: tensors, values: numbers } = given;
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
    if let Some(expected) = values
        && let Some((expected, found)) = otherwise(expected, &numbers, delivered.batches)
    {
        compare("values", expected, found, false);
    }
    differences
}

/// Where the numbers of the batches `found`, of which there were `batches` in all, are otherwise than
/// `expected`: what is expected there, and what was found.
fn otherwise(
    expected: &[BTreeMap<String, Numbers>],
    found: &[Vec<(String, Numbers)>],
    batches: u64,
) -> Option<(String, String)> {
    if expected.len() as u64 != batches {
        return Some((format!("those of {} batches", expected.len()), format!("{batches}")));
    }
    let all = expected.iter().zip(found).enumerate();
    let mut each = all.flat_map(|(at, (expected, found))| {
        expected.iter().map(move |(name, numbers)| (at + 1, name, numbers, found))
    });
    each.find_map(|(batch, name, numbers, found)| {
        let of = format!("`{name}` of batch {batch}");
        match found.iter().find(|(other, _)| other == name) {
            Some((_, found)) => {
                let (expected, found) = numbers.difference(found)?;
                Some((format!("{of} {expected}"), found))
            }
            None => Some((of, "no such tensor".to_owned())),
        }
    })
}

/// Runs a pipeline to its end, and keeps the numbers of its first `wanted` batches.
fn run(job: Job, wanted: usize) -> Result<Given, String> {
    let mut run = job.limited().run().map_err(|error| error.to_string())?;
    let mut delivered = Delivered::default();
    let (mut specs, mut values, mut unread) = (None, Vec::new(), None);
    let mut see = |item: &dyn Any| {
        specs.get_or_insert_with(|| specs_of(item));
        if values.len() < wanted {
            match values_of(item) {
                Ok(numbers) => values.push(numbers),
                Err(error) => unread = Some(error.to_string()),
            }
        }
    };
    while let Some(item) = run.next_seen(&mut see) {
        let item = item.map_err(|fault| fault.to_string())?;
        delivered.items += item.items;
        delivered.batches += item.batches;
    }
    let fingerprint = run.handle().fingerprint().to_string();
    run.close();
    match unread {
        None => Ok(Given { delivered, fingerprint, specs: specs.unwrap_or_default(), values }),
        Some(error) => Err(error),
    }
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

/// The numbers in the tensors of a batch, on whichever device it is.
fn values_of(item: &dyn Any) -> Result<Vec<(String, Numbers)>, BoxError> {
    let of = |tensor: &Tensor| (tensor.spec().name.to_string(), Numbers::of(tensor));
    if let Some(batch) = item.downcast_ref::<DeviceBatch>() {
        let pool = Pool::default();
        let tensors = batch.tensors().iter().map(|tensor| Ok(of(&tensor.to_host(&pool)?)));
        tensors.collect()
    } else if let Some(batch) = item.downcast_ref::<Batch>() {
        Ok(batch.tensors().iter().map(of).collect())
    } else {
        Ok(Vec::new())
    }
}

/// What is wrong with a definition, in one line.
fn messages(problems: &Problems) -> String {
    problems.messages().collect::<Vec<_>>().join("; ")
}
