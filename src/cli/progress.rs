//! Shows that something goes on: a line redrawn in place on a terminal, else one every 30 seconds.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::terminal::say;
use crate::running::Handle;
use crate::store::sample;
use crate::trace::line_of;

const REDRAW: Duration = Duration::from_millis(250);
const LINE: Duration = Duration::from_secs(30);

/// Shows a run until it is dropped.
pub(super) struct Progress {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows `run`, which yields `total` items if that is known.
    pub(super) fn show(run: Handle, total: Option<u64>) -> Self {
        let (done, ended) = channel();
        let on_terminal = std::io::stderr().is_terminal();
        let draw = move || {
            let bar = on_terminal.then(|| bar(total));
            let every = if on_terminal { REDRAW } else { LINE };
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let stats = run.stats();
                match &bar {
                    Some(bar) => {
                        bar.set_position(stats.items);
                        bar.set_message(line_of(&stats));
                    }
                    None => say(&format!("{}\n", line_of(&stats))),
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        };
        let thread = std::thread::Builder::new().name("forebay:progress".into()).spawn(draw);
        // Without a thread there is no progress to see, which is no reason not to run.
        Progress { done: Some(done), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::debug!("the progress display panicked");
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{bar:20} {pos}/{len}  {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Makes the sample store, with a bar.
pub(super) fn make_sample(quiet: bool) -> Result<(), String> {
    if sample::is_made() {
        return Ok(());
    }
    if quiet {
        return sample::ensure(sample::NAME, &|_, _| {}).map(drop);
    }
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} chunks");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("making the sample sample://era5 (115 MB, once)");
    let made = sample::ensure(sample::NAME, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    if let Ok(folder) = &made {
        say(&format!("made the sample store sample://era5 in {}\n", folder.display()));
    }
    made.map(drop)
}
