//! `top`: shows a run that goes on in another process, and changes its workers.

mod bars;
mod client;
mod columns;
mod draw;
mod model;
mod recent;
mod screen;
#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;
use std::time::Duration;

use self::client::Client;
use super::Exit;
use super::terminal::{out_json, say};
use crate::definition::duration;
use crate::trace::control::folder::{Socket, refused, sockets};
use crate::trace::control::protocol::{Request, What};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run: its pipeline's name, or the number of its process; may be left out if there is one
    run: Option<String>,
    /// Prints the figures so far as JSON instead of showing them
    #[arg(long)]
    once: bool,
    /// How often the figures are taken
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if (Duration::from_millis(50)..=Duration::from_secs(60)).contains(&interval) {
        Ok(interval)
    } else {
        Err("write a time from 50ms to 60s".to_owned())
    }
}

pub(super) fn top(args: &Args) -> Exit {
    let mut client = match chosen(args.run.as_deref()) {
        Ok(client) => client,
        Err(why) => {
            say(&format!("error: {why}\n"));
            return Exit::Wrong;
        }
    };
    if args.once {
        return match client.ask(&Request::Get(What::Stats)) {
            Ok(answer) => {
                out_json(&answer);
                Exit::Done
            }
            Err(error) => {
                say(&format!("error: the run does not answer: {error}\n"));
                Exit::Failed
            }
        };
    }
    if !std::io::stdout().is_terminal() {
        say("error: `forebay top` draws on a terminal: `forebay top --once` prints JSON\n");
        return Exit::Wrong;
    }
    match screen::show(client, args.interval) {
        Ok(told) => {
            say(&told);
            Exit::Done
        }
        Err(error) => {
            say(&format!("error: the terminal can't be used: {error}\n"));
            Exit::Failed
        }
    }
}

/// The run that is meant.
fn chosen(wanted: Option<&str>) -> Result<Client, String> {
    let (mut runs, mut silent) = (Vec::new(), Vec::new());
    for Socket { pid, path } in sockets() {
        match Client::connect(&path) {
            Ok(client) => runs.push((pid, client)),
            Err(error) if is_silence(&error) => silent.push(pid),
            // One that has just ended is none.
            Err(_) => {}
        }
    }
    if let Some(pid) = silent.iter().find(|pid| wanted == Some(&pid.to_string())) {
        return Err(silence(*pid));
    }
    let is_meant = |pid: u32, client: &Client| {
        wanted.is_none_or(|wanted| wanted == client.name() || wanted == pid.to_string())
    };
    let all = listed(&runs);
    runs.retain(|(pid, client)| is_meant(*pid, client));
    match (runs.len(), wanted) {
        (1, _) => Ok(runs.remove(0).1),
        (0, _) if all.is_empty() && !silent.is_empty() => {
            Err(silent.into_iter().map(silence).collect::<Vec<_>>().join("\n"))
        }
        (0, _) if all.is_empty() => Err(nothing_to_look_at()),
        (0, Some(wanted)) => Err(format!("no run is `{wanted}`; these go on:\n{all}")),
        _ => Err(format!(
            "several runs go on: say which, by the number of its process\n{}",
            listed(&runs)
        )),
    }
}

fn nothing_to_look_at() -> String {
    let mut lines = vec![
        "no run goes on that this user could look at: start one with `forebay run PIPELINE`, or in \
         Rust with `forebay::trace::serve`"
            .to_owned(),
    ];
    lines.extend(refused().into_iter().map(|why| format!("not looked into: {why}")));
    lines.join("\n")
}

/// Whether nobody answered in time, as when the process is stopped.
fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn silence(pid: u32) -> String {
    format!(
        "run {pid} does not answer: its process may be stopped (`kill -CONT {pid}` lets it go on), or \
         the machine is too busy"
    )
}

fn listed(runs: &[(u32, Client)]) -> String {
    let lines = runs.iter().map(|(pid, client)| format!("  {pid:>8}  {}\n", client.name()));
    lines.collect::<String>().trim_end().to_owned()
}
