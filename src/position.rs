//! Where the consumer of a run is, from which another run goes on. It knows nothing of workers: what
//! was under way behind the consumer is made again.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::entering::Entry;
use crate::item::{Fingerprint, ItemId};
use crate::pipeline::Node;

/// The version of what a position says.
const VERSION: u32 = 1;

/// The place of a run's consumer behind an item: all that another run needs to go on with the next
/// one. Small, cheap to clone, and the same whatever the workers did.
///
/// ```
/// use forebay::prelude::*;
///
/// let plan = || {
///     Pipeline::from(source::index("numbers", Index::new(1_000_000, |i| i)))
///         .then(flow::shuffle(7))
///         .then(cpu::map("square", |x: u64| Ok::<_, Never>(x * x)))
/// };
/// let mut run = plan().run()?;
/// let first: Vec<_> = run.by_ref().take(300_000).collect::<Result<_, _>>()?;
/// let position = run.position();
/// drop(run);
/// let rest: Vec<_> = plan().resume(&position)?.run()?.collect::<Result<_, _>>()?;
///
/// let whole: Vec<_> = plan().run()?.collect::<Result<_, _>>()?;
/// assert_eq!([first, rest].concat(), whole);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    version: u32,
    pipeline: Arc<str>,
    items: u64,
    fingerprint: u64,
    last: Option<Last>,
    finished: bool,
    stages: Arc<[Decided]>,
}

/// The item of the source that the last item delivered came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Last {
    /// Its position in the source.
    pub(crate) position: u64,
    /// How many items were delivered that came from it.
    pub(crate) items: u64,
}

/// What a stage does to the order of the items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    id: String,
    by: String,
}

impl Position {
    /// Before the first item of a run of `nodes`.
    pub(crate) fn start(pipeline: &str, nodes: &[Node]) -> Self {
        let decided = |node: &Node| Decided { id: node.id.clone(), by: node.decides.clone() };
        Position {
            version: VERSION,
            pipeline: Arc::from(pipeline),
            items: 0,
            fingerprint: Fingerprint::default().value(),
            last: None,
            finished: false,
            stages: nodes.iter().map(decided).collect(),
        }
    }

    /// How many items were delivered, in all runs together.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The order fingerprint of the items delivered, in all runs together.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.into()
    }

    /// Whether there is nothing left to deliver.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The name of the pipeline.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    pub(crate) fn last(&self) -> Option<Last> {
        self.last
    }

    /// Behind the item `id` too, with which the fingerprint is `fingerprint`.
    pub(crate) fn pass(&mut self, id: ItemId, fingerprint: Fingerprint) {
        self.items += 1;
        self.fingerprint = fingerprint.value();
        match &mut self.last {
            Some(last) if last.position == id.position() => last.items += 1,
            last => *last = Some(Last { position: id.position(), items: 1 }),
        }
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Where the source begins in a run that goes on from here.
    pub(crate) fn begin(&self, entry: &Entry) -> u64 {
        match (entry, self.last) {
            (Entry::Next, Some(last)) => last.position + 1,
            (Entry::Last, Some(last)) => last.position,
            _ => 0,
        }
    }

    /// Whether a run of `nodes` has the items that the position tells of.
    pub(crate) fn fits(&self, nodes: &[Node]) -> Result<(), ResumeError> {
        if self.version != VERSION {
            return Err(ResumeError::Version { version: self.version });
        }
        let now = Position::start("", nodes).stages;
        let ids = |stages: &[Decided]| {
            let ids: Vec<_> = stages.iter().map(|stage| &*stage.id).collect();
            ids.join(", ")
        };
        let (then, is) = (ids(&self.stages), ids(&now));
        if then != is {
            return Err(ResumeError::Stages { was: then, is });
        }
        match self.stages.iter().zip(&*now).find(|(then, is)| then.by != is.by) {
            Some((then, is)) => Err(ResumeError::Differs {
                stage: is.id.clone(),
                was: then.by.clone(),
                is: is.by.clone(),
                hint: if is.by.starts_with("rank ") {
                    "; a position is that of one rank of so many: other ranks have their own, and \
                     another number of them starts anew"
                } else {
                    ""
                },
            }),
            None => Ok(()),
        }
    }
}

/// `item 300 of `era5``, or that it is finished.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { items, pipeline, .. } = self;
        match self.finished {
            true => write!(f, "the end of `{pipeline}`, after {items} items"),
            false => write!(f, "item {items} of `{pipeline}`"),
        }
    }
}

/// Why a pipeline can't go on from a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// It was made by another version of this library.
    #[error("the position has the version {version}, and this is version {VERSION}: start anew")]
    Version {
        /// Its version.
        version: u32,
    },
    /// It has other stages.
    #[error(
        "the position is one of another pipeline: its stages were `{was}`, and are `{is}`: go on with \
         the pipeline that it was taken from, or start anew"
    )]
    Stages {
        /// The ids of the stages of the run that the position is of.
        was: String,
        /// Those of the pipeline.
        is: String,
    },
    /// A stage puts the items in another order.
    #[error(
        "the position is one of another order: `{stage}` was `{was}`, and is `{is}`: write what it was, \
         or start anew{hint}"
    )]
    Differs {
        /// The stage's id.
        stage: String,
        /// What it was in the run that the position is of.
        was: String,
        /// What it is.
        is: String,
        /// What else there is to know.
        hint: &'static str,
    },
    /// The order depends on timing.
    #[error("no run of this pipeline goes on where another one was, because `{stage}` {why}")]
    Never {
        /// The stage's id.
        stage: String,
        /// Why not, and what to change.
        why: String,
    },
}
