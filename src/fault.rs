//! What went wrong: the first failure of a run, with the stage and the item it happened on.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::item::ItemId;
use crate::trace::Stall;

/// Any error, as stages return it.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The result of a call; its error is kept as it is, see [`Fault::downcast_ref`].
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// A failure: which stage, which item, and why.
///
/// Displayed as ``stage `decode` failed on item 41 (t2m/c/41/0/0): unexpected end of data``.
/// [`source`](Error::source) is the error that the stage's own code returned. Cloning is cheap.
#[derive(Clone)]
pub struct Fault(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    stage: Arc<str>,
    item: Option<ItemId>,
    name: Option<String>,
    attempts: u32,
    cause: Cause,
    note: Option<String>,
}

#[derive(Clone)]
enum Cause {
    Error(Arc<BoxError>),
    Panic(String),
    Timeout(Duration),
    Cancelled,
    Stall(String),
}

/// What kind of failure a [`Fault`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The stage's code returned an error.
    Error,
    /// The stage's code panicked.
    Panic,
    /// A call took longer than the stage's `timeout`.
    Timeout,
    /// The run was cancelled by its handle while the consumer waited.
    Cancelled,
    /// Nothing moved for as long as the run's settings allow.
    Stall,
}

impl Fault {
    fn new(cause: Cause) -> Self {
        Fault(Arc::new(Inner {
            stage: Arc::from(""),
            item: None,
            name: None,
            attempts: 1,
            cause,
            note: None,
        }))
    }

    pub(crate) fn error(error: BoxError) -> Self {
        Fault::new(Cause::Error(Arc::new(error)))
    }

    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Self {
        Fault::new(Cause::Panic(panic_message(payload)))
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        Fault::new(Cause::Timeout(limit))
    }

    pub(crate) fn stall(stall: &Stall) -> Self {
        Fault::new(Cause::Stall(stall.to_string())).at(&stall.stage)
    }

    pub(crate) fn cancelled() -> Self {
        Fault::new(Cause::Cancelled)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds the stage, unless one is named already.
    pub(crate) fn at(self, stage: &str) -> Self {
        if self.0.stage.is_empty() { self.edit(|f| f.stage = Arc::from(stage)) } else { self }
    }

    /// Adds the item.
    pub(crate) fn on(self, item: ItemId, name: Option<String>, attempts: u32) -> Self {
        self.edit(|f| {
            f.item = Some(item);
            f.name = name;
            f.attempts = attempts;
        })
    }

    /// Adds why this failure ends the run although failures may be skipped.
    pub(crate) fn noting(self, note: String) -> Self {
        self.edit(|f| f.note = Some(note))
    }

    /// The id of the stage that failed; empty for a cancelled run.
    pub fn stage(&self) -> &str {
        &self.0.stage
    }

    /// The item that it failed on, if it was on one.
    pub fn item(&self) -> Option<ItemId> {
        self.0.item
    }

    /// What people call that item, such as the key of a chunk.
    pub fn item_name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// How many calls were made on the item.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> FaultKind {
        match self.0.cause {
            Cause::Error(_) => FaultKind::Error,
            Cause::Panic(_) => FaultKind::Panic,
            Cause::Timeout(_) => FaultKind::Timeout,
            Cause::Cancelled => FaultKind::Cancelled,
            Cause::Stall(_) => FaultKind::Stall,
        }
    }

    /// The error that the stage's code returned, if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &self.0.cause {
            Cause::Error(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The cause alone, without stage and item.
    pub(crate) fn cause(&self) -> String {
        match &self.0.cause {
            Cause::Error(error) => error.to_string(),
            Cause::Panic(message) => format!("panic: {message}"),
            Cause::Timeout(limit) => format!("timed out after {limit:?}"),
            Cause::Cancelled => "the run was cancelled".to_owned(),
            Cause::Stall(chain) => chain.clone(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { stage, item, name, attempts, cause, note } = &*self.0;
        if matches!(cause, Cause::Cancelled) {
            return f.write_str("the run was cancelled");
        }
        write!(f, "stage `{stage}` failed")?;
        if let Some(item) = item {
            write!(f, " on item {item}")?;
            if let Some(name) = name {
                write!(f, " ({name})")?;
            }
        }
        if *attempts > 1 {
            write!(f, " after {attempts} attempts")?;
        }
        write!(f, ": {}", self.cause())?;
        if let Some(note) = note {
            write!(f, " ({note})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({self})")
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Cause::Error(error) => Some(&***error),
            _ => None,
        }
    }
}

/// A pipeline that cannot be run as it was declared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number that must be at least 1 is 0.
    #[error("`{what}` of stage `{stage}` is 0: write 1 or more{hint}")]
    Zero {
        /// The stage's id.
        stage: String,
        /// The option.
        what: &'static str,
        /// What to write instead of 0 to say what was probably meant.
        hint: &'static str,
    },
    /// A number is out of range.
    #[error("`{what}` of stage `{stage}` is {value}: write {range}")]
    Range {
        /// The stage's id.
        stage: String,
        /// The option.
        what: &'static str,
        /// The value given.
        value: String,
        /// What would do.
        range: &'static str,
    },
    /// Two stages have one id.
    #[error("two stages are called `{0}`: give one of them another `id`")]
    Duplicate(String),
    /// An option that means nothing to the stage.
    #[error("`{what}` does not apply to `{stage}`, {because}")]
    NotApplicable {
        /// The stage's id.
        stage: String,
        /// The option.
        what: &'static str,
        /// Why not.
        because: &'static str,
    },
    /// A stage that needs to read its input again, where that can't be.
    #[error(
        "`{0}` needs a source whose items can be computed by position, such as `source::list` or \
         `zarr::windows`, with nothing but such stages between"
    )]
    NeedsIndex(String),
    /// A stage needs items that are grouped.
    #[error(
        "`{0}` by chunks needs windows as the store gives them: put `shard`, `take` and `skip` behind \
         it"
    )]
    NeedsGroups(String),
    /// A stage was added to a pipeline that goes on from a position.
    #[error(
        "a pipeline goes on from a position as a whole: call `resume` behind `{0}`, right before `run`"
    )]
    Resumed(String),
    /// A stage can't begin; nothing was read.
    #[error("{0}")]
    NotReady(String),
    /// The machine refused something that a run needs.
    #[error("could not start the run: {0}")]
    Machine(String),
}

/// Why the workers of a stage were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkersError {
    /// No stage has that id.
    #[error(
        "there is no stage `{stage}`:{} Stages with workers: {}",
        meant.as_ref().map_or_else(String::new, |meant| format!(" did you mean `{meant}`?")),
        known.join(", ")
    )]
    Unknown {
        /// The id given.
        stage: String,
        /// The id that was probably meant.
        meant: Option<String>,
        /// The ids of the stages that make calls.
        known: Vec<String>,
    },
    /// The stage runs in one task.
    #[error("`{stage}` runs in one task and makes no calls: more workers would do nothing")]
    NoCalls {
        /// The stage's id.
        stage: String,
    },
    /// A stage without workers would hold up the run for ever.
    #[error("`{stage}` can't have 0 workers: give it 1 or more")]
    Zero {
        /// The stage's id.
        stage: String,
    },
    /// More workers than were provided for when the run started.
    #[error(
        "`{stage}` can't have {workers} workers: this run provides for {most} at most; start it with more"
    )]
    TooMany {
        /// The stage's id.
        stage: String,
        /// The number given.
        workers: usize,
        /// The most that it can have.
        most: usize,
    },
    /// Nothing is left to be done.
    #[error("`{stage}` has ended")]
    Ended {
        /// The stage's id.
        stage: String,
    },
    /// The machine refused.
    #[error("could not start workers of `{stage}`: {error}")]
    Machine {
        /// The stage's id.
        stage: String,
        /// What the machine said.
        error: String,
    },
}
/// What a panic said.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).to_owned(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "a panic without a message".to_owned(),
        },
    }
}
