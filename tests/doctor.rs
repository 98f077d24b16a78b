//! `forebay doctor`: a line for each thing, which ends with what to do.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn doctor(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("doctor").args(args).current_dir(folder).output().expect("started")
}

#[test]
fn every_line_ends_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = doctor(&[], folder.path());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let things = ["cores", "memory", "open files", "locked memory", "gpu", "kept runs", "clock"];
    assert_eq!(text.lines().count(), things.len(), "{text}");
    for (line, thing) in text.lines().zip(things) {
        assert!(line[6..].starts_with(thing), "{line}");
        assert!(["ok  ", "warn"].contains(&&line[..4]), "{line}");
    }
    let left = folder.path().read_dir().expect("a folder").count();
    assert_eq!(left, 0, "nothing is left of the try");

    let json: Value =
        serde_json::from_slice(&doctor(&["--format", "json"], folder.path()).stdout).expect("JSON");
    for finding in json["findings"].as_array().expect("a list") {
        for key in ["what", "health", "found", "advice"] {
            assert!(finding[key].as_str().is_some_and(|text| !text.is_empty()), "{key} {finding}");
        }
    }
}

#[test]
fn the_stores_of_a_pipeline_are_reached() {
    let stores = |args: &[&str], code: i32| -> Value {
        let done = doctor(&[args, &["--format", "json"]].concat(), Path::new("."));
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        json["findings"].as_array().expect("a list").last().expect("one").clone()
    };
    let found = stores(&["quickstart"], 0);
    assert_eq!((&found["what"], &found["health"]), (&"stores".into(), &"ok".into()));
    let found = stores(&["quickstart", "--set", "store=/no/such/store"], 1);
    assert_eq!(found["health"], "fail");
    assert!(found["found"].as_str().is_some_and(|text| text.contains("/no/such/store")), "{found}");
    let found = stores(&["pipelines/broken/empty.yaml"], 1);
    assert_eq!(found["advice"], "forebay check pipelines/broken/empty.yaml");
}
