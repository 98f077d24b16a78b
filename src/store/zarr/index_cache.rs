//! Indexes of shards that were read, so that each is asked for once. Bounded in bytes; those read
//! first go first, as windows move on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::shard::ShardIndex;

/// Memory that indexes may keep.
const BYTES_MAX: u64 = 64 << 20;

/// A shard's index; `None` if the shard is not there.
pub(super) type Entry = Option<Arc<ShardIndex>>;

#[derive(Default)]
pub(super) struct IndexCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    cells: HashMap<String, Arc<OnceCell<Entry>>>,
    order: VecDeque<(String, u64)>,
    bytes: u64,
}

impl IndexCache {
    /// The index of the shard `key`, read by `read` unless it is known. Those who ask while it is
    /// being read wait for it; a failed read is tried again by the next who asks.
    pub(super) async fn get<E>(
        &self,
        key: &str,
        read: impl Future<Output = Result<Entry, E>>,
    ) -> Result<Entry, E> {
        let cell = Arc::clone(self.0.lock().cells.entry(key.to_owned()).or_default());
        let mut is_new = false;
        let index = cell
            .get_or_try_init(|| {
                is_new = true;
                read
            })
            .await?
            .clone();
        if is_new {
            self.account(key, index.as_ref().map_or(64, |index| index.bytes()));
        }
        Ok(index)
    }

    fn account(&self, key: &str, bytes: u64) {
        let mut kept = self.0.lock();
        kept.bytes += bytes;
        kept.order.push_back((key.to_owned(), bytes));
        while kept.bytes > BYTES_MAX
            && let Some((oldest, bytes)) = kept.order.pop_front()
        {
            kept.bytes -= bytes;
            kept.cells.remove(&oldest);
        }
    }
}
