//! What a run notes beside its figures: skipped items, and stages that hold the I/O runtime.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use super::Engine;
use crate::fault::Fault;

impl Engine {
    /// Appends a line about a skipped item to a log file.
    pub(crate) fn log_skipped(&self, path: &Path, fault: &Fault) -> io::Result<()> {
        let line = serde_json::json!({
            "stage": fault.stage(),
            "item": fault.item().map(|id| id.to_string()),
            "name": fault.item_name(),
            "attempts": fault.attempts(),
            "error": fault.cause(),
        });
        let mut logs = self.skip_logs.lock();
        let file = match logs.get_mut(path) {
            Some(file) => file,
            None => {
                let file = File::options().create(true).append(true).open(path)?;
                logs.entry(path.to_owned()).or_insert(file)
            }
        };
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Says once by name which io stage computes on the I/O runtime.
    pub(crate) fn report_held(&self, stage: &str, held: Duration) {
        let mut reported = self.held.lock();
        let first = !reported.contains_key(stage);
        let longest = reported.entry(stage.to_owned()).or_default();
        *longest = (*longest).max(held);
        if first {
            tracing::warn!(
                target: "forebay::stage",
                stage,
                held_ms = held.as_millis() as u64,
                "an io stage computed without awaiting and kept the I/O runtime waiting: \
                 move the work to a cpu stage"
            );
        }
    }

    /// The stages that computed on the I/O runtime, and for how long at most.
    pub(crate) fn held(&self) -> BTreeMap<String, Duration> {
        self.held.lock().clone()
    }
}
