//! Gives tensors other names.

use std::collections::{BTreeMap, BTreeSet};

use crate::item::Batch;

/// Tensors that can't be renamed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenameError {
    /// No tensor has the old name.
    #[error("no tensor is called `{0}`")]
    NoTensor(String),
    /// Two tensors would have one name.
    #[error("two tensors would be called `{0}`")]
    Taken(String),
}

/// Gives the tensors of a batch the names that `names` says by their old ones, and changes nothing
/// else: for a cpu stage, `cpu::map("rename", ops::rename(names))`.
pub fn rename(
    names: BTreeMap<String, String>,
) -> impl Fn(Batch) -> Result<Batch, RenameError> + Send + Sync {
    move |batch| {
        let old: Vec<&str> = batch.tensors().iter().map(|tensor| &*tensor.spec().name).collect();
        let new = renamed(&names, &old)?;
        let (tensors, windows) = batch.into_parts();
        let named = tensors.into_iter().zip(new).map(|(tensor, name)| tensor.named(&name));
        Ok(Batch::new(named.collect(), windows))
    }
}

/// The new names of tensors that are called `old`.
pub(crate) fn renamed(
    names: &BTreeMap<String, String>,
    old: &[&str],
) -> Result<Vec<String>, RenameError> {
    if let Some(name) = names.keys().find(|name| !old.contains(&name.as_str())) {
        return Err(RenameError::NoTensor(name.clone()));
    }
    let new = old.iter().map(|old| names.get(*old).map_or_else(|| (*old).to_owned(), Clone::clone));
    let new: Vec<_> = new.collect();
    let mut taken = BTreeSet::new();
    match new.iter().find(|name| !taken.insert(name.as_str())) {
        Some(name) => Err(RenameError::Taken(name.clone())),
        None => Ok(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_exchanged_but_not_shared() {
        let names = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect()
        };
        let exchanged = renamed(&names(&[("a", "b"), ("b", "a")]), &["a", "b", "c"]);
        assert_eq!(exchanged.expect("three names"), ["b", "a", "c"]);
        let taken = renamed(&names(&[("a", "c")]), &["a", "c"]);
        assert_eq!(taken, Err(RenameError::Taken("c".to_owned())));
        let missing = renamed(&names(&[("x", "y")]), &["a"]);
        assert_eq!(missing, Err(RenameError::NoTensor("x".to_owned())));
    }
}
