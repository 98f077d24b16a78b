//! How the command talks: in colour or not, more or less of it; and what shells complete.

use std::process::{Command, Output};

fn forebay(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").env_remove("NO_COLOR");
    command.envs(env.iter().copied()).output().expect("started")
}

fn told(args: &[&str], env: &[(&str, &str)]) -> String {
    String::from_utf8(forebay(args, env).stderr).expect("UTF-8")
}

const BROKEN: [&str; 2] = ["check", "pipelines/broken/type-mismatch.yaml"];
const RUN: [&str; 5] = ["run", "quickstart", "--limit", "1", "--no-record"];

#[test]
fn colour_is_for_terminals_or_as_asked_for() {
    let with = |color: &str, env: &[(&str, &str)]| {
        told(&[&BROKEN[..], &["--color", color]].concat(), env).contains('\u{1b}')
    };
    assert!(!with("auto", &[]), "this is no terminal");
    assert!(!with("never", &[]));
    assert!(with("always", &[]) && with("always", &[("NO_COLOR", "1")]));
    let done = forebay(&["run", "quickstart", "--color", "sometimes"], &[]);
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn quiet_tells_only_what_goes_wrong() {
    let loud = told(&["check", "quickstart"], &[]);
    assert!(loud.contains("checked: syntax"), "{loud}");
    assert_eq!(told(&["check", "quickstart", "-q"], &[]), "");
    assert_eq!(told(&[&RUN[..], &["-q"]].concat(), &[("FOREBAY_LOG", "debug")]), "");
    let wrong = told(&[&BROKEN[..], &["--quiet"]].concat(), &[]);
    assert!(wrong.contains("`device.upload` cannot take what `batch` yields"), "{wrong}");
    assert_eq!(forebay(&["check", "-q", "-v"], &[]).status.code(), Some(2));
}

#[test]
fn verbose_tells_more_of_what_happens_inside() {
    let ended = |args: &[&str]| {
        let told = told(&[&RUN[..], &["--no-progress"], args].concat(), &[]);
        told.matches("the stage has ended").count()
    };
    assert_eq!(ended(&[]), 0);
    assert_eq!(ended(&["-vv"]), 6);
}

/// HTTP clients write addresses with users and passwords into their log.
#[test]
fn no_log_has_a_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let serve = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        // The metadata is asked for at least once.
        for stream in listener.incoming().take(1) {
            let mut stream = stream.expect("connected");
            let mut some = [0; 1024];
            while !some.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read(&mut some).expect("read") == 0 {
                    return;
                }
            }
            let none = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(none).expect("written");
        }
    });
    let store = format!("store=http://me:sekret@127.0.0.1:{port}/a?sig=signed");
    for log in ["trace", "hyper_util=trace,reqwest=trace,forebay=debug"] {
        let told = told(&["run", "quickstart", "--set", &store], &[("FOREBAY_LOG", log)]);
        assert!(told.contains("127.0.0.1"), "{told}");
        assert!(!told.contains("sekret") && !told.contains("signed"), "{told}");
    }
    serve.join().expect("served");
}

#[test]
fn shells_complete_operators_and_codes() {
    for shell in ["bash", "zsh", "fish"] {
        let done = forebay(&["completions", shell], &[]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let script = String::from_utf8(done.stdout).expect("UTF-8");
        assert!(script.contains("doctor") && script.contains("stall-fails"), "{shell}");
        for part in ["zarr.windows", "tensor.normalize", "type::mismatch"] {
            // zsh writes a colon with a backslash before it; the script for fish has no values.
            let escaped = part.replace(':', "\\:");
            let found = shell == "fish" || script.contains(part) || script.contains(&escaped);
            assert!(found, "{shell}: {part}");
        }
    }
}

/// Every command says what it is for, and gives an example.
#[test]
fn every_help_has_an_example() {
    let help = |args: &[&str]| {
        let done = forebay(&[args, &["--help"]].concat(), &[]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        String::from_utf8(done.stdout).expect("UTF-8")
    };
    let all = help(&[]);
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    // What does not fit in a line goes on further in.
    let commands = commands.take_while(|line| line.starts_with("  "));
    let commands = commands.filter(|line| !line.starts_with("   "));
    let names: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 18, "{all}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let text = help(&[name]);
        assert!(text.contains(&format!("Example: forebay {name}")), "{text}");
    }
}
