//! What a training step takes: named tensors and the windows that they were read from.

use super::Tensor;
use crate::running::Claim;
use crate::store::zarr::Window;
use crate::trace::Receipt;

/// Batches that can't be made one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BesideError {
    /// They have different numbers of windows.
    #[error("a batch of {0} can't stand beside one of {1}: give all branches batches of one size")]
    Lengths(usize, usize),
    /// Two tensors have one name.
    #[error("two tensors are called `{0}`: rename one of them")]
    Name(String),
}

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

    /// The tensors of all `batches` in one, with the windows of the first.
    ///
    /// # Errors
    /// They have different numbers of windows, or two tensors have one name.
    pub fn beside(batches: Vec<Batch>) -> Result<Batch, BesideError> {
        let mut all = batches.into_iter();
        let (mut tensors, windows) = all.next().map(Batch::into_parts).unwrap_or_default();
        for (more, of) in all.map(Batch::into_parts) {
            if of.len() != windows.len() {
                return Err(BesideError::Lengths(windows.len(), of.len()));
            }
            let is_there =
                |tensor: &Tensor| tensors.iter().any(|t| t.spec().name == tensor.spec().name);
            if let Some(tensor) = more.iter().find(|tensor| is_there(tensor)) {
                return Err(BesideError::Name(tensor.spec().name.to_string()));
            }
            tensors.extend(more);
        }
        Ok(Batch::new(tensors, windows))
    }

    /// Its tensors and windows.
    pub fn into_parts(self) -> (Vec<Tensor>, Vec<Window>) {
        (self.tensors, self.windows)
    }
}
