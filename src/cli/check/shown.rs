//! What a check found, for people and as JSON.

use serde_json::{Value, json};

use super::{Found, Looked};
use crate::definition::{Definition, Edge, Outline, Survey};
use crate::trace::{bytes, count};

/// `3 problems`.
pub(super) fn problems(n: usize) -> String {
    format!("{n} {}", if n == 1 { "problem" } else { "problems" })
}

/// One line for the file, and one for each of its edges.
pub(super) fn text(file: &str, definition: &Definition, survey: &Survey) -> String {
    let (name, yields) = (definition.name(), definition.yields().to_string());
    let memory = match (survey.memory, survey.memory_max) {
        (Some(memory), None) => format!("host memory at most {}", bytes(memory as f64)),
        (Some(memory), Some(most)) => {
            format!("host memory at most {} of {}", bytes(memory as f64), bytes(most as f64))
        }
        (None, _) => "host memory not known".to_owned(),
    };
    let memory = match survey.device_memory {
        Some(0) => memory,
        Some(of_device) => format!("{memory}, device memory at most {}", bytes(of_device as f64)),
        None => format!("{memory}, device memory not known"),
    };
    let verdict = match survey.warnings.len() {
        0 => "ok".to_owned(),
        1 => "1 warning".to_owned(),
        n => format!("{n} warnings"),
    };
    let n = survey.edges.len();
    let head =
        format!("{name:20} {n:2} stages   () -> {yields:20} {memory}   {verdict}   {file}\n");
    let width = |of: fn(&Edge) -> usize| survey.edges.iter().map(of).max().unwrap_or(0);
    let ids = width(|edge| edge.id.chars().count());
    let types = width(|edge| edge.yields.to_string().chars().count());
    let lines = survey.edges.iter().map(|edge| {
        let Edge { id, yields, flow, memory, device_memory, .. } = edge;
        let of = |bytes_of: Option<u64>| bytes_of.map_or("?".to_owned(), |n| bytes(n as f64));
        let items = flow.items.map_or("?".to_owned(), count);
        let (each, memory) = (of(flow.bytes), of(*memory));
        let on_device = match device_memory {
            Some(0) => String::new(),
            of_device => format!("  {} on the device", of(*of_device)),
        };
        let yields = yields.to_string();
        format!("  {id:ids$}  {yields:types$}  {items:>9} x {each:>8}  holds {memory:>8}{on_device}  {flow}\n")
    });
    head + &lines.collect::<String>() + &kept(definition, survey)
}

/// One line for the checkpoint, if there is one.
fn kept(definition: &Definition, survey: &Survey) -> String {
    let Some(checkpoint) = definition.checkpoint() else { return String::new() };
    let path = checkpoint.path().display();
    match &survey.entry {
        Some(entry) => format!("  kept in {path}; a run goes on {entry}\n"),
        None => format!("  kept in {path}; how a run goes on is known when it is built\n"),
    }
}

/// One line for a file of cases.
pub(super) fn cases(file: &str, n: usize) -> String {
    let name = std::path::Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".test.yaml");
    format!("{name:20} {n:2} cases   ok   {file}\n")
}

/// What was looked at, and what can be done.
pub(super) fn summary(all: &[Found], fixable: usize, online: bool) -> String {
    let found: usize = all.iter().map(|found| found.problems().len()).sum();
    let mut text = String::new();
    if all.iter().all(|found| found.result.is_ok()) {
        text += "checked: syntax, variables, arguments, types, tensors, memory; ";
        text += match online {
            true => "stores were opened for their metadata\n",
            false => "stores elsewhere were not opened (--online)\n",
        };
    }
    if let Some(code) = all.iter().find_map(|found| found.problems().codes().next()) {
        text += &problems(found);
        if fixable > 0 {
            text += &format!(", {fixable} of which can be mended by `--fix`");
        }
        text += &format!("; for more: forebay explain {code}\n");
    }
    text
}

pub(super) fn json(found: &Found) -> Value {
    let file = &found.file;
    match &found.result {
        Ok(Looked::Cases(n, _)) => json!({ "file": file, "ok": true, "cases": n }),
        Ok(Looked::Definition(of)) => json_of(file, &of.0, &of.1),
        Err(problems) => json!({ "file": file, "ok": false, "errors": problems.to_json() }),
    }
}

fn json_of(file: &str, definition: &Definition, survey: &Survey) -> Value {
    json!({
            "file": file,
            "name": definition.name(),
            "ok": true,
            "yields": definition.yields().to_string(),
            "memory_bytes": survey.memory,
            "device_memory_bytes": survey.device_memory,
            "memory_bytes_max": survey.memory_max,
            "stages": survey.edges.iter().map(stage).collect::<Vec<_>>(),
            "checkpoint": definition.checkpoint().map(|checkpoint| json!({
                "path": checkpoint.path(),
                "goes_on": survey.entry.as_ref().map(ToString::to_string),
            })),
            "warnings": survey.warnings.to_json(),
    })
}

fn stage(edge: &Edge) -> Value {
    let tensor = |outline: &Outline| {
        let shape = outline.shape.as_deref();
        json!({
            "name": &*outline.name,
            "dtype": outline.dtype,
            "dims": shape.map(|shape| shape.iter().map(|(dim, _)| &**dim).collect::<Vec<_>>()),
            "shape": shape.map(|shape| shape.iter().map(|(_, n)| *n).collect::<Vec<_>>()),
        })
    };
    let tensors = edge.flow.tensors.as_ref();
    json!({
        "id": edge.id,
        "operator": edge.operator,
        "kind": edge.kind,
        "after": edge.after,
        "yields": edge.yields.to_string(),
        "items": edge.flow.items,
        "item_bytes": edge.flow.bytes,
        "memory_bytes": edge.memory,
        "device_memory_bytes": edge.device_memory,
        "tensors": tensors.map(|tensors| tensors.iter().map(tensor).collect::<Vec<_>>()),
    })
}
