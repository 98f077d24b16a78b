//! Follows a run's consumer: its [`Position`], and what it had before in the run that this one goes on
//! from, which is made again and left out.

use crate::entering::{Entry, stopping_shows};
use crate::fault::Fault;
use crate::item::{Fingerprint, ItemId};
use crate::pipeline::Node;
use crate::position::Position;

/// Where a run's consumer is.
#[derive(Debug)]
pub(crate) struct Tracker {
    position: Position,
    again: Again,
    /// Whether items that are sent after the run was asked to stop may be others than those of an
    /// unbroken run.
    stopping_shows: bool,
    /// Whether such items were delivered: the position stays before them.
    stands: bool,
}

/// What comes once more.
#[derive(Debug)]
enum Again {
    Nothing,
    /// So many items that came from a position of the source.
    Of(u64, u64),
    /// So many items from the beginning, and their fingerprint so far.
    First(u64, Fingerprint),
}

/// What came is not what was there before.
#[derive(Debug, thiserror::Error)]
#[error(
    "what the earlier run delivered does not come again{at}: the data has changed, a call failed that \
     did not before, or a stage depends on more than its items; start anew"
)]
struct Changed {
    at: String,
}

impl Tracker {
    /// The consumer of a run of `nodes`, behind `position`.
    pub(crate) fn new(position: Position, nodes: &[Node], entry: &Entry) -> Self {
        let again = match (entry, position.last()) {
            (Entry::Last, Some(last)) => Again::Of(last.position, last.items),
            (Entry::Beginning { .. }, Some(_)) => {
                Again::First(position.items(), Fingerprint::default())
            }
            _ => Again::Nothing,
        };
        Tracker { position, again, stopping_shows: stopping_shows(nodes), stands: false }
    }

    pub(crate) fn position(&self) -> &Position {
        &self.position
    }

    /// Whether the item `id`, which comes next, was delivered before.
    pub(crate) fn had(&mut self, id: ItemId) -> Result<bool, Fault> {
        match &mut self.again {
            Again::Nothing => Ok(false),
            Again::Of(position, left) => {
                if id.position() != *position {
                    let at = format!(" (item {} came, and not {position})", id.position());
                    return Err(changed(at));
                }
                *left -= 1;
                if *left == 0 {
                    self.again = Again::Nothing;
                }
                Ok(true)
            }
            Again::First(left, fingerprint) => {
                fingerprint.push(id);
                *left -= 1;
                if *left == 0 {
                    let (is, was) = (*fingerprint, self.position.fingerprint());
                    if is != was {
                        return Err(changed(format!(" (its fingerprint is {is}, and was {was})")));
                    }
                    self.again = Again::Nothing;
                }
                Ok(true)
            }
        }
    }

    /// The item `id` was delivered, with which the fingerprint is `fingerprint`.
    pub(crate) fn delivered(&mut self, id: ItemId, fingerprint: Fingerprint, stopping: bool) {
        self.stands |= stopping && self.stopping_shows;
        if !self.stands {
            self.position.pass(id, fingerprint);
        }
    }

    /// The items have ended; a failure if something of what was there before did not come.
    pub(crate) fn ended(&mut self) -> Result<(), Fault> {
        match self.again {
            Again::Nothing => {
                self.position.finish();
                Ok(())
            }
            Again::Of(_, left) | Again::First(left, _) => {
                Err(changed(format!(" ({left} of its items are missing)")))
            }
        }
    }
}

fn changed(at: String) -> Fault {
    Fault::error(Box::new(Changed { at })).at("resume")
}
