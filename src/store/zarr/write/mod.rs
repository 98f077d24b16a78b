//! Results put back on the grid: batches become chunks of a Zarr v3 store, with the dimensions, the
//! coordinates and the attributes of the source that their windows were cut from.
//!
//! Windows can be enumerated, so how many of them touch a chunk is arithmetic, and a chunk is written
//! when the last of them has come: whole, at once, and never again. That is why memory is bounded by
//! the chunks under way, why a run that was interrupted goes on where it was, and why several ranks can
//! write one store: a chunk whose windows went to two of them is written by neither, and said so.

mod create;
mod error;
mod output;
mod pile;
mod spec;
mod touching;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub use error::WriteError;
pub use spec::{Codec, CodecName, Incomplete, Overlap, Ranks, WriteSpec};
use writer::{Tally, Writer};

use crate::entering::Entering;
use crate::fault::BoxError;
use crate::item::Batch;
use crate::link::{Inlet, Outlet};
use crate::options::{Options, Workers};
use crate::stage::{Kind, Stage, Stop, Worker};
use crate::store::{Store, StoreOptions, read_only, redacted};
use crate::work::{Call, Finish, Staged, Work, Yield};

/// It passes a batch on before all windows of its chunks have come.
pub(crate) const WRITE_ENTERING: Entering = Entering::Beginning(
    "may hold chunks of which windows are still to come; those that it wrote stay as they are",
);

/// A stage that writes batches to a store and passes them on; see [`write()`].
#[derive(Debug)]
pub struct Write(Staged<Writing>);

/// The calls of [`Write`].
struct Writing(Arc<Writer>);

/// What was written so far. Cloning it gives another handle on the same figures.
#[derive(Clone, Debug)]
pub struct Written(Arc<Tally>);

/// What a [`Write`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Chunks that were written.
    pub chunks: u64,
    /// Their encoded bytes.
    pub bytes: u64,
    /// Chunks that were there before, and stayed.
    pub found: u64,
    /// The most chunks that waited for windows at a time.
    pub open_max: u64,
    /// The most bytes that these took.
    pub open_bytes_max: u64,
}

/// A stage that writes each tensor of a batch at the place of its windows into an array of `store`, and
/// passes the batch on. The arrays have the shape, the dimensions, the coordinates and the attributes
/// of the source's; where no window has a value there is the fill value, NaN or 0.
///
/// A chunk is written when all windows that touch it have come. Chunks that are there already are left
/// as they are, so that a second run goes on where the first one ended; one window may come several
/// times, and counts once.
///
/// ```
/// use forebay::prelude::*;
/// use forebay::zarr::WriteSpec;
///
/// let source = Store::open("sample://era5")?;
/// let spec = WindowsSpec {
///     variables: vec!["t2m".into()],
///     window: [("time", 1)].into(),
///     range: [("time".to_owned(), (0..4).into())].into(),
///     ..Default::default()
/// };
/// let results = Store::open("memory://results")?;
/// let write = zarr::write(&results, &WriteSpec::default())?;
/// let written = write.written();
/// Pipeline::from(zarr::windows(&source, &spec)?)
///     .then(flow::batch(2))
///     .then(io::map("fetch", zarr::fetch))
///     .then(cpu::map("decode", zarr::decode(&Pool::default())))
///     .then(write)
///     .run()?
///     .drain()?;
/// assert_eq!(written.stats().chunks, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The store can't be written, or the arguments can't be meant. What can be told from batches only is a
/// fault of the first one.
pub fn write(store: &Store, spec: &WriteSpec) -> Result<Write, WriteError> {
    writable(store)?;
    spec.check()?;
    let writing = Writing(Arc::new(Writer::new(store, spec)));
    Ok(Write(Staged::new("write", writing).workers(4)))
}

/// Whether the store at `url` can be written to, as far as that is known without trying.
pub(crate) fn can_write(url: &str, options: &StoreOptions) -> Result<(), BoxError> {
    // The sample is made when it is opened.
    if let Some(why) = read_only(url) {
        let (store, why) = (redacted(url), why.to_owned());
        return Err(WriteError::ReadOnly { store, why }.into());
    }
    Ok(writable(&Store::open_with(url, options)?)?)
}

fn writable(store: &Store) -> Result<(), WriteError> {
    match store.read_only() {
        Some(why) => {
            Err(WriteError::ReadOnly { store: store.url().to_owned(), why: why.to_owned() })
        }
        None => Ok(()),
    }
}

impl Write {
    /// What it did so far.
    pub fn written(&self) -> Written {
        Written(Arc::clone(&self.0.work.0.tally))
    }

    /// How many batches are worked on at once. Default: 4.
    pub fn workers(self, workers: impl Into<Workers>) -> Self {
        Write(self.0.workers(workers))
    }

    /// All options at once.
    pub fn options(self, options: Options) -> Self {
        Write(self.0.options(options))
    }
}

impl Written {
    /// The figures.
    pub fn stats(&self) -> WriteStats {
        let Tally { chunks, bytes, found, open_max, open_bytes_max } = &*self.0;
        WriteStats {
            chunks: chunks.load(Relaxed),
            bytes: bytes.load(Relaxed),
            found: found.load(Relaxed),
            open_max: open_max.load(Relaxed),
            open_bytes_max: open_bytes_max.load(Relaxed),
        }
    }
}

impl Stage for Write {
    type In = Batch;
    type Out = Batch;

    fn name(&self) -> &str {
        self.0.name()
    }

    async fn run(self, inlet: &mut Inlet<Batch>, outlet: &mut Outlet<Batch>) -> Result<(), Stop> {
        let writer = Arc::clone(&self.0.work.0);
        self.0.run(inlet, outlet).await?;
        writer.close().await.map_err(Stop::failed)
    }

    fn kind(&self) -> Kind {
        self.0.kind()
    }

    fn options(&self) -> Options {
        Stage::options(&self.0)
    }

    fn makes_calls(&self) -> bool {
        true
    }

    fn entering(&self) -> Entering {
        WRITE_ENTERING
    }
}

impl Work for Writing {
    type In = Batch;
    type Out = Batch;
    type State = ();
    type Rest = crate::Never;

    fn kind(&self) -> Kind {
        Kind::Io
    }

    async fn start(&self, _: &Worker) -> Result<(), BoxError> {
        Ok(())
    }

    async fn call(
        &self,
        (): &mut (),
        _: &Call<'_>,
        batch: Batch,
    ) -> Result<Yield<Batch, crate::Never>, BoxError> {
        Ok(Yield::One(self.0.write(batch).await?))
    }

    async fn more(&self, (): &mut (), _: &mut crate::Never) -> Result<Option<Batch>, BoxError> {
        Ok(None)
    }

    fn finish(&self, (): (), _: Finish) {}
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writing({})", self.0.store)
    }
}
