//! What a training step takes: named tensors and the windows that they were read from.

use super::Tensor;
use crate::running::Claim;
use crate::store::zarr::Window;
use crate::trace::Receipt;

/// An ordered set of named tensors, whose outermost dimension counts the windows they came from.
#[derive(Debug)]
pub struct Batch {
    tensors: Vec<Tensor>,
    windows: Vec<Window>,
    pub(super) claim: Option<Claim>,
}

impl Batch {
    /// A batch of `tensors`, read from `windows`.
    pub fn new(tensors: Vec<Tensor>, windows: Vec<Window>) -> Self {
        Batch { tensors, windows, claim: None }
    }

    /// The tensors in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensors in order.
    pub fn tensors_mut(&mut self) -> &mut [Tensor] {
        &mut self.tensors
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| &*tensor.spec().name == name)
    }

    /// The windows that it was read from: the n-th is the n-th entry of each tensor.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How many windows it holds.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// What it went through, and what its consumer waited for: when its items entered and left each
    /// stage. Only of a batch that a run has delivered.
    pub fn receipt(&self) -> Option<Receipt> {
        self.claim.as_ref().map(Claim::receipt)
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.spec().bytes()).sum()
    }

    /// Its tensors and windows.
    pub fn into_parts(self) -> (Vec<Tensor>, Vec<Window>) {
        (self.tensors, self.windows)
    }
}
