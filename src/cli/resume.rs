//! Where `run` begins: at the beginning, or where the checkpoint of the definition says that an earlier
//! run ended.

use super::job::Job;
use super::terminal::{note, say};
use crate::checkpoint::CheckpointError;
use crate::entering::Entry;

/// What is asked for.
#[derive(clap::Args)]
pub(super) struct Begin {
    /// Goes on from the checkpoint that the definition asks for (`run: { checkpoint: ... }`)
    #[arg(long, conflicts_with = "restart")]
    resume: bool,
    /// Starts anew, and overwrites the checkpoint of a run that did not end
    #[arg(long)]
    restart: bool,
}

impl Begin {
    /// The job, where it goes on; `None` if nothing of it is left.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn enter(&self, mut job: Job) -> Result<Option<Job>, String> {
        let Some(checkpoint) = &job.checkpoint else {
            return match (self.resume, self.restart) {
                (false, false) => Ok(Some(job)),
                (resume, _) => Err(format!(
                    "`--{}` is for definitions that say where the place of a run is kept: write \
                     `run: {{ checkpoint: {{ path: run.ckpt }} }}`",
                    if resume { "resume" } else { "restart" }
                )),
            };
        };
        if let Entry::Never { stage, why } = job.pipeline.entry() {
            return Err(format!("no run can go on from a checkpoint, because `{stage}` {why}"));
        }
        let path = checkpoint.path().display().to_string();
        let found = match checkpoint.load() {
            Err(CheckpointError::Damaged { .. } | CheckpointError::Version { .. })
                if self.restart =>
            {
                None
            }
            Err(error @ CheckpointError::Foreign { .. }) => return Err(error.to_string()),
            Err(error) => return Err(format!("{error} with `--restart`")),
            Ok(found) => found.filter(|_| !self.restart),
        };
        let Some(position) = found else {
            if self.resume {
                say(&format!("there is no checkpoint {path} yet: starting at the beginning\n"));
            }
            return Ok(Some(job));
        };
        if !self.resume {
            return match position.items() == 0 || position.is_finished() {
                true => Ok(Some(job)),
                false => Err(format!(
                    "{path} holds the place of a run that did not end, behind {position}: go on from \
                     it with `--resume`, or start anew with `--restart`"
                )),
            };
        }
        let entry = job.pipeline.entry();
        job.pipeline = job
            .pipeline
            .resume(&position)
            .map_err(|error| format!("{path} can't be gone on from: {error} (`--restart`)"))?;
        if position.is_finished() {
            say(&format!("{path} is at {position}: nothing is left; `--restart` starts anew\n"));
            return Ok(None);
        }
        note(&format!("going on behind {position} {entry}\n"));
        Ok(Some(job))
    }
}
