//! `run`: runs a pipeline into a counting sink and reports where its time went.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::interrupt::Interrupted;
use super::job::{Consumer, Ended, Which};
use super::otlp::{Collector, Telemetry};
use super::progress::Progress;
use super::resume::Begin;
use super::terminal::{is_quiet, note, out, out_json, say, tell_problems};
use super::{Exit, Format, duration_of, metrics, otlp, outputs, runs};
use crate::definition::{Catalog, Set};
use crate::fault::{Fault, FaultKind};
use crate::pipeline::TraceRule;
use crate::running::Handle;
use crate::trace::{MetricsListener, MetricsServer, report, serve};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    begin: Begin,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Shows no progress
    #[arg(long)]
    no_progress: bool,
    /// Writes a page about the run: an HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Writes a trace of the run's last seconds, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How many seconds the trace covers
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_of)]
    trace_last: Duration,
    /// Says what the run waits for when nothing has moved for so long (10s); `off` never does
    #[arg(long, value_name = "TIME", value_parser = stall_after)]
    stall: Option<Stall>,
    /// Also ends a run that stalls
    #[arg(long)]
    stall_fails: bool,
    /// Does not keep the run in .forebay/runs
    #[arg(long)]
    no_record: bool,
    /// Serves the figures to Prometheus at http://ADDR/metrics while it runs: a port (9090) for this
    /// machine alone, or 0.0.0.0:9090; port 0 picks one
    #[arg(long, value_name = "ADDR", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Sends spans and figures to an OpenTelemetry collector over HTTP, such as http://localhost:4318
    /// (with the feature `otlp`)
    #[arg(long, value_name = "URL", value_parser = otlp::collector)]
    otlp: Option<Collector>,
}

impl Args {
    /// What sends spans, if that is wanted.
    pub(super) fn telemetry(&self) -> Option<Telemetry> {
        let telemetry = Telemetry::to(self.otlp.as_ref()?);
        telemetry.inspect_err(|error| say(&format!("warning: nothing is sent: {error}\n"))).ok()
    }
}

pub(super) fn run(args: &Args, catalog: &Catalog, mut telemetry: Option<Telemetry>) -> Exit {
    let Ok(listener) = args.metrics.map(metrics::listen).transpose() else { return Exit::Wrong };
    let job = match args.which.prepare(catalog, &Set::new(), args.no_progress) {
        Ok(job) => job,
        Err(problems) => {
            tell_problems(&problems, args.format);
            return Exit::Wrong;
        }
    };
    // What can't be written is better known before the run than after it.
    let files = [args.report.as_ref(), args.trace.as_ref()];
    if let Err(error) = outputs::check(&files, Some(&args.which.file())) {
        say(&format!("error: {error}\n"));
        return Exit::Wrong;
    }
    let mut job = match args.begin.enter(job) {
        Ok(Some(job)) => job,
        Ok(None) => return Exit::Done,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    let settings = job.pipeline.settings_mut();
    if let Some(Stall(after)) = args.stall {
        settings.stall.after = after;
    }
    settings.stall.fails |= args.stall_fails;
    if settings.stall.fails && settings.stall.after.is_none() {
        say(
            "error: a run that does not look for stalls (`--stall off`, or `stall: off` in the file) \
             can't fail when it stalls (`--stall-fails`, or `stall_fails: true`): leave out one of them\n",
        );
        return Exit::Wrong;
    }
    let last = args.trace_last;
    settings.trace = args.trace.as_ref().map(|_| TraceRule { last, ..TraceRule::default() });
    let interrupted = Interrupted::default();
    let ended = job.run(Consumer { keeps: true, ..Consumer::default() }, |handle, total| {
        let (to_stop, to_cancel) = (handle.clone(), handle.clone());
        if let Err(error) = interrupted.watch_each([
            Box::new(move || stop(&to_stop)),
            Box::new(move || {
                note("stopping at once\n");
                to_cancel.cancel();
            }),
        ]) {
            tracing::warn!(%error, "Ctrl-C will end the run without a report");
        }
        let metrics = listener.and_then(|listener| serve_metrics(listener, &handle));
        if let Some(telemetry) = &mut telemetry {
            telemetry.send(handle.clone());
        }
        // Others can look at the run and change its workers; one that nobody can reach runs as well.
        let serving = serve(&handle)
            .inspect_err(|error| tracing::info!(%error, "`forebay top` can't reach this run"));
        (
            metrics,
            serving,
            (!args.no_progress && !is_quiet()).then(|| Progress::show(handle, total)),
        )
    });
    if let Some(telemetry) = telemetry {
        telemetry.finish();
    }
    match ended {
        Ok(ended) => tell(args, ended, interrupted.exit()),
        Err(exit) => exit,
    }
}

/// Stops the sources of `run`, and says how much is still to come.
fn stop(run: &Handle) {
    run.stop();
    let waiting: usize = run.stats().stages.iter().map(|stage| stage.buffer.items).sum();
    let items = if waiting == 1 { "1 item".to_owned() } else { format!("{waiting} items") };
    note(&format!(
        "stopping: {items} and the calls under way are finished first; Ctrl-C again stops at once\n"
    ));
}

/// Serves the figures of `run`.
fn serve_metrics(listener: MetricsListener, run: &Handle) -> Option<MetricsServer> {
    match listener.serve(run) {
        Ok(server) => {
            say(&format!("metrics at http://{}/metrics\n", server.addr()));
            Some(server)
        }
        Err(error) => {
            tracing::warn!(%error, "the run goes on without");
            None
        }
    }
}

/// After how long a stall is told, if ever.
#[derive(Clone, Copy, Debug)]
struct Stall(Option<Duration>);

fn stall_after(text: &str) -> Result<Stall, String> {
    match text {
        "off" => Ok(Stall(None)),
        time => match duration_of(time)? {
            Duration::ZERO => Err("it is no time at all: write `10s`, or `off`".to_owned()),
            time => Ok(Stall(Some(time))),
        },
    }
}

fn tell(args: &Args, ended: Ended, interrupted: Option<Exit>) -> Exit {
    let Ended { stats, delivered, fault, mut record, handle, kept: place } = ended;
    let failed = fault.filter(|fault| fault.kind() != FaultKind::Cancelled);
    if failed.is_none() {
        // It was asked to end, which is no failure.
        record.report.error = None;
    }
    let kept = if args.no_record { Ok(None) } else { runs::keep(&mut record).map(Some) };
    match args.format {
        Format::Text => out(&report(&stats, delivered)),
        Format::Json => out_json(&record.report),
    }
    let quiet = args.format == Format::Json;
    match kept {
        Ok(Some(_)) if !quiet && !args.no_progress => {
            note(&format!("kept as {}: forebay report {0}\n", record.run))
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the run could not be kept in .forebay/runs"),
    }
    let mut exit = Exit::Done;
    let mut wrote = |file: &Path, what: &str, written: io::Result<()>| match written {
        Ok(()) if quiet => {}
        Ok(()) => note(&format!("{what}: {}\n", file.display())),
        Err(error) => {
            say(&format!("error: {} can't be written: {error}\n", file.display()));
            exit = Exit::Failed;
        }
    };
    if let Some(file) = &args.report {
        wrote(file, "report", outputs::write(file, record.to_html().as_bytes()));
    }
    if let Some(file) = &args.trace {
        wrote(file, "trace", outputs::write_with(file, |to| handle.write_trace(to)));
    }
    if let Some((file, position, written)) = place {
        let what = if position.is_finished() { "checkpoint" } else { "checkpoint, for --resume" };
        wrote(&file, what, written);
    }
    // Also what fails while it is being finished is a failure.
    if let Some(fault) = failed {
        say_fault(&fault);
        return Exit::Failed;
    }
    if let Some(interrupted) = interrupted {
        note("interrupted\n");
        return interrupted;
    }
    if exit == Exit::Done && stats.skipped > 0 { Exit::Skipped } else { exit }
}

fn say_fault(fault: &Fault) {
    say(&format!("error: {fault}\n"));
    let mut told = fault.to_string();
    let mut cause = std::error::Error::source(fault);
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            say(&format!("  because: {text}\n"));
            told += &text;
        }
        cause = error.source();
    }
}
