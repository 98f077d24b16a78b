//! A run's [`Position`] in a file, kept while it goes on, so that another process can go on from it. The
//! file is whole at any moment, whenever the process is killed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::item::mix;
use crate::position::Position;
use crate::whole::write_whole;

/// The version of the file.
const VERSION: u32 = 1;
/// What the file begins with.
const MARK: &str = "{\"forebay_checkpoint\":";
/// A position is far smaller.
const BYTES_MAX: u64 = 16 << 20;

/// Where the position of a run is kept, and how often it is written.
///
/// ```
/// use forebay::prelude::*;
///
/// # let folder = std::env::temp_dir().join(format!("forebay-checkpoint-{}", std::process::id()));
/// # let path = folder.join("train.ckpt");
/// let checkpoint = Checkpoint::new(&path).every(Every::Items(100));
/// let mut plan = Pipeline::from(source::list("numbers", (0..1000).collect::<Vec<u64>>()));
/// if let Some(position) = checkpoint.load()? {
///     plan = plan.resume(&position)?;
/// }
/// let mut run = plan.run()?;
/// let mut keeper = checkpoint.keep(&run.position())?;
/// while let Some(number) = run.next() {
///     let number = number?; // train with it
///     keeper.reached(&run.position())?;
/// }
/// keeper.end(&run.position())?;
/// assert!(checkpoint.load()?.expect("it was written").is_finished());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    path: PathBuf,
    every: Every,
}

/// How often a position is written while a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Whenever the consumer has received so many items more.
    Items(u64),
    /// With the first item that it receives after so long.
    Time(Duration),
}

impl Default for Every {
    /// 30 seconds.
    fn default() -> Self {
        Every::Time(Duration::from_secs(30))
    }
}

/// Why a checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The machine refused.
    #[error("the checkpoint {} can't be read: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the machine said.
        error: io::Error,
    },
    /// It is some other file.
    #[error("{} is no checkpoint: name another file, this one is left as it is", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of a version that is not known.
    #[error(
        "the checkpoint {} has the version {version}, and this is version {VERSION}: go on with the \
         forebay that wrote it, or start anew",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// It is not as it was written.
    #[error(
        "the checkpoint {} is damaged, {why}: put back a copy of it, or start anew",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that is known.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    forebay_checkpoint: u32,
    check: u64,
    position: Position,
}

/// The number by which a position that was changed is known.
fn check(position: &Position) -> u64 {
    let text = serde_json::to_string(position).expect("numbers and text make JSON");
    text.bytes().fold(1, |check, byte| mix(check, byte.into()))
}

impl Checkpoint {
    /// Kept in the file `path`, whose folder is made if it is not there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Checkpoint { path: path.into(), every: Every::default() }
    }

    /// How often it is written while a run goes on.
    pub fn every(self, every: Every) -> Self {
        Checkpoint { every, ..self }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The position that was written last; `None` if there is no file.
    ///
    /// # Errors
    /// The file can't be read, or is no checkpoint, or is damaged.
    pub fn load(&self) -> Result<Option<Position>, CheckpointError> {
        let path = || self.path.clone();
        let read = || {
            let size = fs::metadata(&self.path)?.len();
            if size > BYTES_MAX { Ok(String::new()) } else { fs::read_to_string(&self.path) }
        };
        let text = match read() {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(CheckpointError::Foreign { path: path() });
            }
            Err(error) => return Err(CheckpointError::Io { path: path(), error }),
        };
        let Some(rest) = text.strip_prefix(MARK) else {
            let cut = !text.is_empty() && MARK.starts_with(text.as_str());
            return Err(match cut {
                true => CheckpointError::Damaged { path: path(), why: "cut short".to_owned() },
                false => CheckpointError::Foreign { path: path() },
            });
        };
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if let Ok(version) = digits.parse()
            && version != u64::from(VERSION)
        {
            return Err(CheckpointError::Version { path: path(), version });
        }
        match serde_json::from_str::<Written>(&text) {
            Ok(written) if written.check == check(&written.position) => Ok(Some(written.position)),
            Ok(_) => {
                let why = "its content is not what was written".to_owned();
                Err(CheckpointError::Damaged { path: path(), why })
            }
            Err(error) => Err(CheckpointError::Damaged { path: path(), why: error.to_string() }),
        }
    }

    /// Writes a position: the file is then this one, or as it was.
    ///
    /// # Errors
    /// It can't be written.
    pub fn save(&self, position: &Position) -> io::Result<()> {
        let written = Written {
            forebay_checkpoint: VERSION,
            check: check(position),
            position: position.clone(),
        };
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder)?;
        let mut part = self.path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = Path::new(&part);
        write_whole(part, &self.path, || {
            let mut to = File::create(part)?;
            serde_json::to_writer(&mut to, &written)?;
            to.write_all(b"\n")?;
            // Before it takes the place of the one before: a machine that stops keeps one of the two.
            to.sync_all()
        })?;
        File::open(folder)?.sync_all()
    }

    /// Keeps the position of a run that is at `position`, which is written at once: what can't be
    /// written is better known before the work is done.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(&self, position: &Position) -> io::Result<Keeper> {
        self.save(position)?;
        Ok(Keeper { checkpoint: self.clone(), items: position.items(), at: Instant::now() })
    }
}

/// Writes the positions of a run as often as its [`Checkpoint`] says.
#[derive(Debug)]
pub struct Keeper {
    checkpoint: Checkpoint,
    /// Items at the position written last.
    items: u64,
    /// When that was.
    at: Instant,
}

impl Keeper {
    /// The consumer is at `position`, and done with what is before it. Says whether that was written.
    ///
    /// # Errors
    /// It can't be written; it will be tried again when it is due the next time.
    pub fn reached(&mut self, position: &Position) -> io::Result<bool> {
        let is_due = match self.checkpoint.every {
            Every::Items(items) => position.items() - self.items >= items,
            Every::Time(time) => position.items() > self.items && self.at.elapsed() >= time,
        };
        if is_due {
            (self.items, self.at) = (position.items(), Instant::now());
            self.checkpoint.save(position)?;
        }
        Ok(is_due)
    }

    /// The run has ended at `position`, well or not.
    ///
    /// # Errors
    /// It can't be written.
    pub fn end(self, position: &Position) -> io::Result<()> {
        self.checkpoint.save(position)
    }
}
