//! Storage by URL: files, memory, HTTP, S3, Google Cloud, Azure, and the embedded sample.
//!
//! A store reads whole objects and byte ranges into recycled memory, and writes whole objects; it knows
//! nothing of what the bytes mean. Credentials and endpoints come from the environment variables that the clouds' own
//! tools read, or from options; nothing of them is ever shown.

mod blocking;
mod disk;
mod error;
mod pace;
mod place;
mod put;
mod request;
mod retries;
pub mod sample;
pub mod zarr;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectStore;

pub(crate) use disk::Disk;
pub use error::{StoreError, is_transient};
pub(crate) use error::{redacted, starred};
use pace::{Pace, Paced};
use place::Place;
pub(crate) use put::read_only;
use retries::Retries;

use crate::item::Pool;
use crate::trace::{self, Request};

/// Requests in flight to one store, over all stages that read it, unless it says that these are too
/// many.
pub(crate) const REQUESTS: usize = 256;
/// Files that are read, and sizes that are asked for, at once.
const FILES: usize = 64;

/// Options of a store, by the names that `object_store` gives them: `region`, `endpoint`,
/// `skip_signature`, `allow_http`, ...
pub type StoreOptions = BTreeMap<String, String>;

/// A place that holds objects by key. Cloning it gives another handle on the same store.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    /// The URL as it may be shown.
    url: String,
    place: Place,
    pool: Pool,
    pace: Arc<Pace>,
    retries: Arc<Retries>,
    /// Whether what takes long is asked a second time.
    hedge: bool,
    asked: AtomicU64,
    read: AtomicU64,
}

/// What was asked of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Requests for objects or ranges of them; for files, reads.
    pub requests: u64,
    /// Bytes that came back.
    pub bytes: u64,
    /// How often the store answered that it is asked too much (429 or 503).
    pub throttled: u64,
    /// Requests that may be under way at once, now.
    pub at_once: u64,
    /// Requests that were asked a second time because the answer took long.
    pub hedged: u64,
    /// Requests for what had failed.
    pub retried: u64,
    /// Retries that were not made because their budget was spent.
    pub retries_refused: u64,
}

/// Which part of an object.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Whole,
    Range(Range<u64>),
    /// The last so many bytes.
    Last(u64),
}

impl Store {
    /// Opens the store at `url`: a path, `file://`, `memory://`, `http(s)://`, `s3://`, `gs://`,
    /// `az://` or `sample://era5`. Nothing is read yet, except that the sample is made if need be.
    ///
    /// # Errors
    /// The URL is not understood, or what its cloud needs is missing.
    pub fn open(url: &str) -> Result<Store, StoreError> {
        Store::open_with(url, &StoreOptions::new())
    }

    /// Opens the store at `url` with options that win over the environment.
    ///
    /// Beside those of `object_store` there is `hedge`: with `true`, a request whose answer takes
    /// longer than 95 in 100 do is asked a second time, and the first answer that comes is taken.
    /// That makes 5 % more requests at most, and none while the store says that it is asked too much.
    ///
    /// `retry_budget` says how many requests may be made again because they failed, as a share of all:
    /// `10%` unless said otherwise, and 64 whatever the share. Beyond that a failure is an error at
    /// once, so that a store that fails is not stormed. Answers that ask for fewer requests (429,
    /// 503) are not counted: these are obeyed.
    ///
    /// # Errors
    /// The URL or an option is not understood, or what its cloud needs is missing.
    pub fn open_with(url: &str, options: &StoreOptions) -> Result<Store, StoreError> {
        let pace = Pace::new(REQUESTS);
        let mut options = options.clone();
        let hedge = match options.remove("hedge").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let why = format!("its option `hedge` is `{other}`: write true or false");
                return Err(StoreError::Open { url: error::redacted(url), why });
            }
        };
        let percent = match options.remove("retry_budget") {
            None => retries::SHARE,
            Some(text) => Retries::percent(&text).ok_or_else(|| {
                let why = format!("its option `retry_budget` is `{text}`: write a share, `10%`");
                StoreError::Open { url: error::redacted(url), why }
            })?,
        };
        let retries = Arc::new(Retries::new(percent));
        let (url, place) =
            place::open(url, &options, &Paced(Arc::clone(&pace), Arc::clone(&retries)))?;
        let pace = match place {
            Place::Local(_) => Pace::new(FILES),
            Place::Remote(_) => pace,
        };
        // What is on this machine is not asked twice.
        let hedge = hedge && matches!(place, Place::Remote(_));
        Ok(Store::new(url, place, (pace, retries), hedge))
    }

    /// A store of the caller's own: whatever lies below `prefix` in `objects`. `name` is what it is
    /// called in messages.
    ///
    /// # Errors
    /// `prefix` is not a path.
    pub fn from_object_store(
        name: &str,
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
    ) -> Result<Store, StoreError> {
        let why = |error: object_store::path::Error| StoreError::Open {
            url: name.to_owned(),
            why: error.to_string(),
        };
        let prefix = object_store::path::Path::parse(prefix).map_err(why)?;
        let pace = Pace::new(REQUESTS);
        let retries = Arc::new(Retries::new(retries::SHARE));
        let place = Place::given(objects, prefix);
        Ok(Store::new(name.to_owned(), place, (pace, retries), false))
    }

    fn new(
        url: String,
        place: Place,
        (pace, retries): (Arc<Pace>, Arc<Retries>),
        hedge: bool,
    ) -> Store {
        let (pool, asked, read) = Default::default();
        Store(Arc::new(Inner { url, place, pool, pace, retries, hedge, asked, read }))
    }

    /// What was asked of it so far, over all handles.
    pub fn stats(&self) -> StoreStats {
        let Inner { asked, read, pace, retries, .. } = &*self.0;
        let (retried, retries_refused) = retries.counts();
        StoreStats {
            requests: asked.load(Relaxed),
            bytes: read.load(Relaxed),
            throttled: pace.throttled(),
            at_once: pace.limit() as u64,
            hedged: pace.hedged(),
            retried,
            retries_refused,
        }
    }

    /// Its URL, without credentials.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The pool that encoded bytes are read into.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Whether the last bytes of an object can be asked for without knowing its size.
    pub(crate) fn has_suffix_ranges(&self) -> bool {
        self.0.place.has_suffix_ranges()
    }

    /// Whether it lies on this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.0.place, Place::Local(_))
    }

    /// The object at `key`, or a part of it, of at most `most` bytes, in recycled memory. At most
    /// 256 such requests are in flight for one store, fewer if it says that these are too many; those
    /// whose `turn` is later wait.
    pub(crate) async fn get(
        &self,
        key: &str,
        part: Part,
        most: u64,
        turn: u64,
    ) -> Result<Bytes, StoreError> {
        let _permit = self.0.pace.permit(turn).await;
        let mut request = self.told(key);
        self.0.asked.fetch_add(1, Relaxed);
        let begun = Instant::now();
        let bytes = match self.0.hedge.then(|| self.0.pace.long()).flatten() {
            Some(long) => self.get_hedged(key, &part, most, long).await?,
            None => self.get_now(key, part, most).await?,
        };
        self.0.pace.went_well(begun.elapsed());
        self.0.read.fetch_add(bytes.len() as u64, Relaxed);
        request.received(bytes.len() as u64);
        Ok(bytes)
    }

    /// Tells the run that the object at `key` is asked for.
    fn told(&self, key: &str) -> Request {
        let verb = if self.is_local() { "read" } else { "GET" };
        trace::request(|| format!("{verb} {}/{key}", self.0.url.trim_end_matches('/')))
    }

    /// Asks a second time if the answer takes longer than it does as a rule, and takes the first
    /// that comes.
    async fn get_hedged(
        &self,
        key: &str,
        part: &Part,
        most: u64,
        long: Duration,
    ) -> Result<Bytes, StoreError> {
        let mut first = std::pin::pin!(self.get_now(key, part.clone(), most));
        tokio::select! {
            answer = &mut first => return answer,
            () = tokio::time::sleep(long) => {}
        }
        if !self.0.pace.may_hedge() {
            return first.await;
        }
        self.0.asked.fetch_add(1, Relaxed);
        let _request = self.told(key);
        let second = std::pin::pin!(self.get_now(key, part.clone(), most));
        // One that fails leaves it to the other.
        let (bytes, _) = futures::future::select_ok([first, second]).await?;
        Ok(bytes)
    }

    /// Parts of the object at `key`, those that lie close together in one request.
    pub(crate) async fn get_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        turn: u64,
    ) -> Result<Vec<Bytes>, StoreError> {
        let Place::Local(_) = self.0.place else {
            let get = |range| self.get(key, Part::Range(range), u64::MAX, turn);
            return object_store::coalesce_ranges(ranges, get, self.gap()).await;
        };
        // One file, opened once, by one thread: its reads take less than handing them out would.
        let _permit = self.0.pace.permit(turn).await;
        let mut request = self.told(key);
        let (store, key, ranges) = (self.clone(), key.to_owned(), ranges.to_vec());
        let read = on_a_blocking_thread(move || {
            let (file, size) = store.open_file(&key)?;
            let get = |range| {
                store.0.asked.fetch_add(1, Relaxed);
                let read = store.read_open(&key, (&file, size), &Part::Range(range), u64::MAX);
                if let Ok(bytes) = &read {
                    store.0.read.fetch_add(bytes.len() as u64, Relaxed);
                }
                std::future::ready(read)
            };
            futures::executor::block_on(object_store::coalesce_ranges(&ranges, get, store.gap()))
        });
        let read = read.await?;
        request.received(read.iter().map(|bytes| bytes.len() as u64).sum());
        Ok(read)
    }

    /// Parts of an object that lie closer together than this are read in one request, with what is
    /// between them: about what comes in the time that a request takes.
    pub(crate) fn gap(&self) -> u64 {
        match self.0.place {
            Place::Local(_) => 16 << 10,
            Place::Remote(_) => 128 << 10,
        }
    }
}

/// Runs what blocks where it keeps nobody waiting; a panic in it goes on here.
pub(crate) async fn on_a_blocking_thread<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// What is not there is no error.
pub(crate) fn found<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.0.url)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}
