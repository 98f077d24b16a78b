//! Which stages decode for a device: batches that are copied to one take their memory from where it
//! copies by itself, so that nothing is copied between them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::args;
use super::catalog::Catalog;
use super::check::Step;
use super::tree::{Key, Node};
use crate::device::Device;
use crate::fault::Result;

/// The device that the arguments of a stage name; none if it can't be opened, or they can't be read.
pub(super) type CopiesTo =
    Box<dyn Fn(&Key, &Node, Option<&str>) -> Option<Arc<dyn Device>> + Send + Sync>;

impl Catalog {
    /// The operator added last makes batches in memory from [`Context::pool`](super::Context::pool):
    /// where a device copies them, that is memory from which it copies by itself.
    pub fn allocates(mut self) -> Self {
        if let Some(operator) = self.operator_added_last() {
            operator.allocates = true;
        }
        self
    }

    /// The operator added last copies batches to the device that its arguments name: the last one
    /// before it that [allocates](Self::allocates) takes its memory from there.
    pub fn copies_to<A: DeserializeOwned + JsonSchema>(
        mut self,
        device: impl Fn(A) -> Result<Arc<dyn Device>> + Send + Sync + 'static,
    ) -> Self {
        if let Some(operator) = self.operator_added_last() {
            // What is wrong is told where the stage is made.
            operator.copies_to = Some(Box::new(move |key, node, main| {
                device(args::read(key, node, main).ok()?).ok()
            }));
        }
        self
    }
}

/// For each stage the device whose pool its batches come from, where there is one. Keep them until the
/// pipeline is made, so that each is opened once.
pub(super) fn pinned(steps: &[Step], catalog: &Catalog) -> Vec<Option<Arc<dyn Device>>> {
    let mut devices = vec![None; steps.len()];
    // The last stages before each that allocate: one of each branch.
    let mut lasts: Vec<Vec<usize>> = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let last: Vec<_> = step.after.iter().flat_map(|&at| lasts[at].clone()).collect();
        let Some(operator) = catalog.get(&step.key.text) else {
            lasts.push(last);
            continue;
        };
        let device = operator.copies_to.as_ref();
        let device = device.and_then(|device| device(&step.key, &step.node, operator.main));
        // What is between them changes batches where they are.
        if let Some(device) = device.filter(|device| device.host_pool().is_pinned()) {
            last.iter().for_each(|&last| devices[last] = Some(Arc::clone(&device)));
        }
        lasts.push(if operator.allocates { vec![number] } else { last });
    }
    devices
}
