//! What an item keeps so that it can tell what it went through.

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::item::ItemId;
use crate::trace::Receipt;

/// What it takes to make a [`Receipt`]: it is made when it is asked for.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(super) engine: Arc<Engine>,
    pub(super) id: ItemId,
    pub(super) wait: (u64, u64),
}

impl Claim {
    pub(crate) fn receipt(&self) -> Receipt {
        self.engine.receipt(self.id, self.wait)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.id)
    }
}
