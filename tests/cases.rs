//! `forebay test`: cases beside a pipeline pass, or say what came out otherwise.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn forebay(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("test").args(args).env_remove("FOREBAY_LOG").current_dir(folder);
    command.output().expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with the quickstart and cases beside it.
fn folder_with(cases: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let pipelines = folder.path().join("pipelines");
    std::fs::create_dir(&pipelines).expect("a folder");
    std::fs::copy("pipelines/quickstart.yaml", pipelines.join("quickstart.yaml")).expect("copied");
    std::fs::write(pipelines.join("quickstart.test.yaml"), cases).expect("written");
    folder
}

#[test]
fn the_cases_that_are_shipped_pass() {
    for (args, passed) in
        [(&[][..], 11), (&["quickstart"], 5), (&["pipelines/quickstart.test.yaml"], 5)]
    {
        let done = forebay(args, Path::new("."));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(
            text(&done.stdout).ends_with(&format!("\n{passed} passed, 0 failed\n")),
            "{done:?}"
        );
    }
}

const MIXED: &str = "\
cases:
  - name: right
    limit: 1
    expect: { items: 4, specs: [{ name: t2m }, { name: u10 }, { name: v10, dtype: float32 }] }
  - name: otherwise
    set: { batch: 8, decode.workers: 1 }
    limit: 1
    expect:
      items: 4
      batches: 1
      fingerprint: 0000-0001
      specs: [{ name: t2m, shape: [8, 1, 721, 1440] }, { name: wind }]
  - name: no error
    limit: 1
    expect: { error: not found }
  - name: another error
    set: { store: /no/such/store }
    expect: { items: 1 }
";

#[test]
fn what_came_out_otherwise_is_told() {
    let folder = folder_with(MIXED);
    let done = forebay(&["quickstart"], folder.path());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let told = text(&done.stdout);
    for part in [
        "pass  pipelines/quickstart.yaml: right\n",
        "FAIL  pipelines/quickstart.yaml: otherwise\n      items: expected 4\n             found    8\n",
        "      fingerprint: expected 0000-0001\n                   found    ",
        "specs: expected t2m [8, 1, 721, 1440], wind\n             found    t2m f32 [8, 1, 721",
        "error: expected one with `not found`\n             found    none\n",
        "error: expected none\n             found    `zarr.windows` can't be made",
        "1 passed, 3 failed\n",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert!(!told.contains("batches: expected"), "{told}");

    let done = forebay(&["--format", "json"], folder.path());
    assert_eq!(done.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &3.into()));
    let first = &json["cases"][1]["differences"][0];
    let expected = serde_json::json!({ "what": "items", "expected": "4", "found": "8" });
    assert_eq!(*first, expected);
}

const GIVEN: &str = "\
cases:
  - name: right
    given: { decode: [{ t2m: [[260, 280], [NaN, 300]] }, { t2m: [[270, 270]] }] }
    expect: { items: 3, batches: 2, values: [{ t2m: [[-1, 1], [NaN, 3]] }, { t2m: [[0, 0]] }] }
  - name: no such stage
    given: { decod: [{ t2m: [1] }] }
    expect: { items: 1 }
  - name: no batches
    given: { fetch: [{ t2m: [1] }] }
    expect: { items: 1 }
  - name: both
    given: { decode: [{ t2m: [1] }], normalize: [{ t2m: [1] }] }
    expect: { items: 1 }
  - name: otherwise
    given: [{ t2m: [[270, 280]] }, { t2m: [[250, 270]] }]
    expect: { values: [{ t2m: [[0, 1]] }, { t2m: [[-2, 1]] }] }
  - name: too few
    given: [{ t2m: [270] }]
    expect: { values: [] }
  - name: no such tensor
    given: [{ t2m: [270] }]
    expect: { values: [{ u10: [0] }] }
  - name: a fault
    given: [{ wind: [270] }]
    expect: { error: no mean and deviation are given for it }
";

/// The store is not there, so that what is not replaced would fail.
#[test]
fn given_batches_take_the_place_of_what_comes_before() {
    let folder = folder_with(GIVEN);
    let pipeline = folder.path().join("pipelines/quickstart.yaml");
    let text = std::fs::read_to_string(&pipeline).expect("the quickstart");
    let text = text.replace("sample://era5", "/no/such/store");
    let text = text.replace("stats: auto", "stats: { t2m: { mean: 270, std: 10 } }");
    std::fs::write(&pipeline, text).expect("written");
    let done = forebay(&["quickstart"], folder.path());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let told = text_of_differences(&done);
    for part in [
        "pass right",
        "FAIL no such stage error: expected none found batches are given for the stage `decod`, which \
         is not there (did you mean `decode`?)",
        "FAIL no batches error: expected none found `fetch` yields Encoded, but a case gives batches \
         (give those of `decode` or `normalize`)",
        "FAIL both error: expected none found what is given for `decode` goes nowhere (",
        "FAIL otherwise values: expected `t2m` of batch 2 1 at [0, 1] found 0",
        "FAIL too few values: expected those of 0 batches found 1",
        "FAIL no such tensor values: expected `u10` of batch 1 found no such tensor",
        "pass a fault",
        "2 passed, 6 failed",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
}

/// What `forebay test` said, without the file's name and in single spaces.
fn text_of_differences(done: &Output) -> String {
    let told = text(&done.stdout).replace("pipelines/quickstart.yaml:", "");
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn cases_that_can_not_be_read_are_told_before_any_runs() {
    for (cases, parts) in [
        ("cases: []\n", &["a list `cases` with one case at least"][..]),
        (
            "cases:\n  - name: a\n    expcet: { items: 1 }\n  - name: b\n    expect: {}\n",
            &["no argument `expcet`", "did you mean `expect`?", "this case expects nothing"],
        ),
        ("cases:\n  - { name: a, expect: { items: many } }\n", &["value of `expect.items`"]),
        ("cases:\n  - { name: a, expect: { items: 1, error: x } }\n", &["an error and items"]),
        (
            "cases:\n  - { name: a, given: [{ t2m: [[1], [2, 3]] }], expect: { items: 1 } }\n\
             \x20 - { name: b, given: [{ a: [1], b: [1, 2] }], expect: { items: 1 } }\n\
             \x20 - { name: c, given: [{ a: { dtype: i8, values: [300] } }], expect: { items: 1 } }\n\
             \x20 - { name: d, given: [{}], expect: { items: 1 } }\n\
             \x20 - { name: e, given: [{ a: 1 }], expect: { items: 1 } }\n",
            &[
                "different lengths",
                "`a` has 1 windows and `b` 2",
                "300 is no i8",
                "one tensor at least",
                "this is the integer 1; write [[1, 2], [3, 4]], or",
            ],
        ),
        ("cases: [", &["forebay::yaml"]),
    ] {
        let folder = folder_with(cases);
        let done = forebay(&["quickstart"], folder.path());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stdout.is_empty(), "{done:?}");
        let told = text(&done.stderr);
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
    let folder = folder_with("cases: [");
    let done = forebay(&["quickstart", "--format", "json"], folder.path());
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["errors"][0]["code"], "forebay::yaml");
    let empty = tempfile::tempdir().expect("a folder");
    let done = forebay(&[], empty.path());
    assert!(text(&done.stderr).contains("there are no cases"), "{done:?}");
    let done = forebay(&["windows"], Path::new("."));
    assert!(text(&done.stderr).contains("can't read `pipelines/windows.test.yaml`"), "{done:?}");
    assert_eq!(done.status.code(), Some(2));
}

/// The shell finds cases, too, for `forebay check pipelines/*.yaml`.
#[test]
fn check_reads_cases() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let args = ["check", "pipelines/quickstart.yaml", "pipelines/quickstart.test.yaml"];
    let done = command.args(args).output().expect("started");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(text(&done.stdout).contains("  5 cases  "), "{done:?}");
}
