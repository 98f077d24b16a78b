//! Items that can be computed by position: windows of an array, files of a list.
//!
//! Stages that only choose among them or change their order work on the positions, cost nothing
//! and can be entered anywhere at once.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use super::Groups;
use crate::fault::Fault;
use crate::item::{Item, ItemId};
use crate::link::Outlet;
use crate::stage::{Source, Stop};

/// So many items are computed before the others on the thread get a turn.
const CHUNK: u64 = 64;

type MakeGroups = Box<dyn FnOnce() -> Groups + Send>;

/// Items that can be computed by position in constant time.
pub struct Index<T> {
    len: u64,
    get: Arc<dyn Fn(u64) -> T + Send + Sync>,
    groups: Option<Arc<LazyLock<Groups, MakeGroups>>>,
    /// The items of an epoch, if their order differs from epoch to epoch.
    epochs: Option<Arc<dyn Fn(u64) -> Index<T> + Send + Sync>>,
}

fn check_all(len: u64, groups: &Groups) {
    assert_eq!(len, groups.len(), "the groups are those of all items");
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Index {
            len: self.len,
            get: Arc::clone(&self.get),
            groups: self.groups.clone(),
            epochs: self.epochs.clone(),
        }
    }
}

impl<T> Index<T> {
    /// `len` items, of which `get` computes the i-th.
    pub fn new(len: u64, get: impl Fn(u64) -> T + Send + Sync + 'static) -> Self {
        Index { len, get: Arc::new(get), groups: None, epochs: None }
    }

    /// The same with the groups of items that are best visited together, such as windows that are
    /// cut from the same chunks. Lost where items are chosen among or put in another order.
    ///
    /// # Panics
    /// If the groups are those of another number of items.
    pub fn grouped(self, groups: Groups) -> Self {
        check_all(self.len, &groups);
        self.grouped_by(|| groups)
    }

    /// The same with groups of all items that are found out when something first asks for them.
    pub(crate) fn grouped_by(self, groups: impl FnOnce() -> Groups + Send + 'static) -> Self {
        let len = self.len;
        let groups: MakeGroups = Box::new(move || {
            let groups = groups();
            check_all(len, &groups);
            groups
        });
        Index { groups: Some(Arc::new(LazyLock::new(groups))), ..self }
    }

    /// Whether there are groups of items that are best visited together.
    pub(crate) fn is_grouped(&self) -> bool {
        self.groups.is_some()
    }

    /// `len` of these items (some may come several times), of which the i-th is the one at
    /// `place(i)`.
    pub fn select(self, len: u64, place: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self
    where
        T: 'static,
    {
        let place = Arc::new(place);
        self.each_epoch(move |_, items| {
            let (get, place) = (Arc::clone(&items.get), Arc::clone(&place));
            Index::new(len, move |i| get(place(i)))
        })
    }

    /// What `change` makes of the items of each epoch, which are the same ones in the same order
    /// unless a shuffle came before. The first epoch is number 0.
    pub fn each_epoch<U: 'static>(
        self,
        change: impl Fn(u64, Index<T>) -> Index<U> + Send + Sync + 'static,
    ) -> Index<U>
    where
        T: 'static,
    {
        let first = change(0, self.clone());
        let every = move |epoch| change(epoch, self.epoch(epoch));
        Index { epochs: Some(Arc::new(every)), ..first }
    }

    /// The items in the order of the epoch `epoch`.
    pub fn epoch(&self, epoch: u64) -> Index<T> {
        match &self.epochs {
            Some(epochs) if epoch > 0 => epochs(epoch),
            _ => self.clone(),
        }
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
        self.groups.as_ref().map(|groups| &***groups)
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
    /// The position of the first item that it gives.
    begin: u64,
}

impl<T> Indexed<T> {
    pub(crate) fn new(name: String, index: Index<T>) -> Self {
        Indexed { name, index, begin: 0 }
    }

    /// Without the items before position `begin`; the others keep their numbers.
    pub(crate) fn beginning(self, begin: u64) -> Self {
        Indexed { begin, ..self }
    }
}

/// A source of items computed by position.
pub fn index<T: Send + 'static>(name: impl Into<String>, index: Index<T>) -> Indexed<T> {
    Indexed::new(name.into(), index)
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
        let mut next = self.begin;
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
