//! `forebay graph`: the chain as it is drawn, and what a run adds to it.

use std::process::{Command, Output};

fn forebay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").output().expect("started")
}

fn drawn(args: &[&str]) -> String {
    let done = forebay(&[&["graph"], args].concat());
    assert_eq!(done.status.code(), Some(0), "{args:?} {done:?}");
    assert!(done.stderr.is_empty(), "{done:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

#[test]
fn a_graph_has_types_on_its_edges_and_runtime_keys_below_its_stages() {
    let text = drawn(&["quickstart", "--set", "batch=9"]);
    let expected = "\
batch      flow    batch: 9
  ▼ Vec<Window>
repeat     flow    repeat: 4
  ▼ Vec<Window>
fetch      io      zarr.fetch
  │   workers 8, retry 5
  ▼ Encoded
";
    assert!(text.contains(expected), "{text}");
    assert!(text.ends_with("  ▼ DeviceBatch\nyou\n"), "{text}");
}

/// Every drawing has all stages and all types, with what is special in it escaped.
#[test]
fn every_format_draws_the_same_chain() {
    for (format, typed, last) in [
        ("ascii", "Vec<Window>", "▼ DeviceBatch\nyou"),
        ("mermaid", "-->|\"Vec#lt;Window#gt;\"| s3", "s7 -->|\"DeviceBatch\"| you"),
        ("dot", "[label=\"Vec<Window>\"]", "s7 -> you [label=\"DeviceBatch\"]"),
        ("html", "<span>Vec&lt;Window&gt;</span>", "<div class=\"you\">you</div>"),
    ] {
        let text = drawn(&["quickstart", "--format", format]);
        for part in ["windows", "shuffle", "batch: 4", "zarr.fetch", "workers 8", typed, last] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
    let page = drawn(&["quickstart", "--format", "html"]);
    assert!(page.contains("default-src 'none'") && !page.contains("://"), "{page}");
}

#[test]
fn branches_are_drawn_to_where_they_flow_together() {
    let text = drawn(&["zip"]);
    assert!(
        text.contains(
            "surface.normalize  cpu     tensor.normalize\n  ╰─▶ Batch, to `zip`\n\nwind."
        )
    );
    assert!(
        text.contains("  ▼ Batch\nzip                flow    zip: [surface, wind]\n"),
        "{text}"
    );
    let text = drawn(&["zip", "--format", "dot"]);
    for edge in ["s5 -> s13 ", "s12 -> s13 ", "s13 -> s14 ", "s14 -> you "] {
        assert!(text.contains(edge), "{edge} is not in\n{text}");
    }
    assert!(!text.contains("s5 -> s6 "), "{text}");
    let text = drawn(&["zip", "--format", "mermaid"]);
    assert!(text.contains("  s5 -->|\"Batch\"| s13\n"), "{text}");
    let text = drawn(&["zip", "--format", "html"]);
    let (branches, behind) = text.split_once("<b>zip</b>").expect("it is drawn");
    assert!(branches.contains("<div class=\"branches\">") && !behind.contains("zarr."), "{text}");
    assert_eq!(text.matches("<section").count(), 15);
    assert_eq!(text.matches("<div").count(), text.matches("</div>").count());
}

#[test]
fn a_run_colours_its_stages_and_marks_the_one_that_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.json");
    let args = ["run", "quickstart", "--limit", "4", "--format", "json", "--no-record"];
    let run = forebay(&args);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let mut json: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    // Whatever this machine is short of.
    json["verdict"]["stage"] = "decode".into();
    for stage in json["stages"].as_array_mut().expect("stages") {
        for state in ["working", "starved", "blocked", "turn", "limit"] {
            stage[state] = 0.0.into();
        }
        let state = if stage["id"] == "decode" { "working" } else { "blocked" };
        stage[state] = 1.0.into();
    }
    std::fs::write(&file, json.to_string()).expect("written");
    let with = ["quickstart", "--with", file.to_str().expect("UTF-8"), "--format"];
    let draw = |format: &str| drawn(&[&with[..], &[format]].concat());

    let text = draw("ascii");
    assert!(text.contains("zarr.decode       ◀ the limit\n"), "{text}");
    assert!(text.contains("working 100 %") && text.contains("\nyou wait "), "{text}");
    let text = draw("mermaid");
    assert!(text.contains("class s5 working\n") && text.contains("style s5 stroke"), "{text}");
    assert!(text.contains("class s0,s4,s6,s7 blocked\n"), "{text}");
    let text = draw("dot");
    assert!(text.contains("fillcolor=\"#2b6cb0\", fontcolor=\"#ffffff\", color="), "{text}");
    let text = draw("html");
    assert!(text.contains("<section class=\"working culprit\"><b>decode</b>"), "{text}");
}

#[test]
fn what_can_not_be_drawn_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.json");
    std::fs::write(&file, "{}").expect("written");
    let wrong = |args: &[&str], told: &str| {
        let done = forebay(&[&["graph"], args].concat());
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?} {error}");
        assert!(error.contains(told) && done.stdout.is_empty(), "{args:?} {error}");
    };
    let file = file.to_str().expect("UTF-8");
    wrong(&["quickstart", "--with", file], "is neither what `run --format json` prints nor a run");
    wrong(&["pipelines/broken/no-source.yaml"], "can't be the first stage");
    wrong(&["quickstart", "--with", "no-such-run"], "error: there");
    let run = forebay(&["run", "quickstart", "--limit", "1", "--format", "json", "--no-record"]);
    std::fs::write(file, run.stdout).expect("written");
    wrong(&["windows", "--with", file], "this is a run of `quickstart`, not of `windows`");
}
