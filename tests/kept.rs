//! Runs that are kept, and what is made of them: lists, pages, comparisons, benches.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

fn forebay(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(folder).env_remove("FOREBAY_LOG").stdin(Stdio::null());
    command.output().expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A folder with a small pipeline in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let definition = r#"
version: 1
name: small
stages:
  - zarr.windows:
      store: "sample://era5"
      variables: [t2m]
      window: { time: 1, latitude: 64, longitude: 64 }
  - batch: 4
  - zarr.fetch:
    workers: 3
  - zarr.decode:
"#;
    std::fs::write(folder.path().join("small.yaml"), definition).expect("written");
    folder
}

#[test]
fn a_run_is_kept_and_becomes_a_page_and_a_trace() {
    let folder = folder();
    let args = ["run", "small.yaml", "--limit", "6", "--report", "a.html", "--trace", "a.json"];
    let done = forebay(folder.path(), &args);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("kept as 20"), "{}", text(&done.stderr));
    let page = std::fs::read_to_string(folder.path().join("a.html")).expect("a page");
    assert!(page.len() < 1_000_000 && page.starts_with("<!doctype html>"));
    for outside in ["src=\"http", "href=\"http", "@import", "fetch("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    let data = page.split_once("id=\"run\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let record: Json = serde_json::from_str(data.expect("the data").0).expect("valid JSON");
    assert_eq!(
        (&record["report"]["batches"], &record["report"]["pipeline"]),
        (&6.into(), &"small".into())
    );
    assert!(record["definition"].as_str().is_some_and(|text| text.contains("zarr.windows")));
    let trace = std::fs::read(folder.path().join("a.json")).expect("a trace");
    let trace: Json = serde_json::from_slice(&trace).expect("valid JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 10));

    let listed = forebay(folder.path(), &["runs", "--format", "json"]);
    let listed: Json = serde_json::from_slice(&listed.stdout).expect("valid JSON");
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["runs"][0]["run"], record["run"]);
    let made = forebay(folder.path(), &["report", "small", "-o", "b.html"]);
    assert_eq!((made.status.code(), &*text(&made.stdout)), (Some(0), "b.html\n"));
    assert_eq!(std::fs::read_to_string(folder.path().join("b.html")).expect("a page"), page);
}

#[test]
fn runs_are_compared_by_stage() {
    let folder = folder();
    for _ in 0..2 {
        let done = forebay(folder.path(), &["run", "small.yaml", "--limit", "4"]);
        assert_eq!(done.status.code(), Some(0));
    }
    let listed = text(&forebay(folder.path(), &["runs"]).stdout);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let first = listed.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a name");
    let diff = forebay(folder.path(), &["diff", first, "last"]);
    let told = text(&diff.stdout);
    assert_eq!(diff.status.code(), Some(0), "{}", text(&diff.stderr));
    for part in ["items/s", "fetch", "decode", "waited", "The second run is"] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    let json = forebay(folder.path(), &["diff", first, "last", "--format", "json"]);
    let json: Json = serde_json::from_slice(&json.stdout).expect("valid JSON");
    assert!(json["comparison"]["stages"].as_array().is_some_and(|stages| stages.len() == 2));
}

#[test]
fn a_run_that_is_not_there_is_told_with_those_that_are() {
    let folder = folder();
    let none = forebay(folder.path(), &["report"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("there are no runs"), "{}", text(&none.stderr));
    forebay(folder.path(), &["run", "small.yaml", "--limit", "1"]);
    let wrong = forebay(folder.path(), &["diff", "smal", "last"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("there is no run `smal`"), "{}", text(&wrong.stderr));
    std::fs::write(folder.path().join("other.json"), "{}").expect("written");
    let other = forebay(folder.path(), &["report", "other.json"]);
    assert!(text(&other.stderr).contains("other.json is no run"), "{}", text(&other.stderr));
}

#[test]
fn a_bench_measures_each_setting_and_compares() {
    let folder = folder();
    let args = ["bench", "small.yaml", "--limit", "3", "--runs", "2", "-o", "old.json", "--scan"];
    let done =
        forebay(folder.path(), &[&args[..], &["fetch.workers=1,2", "--step", "1ms"]].concat());
    let told = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    for part in ["fetch.workers=1", "fetch.workers=2", "recommended", "data free", "consumer free"]
    {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    let old = std::fs::read_to_string(folder.path().join("old.json")).expect("written");
    let mut old: Json = serde_json::from_str(&old).expect("valid JSON");
    assert_eq!(old["settings"][0]["items_per_s"].as_array().map(Vec::len), Some(2));

    // Against one that was a thousand times as fast.
    for setting in old["settings"].as_array_mut().expect("settings") {
        setting["items_per_s"] = serde_json::json!([1e9, 1e9]);
        for stage in setting["stages"].as_array_mut().expect("stages") {
            stage["mean_ms"] = serde_json::json!([1e-6, 1e-6]);
        }
    }
    std::fs::write(folder.path().join("fast.json"), old.to_string()).expect("written");
    let args =
        ["bench", "small.yaml", "--limit", "3", "--runs", "2", "--scan", "fetch.workers=1,2"];
    let slower = forebay(folder.path(), &[&args[..], &["--against", "fast.json"]].concat());
    let told = text(&slower.stderr);
    assert_eq!(slower.status.code(), Some(1), "{told}");
    assert!(told.contains("that is below 95 %") && told.contains("ms a call"), "{told}");
    let wrong = forebay(folder.path(), &["bench", "small.yaml", "--against", "small.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("is not what `bench --output` writes"));
}

#[test]
fn what_can_not_be_written_is_told_before_the_run() {
    let folder = folder();
    let args = ["run", "small.yaml", "--limit", "1", "--report", "no/such/folder.html"];
    let done = forebay(folder.path(), &args);
    assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0));
    assert!(text(&done.stderr).contains("folder.html can't be written"));
}
