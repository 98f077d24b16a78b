//! Where a run that goes on from a [`Position`](crate::position::Position) can begin to read: what each
//! stage says of itself, and what follows for the whole of a plan.

use std::fmt;

use crate::options::Ordered;
use crate::pipeline::Node;
use crate::stage::Kind;

/// What a stage says of the items that it makes: where it can be entered in the middle of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entering {
    /// At most one item of each that comes in, in their order: a map, a filter.
    One,
    /// Any number of each that comes in, next to each other and in their order.
    Many,
    /// One of several neighbours, with the id of the first: it can be entered where a group begins.
    Groups,
    /// It can't be entered in the middle: why not, as a phrase that follows its name, and what to
    /// change.
    Beginning(&'static str),
    /// What it sends depends on timing, so that no run repeats another: why, and what to change.
    Never(&'static str),
}

/// How a run of a plan goes on from a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// At once, with the source's item behind that of the last item delivered.
    Next,
    /// At once, with the source's item of the last item delivered: what was delivered of it is made
    /// once more and left out.
    Last,
    /// From the beginning: everything is made once more, and what was delivered is left out.
    Beginning {
        /// The stage that can't be entered.
        stage: String,
        /// Why not, and what to change.
        why: String,
    },
    /// Not at all.
    Never {
        /// The stage whose items depend on timing.
        stage: String,
        /// Why they do, and what to change.
        why: String,
    },
}

/// A stage, as it matters to those that go on.
pub(crate) struct Entered<'a> {
    pub(crate) id: &'a str,
    pub(crate) kind: Kind,
    pub(crate) entering: Entering,
}

/// What calls say that leave as they finish.
const UNORDERED: Entering =
    Entering::Never("sends items as they finish: leave out `ordered: false` (`.unordered()`)");
/// What a source says whose items can't be computed by position.
pub(crate) const STREAM: Entering = Entering::Beginning(
    "does not compute its items by position, as `source::list`, `source::index` and `zarr::windows` do",
);

impl Entering {
    /// The same of a stage whose calls leave as `ordered` says.
    pub(crate) fn ordered(self, ordered: Option<Ordered>) -> Self {
        if ordered == Some(Ordered::No) { UNORDERED } else { self }
    }
}

impl Entry {
    /// How a run of the stages that are not computed by position goes on.
    pub(crate) fn through<'a>(stages: impl IntoIterator<Item = Entered<'a>>) -> Self {
        let (mut entry, mut beginning, mut many) = (Entry::Next, None, None);
        for Entered { id, entering, .. } in stages {
            let stage = id.to_owned();
            match entering {
                Entering::One => {}
                Entering::Many => {
                    entry = Entry::Last;
                    many.get_or_insert(stage);
                }
                Entering::Groups => {
                    entry = Entry::Last;
                    // A group that begins in the middle of them can't be found again.
                    if let Some(many) = &many {
                        let why = format!(
                            "groups what `{many}` makes of one item: put it before `{many}`, or \
                             leave it out"
                        );
                        beginning.get_or_insert(Entry::Beginning { stage, why });
                    }
                }
                Entering::Beginning(why) => {
                    beginning.get_or_insert(Entry::Beginning { stage, why: why.to_owned() });
                }
                Entering::Never(why) => return Entry::Never { stage, why: why.to_owned() },
            }
        }
        beginning.unwrap_or(entry)
    }

    /// How a run of `nodes` goes on.
    pub(crate) fn of(nodes: &[Node]) -> Self {
        Self::through(streamed(nodes))
    }
}

/// The stages that are not computed by position.
fn streamed(nodes: &[Node]) -> impl Iterator<Item = Entered<'_>> {
    nodes.iter().filter(|node| !node.by_position).map(|node| Entered {
        id: &node.id,
        kind: node.kind,
        entering: node.entering,
    })
}

/// Whether a run that is asked to stop may then send items that an unbroken run would not: groups that
/// are not full, or what a stage kept back.
pub(crate) fn stopping_shows(nodes: &[Node]) -> bool {
    streamed(nodes).any(|stage| {
        stage.kind != Kind::Source && !matches!(stage.entering, Entering::One | Entering::Many)
    })
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Next => f.write_str("at once, with the next item"),
            Entry::Last => f.write_str("at once; the last item is made once more and left out"),
            Entry::Beginning { stage, why } => write!(
                f,
                "from the beginning, leaving out what was delivered, because `{stage}` {why}"
            ),
            Entry::Never { stage, why } => write!(f, "not at all, because `{stage}` {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(stages: &[(&'static str, Entering)]) -> String {
        let stages =
            stages.iter().map(|&(id, entering)| Entered { id, kind: Kind::Flow, entering });
        Entry::through(stages).to_string()
    }

    #[test]
    fn what_a_stage_says_decides_where_a_run_goes_on() {
        use Entering::{Beginning, Groups, Many, Never, One};
        assert_eq!(entry(&[("map", One)]), "at once, with the next item");
        let again = "at once; the last item is made once more and left out";
        assert_eq!(entry(&[("split", Many), ("map", One)]), again);
        assert_eq!(entry(&[("batch", Groups), ("unbatch", Many)]), again);
        let anew = entry(&[("split", Many), ("batch", Groups), ("take", Beginning("counts"))]);
        assert!(anew.contains("`batch` groups what `split` makes of one item"), "{anew}");
        let never = entry(&[("take", Beginning("counts")), ("fetch", Never("is hasty"))]);
        assert_eq!(never, "not at all, because `fetch` is hasty");
    }
}
