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
    let twice = forebay(folder.path(), &["diff", "nothing", "nothing"]);
    assert_eq!(text(&twice.stderr).matches("error:").count(), 1, "{}", text(&twice.stderr));
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
    // No ceiling is lower than what was reached beneath it.
    for setting in old["settings"].as_array().expect("settings") {
        for stage in setting["stages"].as_array().expect("stages") {
            for run in 0..2 {
                let could_do = stage["could_do_per_s"][run].as_f64().expect("a rate");
                let did = setting["consumer_free_items_per_s"][run].as_f64().expect("a rate");
                assert!(could_do >= did, "{did}/s in run {run} of {setting}");
            }
        }
    }

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

#[test]
fn what_is_no_file_is_never_written_over() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let run = |args: &[&str]| {
        forebay(folder.path(), &[&["run", "small.yaml", "--limit", "1"], args].concat())
    };
    // Behind a link is the file, which keeps its mode.
    std::fs::write(path("target.html"), "old").expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path("target.html"), private).expect("set");
    symlink("target.html", path("link.html")).expect("linked");
    assert_eq!(run(&["--report", "link.html"]).status.code(), Some(0));
    let target = path("target.html").metadata().expect("it is there");
    assert!(target.len() > 1000 && target.permissions().mode() & 0o777 == 0o600);
    assert!(path("link.html").symlink_metadata().is_ok_and(|link| link.is_symlink()));
    // Folders, the definition, two of one name: wrong before anything runs.
    std::fs::create_dir(path("sub")).expect("made");
    for (args, why) in [
        (&["--report", "sub"][..], "no file"),
        (&["--report", "/dev/full"][..], "no file"),
        (&["--report", "small.yaml"][..], "is the definition"),
        (&["--report", "a.html", "--trace", "a.html"][..], "named twice"),
        (&["--report", "-"][..], "give it a name"),
    ] {
        let refused = run(args);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args:?} {told}");
        assert!(told.contains(why), "{args:?} {told}");
        assert!(!path("a.html").exists(), "nothing is left of the try");
    }
}

#[test]
fn the_folder_of_runs_may_hold_other_things() {
    let folder = folder();
    let runs = folder.path().join(".forebay/runs");
    std::fs::create_dir_all(runs.join("0000-00-00T000000-dir.json")).expect("made");
    for n in 0..110 {
        std::fs::write(runs.join(format!("notes-{n}.json")), "mine").expect("written");
    }
    std::fs::write(runs.join("2020-01-01T000000-broken.json"), "{").expect("written");
    for _ in 0..3 {
        assert_eq!(
            forebay(folder.path(), &["run", "small.yaml", "--limit", "1"]).status.code(),
            Some(0)
        );
    }
    assert_eq!(runs.read_dir().expect("there").count(), 115, "nothing of others is deleted");
    let listed = forebay(folder.path(), &["runs"]);
    let names: Vec<_> = text(&listed.stdout).lines().skip(1).map(str::to_owned).collect();
    assert_eq!(names.len(), 3);
    assert!(text(&listed.stderr).contains("1 files"), "{}", text(&listed.stderr));
    let last = forebay(folder.path(), &["report", "last", "--format", "json"]);
    let last: Json = serde_json::from_slice(&last.stdout).expect("valid JSON");
    let last = last["run"].as_str().expect("a name");
    assert!(names[2].starts_with(&format!("{last} ")), "{last} of {names:?}");
}

#[test]
fn a_bench_that_compares_nothing_is_no_success() {
    let folder = folder();
    let args = ["bench", "small.yaml", "--limit", "1", "--runs", "1"];
    let bench = |more: &[&str]| forebay(folder.path(), &[&args[..], more].concat());
    assert_eq!(bench(&["-o", "old.json"]).status.code(), Some(0));
    let old = std::fs::read_to_string(folder.path().join("old.json")).expect("written");
    for (name, changed) in [
        ("empty.json", r#"{"schema":1,"pipeline":"small","settings":[]}"#.to_owned()),
        ("other.json", old.replace("\"pipeline\": \"small\"", "\"pipeline\": \"other\"")),
        ("version.json", old.replace("\"schema\": 1", "\"schema\": 99")),
        ("setting.json", old.replace("\"name\": \"\"", "\"name\": \"fetch.workers=9\"")),
    ] {
        std::fs::write(folder.path().join(name), changed).expect("written");
        let done = bench(&["--against", name]);
        assert_eq!(done.status.code(), Some(2), "{name}: {}", text(&done.stderr));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn data_that_is_lost_is_a_failure() {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    command.args(["run", "small.yaml", "--limit", "1", "--format", "json", "--no-record"]);
    let done = command.current_dir(folder.path()).stdout(full).stderr(Stdio::piped());
    let done = done.output().expect("started");
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("stdout can't be written"), "{}", text(&done.stderr));
}
