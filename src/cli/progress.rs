//! Shows that something goes on: on a terminal a table redrawn in place, else a line every 30 seconds.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::terminal::{self, has_color, is_quiet, note, say};
use crate::definition::Definition;
use crate::running::Handle;
use crate::store::sample;
use crate::trace::{RunStats, line_of, live};

const REDRAW: Duration = Duration::from_millis(250);
const LINE: Duration = Duration::from_secs(30);
/// Rates and shares are of so many redraws.
const RECENT: usize = 12;

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
            let mut table = on_terminal.then(|| Table::new(total));
            let every = if on_terminal { REDRAW } else { LINE };
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let stats = run.stats();
                match &mut table {
                    Some(table) => table.draw(stats),
                    None => say(&format!("{}\n", line_of(&stats))),
                }
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

/// The table of a run, drawn over itself. What is said meanwhile scrolls above it.
struct Table {
    screen: MultiProgress,
    lines: Vec<ProgressBar>,
    total: Option<u64>,
    recent: VecDeque<RunStats>,
}

impl Table {
    fn new(total: Option<u64>) -> Self {
        let screen = MultiProgress::new();
        terminal::share(Some(screen.clone()));
        Table { screen, lines: Vec::new(), total, recent: VecDeque::new() }
    }

    fn draw(&mut self, stats: RunStats) {
        // The whole run as long as it is short.
        let recent = self.recent.front().map_or_else(|| stats.clone(), |first| stats.since(first));
        let lines = live(&stats, &recent, self.total, has_color());
        for (n, line) in lines.into_iter().enumerate() {
            if n == self.lines.len() {
                let style = ProgressStyle::with_template("{wide_msg}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
                let bar = ProgressBar::new_spinner().with_style(style);
                self.lines.push(self.screen.add(bar));
            }
            self.lines[n].set_message(line);
            self.lines[n].tick();
        }
        self.recent.push_back(stats);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        terminal::share(None);
        if let Err(error) = self.screen.clear() {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
}

/// Makes the sample store if the definition reads it and it is not there, with a bar.
pub(super) fn make_sample_for(definition: &Definition, quiet: bool) {
    if definition.mentions(&format!("sample://{}", sample::NAME))
        && let Err(error) = make_sample(quiet)
    {
        // The stage that opens the sample says so too, with its place.
        tracing::debug!(error, "no sample");
    }
}

fn make_sample(quiet: bool) -> Result<(), String> {
    if sample::is_made() {
        return Ok(());
    }
    if quiet || is_quiet() {
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
        note(&format!("made the sample store sample://era5 in {}\n", folder.display()));
    }
    made.map(drop)
}
