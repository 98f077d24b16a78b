//! What passes over the windows of a definition's sources will cost.

use super::any::{AnyPipeline, FlowType};
use super::check::Step;
use super::problem::Problem;
use super::{Catalog, Definition, Pools, Problems};
use crate::source::Index;
use crate::store::zarr::{self, Encoded, Plan, Window, ZarrError};

/// What one pass over the windows of a source costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// The source's name, if it has one.
    pub source: Option<String>,
    /// What it costs.
    pub plan: Plan,
}

impl Definition {
    /// What one pass over the windows of each of its sources will cost, computed without reading data:
    /// opens the stores and reads their metadata.
    ///
    /// # Errors
    /// A stage that can't be made, or nothing to plan: no stage fetches windows that are computed by
    /// position.
    pub fn plan(&self, catalog: &Catalog) -> Result<Vec<Planned>, Problems> {
        let pools = Pools::new();
        let mut planned = Vec::new();
        let mut made = Vec::<Option<AnyPipeline>>::new();
        for step in &self.checked.steps {
            let before: Vec<_> =
                step.after.iter().filter_map(|after| made[*after].take()).collect();
            // What is behind a fetch changes nothing about it.
            let pipeline = if before.len() < step.after.len() {
                None
            } else if step.yields == FlowType::of::<Encoded>() && !before.is_empty() {
                planned.push(self.planned(step, before)?);
                None
            } else {
                Some(self.step(step, before, catalog, &pools)?)
            };
            made.push(pipeline);
        }
        let first = &self.checked.steps[0];
        match planned.is_empty() {
            true => Err(self.not_planned(
                first,
                "no stage fetches windows",
                "a plan is made for `zarr.fetch`",
            )),
            false => Ok(planned),
        }
    }

    /// What the fetch at `step` costs, of what comes before it.
    fn planned(&self, step: &Step, before: Vec<AnyPipeline>) -> Result<Planned, Problems> {
        let index = before.into_iter().next().and_then(windows).ok_or_else(|| {
            self.not_planned(
                step,
                "what comes before it is a stream, whose windows are not known",
                "put stages that need a stream, such as `shuffle: 1000`, behind it",
            )
        })?;
        let plan = zarr::plan(&index).map_err(|error: ZarrError| {
            self.not_planned(step, &format!("the plan failed: {error}"), "is the store readable?")
        })?;
        Ok(Planned { source: step.of.clone(), plan })
    }

    fn not_planned(&self, step: &Step, message: &str, help: &str) -> Problems {
        let problem = Problem::new("forebay::plan", message, &step.key.place, "here").help(help);
        Problems::new(&self.file, &self.text, vec![problem])
    }
}

/// Groups of windows by position, if that is what the pipeline yields.
fn windows(pipeline: AnyPipeline) -> Option<Index<Vec<Window>>> {
    match pipeline.downcast::<Vec<Window>>() {
        Ok(pipeline) => pipeline.index().cloned(),
        Err(pipeline) => {
            let index = pipeline.downcast::<Window>().ok()?.index()?.clone();
            Some(Index::new(index.len(), move |i| vec![index.get(i)]))
        }
    }
}
