//! Which stages decode for a device: those whose batches `device.upload` copies take their memory from
//! where the device copies by itself, so that nothing is copied between them.

use super::catalog::Catalog;
use super::check::Step;
use super::tree::Value;
use crate::device;
use crate::item::Pool;

/// The operator that copies to a device.
const UPLOAD: &str = "device.upload";

/// For each stage the pool that its batches come from, where that is a device's.
pub(super) fn pinned(steps: &[Step], catalog: &Catalog) -> Vec<Option<Pool>> {
    let mut pools = vec![None; steps.len()];
    for (upload, step) in steps.iter().enumerate().filter(|(_, step)| step.key.text == UPLOAD) {
        let allocates = |step: &Step| catalog.get(&step.key.text).is_some_and(|op| op.allocates);
        // What is between them changes batches where they are.
        let Some(last) = steps[..upload].iter().rposition(allocates) else { continue };
        // One that can't be opened is an error where the upload is made.
        let Ok(device) = device::named(device_of(step)) else { continue };
        let pool = device.host_pool();
        if pool.is_pinned() {
            pools[last] = Some(pool.clone());
        }
    }
    pools
}

fn device_of(step: &Step) -> &str {
    let named = step.node.get("device").unwrap_or(&step.node);
    match &named.value {
        Value::Text(name) => name,
        _ => "auto",
    }
}
