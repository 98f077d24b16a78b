//! What device stages do to the tensors of a batch. Says what; a device's lane knows how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CudaError;
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

/// A kernel of one's own, which changes the elements of tensors in place.
///
/// Its source is CUDA C++ with an `extern "C" __global__ void` function of that name, whose parameters
/// are the address of the elements, their number as an `unsigned long long`, and the `numbers` as
/// `float`s:
///
/// ```cuda
/// extern "C" __global__ void scale(float *x, unsigned long long n, float by) {
///     unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
///     for (; i < n; i += (unsigned long long)gridDim.x * blockDim.x) x[i] *= by;
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The function's name.
    pub name: String,
    /// CUDA C++, compiled by NVRTC when the stage starts; or PTX.
    pub source: String,
    /// The variables whose tensors it changes. Default: all.
    #[serde(default)]
    pub variables: Vec<String>,
    /// What it is given beside the elements.
    #[serde(default)]
    pub numbers: Vec<f32>,
    /// Threads of a block.
    #[serde(default = "block")]
    #[schemars(range(min = 1, max = 1024))]
    pub block: u32,
}

fn block() -> u32 {
    256
}

impl Kernel {
    /// Refuses what no GPU would run.
    pub(crate) fn check(&self) -> Result<(), CudaError> {
        let wrong = |why: String| Err(CudaError::Kernel { name: self.name.clone(), why });
        if !(1..=1024).contains(&self.block) {
            return wrong(format!("blocks have 1 to 1024 threads, not {}", self.block));
        }
        if self.name.is_empty() || !self.source.contains(&self.name) {
            return wrong("its source has no function of that name".to_owned());
        }
        Ok(())
    }

    /// Whether it changes the tensor of this name.
    pub fn takes(&self, tensor: &str) -> bool {
        self.variables.is_empty() || self.variables.iter().any(|variable| variable == tensor)
    }
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

/// A kernel whose variables no batch has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` is for `{wanted}`, but the batch has {there}")]
pub struct NoVariable {
    kernel: String,
    wanted: String,
    there: String,
}

/// Refuses what no tensor of a batch is for: a kernel's variable, a dimension.
pub(crate) fn applies<'a>(
    how: &Transform,
    specs: impl Iterator<Item = &'a Spec> + Clone,
) -> Result<()> {
    match how {
        Transform::Kernel(kernel) => {
            let missing = |wanted: &&String| !specs.clone().any(|spec| *spec.name == ***wanted);
            match kernel.variables.iter().find(missing) {
                None => Ok(()),
                Some(wanted) => Err(NoVariable {
                    kernel: kernel.name.clone(),
                    wanted: wanted.clone(),
                    there: specs
                        .map(|spec| format!("`{}`", spec.name))
                        .collect::<Vec<_>>()
                        .join(", "),
                }
                .into()),
            }
        }
        Transform::Pick(pick) => Ok(has_dims(pick, specs)?),
        Transform::Normalize(_) | Transform::Cast(_) => Ok(()),
    }
}
