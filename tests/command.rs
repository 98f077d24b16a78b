//! The command line: what it prints where, and how it ends.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn forebay(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    forebay(args).output().expect("started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

const QUICKSTART: &str = "pipelines/quickstart.yaml";

#[test]
fn a_run_prints_its_table_and_one_sentence() {
    let done = output(&["run", QUICKSTART, "--limit", "3"]);
    let text = stdout(&done);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    for part in ["quickstart  finished in", "12 items, 3 batches", "decode", "You waited", "Limit"]
    {
        // A short run may also be balanced.
        let found = text.contains(part) || (part == "Limit" && text.contains("Balanced"));
        assert!(found, "{part} is not in\n{text}");
    }
}

#[test]
fn json_is_one_object_with_the_schema() {
    let done = output(&["run", QUICKSTART, "--limit", "4", "--format", "json", "--no-progress"]);
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(stderr(&done), "");
    let json: Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
    for key in [
        "schema",
        "pipeline",
        "items",
        "batches",
        "bytes",
        "seconds",
        "items_per_s",
        "fingerprint",
        "waited_share",
        "verdict",
        "stages",
        "buffers",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
    assert_eq!(json["schema"], 1);
    assert_eq!((&json["items"], &json["batches"]), (&16.into(), &4.into()));
    assert_eq!(json["bytes"], 16 * 3 * 721 * 1440 * 4);
    for key in ["stage", "cause", "sentence"] {
        assert!(json["verdict"].get(key).is_some(), "{key}");
    }
    let stages = json["stages"].as_array().expect("stages");
    let ids: Vec<_> = stages.iter().map(|stage| stage["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["windows", "fetch", "decode", "normalize", "upload", "take"]);
    for stage in stages {
        for key in [
            "id",
            "kind",
            "workers",
            "items",
            "bytes",
            "working",
            "starved",
            "blocked",
            "turn",
            "limit",
            "could_do_per_s",
            "service_ms",
            "errors",
            "retries",
            "skipped",
        ] {
            assert!(stage.get(key).is_some(), "{key} of {stage}");
        }
        let shares = ["working", "starved", "blocked", "turn", "limit", "ended"];
        let sum: f64 = shares.iter().map(|key| stage[key].as_f64().expect("a share")).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{stage}");
        for key in ["p50", "p90", "p99", "max"] {
            assert!(stage["service_ms"][key].is_f64(), "{key}");
        }
    }
    let buffers = &json["buffers"];
    assert!(buffers["pool_hits"].is_u64() && buffers["pool_misses"].as_u64() > Some(0));
}

#[test]
fn the_same_run_has_the_same_fingerprint_whatever_the_workers() {
    let fingerprint = |workers: &str| {
        let set = format!("decode.workers={workers}");
        let done = output(&["run", "quickstart", "--set", &set, "--format", "json"]);
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        json["fingerprint"].as_str().expect("a fingerprint").to_owned()
    };
    assert_eq!(fingerprint("1"), fingerprint("4"));
}

#[test]
fn a_wrong_file_or_command_ends_with_2() {
    for args in [
        &["run", "nowhere.yaml"][..],
        &["run", "pipelines/broken/type-mismatch.yaml"],
        &["run", QUICKSTART, "--set", "btach=4"],
        &["run", QUICKSTART, "--set", "batch"],
        &["run", QUICKSTART, "--limit", "0"],
        &["run", QUICKSTART, "--set", "store=/nowhere/at/all"],
        &["run"],
        &["walk"],
        &["check", "pipelines/broken/everything.yaml"],
        &["ops", "zarr.fech"],
    ] {
        let done = output(args);
        assert_eq!(done.status.code(), Some(2), "{args:?} {}", stderr(&done));
        assert_eq!(stdout(&done), "", "{args:?}");
        assert!(!stderr(&done).is_empty(), "{args:?}");
    }
    let done = output(&["run", "pipelines/broken/no-source.yaml", "--format", "json"]);
    assert_eq!(done.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["errors"][0]["code"], "forebay::source");
    assert_eq!((&json["errors"][0]["line"], &json["errors"][0]["column"]), (&4.into(), &5.into()));
    let bench = output(&["bench", "pipelines/broken/no-source.yaml", "--format", "json"]);
    let bench: Value = serde_json::from_slice(&bench.stdout).expect("JSON");
    assert_eq!(bench["errors"], json["errors"]);
}

/// Without the feature, the option says what to build.
#[cfg(not(feature = "otlp"))]
#[test]
fn an_option_that_was_not_built_says_what_to_build() {
    let done = output(&["run", QUICKSTART, "--otlp", "http://localhost:4318"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("build it with `--features otlp`"), "{}", stderr(&done));
}

#[test]
fn what_is_told_is_what_the_environment_asks_for() {
    let run = |filter: &str| {
        let args = ["run", QUICKSTART, "--limit", "2", "--no-progress"];
        stderr(&forebay(&args).env("FOREBAY_LOG", filter).output().expect("started"))
    };
    assert_eq!(run("warn"), "");
    let stages = run("forebay::stage=debug");
    let ended = stages.lines().filter(|line| line.contains("the stage has ended")).count();
    assert_eq!(ended, 6, "{stages}");
}

/// A copy of the sample with a chunk cut short.
fn spoiled() -> tempfile::TempDir {
    let made = output(&["run", QUICKSTART, "--limit", "1", "--format", "json"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let cache = std::env::var_os("FOREBAY_CACHE").map(std::path::PathBuf::from);
    let xdg =
        || std::env::var_os("XDG_CACHE_HOME").map(|c| std::path::Path::new(&c).join("forebay"));
    let home = || Some(std::path::Path::new(&std::env::var_os("HOME")?).join(".cache/forebay"));
    let sample = cache.or_else(xdg).or_else(home).expect("a cache folder").join("era5-v2");
    let copy = tempfile::tempdir().expect("a folder");
    for entry in ["zarr.json", "t2m", "u10", "v10"] {
        let link = copy.path().join(entry);
        if entry == "v10" {
            std::fs::create_dir_all(link.join("c")).expect("a folder");
            for step in 0..16 {
                let at = format!("c/{step}/0/0");
                let to = link.join(&at);
                std::fs::create_dir_all(to.parent().expect("a parent")).expect("a folder");
                let bytes = std::fs::read(sample.join("v10").join(&at)).expect("a chunk");
                let keep = if step == 5 { bytes.len() / 2 } else { bytes.len() };
                std::fs::write(to, &bytes[..keep]).expect("written");
            }
        } else {
            std::os::unix::fs::symlink(sample.join(entry), link).expect("a link");
        }
    }
    copy
}

#[test]
fn a_failed_run_ends_with_1_and_a_skipping_one_with_3() {
    let store = spoiled();
    let set = format!("store={}", store.path().display());
    let done = output(&["run", QUICKSTART, "--set", &set]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
    let told = stderr(&done);
    assert!(told.contains("error: stage `decode` failed on item"), "{told}");
    assert!(told.contains("the chunk `v10/c/5/0/0` can't be decoded"), "{told}");
    assert!(stdout(&done).contains("failed after"));
    let skip = ["--set", "decode.on_error={ skip: 10 }"];
    let done = output(&["run", QUICKSTART, "--set", &set, skip[0], skip[1], "--format", "json"]);
    assert_eq!(done.status.code(), Some(3), "{}", stderr(&done));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(json["skipped"].as_u64() > Some(0));
    assert_eq!(json["ended"], "finished");
}

/// A run that goes on until it is interrupted, once it has begun to read.
fn endless(args: &[&str]) -> std::process::Child {
    let args = [&["run", QUICKSTART, "--set", "epochs=100000", "--format", "json"], args].concat();
    let run = forebay(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let run = run.expect("started");
    wait(Duration::from_millis(1500));
    run
}

fn kill(run: &std::process::Child, signal: &str) {
    let killed = Command::new("kill").args(["-s", signal, &run.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

/// F45: the first signal stops the sources; what is under way is delivered, and the figures are told.
#[test]
fn an_interrupted_run_delivers_what_is_under_way_and_tells_its_figures() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // Little is under way, so that it is soon finished.
        let little = ["windows", "fetch", "decode", "normalize"].map(|id| format!("{id}.buffer=2"));
        let little = little.iter().flat_map(|buffer| ["--set", buffer]);
        let run = endless(&little.chain(["--set", "fetch.workers=2"]).collect::<Vec<_>>());
        kill(&run, signal);
        let start = Instant::now();
        let done = run.wait_with_output().expect("ended");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(done.status.code(), Some(code), "{signal} {}", stderr(&done));
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!((&json["error"], &json["ended"]), (&Value::Null, &"stopped".into()));
        // What the source gave is what every stage took, and what the consumer received, but for
        // windows that nobody had begun.
        let stages = json["stages"].as_array().expect("stages");
        let read = &stages[0]["items"];
        let (read, left) = (read.as_u64().expect("a number"), &json["abandoned"]);
        let left = left.as_u64().expect("a number");
        assert!(read > left && left <= 2, "{json}");
        assert!(stages[1..].iter().all(|stage| stage["items"] == read - left), "{json}");
        assert_eq!(json["batches"], read - left);
        assert!(stderr(&done).contains("interrupted"));
    }
}

#[test]
fn the_second_signal_ends_a_run_at_once() {
    // What is under way takes forever: one batch a minute.
    let run = endless(&["--set", "decode.rate=1/min"]);
    for signal in ["INT", "TERM"] {
        kill(&run, signal);
        wait(Duration::from_millis(500));
    }
    let start = Instant::now();
    let done = run.wait_with_output().expect("ended");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(done.status.code(), Some(130));
    let told = stderr(&done);
    assert!(told.starts_with("stopping: ") && told.contains("\nstopping at once\n"), "{told}");
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&json["error"], &json["ended"]), (&Value::Null, &"cancelled".into()));
}

#[expect(clippy::disallowed_methods, reason = "the run needs a while to be in the middle")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// F45: a closed pipe is not an error.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut run =
        forebay(&["ops"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ok");
    drop(run.stdout.take());
    let done = run.wait_with_output().expect("ended");
    assert!(!stderr(&done).contains("panicked"), "{}", stderr(&done));
}

/// Help is data, too: nobody who goes away has a problem, a full disk is one.
#[test]
fn help_that_nobody_reads_is_no_failure() {
    let mut help = forebay(&["run", "--help"]);
    let mut run = help.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ok");
    drop(run.stdout.take());
    assert_eq!(run.wait().expect("ended").code(), Some(0));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    assert_eq!(forebay(&["--help"]).stdout(full).status().expect("ended").code(), Some(1));
}

#[test]
fn check_says_what_there_is() {
    let done = output(&["check"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let text = stdout(&done);
    assert!(text.contains("quickstart") && text.contains("() -> DeviceBatch"), "{text}");
    let done = output(&["check", QUICKSTART, "pipelines/broken/empty.yaml", "--format", "json"]);
    assert_eq!(done.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&json["files"][0]["ok"], &json["files"][1]["ok"]), (&true.into(), &false.into()));
    assert_eq!(json["files"][0]["stages"][4]["operator"], "zarr.fetch");
}

#[test]
fn plan_says_what_a_pass_will_cost() {
    let done = output(&["plan", "pipelines/windows.yaml", "--link", "10Gbit,30ms"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let text = stdout(&done);
    assert!(text.contains("each wanted 3.00 times and fetched 1.00 times"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("bound")), "{text}");

    let json = |args: &[&str]| -> Value {
        let done = output(args);
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        serde_json::from_slice(&done.stdout).expect("JSON")
    };
    let plan = json(&["plan", QUICKSTART, "--format", "json"]);
    assert_eq!(plan["plan"]["batches"], 16);
    assert_eq!(plan["plan"]["requests"], 48);
    assert!(plan["link"].is_null());

    let wrong = output(&["plan", QUICKSTART, "--link", "10Gbit"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("write bandwidth and latency"), "{}", stderr(&wrong));
}

#[test]
fn ops_lists_and_explains_operators() {
    let text = stdout(&output(&["ops"]));
    assert!(text.contains("zarr.windows") && text.contains("Vec<Window> -> Encoded"), "{text}");
    let text = stdout(&output(&["ops", "batch"]));
    assert!(text.contains("size (required, main)") && text.contains("- batch: <size>"), "{text}");
    let text = stdout(&output(&["ops", "--takes", "Encoded"]));
    assert!(text.contains("zarr.decode") && !text.contains("zarr.fetch"), "{text}");
    assert_eq!(text, stdout(&output(&["ops", "list", "--takes", "Encoded"])));
    assert_eq!(stdout(&output(&["ops", "batch"])), stdout(&output(&["ops", "show", "batch"])));
    let done = output(&["ops", "list", "--takes", "Encodde"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("did you mean `Encoded`?"), "{}", stderr(&done));
    let done = output(&["ops", "--format", "json"]);
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(json["operators"].as_array().is_some_and(|all| all.len() > 8));
}

/// Names come first, then what has the word in its help or its arguments.
#[test]
fn ops_are_found_by_a_word() {
    let names = |args: &[&str]| -> Vec<String> {
        let done = output(&[&["ops", "search"], args, &["--format", "json"]].concat());
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let all = json["operators"].as_array().expect("a list").iter();
        all.map(|operator| operator["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&["BATCH"])[..2], ["batch", "unbatch"]);
    assert!(names(&["random"]).contains(&"shuffle".to_owned()));
    assert_eq!(names(&["decode", "--yields", "Batch"]), ["zarr.decode"]);
    let done = output(&["ops", "search", "xyzzy"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("nothing is said of `xyzzy`"), "{}", stderr(&done));
}

#[test]
fn every_pipeline_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::path::Path::new("pipelines").read_dir().expect("a folder").flatten() {
        let file = entry.path();
        let is_cases = file.to_string_lossy().ends_with(".test.yaml");
        if !is_cases && file.extension().is_some_and(|extension| extension == "yaml") {
            let file = file.canonicalize().expect("there");
            let args = ["run", file.to_str().expect("UTF-8"), "--format", "json"];
            let done = forebay(&args).current_dir(&folder).output().expect("started");
            assert_eq!(done.status.code(), Some(0), "{} {}", file.display(), stderr(&done));
        }
    }
}

/// Each example checks itself.
#[test]
fn every_example_runs() {
    let deps = std::env::current_exe().expect("a path");
    let examples =
        deps.parent().and_then(std::path::Path::parent).expect("target").join("examples");
    let mut ran = 0;
    for entry in std::path::Path::new("examples").read_dir().expect("a folder").flatten() {
        let name = entry.path().file_stem().expect("a name").to_string_lossy().into_owned();
        let mut command = Command::new(examples.join(&name));
        command.env_remove("FOREBAY_LOG").env_remove("FOREBAY_JSON");
        match name.as_str() {
            "own_operator" => command.args(["run", "examples/own_operator.yaml"]),
            "overhead" | "crops" => command.arg("--quick"),
            _ => &mut command,
        };
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let done = command.env("RUST_BACKTRACE", "0").output().expect("started");
            assert_eq!(done.status.code(), Some(0), "{name} {}", stderr(&done));
            if name == "telemetry" {
                assert_telemetry(&done);
            }
            ran += 1;
        }
    }
    assert!(ran >= 6, "{ran}");
}

/// Lines for people on stderr, one JSON object a line on stdout, with the spans of calls.
fn assert_telemetry(done: &Output) {
    let people = stderr(done);
    assert!(people.contains("forebay.stage{") && people.contains("fetched"), "{people}");
    let programs: Vec<Value> =
        stdout(done).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let said = |message: &str| {
        let is_it = move |line: &&Value| line["fields"]["message"] == message;
        programs.iter().filter(is_it).collect::<Vec<_>>()
    };
    let counts = ["fetched", "decoded", "failed and is tried again", "the stage has ended"];
    assert_eq!(counts.map(|message| said(message).len()), [8, 8, 1, 3]);
    let decoded = said("decoded");
    let spans = decoded.iter().map(|line| [&line["spans"][0]["name"], &line["spans"][1]["name"]]);
    assert!(spans.into_iter().all(|spans| spans == ["forebay.stage", "forebay.item"]));
}

#[test]
fn a_run_cannot_fail_on_stalls_that_are_not_looked_for() {
    let done = output(&["run", QUICKSTART, "--stall", "off", "--stall-fails"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("leave out one of them"), "{}", stderr(&done));
}
