//! A pipeline that a command runs to its end into a counting sink.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::terminal::say;
use super::{Exit, assignment, assignments, files, progress};
use crate::checkpoint::Checkpoint;
use crate::definition::{AnyPipeline, Case, Catalog, Definition, Pools, Problems, Set};
use crate::fault::Fault;
use crate::position::Position;
use crate::running::Handle;
use crate::trace::{Delivered, RunRecord, RunReport, RunStats};

/// Which pipeline.
#[derive(Clone, clap::Args)]
pub(super) struct Which {
    /// The definition: a file, or a name in pipelines/
    file: PathBuf,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Stops after so many items (batches, if the pipeline makes batches)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
}

/// A pipeline that is ready to run.
pub(super) struct Job {
    pub(super) pipeline: AnyPipeline,
    /// Where its place is kept, by those who go on from there.
    pub(super) checkpoint: Option<Checkpoint>,
    limit: Option<u64>,
    pools: Pools,
    seed: u64,
    text: String,
}

/// What became of it.
pub(super) struct Ended {
    pub(super) stats: RunStats,
    pub(super) delivered: Delivered,
    pub(super) fault: Option<Fault>,
    pub(super) record: RunRecord,
    pub(super) handle: Handle,
    /// Where it was kept, and whether it could be written.
    pub(super) kept: Option<(PathBuf, Position, io::Result<()>)>,
}

/// What the consumer does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Consumer {
    /// It takes so long for each item.
    pub(super) step: Option<Duration>,
    /// It leaves after so long.
    pub(super) leaves: Option<Duration>,
    /// Whether it keeps its place, if the definition says where.
    pub(super) keeps: bool,
}

impl Which {
    /// The definition's file.
    pub(super) fn file(&self) -> PathBuf {
        files::find(&self.file)
    }

    /// Reads, checks and builds it, with `more` values.
    pub(super) fn prepare(
        &self,
        catalog: &Catalog,
        more: &Set,
        quiet: bool,
    ) -> Result<Job, Problems> {
        let mut set = assignments(&self.set);
        set.extend(more.clone());
        Job::of(Definition::load(&self.file(), catalog, &set)?, self.limit, catalog, quiet)
    }
}

impl Job {
    /// Reads, checks and builds the definition in `file` as a case has it; it says nothing.
    pub(super) fn of_case(file: &Path, case: &Case, catalog: &Catalog) -> Result<Job, Problems> {
        let definition = Definition::load(file, catalog, &case.set())?;
        let definition = match &case.given {
            Some(items) => definition.given(items)?,
            None => definition,
        };
        Job::of(definition, case.limit.map(|limit| limit.get()), catalog, true)
    }

    /// Builds `definition`; it stops after `limit` items.
    fn of(
        definition: Definition,
        limit: Option<u64>,
        catalog: &Catalog,
        quiet: bool,
    ) -> Result<Job, Problems> {
        progress::make_sample_for(&definition, quiet);
        let built = definition.build(catalog)?;
        let pools = built.pools().clone();
        let pipeline = built.pipeline;
        let checkpoint = definition.checkpoint().cloned();
        let (seed, text) = (definition.seed(), definition.text_without_secrets());
        Ok(Job { pipeline, checkpoint, limit, pools, seed, text })
    }

    /// Items that it yields, if that is known.
    fn total(&self) -> Option<u64> {
        let known = self.pipeline.len_known();
        known.map(|items| items.min(self.limit.unwrap_or(items))).or(self.limit)
    }

    /// The pipeline, which ends after as many items as were asked for.
    pub(super) fn limited(self) -> AnyPipeline {
        ending(self.pipeline, self.limit)
    }

    /// Runs it. `watch` is given the run's handle before the first item; what it gives back lives as
    /// long as the run.
    pub(super) fn run<W>(
        self,
        consumer: Consumer,
        watch: impl FnOnce(Handle, Option<u64>) -> W,
    ) -> Result<Ended, Exit> {
        let (started, total) = (SystemTime::now(), self.total());
        let wrong = |error: String| {
            say(&format!("error: {error}\n"));
            Exit::Wrong
        };
        let checkpoint = self.checkpoint.filter(|_| consumer.keeps);
        // A place is that of the whole pipeline, so that another run can have another limit.
        let (limit, mut left) = match checkpoint {
            None => (self.limit, u64::MAX),
            Some(_) => (None, self.limit.unwrap_or(u64::MAX)),
        };
        let mut run =
            ending(self.pipeline, limit).run().map_err(|error| wrong(error.to_string()))?;
        let keep = |checkpoint: &Checkpoint| checkpoint.keep(&run.position());
        let mut keeper = match checkpoint.as_ref().map(keep).transpose() {
            Ok(keeper) => keeper,
            Err(error) => {
                let path = checkpoint.as_ref().map_or(Path::new(""), Checkpoint::path);
                return Err(wrong(format!("{} can't be written: {error}", path.display())));
            }
        };
        let handle = run.handle();
        let watching = watch(handle.clone(), total);
        let mut delivered = Delivered::default();
        let mut fault = None;
        let deadline = consumer.leaves.map(|time| Instant::now() + time);
        while let Some(item) = run.next() {
            match item {
                Ok(item) => {
                    delivered.items += item.items;
                    delivered.batches += item.batches;
                    left -= 1;
                    if let Some(keeper) = &mut keeper
                        && let Err(error) = keeper.reached(&run.position())
                    {
                        say(&format!("warning: the checkpoint can't be written: {error}\n"));
                    }
                }
                Err(error) => fault = Some(error),
            }
            if let Some(step) = consumer.step {
                // A consumer is what is imitated here.
                std::thread::park_timeout(step);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            if left == 0 {
                run.leave();
                break;
            }
        }
        let kept = keeper.zip(checkpoint).map(|(keeper, checkpoint)| {
            let position = run.position();
            let written = keeper.end(&position);
            (checkpoint.path().to_owned(), position, written)
        });
        // A stalled call may never end: what is left of it is not waited for.
        let stalled =
            fault.as_ref().is_some_and(|f: &Fault| f.kind() == crate::fault::FaultKind::Stall);
        let stats = if stalled {
            drop(run);
            handle.stats()
        } else {
            run.close()
        };
        drop(watching);
        let error = fault.as_ref().map(Fault::to_string);
        let report = RunReport::new(&stats, delivered, self.pools.stats(), error);
        let mut record = RunRecord::new(report, handle.series(), started);
        (record.seed, record.definition) = (Some(self.seed), Some(self.text));
        Ok(Ended { stats, delivered, fault, record, handle, kept })
    }
}

/// The pipeline, which ends after `limit` items.
fn ending(pipeline: AnyPipeline, limit: Option<u64>) -> AnyPipeline {
    match limit {
        Some(limit) => pipeline.take(limit),
        None => pipeline,
    }
}
