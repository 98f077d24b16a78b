//! Checks again whenever a file changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use console::Term;

use super::Exit;

/// How often files are looked at: soon enough after a save, and next to nothing.
const EVERY: Duration = Duration::from_millis(200);

/// Checks now and after every change of the files that `listed` names, until it is interrupted.
pub(super) fn watch(listed: impl Fn() -> Vec<PathBuf>, check: impl Fn() -> Exit) -> Exit {
    loop {
        let before = stamps(&listed());
        for term in [Term::stdout(), Term::stderr()] {
            if term.is_term()
                && let Err(error) = term.clear_screen()
            {
                tracing::debug!(%error, "the terminal can't be cleared");
            }
        }
        let exit = check();
        if before.is_empty() {
            return exit;
        }
        super::say("watching: ends with Ctrl-C\n");
        while stamps(&listed()) == before {
            std::thread::park_timeout(EVERY);
        }
    }
}

/// What tells a file from a changed one.
type Stamp = (PathBuf, Option<(SystemTime, u64)>);

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &Path| {
        let metadata = file.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(|file| (file.clone(), stamp(file))).collect()
}
