//! Writing to the two streams. A reader that has gone away is no error of ours.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use indicatif::MultiProgress;
use parking_lot::Mutex;

use super::Format;
use crate::definition::Problems;

/// Data, on stdout.
pub(super) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            OUT_FAILED.store(true, Relaxed);
            say(&format!("error: stdout can't be written: {error}\n"));
        }
        // A reader that has gone away wants no more.
        Ok(()) | Err(_) => {}
    }
}

static OUT_FAILED: AtomicBool = AtomicBool::new(false);

/// Whether data was lost that somebody may wait for.
pub(super) fn out_failed() -> bool {
    OUT_FAILED.load(Relaxed)
}

/// Talk, on stderr.
pub(super) fn say(text: &str) {
    if let Err(error) = Talk.write_all(text.as_bytes()) {
        tracing::debug!(%error, "stderr is gone");
    }
}

/// The display that stderr shows, if there is one: what is said goes above it.
static SCREEN: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// From now on what is said goes above `screen`.
pub(super) fn share(screen: Option<MultiProgress>) {
    *SCREEN.lock() = screen;
}

/// Writes to stderr, above what is displayed there.
pub(super) struct Talk;

impl io::Write for Talk {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let write = || {
            let mut stderr = io::stderr().lock();
            stderr.write_all(text).and_then(|()| stderr.flush()).map(|()| text.len())
        };
        let screen = SCREEN.lock().clone();
        match screen {
            Some(screen) => screen.suspend(write),
            None => write(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static OUT_COLOR: AtomicBool = AtomicBool::new(false);
static COLOR: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on there is colour on stdout, on stderr, and notes are not told; or not.
pub(super) fn adopt(out_color: bool, color: bool, quiet: bool) {
    OUT_COLOR.store(out_color, Relaxed);
    COLOR.store(color, Relaxed);
    QUIET.store(quiet, Relaxed);
}

/// Whether there is colour on stderr.
pub(super) fn has_color() -> bool {
    COLOR.load(Relaxed)
}

/// Whether there is colour on stdout.
pub(super) fn out_has_color() -> bool {
    OUT_COLOR.load(Relaxed)
}

/// Whether only what goes wrong is to be told.
pub(super) fn is_quiet() -> bool {
    QUIET.load(Relaxed)
}

/// Talk that nobody misses who asked for quiet.
pub(super) fn note(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// A JSON value, on stdout.
pub(super) fn out_json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => out(&format!("{text}\n")),
        Err(error) => say(&format!("error: {error}\n")),
    }
}

/// Problems of a definition, to whoever reads the result: on stdout as JSON, else on stderr.
pub(super) fn tell_problems(problems: &Problems, format: Format) {
    match format {
        Format::Text => say_problems(problems),
        Format::Json => {
            out_json(&serde_json::json!({ "schema": 1, "errors": problems.to_json() }));
        }
    }
}

/// Problems of a definition, on stderr.
pub(super) fn say_problems(problems: &Problems) {
    say(&problems.render(has_color(), 100));
    let n = problems.len();
    let noun = if n == 1 { "problem" } else { "problems" };
    let first = problems.codes().next().unwrap_or_default();
    say(&format!("{n} {noun}; for more: forebay explain {first}\n"));
}
