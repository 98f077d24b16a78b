//! Problems as SARIF 2.1.0, which code scanning takes.

use serde_json::{Value, json};

use crate::definition::{Problems, Region, Told};

/// One run with the problems of all files.
pub(super) fn sarif<'a>(all: impl Iterator<Item = &'a Problems>) -> Value {
    let mut rules: Vec<&str> = Vec::new();
    let mut results = Vec::new();
    for problems in all {
        for told in problems.told() {
            let index = rules.iter().position(|rule| *rule == told.code).unwrap_or_else(|| {
                rules.push(told.code);
                rules.len() - 1
            });
            results.push(result(problems.file(), index, &told));
        }
    }
    let rules: Vec<_> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "forebay",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(file: &str, index: usize, told: &Told<'_>) -> Value {
    let uri = file.replace('\\', "/").replace('%', "%25").replace(' ', "%20");
    let artifact = json!({ "uri": uri });
    let at = |region: Region| json!({ "artifactLocation": artifact, "region": shown(region) });
    let first = match told.region() {
        Some(region) => at(region),
        None => json!({ "artifactLocation": artifact }),
    };
    let text = match told.help {
        Some(help) => format!("{}; {help}", told.message),
        None => told.message.to_owned(),
    };
    let mut result = json!({
        "ruleId": told.code,
        "ruleIndex": index,
        "level": if told.is_warning { "warning" } else { "error" },
        "message": { "text": text },
        "locations": [{ "physicalLocation": first }],
    });
    let others: Vec<_> = told
        .labels()
        .skip(1)
        .map(
            |(region, text)| json!({ "physicalLocation": at(region), "message": { "text": text } }),
        )
        .collect();
    if !others.is_empty() {
        result["relatedLocations"] = others.into();
    }
    if let Some((region, text)) = told.edit() {
        result["fixes"] = json!([{
            "description": { "text": told.help.unwrap_or("what was probably meant") },
            "artifactChanges": [{
                "artifactLocation": artifact,
                "replacements": [{ "deletedRegion": shown(region), "insertedContent": { "text": text } }],
            }],
        }]);
    }
    result
}

fn shown(((line, column), (end_line, end_column)): Region) -> Value {
    json!({
        "startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column,
    })
}
