//! One request: a file that is read, or an object that is asked for, into recycled memory; and what
//! can be wrong with what comes back.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use object_store::{GetOptions, GetRange, ObjectStore};

use super::place::Place;
use super::{Part, Store, StoreError, on_a_blocking_thread, redacted};

impl Store {
    pub(super) async fn get_now(
        &self,
        key: &str,
        part: Part,
        most: u64,
    ) -> Result<Bytes, StoreError> {
        if let Place::Local(_) = self.0.place {
            let (store, key) = (self.clone(), key.to_owned());
            return on_a_blocking_thread(move || store.read_file(&key, &part, most)).await;
        }
        let client = self.0.place.client().map_err(|error| self.failed(key, &error))?;
        self.within_budget(key, self.request(client, key, &part, most)).await
    }

    /// Bytes in the object at `key`.
    pub(crate) async fn size(&self, key: &str) -> Result<u64, StoreError> {
        let client = self.0.place.client().map_err(|error| self.failed(key, &error))?;
        self.within_budget(key, self.head(client, key)).await
    }

    pub(super) async fn head(
        &self,
        client: &Arc<dyn ObjectStore>,
        key: &str,
    ) -> Result<u64, StoreError> {
        let path = self.0.place.path(key).map_err(|error| self.failed(key, &error))?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match client.get_opts(&path, options).await {
            Ok(found) => Ok(found.meta.size),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    pub(super) fn read_file(&self, key: &str, part: &Part, most: u64) -> Result<Bytes, StoreError> {
        let (file, size) = self.open_file(key)?;
        self.read_open(key, (&file, size), part, most)
    }

    /// The file at `key` and its size.
    pub(super) fn open_file(&self, key: &str) -> Result<(File, u64), StoreError> {
        let failed = |error| self.io_failed(key, &error);
        let file = self.0.place.file(key).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(self.not_found(key));
        }
        Ok((file, metadata.len()))
    }

    pub(super) fn read_open(
        &self,
        key: &str,
        (file, size): (&File, u64),
        part: &Part,
        most: u64,
    ) -> Result<Bytes, StoreError> {
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

    pub(super) async fn request(
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

    pub(super) fn io_failed(&self, key: &str, error: &std::io::Error) -> StoreError {
        if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
        {
            return self.not_found(key);
        }
        let (store, key, why) = (self.0.url.clone(), key.to_owned(), error.to_string());
        StoreError::Failed { store, key, why, transient: false }
    }

    pub(super) fn failed(&self, key: &str, error: &object_store::Error) -> StoreError {
        use object_store::Error as E;
        if let E::NotFound { .. } = error {
            return self.not_found(key);
        }
        let transient = matches!(error, E::Generic { .. } | E::JoinError { .. });
        let mut why = redacted(&error.to_string());
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            let text = redacted(&error.to_string());
            if !why.contains(&text) {
                why = format!("{why}: {text}");
            }
            cause = error.source();
        }
        StoreError::Failed { store: self.0.url.clone(), key: key.to_owned(), why, transient }
    }
}
