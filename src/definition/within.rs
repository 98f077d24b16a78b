//! Whether what a run can take keeps within the memory that it may take.

use super::problem::Problem;
use super::survey::{Edge, Surveyor};
use super::tree::Place;
use crate::stage::Kind;
use crate::trace;

impl Surveyor<'_> {
    /// Refuses what can take more memory than the run may.
    pub(super) fn within(&mut self, memory: Option<u64>, most: u64, place: &Place) {
        let shown = |bytes: u64| trace::bytes(bytes as f64);
        match memory {
            Some(memory) if memory > most => {
                let floor = self.floor();
                let problem = match floor > most {
                    true => {
                        let message = format!(
                            "the run needs {} of host memory at once, but it may take {}",
                            shown(floor),
                            shown(most)
                        );
                        Problem::new("forebay::memory", message, place, "this is too little")
                    }
                    false => {
                        let message = format!(
                            "workers and buffers have room for {} of host memory, but the run may take {}",
                            shown(memory),
                            shown(most)
                        );
                        let label = "it is held to this: calls will wait for memory";
                        Problem::new("forebay::lint::memory", message, place, label).warning()
                    }
                };
                let most_of_all = (self.edges.iter().enumerate())
                    .max_by_key(|(_, edge)| edge.memory)
                    .map(|(at, edge)| (edge, &self.checked.steps[at].key.place));
                self.problems.push(match most_of_all {
                    Some((edge, at)) => problem
                        .and(at, format!("takes {} of it", shown(edge.memory.unwrap_or(0))))
                        .help(lower(edge)),
                    None => problem,
                });
            }
            Some(_) => {}
            None => {
                let unknown = self.edges.iter().position(|edge| edge.memory.is_none());
                let message = "how much memory the run needs is not known before it runs";
                let problem =
                    Problem::new("forebay::lint::memory", message, place, "asked for here");
                self.problems.push(match unknown {
                    Some(at) => problem
                        .and(
                            &self.checked.steps[at].key.place,
                            "how large its items are is not known",
                        )
                        .help(
                            "a store elsewhere is looked at with `--online`; an operator of your \
                             own says it with `.flows(...)`",
                        )
                        .warning(),
                    None => problem.warning(),
                });
            }
        }
    }
}

impl Surveyor<'_> {
    /// Bytes that the run needs at once at least: what its stages keep, and an item of each.
    fn floor(&self) -> u64 {
        let items = self.edges.iter().filter(|edge| !edge.flow.by_position && !edge.flow.on_device);
        let bytes = items.filter_map(|edge| edge.flow.bytes);
        bytes.fold(self.kept, u64::saturating_add)
    }
}

/// What to write so that a stage takes less.
fn lower(edge: &Edge) -> String {
    let each = edge.flow.bytes.unwrap_or(0);
    let of = format!("its items have {} each", trace::bytes(each as f64));
    if edge.kind == Kind::Source {
        return "lower its `cache`, which may keep chunks for later windows".to_owned();
    }
    let keys = match edge.kind.makes_calls() {
        true => "`workers`, `ordered: { window: ... }` or `buffer: { items: ... }`",
        false => "`buffer: { items: ... }`",
    };
    format!("lower the {keys} of `{}`, or the batch: {of}", edge.id)
}
