//! Windows: coordinates to read, enumerated by xbatcher's rules, computed by position.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::cache::Ticket;
use super::dataset::Dataset;
use super::error::ZarrError;
use super::spec::WindowsSpec;
use crate::item::{DType, Label, Spec};
use crate::source::{self, Index, Indexed};
use crate::store::Store;

/// A source of the windows of `spec`, computed by position: it costs nothing to shuffle them, to
/// skip to any of them or to group them.
///
/// # Errors
/// The store or its metadata can't be read, or the windows do not fit the variables.
pub fn windows(store: &Store, spec: &WindowsSpec) -> Result<Indexed<Window>, ZarrError> {
    let dataset = Arc::new(Dataset::open(store, spec)?);
    let (len, of) = (dataset.windows(), Arc::clone(&dataset));
    let window = move |i| {
        let number = dataset.number(i);
        let ticket = dataset.announce(number).map(Arc::new);
        Window { ticket, dataset: Arc::clone(&dataset), number }
    };
    Ok(source::index("windows", Index::new(len, window).grouped_by(move || of.groups())))
}

/// Coordinates to read: one window into the variables of a dataset. Cheap to clone.
#[derive(Clone)]
pub struct Window {
    pub(super) dataset: Arc<Dataset>,
    pub(super) number: u64,
    /// Says that it will want its chunks, until they are decoded.
    pub(super) ticket: Option<Arc<Ticket>>,
}

impl Window {
    /// Which of the dataset's windows it is.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it begins and ends along each dimension that is cut, in entries. Of a dimension that
    /// wraps around, it may end behind the last one.
    pub fn ranges(&self) -> impl Iterator<Item = (&str, Range<u64>)> {
        self.dataset.ranges(self.number).map(|(dim, range)| (&**dim, range))
    }

    /// The tensors that it becomes, by name, with their types.
    pub fn variables(&self) -> impl Iterator<Item = (&str, DType)> {
        self.dataset.dtypes()
    }

    /// The variable that the tensor `tensor` is cut from: `t2m` for `target/t2m`.
    pub fn variable(&self, tensor: &str) -> Option<&str> {
        Some(&*self.dataset.variable(tensor)?.name)
    }

    /// The tensors that it becomes if it shares them with no other window.
    pub fn specs(&self) -> Vec<Spec> {
        let starts = self.dataset.starts(self.number);
        self.dataset.cuts.iter().map(|cut| self.dataset.spec(cut, &starts, 1)).collect()
    }

    /// Bytes that its encoded chunks have at most.
    pub(crate) fn encoded_max(&self) -> u64 {
        self.dataset.encoded_max()
    }

    /// Bytes of chunks that are kept for other windows, at most.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.dataset.cache.as_ref().map_or(0, |cache| cache.budget())
    }

    /// An attribute of the variable that the tensor `tensor` is cut from.
    pub fn attribute(&self, tensor: &str, name: &str) -> Option<&Value> {
        self.dataset.variable(tensor)?.attributes.get(name)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({})", self.label())
    }
}

impl Label for Window {
    fn label(&self) -> String {
        let ranges: Vec<_> = self
            .ranges()
            .map(|(dim, range)| match range.end - range.start {
                1 => format!("{dim} {}", range.start),
                _ => format!("{dim} {}..{}", range.start, range.end),
            })
            .collect();
        if ranges.is_empty() { "the whole store".to_owned() } else { ranges.join(", ") }
    }
}

impl Label for Vec<Window> {
    fn label(&self) -> String {
        label_of(self)
    }
}

/// What people call a group of windows.
pub(crate) fn label_of(windows: &[Window]) -> String {
    match windows {
        [] => "no window".to_owned(),
        [one] => one.label(),
        [first, .., last] => format!("{} to {}", first.label(), last.label()),
    }
}
