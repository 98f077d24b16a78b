//! Which stages decode for a device: batches that are copied to one take their memory from where it
//! copies by itself, so that nothing is copied between them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::args;
use super::catalog::Catalog;
use super::check::Step;
use super::flow::Outline;
use super::survey::Surveyor;
use super::tree::{Key, Node};
use crate::device::Device;
use crate::fault::Result;
use crate::item::Pool;

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

/// What a stage's batches are pinned for.
#[derive(Clone)]
pub(super) struct Pinned {
    /// Kept open.
    _device: Arc<dyn Device>,
    /// A ring of the device's pool, for the stage alone.
    pub(super) pool: Pool,
    /// The number of the stage that copies them.
    pub(super) until: usize,
}

/// For each stage the device whose pool its batches come from, where there is one. Keep them until the
/// pipeline is made, so that each is opened once.
pub(super) fn pinned(steps: &[Step], catalog: &Catalog) -> Vec<Option<Pinned>> {
    let mut all: Vec<Option<Pinned>> = vec![None; steps.len()];
    // The last stages before each that allocate: one of each branch.
    let mut lasts: Vec<Vec<usize>> = Vec::with_capacity(steps.len());
    for (until, step) in steps.iter().enumerate() {
        let last: Vec<_> = step.after.iter().flat_map(|&at| lasts[at].clone()).collect();
        let operator = catalog.get(&step.key.text).expect("checked against this catalogue");
        let device = operator.copies_to.as_ref();
        let device = device.and_then(|device| device(&step.key, &step.node, operator.main));
        // What is between them changes batches where they are.
        if let Some(device) = device.filter(|device| device.host_pool().is_pinned()) {
            for &last in &last {
                let pool = device.host_pool().ring(1);
                all[last].get_or_insert(Pinned { _device: Arc::clone(&device), pool, until });
            }
        }
        lasts.push(if operator.allocates { vec![until] } else { last });
    }
    all
}

/// How much memory a stage's batches need until they are copied.
pub(super) struct Ring {
    items: u64,
    /// Bytes of the tensors of each, as far as they are known.
    bytes: Option<Vec<u64>>,
}

impl Ring {
    /// That of the stage `of`, whose batches are copied by the stage `until`.
    pub(super) fn of(of: usize, until: usize, surveyor: &Surveyor<'_>) -> Self {
        let tensors = surveyor.flow(of).tensors;
        let bytes = tensors.and_then(|tensors| tensors.iter().map(Outline::bytes).collect());
        Ring { items: surveyor.held(of, until), bytes }
    }
}

impl Pinned {
    /// Pins memory before there are batches: all that they need, where it is known what they hold, and
    /// otherwise all buffers of a size when there is first need of it.
    pub(super) fn pin(&self, ring: &Ring) -> Result<()> {
        match &ring.bytes {
            Some(bytes) => self.pool.reserve(ring.items, bytes),
            None => {
                self.pool.needs(ring.items);
                Ok(())
            }
        }
    }
}
