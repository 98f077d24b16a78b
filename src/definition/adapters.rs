//! What to put between two stages that do not fit.

use std::collections::VecDeque;

use super::any::FlowType;
use super::catalog::{Catalog, Takes};

impl Catalog {
    /// The fewest operators that make what `to` takes of `from`, if three are enough.
    pub(super) fn adapters(&self, from: FlowType, to: &[Takes]) -> Option<Vec<&str>> {
        let mut ways = VecDeque::from([(from, Vec::new())]);
        while let Some((at, way)) = ways.pop_front() {
            if to.contains(&Takes::One(at)) {
                return Some(way);
            }
            if way.len() == 3 {
                continue;
            }
            for operator in self.operators() {
                for form in operator.forms.iter().filter(|form| form.takes == Takes::One(at)) {
                    if let Some(yields) = form.yields.filter(|yields| *yields != at) {
                        let mut way: Vec<&str> = way.clone();
                        way.push(&operator.name);
                        ways.push_back((yields, way));
                    }
                }
            }
        }
        None
    }
}
