//! Runs of the command line that end before their time and go on: the whole is that of an unbroken run.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;
use serde_json::Value;

/// Windows in an order of their own, in groups of a stream: one of them is made once more.
const PIPELINE: &str = "\
version: 1
name: train
vars:
  path: { type: path, default: train.ckpt }
  rate: { type: text, default: 1000/s }
  every: { type: time, default: 1ms }
  seed: { type: int, default: 3 }
run: { seed: $(seed), checkpoint: { path: $(path), every: $(every) } }
stages:
  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }
    buffer: 1
  - shuffle:
  - repeat: 2
  - zarr.fetch:
    rate: $(rate)
    workers: 2
    buffer: 1
  - zarr.decode:
    buffer: 1
";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().expect("a folder"));
        std::fs::write(place.0.path().join("train.yaml"), PIPELINE).expect("written");
        place
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["run", "train.yaml", "--no-record", "--format", "json"]).args(args);
        command.current_dir(&self.0).env_remove("FOREBAY_LOG").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("started")
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("train.ckpt")
    }

    fn position(&self) -> Option<Position> {
        Checkpoint::new(self.path()).load().expect("whole")
    }

    /// Ends a run that waits much for its source once it has delivered `items`, and gives what it
    /// said.
    fn broken(&self, items: u64, signal: &str) -> Output {
        let run = self.command(&["--set", "rate=20/s"]).spawn().expect("started");
        let start = Instant::now();
        while self.position().is_none_or(|position| position.items() < items) {
            assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for a checkpoint");
            pause();
        }
        kill(&run, signal);
        run.wait_with_output().expect("ended")
    }
}

#[expect(clippy::disallowed_methods, reason = "tests poll for a state with a deadline")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

fn kill(run: &Child, signal: &str) {
    let killed = Command::new("kill").args(["-s", signal, &run.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", stderr(output)))
}

/// The fingerprint of an unbroken run, which leaves the checkpoint of one that finished.
fn whole() -> (Value, u64) {
    let place = Place::new();
    let done = place.run(&[]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let report = json(&done);
    let items = report["items"].as_u64().expect("a number");
    assert!(place.position().is_some_and(|position| position.is_finished()));
    (report["fingerprint"].clone(), items)
}

/// Signals that can be handled: nothing is lost and nothing comes twice.
#[test]
fn a_run_that_was_interrupted_goes_on_and_has_the_whole_sequence() {
    let (fingerprint, items) = whole();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        let broken = place.broken(3, signal);
        assert_eq!(broken.status.code(), Some(code), "{}", stderr(&broken));
        let had = json(&broken)["items"].as_u64().expect("a number");
        assert_eq!(place.position().map(|position| position.items()), Some(had));
        assert!((3..items).contains(&had), "{had} of {items}");

        let refused = place.run(&[]);
        assert_eq!(refused.status.code(), Some(2));
        let said = stderr(&refused);
        assert!(
            said.contains("go on from it with `--resume`, or start anew with `--restart`"),
            "{said}"
        );

        let rest = place.run(&["--resume"]);
        assert_eq!(rest.status.code(), Some(0), "{}", stderr(&rest));
        let report = json(&rest);
        assert_eq!(report["fingerprint"], fingerprint);
        assert_eq!((&report["before"], &report["items"]), (&had.into(), &(items - had).into()));
        // The source computes no earlier item.
        assert_eq!(report["read"], items - had);

        let nothing = place.run(&["--resume"]);
        assert_eq!(nothing.status.code(), Some(0));
        assert!(stderr(&nothing).contains("nothing is left"), "{}", stderr(&nothing));
    }
}

/// A process that is killed writes no more: what came after the last checkpoint comes again.
#[test]
fn a_run_that_was_killed_goes_on_from_its_last_checkpoint() {
    let (fingerprint, items) = whole();
    let place = Place::new();
    place.broken(4, "KILL");
    let kept = place.position().expect("a checkpoint").items();
    let report = json(&place.run(&["--resume"]));
    assert_eq!(report["fingerprint"], fingerprint);
    assert_eq!((&report["before"], &report["items"]), (&kept.into(), &(items - kept).into()));
}

/// `--limit` is of the run, not of the sequence: each goes a little further.
#[test]
fn runs_with_a_limit_go_on_bit_by_bit() {
    let (fingerprint, items) = whole();
    let place = Place::new();
    let first = place.run(&["--limit", "5", "--resume"]);
    assert!(stderr(&first).contains("there is no checkpoint train.ckpt yet"), "{}", stderr(&first));
    assert_eq!((&json(&first)["items"], &json(&first)["ended"]), (&5.into(), &"finished".into()));
    let mut had = 5;
    while had < items {
        let report = json(&place.run(&["--limit", "9", "--resume"]));
        assert_eq!(report["before"], had);
        had += report["items"].as_u64().expect("a number");
        assert_eq!(place.position().expect("kept").items(), had);
    }
    let position = place.position().expect("kept");
    assert_eq!(Value::from(position.fingerprint().to_string()), fingerprint);
    assert!(position.items() == items);
}

#[test]
fn restart_begins_anew_and_a_finished_run_may_be_run_again() {
    let place = Place::new();
    place.run(&["--limit", "5"]);
    let again = place.run(&["--restart", "--limit", "2"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!((&json(&again)["before"], &json(&again)["items"]), (&0.into(), &2.into()));
    assert_eq!(place.position().expect("kept").items(), 2);
    assert_eq!(place.run(&["--restart"]).status.code(), Some(0));
    assert_eq!(place.run(&[]).status.code(), Some(0), "the one before has ended");
}

#[test]
fn a_run_that_failed_goes_on_with_what_failed() {
    let (fingerprint, items) = whole();
    let place = Place::new();
    let store = place.0.path().join("mine.zarr");
    let copy = "version: 1\nstages:\n  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }\n  - zarr.fetch:\n  - zarr.decode:\n  - zarr.write: { store: mine.zarr }\n";
    std::fs::write(place.0.path().join("copy.yaml"), copy).expect("written");
    let mut command = place.command(&[]);
    let copied = command.output().expect("started");
    assert_eq!(copied.status.code(), Some(0));
    let copied = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["run", "copy.yaml", "--no-record"])
        .current_dir(&place.0)
        .output()
        .expect("started");
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    let text = PIPELINE.replace("sample://era5", "mine.zarr");
    std::fs::write(place.0.path().join("train.yaml"), text).expect("written");
    let chunk = store.join("t2m/c/9/0/0");
    let good = std::fs::read(&chunk).expect("a chunk");
    std::fs::write(&chunk, "broken").expect("written");
    let failed = place.run(&["--restart"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    let had = json(&failed)["items"].as_u64().expect("a number");
    assert_eq!(place.position().map(|position| position.items()), Some(had));
    std::fs::write(&chunk, good).expect("written");
    let report = json(&place.run(&["--resume"]));
    assert_eq!(report["fingerprint"], fingerprint);
    assert_eq!(report["items"], items - had);
}

#[test]
fn what_cannot_be_gone_on_from_is_told() {
    let place = Place::new();
    place.run(&["--limit", "5"]);
    let refused = |args: &[&str], part: &str| {
        let output = place.run(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    };
    let kept = std::fs::read(place.path()).expect("kept");
    refused(&["--resume", "--set", "seed=4"], "another order: `shuffle` was `seed ");
    refused(&["--resume", "--restart"], "cannot be used with");
    std::fs::write(place.path(), &kept[..kept.len() / 2]).expect("written");
    refused(&["--resume"], "is damaged");
    refused(&[], "start anew with `--restart`");
    let foreign = "version: 1\n";
    std::fs::write(place.path(), foreign).expect("written");
    refused(&["--restart"], "is no checkpoint: name another file, this one is left as it is");
    assert_eq!(std::fs::read(place.path()).expect("there"), foreign.as_bytes());
    refused(&["--restart", "--set", "path=train.yaml/x"], "can't be read");
    let plain = PIPELINE.replace(", checkpoint: { path: $(path), every: $(every) }", "");
    let plain = plain.replace("  path: { type: path, default: train.ckpt }\n", "");
    let plain = plain.replace("  every: { type: time, default: 1ms }\n", "");
    std::fs::write(place.0.path().join("train.yaml"), plain).expect("written");
    refused(&["--resume"], "write `run: { checkpoint: { path: run.ckpt } }`");
}

/// What `check` says is what the pipeline that is built says.
#[test]
fn check_says_how_a_run_will_go_on() {
    let head = "version: 1\nrun: { checkpoint: { path: a.ckpt } }\nstages:\n  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }\n";
    let read = "  - zarr.fetch:\n  - zarr.decode:\n";
    for (stages, says) in [
        (format!("  - shuffle:\n  - batch: 4\n{read}"), "at once, with the next item"),
        (format!("  - shuffle: 8\n{read}  - take: 3\n"), "because `take` counts a stream"),
        (format!("{read}  - shuffle: 8\n"), "because `shuffle` mixes a stream: put it before"),
        (format!("{read}  - zarr.write: {{ store: memory://out }}\n"), "because `write` may hold"),
    ] {
        let catalog = Catalog::builtin();
        let text = format!("{head}{stages}");
        let definition = Definition::parse("a.yaml", &text, &catalog, &Set::new());
        let definition = definition.unwrap_or_else(|problems| panic!("{problems}"));
        let entry = definition.survey(&catalog, true).expect("fits").entry.expect("known");
        assert!(entry.to_string().contains(says), "{entry}");
        assert_eq!(entry, definition.build(&catalog).expect("built").pipeline.entry());
    }
    let place = Place::new();
    let checked = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["check", "train.yaml"])
        .current_dir(&place.0)
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(
        text.contains("kept in train.ckpt; a run goes on at once, with the next item"),
        "{text}"
    );
    assert!(!Path::new("train.ckpt").exists());
}
