//! What is read of a store before a run, from code that is not async: metadata, coordinates, sizes.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore;

use super::place::{self, Place};
use super::{FILES, Part, Store, StoreError, found};

/// Small objects that are read at once.
const AT_ONCE: usize = 16;

impl Store {
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
            let read = async |key: &String| {
                let ask = self.request(&client, key, &Part::Whole, most);
                found(self.within_budget(key, ask).await)
            };
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
            _ => self.blocking(async |client| {
                self.within_budget(key, self.request(&client, key, part, most)).await
            }),
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
            let size =
                async |key: &String| found(self.within_budget(key, self.head(&client, key)).await);
            futures::stream::iter(keys).map(size).buffered(FILES).try_collect().await
        })
    }

    /// Asks the store from code that is not async. A client belongs to the runtime that it was first
    /// used on: this one gets its own.
    pub(super) fn blocking<T: Send>(
        &self,
        ask: impl AsyncFnOnce(Arc<dyn ObjectStore>) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let client = self.0.place.connect().map_err(|error| self.failed("", &error))?;
        place::on_a_thread_of_its_own(|| ask(client))
            .map_err(|why| StoreError::Open { url: self.0.url.clone(), why: why.to_string() })?
    }
}
