//! What device stages do to the tensors of a batch. Says what; a device's lane knows how.

use super::Kernel;
use crate::fault::Result;
use crate::item::{DType, Spec};
use crate::ops::{Pick, Stats, has_dims};

/// What a device stage does to a batch.
#[derive(Clone, Debug)]
pub enum Transform {
    /// Brings each variable to mean 0 and deviation 1.
    Normalize(Stats),
    /// Casts all variables to a type of floating point.
    Cast(DType),
    /// Cuts a box out, or turns dimensions around.
    Pick(Pick),
    /// Runs somebody's own kernel.
    Kernel(Kernel),
}

/// A batch whose memory is not where the stage works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{tensor}` is not on {device}: put `device.upload` before this stage")]
pub struct NotHere {
    /// What is elsewhere.
    pub tensor: Spec,
    /// Where it should be.
    pub device: String,
}

/// Refuses what no tensor of a batch is for: a kernel's variable, a dimension.
pub(crate) fn applies<'a>(
    how: &Transform,
    specs: impl Iterator<Item = &'a Spec> + Clone,
) -> Result<()> {
    match how {
        Transform::Kernel(kernel) => kernel.applies(specs),
        Transform::Pick(pick) => Ok(has_dims(pick, specs)?),
        Transform::Normalize(_) | Transform::Cast(_) => Ok(()),
    }
}
