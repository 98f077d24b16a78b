//! Storage by URL: files, memory, HTTP, S3, Google Cloud, Azure, and the embedded sample.
//!
//! A store reads whole objects and byte ranges into recycled memory; it knows nothing of what the
//! bytes mean. Credentials and endpoints come from the environment variables that the clouds' own
//! tools read, or from options; nothing of them is ever shown.

mod disk;
mod error;
mod pace;
mod place;
pub mod sample;
pub mod zarr;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{GetOptions, GetRange, ObjectStore};

pub(crate) use disk::Disk;
pub(crate) use error::redacted;
pub use error::{StoreError, is_transient};
use pace::Pace;
use place::Place;

use crate::item::Pool;

/// Requests in flight to one store, over all stages that read it, unless it says that these are too
/// many.
pub(crate) const REQUESTS: usize = 256;
/// Files that are read, and sizes that are asked for, at once.
const FILES: usize = 64;

/// Small objects that are read at once before a run.
const AT_ONCE: usize = 16;

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
        let (url, place) = place::open(url, &options, &pace)?;
        let pace = match place {
            Place::Local(_) => Pace::new(FILES),
            Place::Remote(_) => pace,
        };
        // What is on this machine is not asked twice.
        let hedge = hedge && matches!(place, Place::Remote(_));
        Ok(Store::new(url, place, pace, hedge))
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
        Ok(Store::new(name.to_owned(), Place::given(objects, prefix), pace, false))
    }

    fn new(url: String, place: Place, pace: Arc<Pace>, hedge: bool) -> Store {
        let (pool, asked, read) = Default::default();
        Store(Arc::new(Inner { url, place, pool, pace, hedge, asked, read }))
    }

    /// What was asked of it so far, over all handles.
    pub fn stats(&self) -> StoreStats {
        let Inner { asked, read, pace, .. } = &*self.0;
        StoreStats {
            requests: asked.load(Relaxed),
            bytes: read.load(Relaxed),
            throttled: pace.throttled(),
            at_once: pace.limit() as u64,
            hedged: pace.hedged(),
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

    /// The objects at the top of the store, as far as the store can list them.
    pub(crate) fn list_blocking(&self) -> Vec<String> {
        self.0.place.list()
    }

    /// Reads several small objects, such as metadata, from code that is not async. What is not
    /// there is `None`.
    pub(crate) fn read_blocking(
        &self,
        keys: &[String],
        most: u64,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        if let Place::Local(_) = self.0.place {
            let read = |key: &String| found(self.read_file(key, &Part::Whole, most));
            return keys.iter().map(read).collect();
        }
        self.blocking(async |client| {
            let read =
                async |key: &String| found(self.request(&client, key, &Part::Whole, most).await);
            futures::stream::iter(keys).map(read).buffered(AT_ONCE).try_collect().await
        })
    }

    /// Reads a part of an object from code that is not async. What is not there is `None`.
    pub(crate) fn read_part_blocking(
        &self,
        key: &str,
        part: &Part,
        most: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        found(match self.0.place {
            Place::Local(_) => self.read_file(key, part, most),
            _ => self.blocking(async |client| self.request(&client, key, part, most).await),
        })
    }

    /// The size of an object, from code that is not async. What is not there is `None`.
    pub(crate) fn size_blocking(&self, key: &str) -> Result<Option<u64>, StoreError> {
        Ok(self.sizes_blocking(&[key.to_owned()])?[0])
    }

    /// The sizes of objects, from code that is not async. What is not there is `None`.
    pub(crate) fn sizes_blocking(&self, keys: &[String]) -> Result<Vec<Option<u64>>, StoreError> {
        if let Place::Local(_) = self.0.place {
            let size = |key: &String| {
                let file = self.0.place.file(key).and_then(|file| file.metadata());
                let file = file.map_err(|error| self.io_failed(key, &error));
                found(file.map(|metadata| metadata.len()))
            };
            return keys.iter().map(size).collect();
        }
        self.blocking(async |client| {
            let size = async |key: &String| found(self.head(&client, key).await);
            futures::stream::iter(keys).map(size).buffered(FILES).try_collect().await
        })
    }

    /// Asks the store from code that is not async. A client belongs to the runtime that it was first
    /// used on: this one gets its own.
    fn blocking<T: Send>(
        &self,
        ask: impl AsyncFnOnce(Arc<dyn ObjectStore>) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let client = self.0.place.connect().map_err(|error| self.failed("", &error))?;
        place::on_a_thread_of_its_own(|| ask(client))
            .map_err(|why| StoreError::Open { url: self.0.url.clone(), why: why.to_string() })?
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
        self.0.asked.fetch_add(1, Relaxed);
        let begun = Instant::now();
        let bytes = match self.0.hedge.then(|| self.0.pace.long()).flatten() {
            Some(long) => self.get_hedged(key, &part, most, long).await?,
            None => self.get_now(key, part, most).await?,
        };
        self.0.pace.went_well(begun.elapsed());
        self.0.read.fetch_add(bytes.len() as u64, Relaxed);
        Ok(bytes)
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
        let mut second = std::pin::pin!(self.get_now(key, part.clone(), most));
        // One that fails leaves it to the other.
        tokio::select! {
            answer = &mut first => match answer {
                Ok(bytes) => Ok(bytes),
                Err(_) => second.await,
            },
            answer = &mut second => match answer {
                Ok(bytes) => Ok(bytes),
                Err(_) => first.await,
            },
        }
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
        let (store, key, ranges) = (self.clone(), key.to_owned(), ranges.to_vec());
        let read = move || {
            let file = store.open_file(&key)?;
            let get = |range| {
                store.0.asked.fetch_add(1, Relaxed);
                let read = store.read_open(&key, &file, &Part::Range(range), u64::MAX);
                if let Ok(bytes) = &read {
                    store.0.read.fetch_add(bytes.len() as u64, Relaxed);
                }
                std::future::ready(read)
            };
            futures::executor::block_on(object_store::coalesce_ranges(&ranges, get, store.gap()))
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(result) => result,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Parts of an object that lie closer together than this are read in one request, with what is
    /// between them: about what comes in the time that a request takes.
    pub(crate) fn gap(&self) -> u64 {
        match self.0.place {
            Place::Local(_) => 16 << 10,
            Place::Remote(_) => 128 << 10,
        }
    }

    async fn get_now(&self, key: &str, part: Part, most: u64) -> Result<Bytes, StoreError> {
        if let Place::Local(_) = self.0.place {
            let (store, key) = (self.clone(), key.to_owned());
            let read = move || store.read_file(&key, &part, most);
            return match tokio::task::spawn_blocking(read).await {
                Ok(result) => result,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
        }
        let client = self.0.place.client().map_err(|error| self.failed(key, &error))?;
        self.request(client, key, &part, most).await
    }

    /// Bytes in the object at `key`.
    pub(crate) async fn size(&self, key: &str) -> Result<u64, StoreError> {
        let client = self.0.place.client().map_err(|error| self.failed(key, &error))?;
        self.head(client, key).await
    }

    async fn head(&self, client: &Arc<dyn ObjectStore>, key: &str) -> Result<u64, StoreError> {
        let path = self.0.place.path(key).map_err(|error| self.failed(key, &error))?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match client.get_opts(&path, options).await {
            Ok(found) => Ok(found.meta.size),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    fn read_file(&self, key: &str, part: &Part, most: u64) -> Result<Bytes, StoreError> {
        self.read_open(key, &self.open_file(key)?, part, most)
    }

    fn open_file(&self, key: &str) -> Result<File, StoreError> {
        self.0.place.file(key).map_err(|error| self.io_failed(key, &error))
    }

    fn read_open(
        &self,
        key: &str,
        file: &File,
        part: &Part,
        most: u64,
    ) -> Result<Bytes, StoreError> {
        use std::os::unix::fs::FileExt as _;
        let metadata = file.metadata().map_err(|error| self.io_failed(key, &error))?;
        if metadata.is_dir() {
            return Err(self.not_found(key));
        }
        let size = metadata.len();
        let range = match part {
            Part::Whole => 0..size,
            Part::Range(range) => range.start.min(size)..range.end.min(size),
            Part::Last(n) => size.saturating_sub(*n)..size,
        };
        let len = range.end.saturating_sub(range.start);
        self.check_size(key, len, most)?;
        self.check_part(key, part, len)?;
        let mut buffer = self.0.pool.take(len as usize);
        file.read_exact_at(&mut buffer, range.start)
            .map_err(|error| self.io_failed(key, &error))?;
        Ok(Bytes::from_owner(buffer))
    }

    async fn request(
        &self,
        client: &Arc<dyn ObjectStore>,
        key: &str,
        part: &Part,
        most: u64,
    ) -> Result<Bytes, StoreError> {
        let path = self.0.place.path(key).map_err(|error| self.failed(key, &error))?;
        let range = match part {
            Part::Whole => None,
            Part::Range(range) => Some(GetRange::Bounded(range.clone())),
            Part::Last(n) => Some(GetRange::Suffix(*n)),
        };
        let options = GetOptions { range, ..GetOptions::default() };
        let failed = |error: object_store::Error| self.failed(key, &error);
        let response = client.get_opts(&path, options).await.map_err(failed)?;
        let len = response.range.end.saturating_sub(response.range.start);
        self.check_size(key, len, most)?;
        self.check_part(key, part, len)?;
        let mut buffer = self.0.pool.take(len as usize);
        let mut filled = 0;
        let mut stream = response.into_stream();
        let short = |got: usize| self.truncated(key, got as u64, len);
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(failed)?;
            let room = buffer.get_mut(filled..filled + bytes.len());
            room.ok_or_else(|| short(filled + bytes.len()))?.copy_from_slice(&bytes);
            filled += bytes.len();
        }
        if filled as u64 != len {
            return Err(short(filled));
        }
        Ok(Bytes::from_owner(buffer))
    }

    fn check_size(&self, key: &str, bytes: u64, most: u64) -> Result<(), StoreError> {
        if bytes <= most {
            return Ok(());
        }
        let (store, key) = (self.0.url.clone(), key.to_owned());
        Err(StoreError::TooLarge { store, key, bytes, most })
    }

    /// A range that the object does not have.
    fn check_part(&self, key: &str, part: &Part, got: u64) -> Result<(), StoreError> {
        match part {
            Part::Range(range) if range.end - range.start != got => {
                Err(self.truncated(key, got, range.end - range.start))
            }
            _ => Ok(()),
        }
    }

    fn truncated(&self, key: &str, got: u64, expected: u64) -> StoreError {
        StoreError::Truncated { store: self.0.url.clone(), key: key.to_owned(), got, expected }
    }

    fn not_found(&self, key: &str) -> StoreError {
        StoreError::NotFound { store: self.0.url.clone(), key: key.to_owned() }
    }

    fn io_failed(&self, key: &str, error: &std::io::Error) -> StoreError {
        if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
        {
            return self.not_found(key);
        }
        let (store, key, why) = (self.0.url.clone(), key.to_owned(), error.to_string());
        StoreError::Failed { store, key, why, transient: false }
    }

    fn failed(&self, key: &str, error: &object_store::Error) -> StoreError {
        use object_store::Error as E;
        if let E::NotFound { .. } = error {
            return self.not_found(key);
        }
        let transient = matches!(error, E::Generic { .. } | E::JoinError { .. });
        let mut why = error::redacted(&error.to_string());
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            let text = error::redacted(&error.to_string());
            if !why.contains(&text) {
                why = format!("{why}: {text}");
            }
            cause = error.source();
        }
        StoreError::Failed { store: self.0.url.clone(), key: key.to_owned(), why, transient }
    }
}

/// What is not there is no error.
fn found<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
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
