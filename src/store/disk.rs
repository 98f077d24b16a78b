//! A cache on local disk: what was read from a distant store once is read from here from then on,
//! by this process, by others and after a restart.
//!
//! Files are written under another name and renamed, so that nobody sees half of one, and checked
//! when they are read, so that one that a crash has cut short counts as not there. Any number of
//! processes may share a folder. If it can't be written, the run goes on without it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::pace::Pace;
use super::sample::is_stale;
use super::{FILES, on_a_blocking_thread};
use crate::item::Pool;
use crate::whole::write_whole;

const MAGIC: [u8; 8] = *b"forebay1";
/// The magic, the checksum, and the lengths of the name and of what is kept.
const HEADER: usize = 8 + 4 + 4 + 8;
/// A file that is used is marked as used at most this often.
const MARK: Duration = Duration::from_secs(600);

/// A cache on local disk.
#[derive(Debug)]
pub(crate) struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    budget: u64,
    pool: Pool,
    pace: Arc<Pace>,
    room: Mutex<Room>,
    /// Set once it could not be written.
    off: AtomicBool,
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Room {
    /// Bytes in the folder, as far as is known.
    bytes: u64,
    /// Bytes that this process wrote since it last looked.
    since: u64,
    looked: bool,
}

impl Disk {
    /// A cache of at most `budget` bytes in `folder`, which is made when something is written.
    pub(crate) fn new(folder: PathBuf, budget: u64, pool: &Pool) -> Self {
        Disk(Arc::new(Inner {
            folder,
            budget,
            pool: pool.clone(),
            pace: Pace::new(FILES),
            room: Mutex::default(),
            off: AtomicBool::new(false),
            written: AtomicU64::new(0),
        }))
    }

    /// What is kept under `name`.
    pub(crate) async fn get(&self, name: &str, turn: u64) -> Option<Bytes> {
        let name = name.to_owned();
        self.blocking(turn, move |inner| inner.read(&name)).await
    }

    /// Keeps something under `name`.
    pub(crate) async fn put(&self, name: &str, bytes: &Bytes, turn: u64) {
        if self.0.off.load(Relaxed) || bytes.len() as u64 > self.0.budget {
            return;
        }
        let (name, bytes) = (name.to_owned(), bytes.clone());
        let write = move |inner: &Inner| {
            if let Err(error) = inner.write(&name, &bytes)
                && !inner.off.swap(true, Relaxed)
            {
                let folder = inner.folder.display();
                tracing::warn!(%error, "nothing more is kept on disk in {folder}");
            }
        };
        self.blocking(turn, write).await;
    }

    async fn blocking<T: Send + 'static>(
        &self,
        turn: u64,
        run: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> T {
        let _permit = self.0.pace.permit(turn).await;
        let inner = Arc::clone(&self.0);
        on_a_blocking_thread(move || run(&inner)).await
    }
}

impl Inner {
    fn path(&self, name: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        self.folder.join(format!("{:02x}", hash >> 56)).join(format!("{hash:016x}"))
    }

    fn read(&self, name: &str) -> Option<Bytes> {
        let path = self.path(name);
        let mut file = File::open(&path).ok()?;
        let metadata = file.metadata().ok()?;
        let len = usize::try_from(metadata.len()).ok()?;
        if len < HEADER || metadata.len() > self.budget.saturating_add(1 << 20) {
            return None;
        }
        let mut buffer = self.pool.take(len);
        file.read_exact(&mut buffer).ok()?;
        let Some(start) = check(&buffer, name) else {
            tracing::debug!(path = %path.display(), "a file in the cache is not whole, or another's");
            return None;
        };
        let now = SystemTime::now();
        let used = metadata.modified().ok().and_then(|at| now.duration_since(at).ok());
        if used.is_some_and(|age| age > MARK)
            && let Err(error) = file.set_modified(now)
        {
            tracing::debug!(%error, "a file in the cache can't be marked as used");
        }
        Some(Bytes::from_owner(buffer).slice(start..))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let len = (HEADER + name.len() + bytes.len()) as u64;
        self.make_room(len);
        let number = self.written.fetch_add(1, Relaxed);
        let part = folder.join(format!("part-{}-{number}", std::process::id()));
        write_whole(&part, &path, || {
            let mut file = File::create_new(&part)?;
            let sum = crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), bytes);
            let mut header = Vec::with_capacity(HEADER + name.len());
            header.extend(MAGIC);
            header.extend(sum.to_le_bytes());
            header.extend((name.len() as u32).to_le_bytes());
            header.extend((bytes.len() as u64).to_le_bytes());
            header.extend(name.as_bytes());
            file.write_all(&header)?;
            file.write_all(bytes)
        })
    }

    /// Takes account of `len` more bytes, and removes what was used longest ago if they are too many.
    fn make_room(&self, len: u64) {
        let mut room = self.room.lock();
        room.bytes += len;
        room.since += len;
        let seldom = room.looked && room.since < self.budget / 20;
        if seldom && room.bytes <= self.budget {
            return;
        }
        // Other processes write here too.
        let mut files = all_files(&self.folder);
        let mut bytes: u64 = len + files.iter().map(|file| file.len).sum::<u64>();
        if bytes > self.budget {
            files.sort_by_key(|file| file.used);
            for file in files {
                if bytes <= self.budget - self.budget / 10 {
                    break;
                }
                // If it is gone already, another process made room.
                if let Err(error) = fs::remove_file(&file.path) {
                    tracing::debug!(%error, "a file of the cache can't be removed");
                }
                bytes -= file.len;
            }
        }
        *room = Room { bytes, since: 0, looked: true };
    }
}

struct Kept {
    path: PathBuf,
    len: u64,
    used: SystemTime,
}

/// The files of a cache, without those that are being written; what is left of killed processes is
/// removed.
fn all_files(folder: &Path) -> Vec<Kept> {
    let entries = |folder: &Path| folder.read_dir().into_iter().flatten().flatten();
    let mut files = Vec::new();
    for entry in entries(folder).flat_map(|folder| entries(&folder.path()).collect::<Vec<_>>()) {
        let Ok(metadata) = entry.metadata() else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with("part-") {
            files.push(Kept { path, len: metadata.len(), used });
        } else if is_stale(&metadata)
            && let Err(error) = fs::remove_file(path)
        {
            tracing::debug!(%error, "an unfinished file is left in the cache");
        }
    }
    files
}

/// Where what is kept under `name` begins in a file, if the file is whole and that of `name`.
fn check(file: &[u8], name: &str) -> Option<usize> {
    let (header, rest) = file.split_at_checked(HEADER)?;
    let number = |at: std::ops::Range<usize>| {
        header[at].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let (sum, name_len, len) = (number(8..12), number(12..16), number(16..24));
    let is_ours = header.starts_with(&MAGIC)
        && name_len == name.len() as u64
        && rest.starts_with(name.as_bytes())
        && len == (rest.len() - name.len()) as u64
        && sum == u64::from(crc32c::crc32c(rest));
    is_ours.then_some(HEADER + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(folder: &Path, budget: u64) -> Disk {
        Disk::new(folder.join("cache"), budget, &Pool::default())
    }

    fn bytes_in(folder: &Path) -> u64 {
        all_files(&folder.join("cache")).iter().map(|file| file.len).sum()
    }

    #[tokio::test]
    async fn what_is_kept_is_found_by_all_and_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = Bytes::from(vec![7; 5000]);
        let one = disk(folder.path(), 1 << 20);
        assert_eq!(one.get("a", 0).await, None);
        one.put("a", &bytes, 0).await;
        one.put("empty", &Bytes::new(), 0).await;
        let other = disk(folder.path(), 1 << 20);
        assert_eq!(other.get("a", 0).await, Some(bytes));
        assert_eq!(other.get("empty", 0).await, Some(Bytes::new()));
        assert_eq!(other.get("b", 0).await, None);
    }

    /// Whatever happens to a file, it is whole or it is not there.
    #[tokio::test]
    async fn damaged_files_are_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = disk(folder.path(), 1 << 20);
        let bytes = Bytes::from((0..200).collect::<Vec<u8>>());
        disk.put("a", &bytes, 0).await;
        let path = disk.0.path("a");
        let whole = fs::read(&path).expect("there");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            fs::write(&path, changed).expect("written");
            assert_eq!(disk.get("a", 0).await, None, "byte {at}");
            fs::write(&path, &whole[..at]).expect("written");
            assert_eq!(disk.get("a", 0).await, None, "cut at {at}");
        }
        // Another name with the same hash would find this file, and see that it is not its own.
        fs::write(&path, &whole).expect("written");
        assert_eq!(check(&whole, "b"), None);
        assert_eq!(disk.get("a", 0).await, Some(bytes));
    }

    #[tokio::test]
    async fn what_was_used_longest_ago_makes_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = disk(folder.path(), 100_000);
        let bytes = Bytes::from(vec![1; 10_000]);
        for i in 0..40 {
            disk.put(&format!("{i}"), &bytes, 0).await;
            assert!(bytes_in(folder.path()) <= 100_000, "after {i}");
            let old = SystemTime::now() - Duration::from_secs(100_000 - i);
            let file = File::open(disk.0.path(&format!("{i}"))).expect("there");
            file.set_modified(old).expect("marked");
            // Used again and again, so never the oldest.
            assert!(disk.get("0", 0).await.is_some(), "after {i}");
        }
        assert!(disk.get("39", 0).await.is_some());
        assert_eq!(disk.get("20", 0).await, None);
        // What is larger than the whole cache is not kept.
        disk.put("large", &Bytes::from(vec![1; 200_000]), 0).await;
        assert_eq!(disk.get("large", 0).await, None);
    }

    #[tokio::test]
    async fn a_folder_that_can_not_be_written_is_no_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cache"), b"a file").expect("written");
        let disk = disk(folder.path(), 1 << 20);
        disk.put("a", &Bytes::from_static(b"x"), 0).await;
        assert_eq!(disk.get("a", 0).await, None);
        assert!(disk.0.off.load(Relaxed));
    }
}
