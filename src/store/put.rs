//! Writing whole objects. An object is there whole or not at all: a file is written under another name
//! and renamed, a cloud shows an object once all of it has come.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};

use super::place::Place;
use super::sample::is_stale;
use super::{Store, StoreError, on_a_blocking_thread};
use crate::trace;
use crate::whole::write_whole;

/// What the names of files that are being written begin with.
const UNFINISHED: &str = ".unfinished-";

/// Why nothing can be written to the store at `url`, if its URL says so.
pub(crate) fn read_only(url: &str) -> Option<&'static str> {
    match url.split_once("://")?.0 {
        "sample" => Some("the sample is for reading"),
        "http" | "https" => Some("a web server takes no objects"),
        _ => None,
    }
}

impl Store {
    /// Why nothing can be written to it, if that is known without trying.
    pub(crate) fn read_only(&self) -> Option<&'static str> {
        let is_file = || match &self.0.place {
            Place::Local(root) => root.is_file(),
            Place::Remote(_) => false,
        };
        read_only(&self.0.url).or_else(|| is_file().then_some("it is a file; a store is a folder"))
    }

    /// Writes the object at `key`, whole or not at all.
    pub(crate) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        let _permit = self.0.pace.permit(0).await;
        let verb = if self.is_local() { "write" } else { "PUT" };
        let url = self.0.url.trim_end_matches('/');
        let mut request = trace::request(|| format!("{verb} {url}/{key}"));
        let len = bytes.len() as u64;
        if let Place::Local(_) = self.0.place {
            let (store, key) = (self.clone(), key.to_owned());
            on_a_blocking_thread(move || store.put_file(&key, &bytes)).await?;
        } else {
            let client = self.0.place.client().map_err(|error| self.not_written(key, &error))?;
            self.put_object(&**client, key, bytes).await?;
        }
        request.received(len);
        Ok(())
    }

    /// Writes objects from code that is not async, one after the other.
    pub(crate) fn put_blocking(&self, objects: Vec<(String, Bytes)>) -> Result<(), StoreError> {
        if let Place::Local(_) = self.0.place {
            return objects.iter().try_for_each(|(key, bytes)| self.put_file(key, bytes));
        }
        self.blocking(async |client| {
            for (key, bytes) in objects {
                self.put_object(&*client, &key, bytes).await?;
            }
            Ok(())
        })
    }

    async fn put_object(
        &self,
        client: &dyn ObjectStore,
        key: &str,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        let path = self.0.place.path(key).map_err(|error| self.not_written(key, &error))?;
        let put = client.put(&path, PutPayload::from_bytes(bytes)).await;
        put.map(|_| ()).map_err(|error| self.not_written(key, &error))
    }

    fn put_file(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let write = || {
            let path = self.0.place.file_path(key)?;
            let folder = path.parent().unwrap_or(&path);
            fs::create_dir_all(folder)?;
            let number = NUMBER.fetch_add(1, Relaxed);
            let part = folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()));
            write_whole(&part, &path, || File::create(&part)?.write_all(bytes))
        };
        write().map_err(|error: io::Error| {
            self.unwritten(key, error.to_string(), error.kind() == io::ErrorKind::Interrupted)
        })
    }

    /// The keys of the objects below the folder `folder`, from code that is not async.
    pub(crate) fn keys_blocking(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        if let Place::Local(_) = self.0.place {
            let root = self.0.place.file_path(folder);
            let root = root.map_err(|error| self.io_failed(folder, &error))?;
            let mut keys = Vec::new();
            return match list(&root, folder, &mut keys) {
                Ok(()) => Ok(keys),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => Err(self.io_failed(folder, &error)),
            };
        }
        self.blocking(async |client| {
            let failed = |error| self.failed(folder, &error);
            let path = self.0.place.path(folder).map_err(failed)?;
            let found: Vec<_> = client.list(Some(&path)).try_collect().await.map_err(failed)?;
            let below = |meta: object_store::ObjectMeta| {
                let parts = meta.location.prefix_match(&path)?;
                let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
                Some(format!("{folder}/{}", parts.join("/")))
            };
            Ok(found.into_iter().filter_map(below).collect())
        })
    }

    fn not_written(&self, key: &str, error: &object_store::Error) -> StoreError {
        match self.failed(key, error) {
            StoreError::Failed { why, transient, .. } => self.unwritten(key, why, transient),
            other => self.unwritten(key, other.to_string(), false),
        }
    }

    fn unwritten(&self, key: &str, why: String, transient: bool) -> StoreError {
        StoreError::NotWritten { store: self.0.url.clone(), key: key.to_owned(), why, transient }
    }
}

/// The files below `folder`; what is left of killed processes is removed.
fn list(folder: &Path, key: &str, keys: &mut Vec<String>) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path: PathBuf = entry.path();
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // Renamed meanwhile.
            Err(_) => continue,
        };
        if metadata.is_dir() {
            list(&path, &format!("{key}/{name}"), keys)?;
        } else if !name.starts_with(UNFINISHED) {
            keys.push(format!("{key}/{name}"));
        } else if is_stale(&metadata)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::debug!(%error, "an unfinished file is left behind");
        }
    }
    Ok(())
}
