//! Writing to the two streams. A reader that has gone away is no error of ours.

use std::io::{IsTerminal as _, Write as _};

use crate::definition::Problems;

/// Data, on stdout.
pub(super) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        tracing::debug!(%error, "stdout is gone");
    }
}

/// Talk, on stderr.
pub(super) fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    if let Err(error) = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()) {
        tracing::debug!(%error, "stderr is gone");
    }
}

/// Whether stderr shows colors and is wanted to.
pub(super) fn has_color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A JSON value, on stdout.
pub(super) fn out_json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => out(&format!("{text}\n")),
        Err(error) => say(&format!("error: {error}\n")),
    }
}

/// Problems of a definition, on stderr.
pub(super) fn say_problems(problems: &Problems) {
    say(&problems.render(has_color(), 100));
    let n = problems.len();
    say(&format!("{n} {}\n", if n == 1 { "problem" } else { "problems" }));
}
