//! `top` and the control socket: a run in another process is looked at and changed while it goes on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Where the runs of one test are: others do not see them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().expect("a folder"))
    }

    fn sockets(&self) -> PathBuf {
        self.0.path().join("sockets")
    }

    fn forebay(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(args).env_remove("FOREBAY_LOG").env("FOREBAY_SOCKETS", self.sockets());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn top(&self, args: &[&str]) -> Output {
        self.forebay(&[&["top"], args].concat()).output().expect("started")
    }

    /// The quickstart, held to a few batches a second; returns once it can be reached.
    fn run(&self, name: &str, more: &[&str]) -> Run {
        let text = std::fs::read_to_string("pipelines/quickstart.yaml").expect("it is there");
        let file = self.0.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text.replace("name: quickstart", &format!("name: {name}")))
            .expect("written");
        let file = file.to_str().expect("UTF-8");
        let slow = ["run", file, "--set", "epochs=1000", "--set", "fetch.rate=20/s"];
        let child = self.forebay(&[&slow, more].concat()).spawn().expect("started");
        let socket = self.sockets().join(format!("{}.sock", child.id()));
        let run = Run { child: Some(child), socket };
        until("it can be reached", || {
            UnixStream::connect(&run.socket).is_ok() && run.figures()["items"].as_u64() > Some(0)
        });
        run
    }
}

struct Run {
    child: Option<Child>,
    socket: PathBuf,
}

impl Run {
    fn id(&self) -> String {
        self.child.as_ref().expect("it goes on").id().to_string()
    }

    fn figures(&self) -> Value {
        ask(&self.socket, &json!({ "get": "stats" }))["stats"].clone()
    }

    fn stage(&self, id: &str) -> Value {
        let figures = self.figures();
        let stages = figures["stages"].as_array().expect("stages");
        stages.iter().find(|stage| stage["id"] == id).expect("the stage").clone()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.id()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Cancels it: the first interrupt alone lets it finish what is under way.
    fn end(mut self) -> Output {
        self.signal("INT");
        // Two at once would be one.
        std::thread::park_timeout(Duration::from_millis(500));
        self.signal("INT");
        let child = self.child.take().expect("it goes on");
        child.wait_with_output().expect("ended")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

fn connect(socket: &Path) -> BufReader<UnixStream> {
    let socket = UnixStream::connect(socket).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    BufReader::new(socket)
}

fn line(socket: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    socket.read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

fn ask(socket: &Path, request: &Value) -> Value {
    let mut socket = connect(socket);
    writeln!(socket.get_mut(), "{request}").expect("sent");
    line(&mut socket)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        pause(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "tests poll for a state with a deadline")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_run_is_seen_and_its_workers_are_changed() {
    let place = Place::new();
    let run = place.run("era5", &[]);
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(run.socket.parent().expect("a folder")), 0o700);
    // By name, by number, and by itself.
    for which in [vec![], vec!["era5".to_owned()], vec![run.id()]] {
        let args: Vec<_> = ["--once"].into_iter().chain(which.iter().map(String::as_str)).collect();
        let seen = place.top(&args);
        assert_eq!(seen.status.code(), Some(0), "{}", told(&seen));
        let json: Value = serde_json::from_slice(&seen.stdout).expect("JSON");
        assert_eq!((&json["version"], &json["run"]), (&1.into(), &"era5".into()));
        assert_eq!(json["pid"].to_string(), run.id());
        assert_eq!(json["stats"]["schema"], 1);
        assert_eq!(json["stats"]["stages"].as_array().expect("stages").len(), 5);
    }
    for workers in [1, 5, 2, 32] {
        let before = run.stage("fetch")["workers_set"].clone();
        let set = json!({ "set": { "stage": "fetch", "workers": workers } });
        let answer = ask(&run.socket, &set);
        let done = json!({ "stage": "fetch", "workers": workers, "before": before });
        assert_eq!(answer["set"], done, "{answer}");
        until("they are as many", || run.stage("fetch")["workers"] == workers);
    }
    // What is wrong is told.
    let error = |stage: &str, workers: usize| {
        let set = json!({ "set": { "stage": stage, "workers": workers } });
        ask(&run.socket, &set)["error"].as_str().expect("an error").to_owned()
    };
    assert!(error("fetsh", 2).contains("did you mean `fetch`?"), "{}", error("fetsh", 2));
    assert!(error("windows", 2).contains("makes no calls"));
    assert!(error("fetch", 0).contains("give it 1 or more"));
    assert!(error("fetch", 65).contains("provides for 64 at most"), "{}", error("fetch", 65));
    let waits = ask(&run.socket, &json!({ "get": "waits" }));
    assert!(waits["waits"][0].as_str().is_some_and(|first| first.starts_with("you ")), "{waits}");
    // Who is connected hears of the end.
    let mut listener = connect(&run.socket);
    writeln!(listener.get_mut(), "{{\"get\":\"stats\"}}").expect("sent");
    assert!(line(&mut listener)["stats"]["ended"].is_null());
    let socket = run.socket.clone();
    assert_eq!(run.end().status.code(), Some(130));
    let last = line(&mut listener);
    assert_eq!((&last["last"], &last["stats"]["ended"]), (&true.into(), &"cancelled".into()));
    assert!(!socket.exists(), "it is removed");
}

#[test]
fn several_runs_are_told_apart_and_none_is_explained() {
    let place = Place::new();
    let none = place.top(&["--once"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(told(&none).contains("`forebay run PIPELINE`"), "{}", told(&none));
    let (first, second) = (place.run("first", &[]), place.run("second", &[]));
    let several = place.top(&[]);
    assert_eq!(several.status.code(), Some(2));
    for part in ["say which", &first.id(), &second.id(), "  first", "  second"] {
        assert!(told(&several).contains(part), "{part} in {}", told(&several));
    }
    let wrong = place.top(&["third"]);
    assert!(told(&wrong).contains("no run is `third`") && told(&wrong).contains("second"));
    let seen = place.top(&["second", "--once"]);
    let json: Value = serde_json::from_slice(&seen.stdout).expect("JSON");
    assert_eq!(json["pid"].to_string(), second.id());
    // A run that was killed leaves its socket; who lists the runs removes it.
    let left = first.socket.clone();
    first.signal("KILL");
    drop(first);
    assert!(left.exists());
    let seen = place.top(&["--once"]);
    assert_eq!(seen.status.code(), Some(0), "the only one: {}", told(&seen));
    assert!(!left.exists());
    let without = place.top(&[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(told(&without).contains("--once"), "{}", told(&without));
    let wrong = place.top(&["--interval", "1h"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_run_that_does_not_answer_is_told() {
    let place = Place::new();
    let run = place.run("stopped", &[]);
    run.signal("STOP");
    for args in [&["--once"][..], &[&run.id(), "--once"]] {
        let silent = place.top(args);
        assert_eq!(silent.status.code(), Some(2));
        let says = format!("run {} does not answer", run.id());
        assert!(told(&silent).contains(&says), "{}", told(&silent));
    }
    assert!(run.socket.exists());
    run.signal("CONT");
    assert_eq!(place.top(&["--once"]).status.code(), Some(0));
}

#[test]
fn a_folder_that_others_may_enter_is_told() {
    let place = Place::new();
    std::fs::create_dir(place.sockets()).expect("made");
    std::fs::set_permissions(place.sockets(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let told = told(&place.top(&[]));
    assert!(told.contains("no run goes on") && told.contains("`chmod 700` it"), "{told}");
}

/// A pipeline whose fetch never comes to an end, so that only the second signal ends the process.
#[test]
fn a_second_interrupt_removes_the_socket() {
    let place = Place::new();
    let run = place.run("twice", &[]);
    let socket = run.socket.clone();
    run.signal("INT");
    run.signal("INT");
    let done = run.end();
    assert_eq!(done.status.code(), Some(130));
    assert!(!socket.exists());
}

#[test]
fn clients_that_send_nonsense_or_nothing_do_not_hold_up_the_run() {
    let place = Place::new();
    let run = place.run("patient", &[]);
    for nonsense in
        ["", "{}", "hello", "{\"get\":\"secrets\"}", "[[[[", "\u{0}\u{1}", "{\"set\":1}"]
    {
        let mut socket = connect(&run.socket);
        writeln!(socket.get_mut(), "{nonsense}").expect("sent");
        let answer = line(&mut socket);
        assert!(answer["error"].is_string(), "{nonsense}: {answer}");
        // It may ask again.
        writeln!(socket.get_mut(), "{{\"get\":\"stats\"}}").expect("sent");
        assert!(line(&mut socket)["stats"].is_object());
    }
    // A line without end.
    let mut endless = connect(&run.socket);
    _ = endless.get_mut().write_all(&vec![b'x'; 100_000]);
    let mut answer = String::new();
    _ = endless.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.contains("4096 bytes at most"), "{answer}");
    // Some ask and never read, some say nothing, some leave at once.
    let mut silent = Vec::new();
    for _ in 0..8 {
        let mut socket = UnixStream::connect(&run.socket).expect("it listens");
        socket.set_nonblocking(true).expect("set");
        for _ in 0..2000 {
            if socket.write_all(b"{\"get\":\"stats\"}\n").is_err() {
                break;
            }
        }
        silent.push(socket);
        drop(UnixStream::connect(&run.socket).expect("it listens"));
    }
    // Who is one too many is turned away: clients that have just left may still count.
    let items = |run: &Run| loop {
        let mut socket = connect(&run.socket);
        let mut line = String::new();
        let asked = writeln!(socket.get_mut(), "{{\"get\":\"stats\"}}");
        if asked.and_then(|()| socket.read_line(&mut line)).is_ok_and(|read| read > 0) {
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            break answer["stats"]["items"].as_u64().expect("a number");
        }
    };
    let before = items(&run);
    until("items still come", || items(&run) >= before + 3);
    let start = Instant::now();
    assert_eq!(run.end().status.code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(10));
}
