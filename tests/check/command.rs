//! The command: fixes, SARIF, GitHub's commands, watching.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::WINDOWS;

fn forebay(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(folder).env("NO_COLOR", "1").output().expect("started")
}

const BROKEN: &str = "version: 1\nname: mended\n# kept\nvars:\n  size: { type: int, defualt: 4 }\n\
                      stages:\n  - zarr.windows: { store: \"sample://era5\", variables: [t2m], windwo: \
                      { time: 1 } }\n  - bacth: $(sise) # four\n  - zarr.decode:\n    wrokers: 2\n  - \
                      tensor.cast: f16\n  - tensor.normalize: { stats: { t2n: { mean: 280, std: 20 } } }\n";

#[test]
fn fixes_are_written_into_the_file() {
    forebay::store::sample::ensure("era5", &|_, _| {}).expect("the sample");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mended.yaml");
    std::fs::write(&file, BROKEN).expect("written");
    let done = forebay(&["check", "mended.yaml"], folder.path());
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{told}");
    assert!(told.contains("can be mended by `--fix`"), "{told}");
    let done = forebay(&["check", "mended.yaml", "--fix"], folder.path());
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{told}");
    let want = "version: 1\nname: mended\n# kept\nvars:\n  size: { type: int, default: 4 }\nstages:\n  \
                - zarr.windows: { store: \"sample://era5\", variables: [t2m], window: { time: 1 } }\n  - \
                batch: $(size) # four\n  - zarr.fetch:\n  - zarr.decode:\n    workers: 2\n  - tensor.cast: \
                f16\n  - tensor.cast: f32\n  - tensor.normalize: { stats: { t2m: { mean: 280, std: 20 } } }\n";
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), want, "{told}");
}

#[test]
fn sarif_has_the_shape_that_it_must_have() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a b.yaml"), BROKEN).expect("written");
    std::fs::write(folder.path().join("no.yaml"), b"\xff").expect("written");
    let done = forebay(&["check", "a b.yaml", "no.yaml", "--format", "sarif"], folder.path());
    assert_eq!(done.status.code(), Some(2));
    let sarif: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    // The parts of the official schema that are used.
    let region = serde_json::json!({
        "type": "object", "additionalProperties": false,
        "required": ["startLine", "startColumn", "endLine", "endColumn"],
        "properties": {
            "startLine": { "type": "integer", "minimum": 1 }, "startColumn": { "type": "integer", "minimum": 1 },
            "endLine": { "type": "integer", "minimum": 1 }, "endColumn": { "type": "integer", "minimum": 1 },
        }
    });
    let message = serde_json::json!({ "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": { "text": { "type": "string" } } });
    let artifact = serde_json::json!({ "type": "object", "required": ["uri"], "additionalProperties": false,
        "properties": { "uri": { "type": "string", "pattern": "^[^ ]+$" } } });
    let location = serde_json::json!({ "type": "object", "required": ["physicalLocation"], "additionalProperties": false,
        "properties": { "message": message, "physicalLocation": { "type": "object",
            "required": ["artifactLocation"], "additionalProperties": false,
            "properties": { "artifactLocation": artifact, "region": region } } } });
    let schema = serde_json::json!({
        "type": "object", "required": ["version", "runs"],
        "properties": { "version": { "const": "2.1.0" }, "runs": { "type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["tool", "results"], "additionalProperties": false,
            "properties": {
                "columnKind": { "enum": ["utf16CodeUnits", "unicodeCodePoints"] },
                "tool": { "type": "object", "required": ["driver"], "properties": { "driver": {
                    "type": "object", "required": ["name"], "properties": {
                        "rules": { "type": "array", "uniqueItems": true,
                            "items": { "type": "object", "required": ["id"] } } } } } },
                "results": { "type": "array", "minItems": 5, "items": {
                    "type": "object", "required": ["message", "ruleId", "ruleIndex"], "additionalProperties": false,
                    "properties": {
                        "ruleId": { "type": "string" }, "ruleIndex": { "type": "integer", "minimum": 0 },
                        "level": { "enum": ["none", "note", "warning", "error"] },
                        "message": message,
                        "locations": { "type": "array", "items": location },
                        "relatedLocations": { "type": "array", "items": location },
                        "fixes": { "type": "array", "minItems": 1, "items": { "type": "object",
                            "required": ["artifactChanges"], "properties": { "artifactChanges": { "type": "array",
                                "minItems": 1, "items": { "type": "object", "required": ["artifactLocation", "replacements"],
                                "properties": { "replacements": { "type": "array", "minItems": 1, "items": { "type": "object",
                                    "required": ["deletedRegion"], "properties": {
                                        "deletedRegion": region, "insertedContent": message } } } } } } } } },
                    } } },
            } } } }
    });
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<_> = validator
        .iter_errors(&sarif)
        .map(|error| format!("{error} at {}", error.instance_path))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{sarif:#}");
    let run = &sarif["runs"][0];
    for result in run["results"].as_array().expect("a list") {
        let index = result["ruleIndex"].as_u64().expect("a number") as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    }
    let results = run["results"].as_array().expect("a list");
    let first = results.iter().find(|result| result["fixes"].is_array()).expect("one");
    assert_eq!(first["locations"][0]["physicalLocation"]["region"]["startLine"], 5);
    assert_eq!(
        first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"],
        "default"
    );
}

#[test]
fn github_gets_a_command_for_each_problem() {
    let done = forebay(
        &[
            "check",
            "pipelines/broken/two-operations.yaml",
            "pipelines/broken/lint-rate.yaml",
            "--format",
            "github",
        ],
        Path::new(env!("CARGO_MANIFEST_DIR")),
    );
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let want = "::error file=pipelines/broken/two-operations.yaml,line=5,col=5,endLine=5,endColumn=12,\
                title=forebay%3A%3Aop%3A%3Atwo::a stage has 2 operations%0Ahelp: put a dash before";
    assert!(lines[0].starts_with(want), "{}", lines[0]);
    assert!(
        lines[1].starts_with("::warning file=pipelines/broken/lint-rate.yaml,line=7"),
        "{}",
        lines[1]
    );
}

/// Ends with the test, whatever becomes of it.
struct Watching(std::process::Child);

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

#[test]
fn watch_checks_again_when_a_file_changes() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "version: 1\nstages: [\n").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["check", "a.yaml", "--watch"]).current_dir(folder.path());
    let mut child =
        Watching(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started"));
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    let mut until = |what: &str| lines.any(|line| line.expect("UTF-8").contains(what));
    assert!(until("forebay::yaml") && until("watching"));
    std::fs::write(&file, format!("version: 1\nstages:\n{WINDOWS}")).expect("written");
    assert!(until("checked: syntax") && until("watching"));
    std::fs::write(&file, "version: 7\nstages: []").expect("written");
    assert!(until("this version is not known"));
}
