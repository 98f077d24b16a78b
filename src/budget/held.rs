//! What a stage without calls keeps.

use std::sync::Arc;

use super::{Account, Budget};

/// What a stage without calls keeps, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    of: Option<(Arc<Budget>, Arc<Account>)>,
    bytes: u64,
}

impl Held {
    pub(crate) fn nothing(of: Option<(Arc<Budget>, Arc<Account>)>) -> Self {
        Held { of, bytes: 0 }
    }

    /// From now on it is so many.
    pub(crate) fn set(&mut self, bytes: u64) {
        let Some((budget, account)) = &self.of else {
            return;
        };
        let before = std::mem::replace(&mut self.bytes, bytes);
        if before != bytes {
            budget.keeps(account, before, bytes);
        }
        match bytes.checked_sub(before) {
            Some(0) => {}
            Some(more) => budget.add(more),
            None => budget.give(before - bytes),
        }
    }

    /// So many of them count elsewhere from now on.
    pub(crate) fn hand_over(&mut self, bytes: u64) {
        if let Some((budget, account)) = &self.of {
            let before = self.bytes;
            self.bytes -= bytes.min(before);
            budget.keeps(account, before, self.bytes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
