//! Whether an operator's items can be given to a call a second time, as `retry` needs: what is known of
//! it before any stage is made.

use super::catalog::{Catalog, Operator};
use super::problem::Problem;
use super::tree::{Key, Node};

impl Catalog {
    /// The items of the operator added last can be tried again: its stages are made with
    /// [`Staged::retryable`](crate::work::Staged::retryable). Of an operator that does not say so, it is
    /// told when the pipeline is built.
    pub fn retryable(mut self) -> Self {
        if let Some(form) = self.form_added_last() {
            form.retries = Some(true);
        }
        self
    }

    /// No other items than those of operators that said so can be tried again.
    pub(super) fn others_are_not_retryable(mut self) -> Self {
        for form in self.all_forms() {
            form.retries.get_or_insert(false);
        }
        self
    }
}

impl Operator {
    /// Whether it is known that its items can't be tried again.
    pub(super) fn never_retries(&self) -> bool {
        self.forms.iter().all(|form| form.retries == Some(false))
    }
}

/// A `retry` among the runtime keys of an operator that never tries again.
pub(super) fn refused(operator: &Operator, runtime: &[(Key, Node)]) -> Option<Problem> {
    let (key, _) = runtime.iter().find(|(key, _)| key.text == "retry")?;
    let message = format!("`retry` does not apply to `{}`", operator.name);
    Some(Problem::new("forebay::key", message, &key.place, "here").help(
        "its items can't be copied for another try: leave the key out; `on_error` says what one that \
         fails does to the run",
    ))
}
