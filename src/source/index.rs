//! Items that can be computed by position: windows of an array, files of a list.
//!
//! Stages that only choose among them or change their order work on the positions, cost nothing
//! and can be entered anywhere at once.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::Groups;
use crate::fault::Fault;
use crate::item::{Item, ItemId};
use crate::link::Outlet;
use crate::stage::{Source, Stop};

/// So many items are computed before the others on the thread get a turn.
const CHUNK: u64 = 64;

/// Items that can be computed by position in constant time.
pub struct Index<T> {
    len: u64,
    get: Arc<dyn Fn(u64) -> T + Send + Sync>,
    groups: Option<Arc<Groups>>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Index { len: self.len, get: Arc::clone(&self.get), groups: self.groups.clone() }
    }
}

impl<T> Index<T> {
    /// `len` items, of which `get` computes the i-th.
    pub fn new(len: u64, get: impl Fn(u64) -> T + Send + Sync + 'static) -> Self {
        Index { len, get: Arc::new(get), groups: None }
    }

    /// The same with the groups of items that are best visited together, such as windows that are
    /// cut from the same chunks. Lost where items are chosen among or put in another order.
    ///
    /// # Panics
    /// If the groups are those of another number of items.
    pub fn grouped(self, groups: Groups) -> Self {
        assert_eq!(self.len, groups.len(), "the groups are those of all items");
        Index { groups: Some(Arc::new(groups)), ..self }
    }

    /// `len` of these items (some may come several times), of which the i-th is the one at
    /// `place(i)`.
    pub fn select(self, len: u64, place: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self
    where
        T: 'static,
    {
        let get = self.get;
        Index { len, get: Arc::new(move |i| get(place(i))), groups: None }
    }

    /// How many items there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The i-th item. `i` must be below [`len`](Self::len).
    pub fn get(&self, i: u64) -> T {
        (self.get)(i)
    }

    /// The groups of items that are best visited together, if there are any.
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_deref()
    }
}

impl<T> fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A source of items computed by position.
#[derive(Debug)]
pub struct Indexed<T> {
    name: String,
    index: Index<T>,
}

impl<T> Indexed<T> {
    pub(crate) fn new(name: String, index: Index<T>) -> Self {
        Indexed { name, index }
    }
}

/// A source of items computed by position.
pub fn index<T: Send + 'static>(name: impl Into<String>, index: Index<T>) -> Indexed<T> {
    Indexed { name: name.into(), index }
}

/// A source of the items of a list, which can be shuffled and entered anywhere at no cost.
pub fn list<T>(name: impl Into<String>, items: impl Into<Arc<[T]>>) -> Indexed<T>
where
    T: Clone + Send + Sync + 'static,
{
    let items: Arc<[T]> = items.into();
    index(name, Index::new(items.len() as u64, move |i| items[i as usize].clone()))
}

impl<T: Send + 'static> Source for Indexed<T> {
    type Item = T;

    fn name(&self) -> &str {
        &self.name
    }

    async fn run(self, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut queue = VecDeque::new();
        let mut next = 0;
        while next < self.index.len {
            // As many as there is room for, so that nothing is held beside the buffer but one item.
            let room = outlet.core().free(1).clamp(1, CHUNK as usize) as u64;
            let end = (next + room).min(self.index.len);
            let computing = AssertUnwindSafe(|| {
                queue.extend((next..end).map(|i| Item::new(ItemId::source(i), self.index.get(i))));
            });
            let panicked = std::panic::catch_unwind(computing).err();
            next = end;
            // What was computed before a panic is still delivered.
            outlet.send_all(&mut queue).await?;
            if let Some(panic) = panicked {
                return Err(Stop::Failed(Fault::panic(panic)));
            }
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    fn into_index(self) -> Result<Index<T>, Self> {
        Ok(self.index)
    }
}
