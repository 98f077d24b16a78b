//! A kernel of one's own: what is said of it, and which tensors it is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CudaError;
use crate::fault::Result;
use crate::item::{DType, Spec};

/// A block has no more threads.
const BLOCK_MAX: u32 = 1024;
/// A grid has no more blocks.
pub(super) const GRID_MAX: u32 = i32::MAX as u32;

/// A kernel of one's own, which changes the elements of tensors in place.
///
/// Its source is CUDA C++ with an `extern "C" __global__ void` function of that name, which takes in
/// this order: the address of the elements (a pointer to `dtype`), their number as an
/// `unsigned long long`, and each of `numbers` as a `float`:
///
/// ```cuda
/// extern "C" __global__ void scale(float *x, unsigned long long n, float by) {
///     unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
///     for (; i < n; i += (unsigned long long)gridDim.x * blockDim.x) x[i] *= by;
/// }
/// ```
///
/// It is compiled, and what it takes is compared, before the first item is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The function's name.
    pub name: String,
    /// CUDA C++, compiled by NVRTC for the GPU at hand; or PTX.
    pub source: String,
    /// The variables whose tensors it changes. Default: all.
    #[serde(default)]
    pub variables: Vec<String>,
    /// The type of elements that it is written for; tensors of another are refused. Default: `f32`.
    #[serde(default = "dtype")]
    pub dtype: DType,
    /// What it is given beside the elements and their number.
    #[serde(default)]
    pub numbers: Vec<f32>,
    /// Threads of a block.
    #[serde(default = "block")]
    #[schemars(range(min = 1, max = 1024))]
    pub block: u32,
    /// Blocks. Default: as many as give each element a thread. With a fixed number a thread must do
    /// every `gridDim.x * blockDim.x`-th element, as above.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub grid: Option<u32>,
}

fn dtype() -> DType {
    DType::F32
}

fn block() -> u32 {
    256
}

/// A tensor that a kernel is not written for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel `{kernel}` is written for {wanted}, but `{tensor}` has elements of type {found}: {}",
    other_dtype(*.wanted, *.found)
)]
pub struct OtherDType {
    /// The kernel.
    pub(crate) kernel: String,
    /// What it is written for.
    pub(crate) wanted: DType,
    /// The tensor.
    pub(crate) tensor: String,
    /// What it has.
    pub(crate) found: DType,
}

/// What to write instead.
pub(crate) fn other_dtype(wanted: DType, found: DType) -> String {
    let said = format!("write `dtype: {found}` if the kernel takes that");
    match wanted.is_float() {
        true => format!("put `device.cast: {wanted}` before it, or {said}"),
        false => format!("{said}, or name the `variables` that it is for"),
    }
}

/// A kernel whose variables no batch has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` is for `{wanted}`, but the batch has {there}")]
pub struct NoVariable {
    kernel: String,
    wanted: String,
    there: String,
}

impl Kernel {
    /// The kernel `name` of `source`, for all variables of type f32, without numbers.
    ///
    /// ```
    /// use forebay::device::Kernel;
    ///
    /// let source = "extern \"C\" __global__ void scale(float *x, unsigned long long n, float by) {}";
    /// let half = Kernel { numbers: vec![0.5], ..Kernel::new("scale", source) };
    /// assert!(half.takes("t2m"));
    /// ```
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Self {
        let (name, source) = (name.into(), source.into());
        let (variables, numbers, grid) = (Vec::new(), Vec::new(), None);
        Kernel { name, source, variables, dtype: dtype(), numbers, block: block(), grid }
    }

    /// The argument that is out of its range, and why.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, String)> {
        if !(1..=BLOCK_MAX).contains(&self.block) {
            let why = format!("blocks have 1 to {BLOCK_MAX} threads, not {}", self.block);
            return Some(("block", why));
        }
        let blocks = self.grid.filter(|blocks| !(1..=GRID_MAX).contains(blocks))?;
        Some(("grid", format!("a grid has 1 to {GRID_MAX} blocks, not {blocks}")))
    }

    /// Refuses what no GPU would run.
    pub(crate) fn check(&self) -> Result<(), CudaError> {
        let wrong = |why: String| Err(CudaError::Kernel { name: self.name.clone(), why });
        if let Some((_, why)) = self.out_of_range() {
            return wrong(why);
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

    /// Refuses variables that no tensor has, and tensors that it is not written for.
    pub(super) fn applies<'a>(&self, specs: impl Iterator<Item = &'a Spec> + Clone) -> Result<()> {
        let missing = |wanted: &&String| !specs.clone().any(|spec| *spec.name == ***wanted);
        if let Some(wanted) = self.variables.iter().find(missing) {
            let there = specs.map(|spec| format!("`{}`", spec.name)).collect::<Vec<_>>().join(", ");
            return Err(
                NoVariable { kernel: self.name.clone(), wanted: wanted.clone(), there }.into()
            );
        }
        for spec in specs.filter(|spec| self.takes(&spec.name)) {
            self.is_for(&spec.name, spec.dtype)?;
        }
        Ok(())
    }

    /// Refuses a tensor with elements of another type.
    pub(crate) fn is_for(&self, tensor: &str, found: DType) -> Result<(), OtherDType> {
        if found == self.dtype {
            return Ok(());
        }
        let (kernel, tensor) = (self.name.clone(), tensor.to_owned());
        Err(OtherDType { kernel, wanted: self.dtype, tensor, found })
    }
}
