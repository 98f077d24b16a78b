//! Groups items, and takes groups apart.

use std::marker::PhantomData;
use std::time::Duration;

use crate::entering::Entering;
use crate::item::Item;
use crate::link::{Inlet, Outlet};
use crate::site::Holding;
use crate::source::{Groups, Index};
use crate::stage::{Stage, Stop};

/// Groups of `size` items, see [`batch`].
#[derive(Debug)]
pub struct Batch<T> {
    size: usize,
    drop_last: bool,
    within: Option<Duration>,
    items: PhantomData<fn(T)>,
}

/// Groups items by `size`, in order. The last group is what is left, unless it is dropped.
///
/// ```
/// use forebay::prelude::*;
///
/// let run = Pipeline::from(source::iter("numbers", 0..5)).then(flow::batch(2)).run()?;
/// let groups: Vec<Vec<i32>> = run.collect::<Result<_, _>>()?;
/// assert_eq!(groups, [vec![0, 1], vec![2, 3], vec![4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `size` is 0.
pub fn batch<T>(size: usize) -> Batch<T> {
    assert!(size > 0, "a batch has at least one item");
    Batch { size, drop_last: false, within: None, items: PhantomData }
}

impl<T> Batch<T> {
    /// Drops the last group if it is not full.
    pub fn drop_last(self) -> Self {
        Batch { drop_last: true, ..self }
    }

    /// Sends a group that is not full once its first item is this old. The groups then depend on
    /// timing, so over such a pipeline two runs have different fingerprints.
    pub fn within(self, time: Duration) -> Self {
        Batch { within: Some(time), ..self }
    }
}

impl<T: Send + 'static> Stage for Batch<T> {
    type In = T;
    type Out = Vec<T>;

    fn name(&self) -> &str {
        "batch"
    }

    fn entering(&self) -> Entering {
        match self.within {
            None => Entering::Groups,
            Some(_) => {
                Entering::Never("sends groups that are not full after a time: leave out `within`")
            }
        }
    }

    fn decides(&self, _: Option<&Groups>) -> String {
        format!("size {}{}", self.size, if self.drop_last { ", drop_last" } else { "" })
    }

    async fn run(self, inlet: &mut Inlet<T>, outlet: &mut Outlet<Vec<T>>) -> Result<(), Stop> {
        // A group has the id of its first item: a function of the input's order alone.
        let mut members = Vec::new();
        let mut bytes = 0;
        let mut group = Vec::with_capacity(self.size.min(1024));
        let mut deadline = None;
        let mut holding = Holding::nothing::<T>(outlet.site());
        loop {
            // Receiving is cancel-safe: an item is either received or still in the inlet.
            let received = match (deadline, self.within) {
                (Some(at), Some(_)) => tokio::time::timeout_at(at, inlet.recv_item()).await.ok(),
                _ => Some(inlet.recv_item().await),
            };
            let full = match received {
                Some(item) => match item? {
                    Some(item) => {
                        if group.is_empty() {
                            deadline = self.within.map(|time| tokio::time::Instant::now() + time);
                        }
                        members.push(item.id);
                        bytes += item.bytes;
                        group.push(item.value);
                        holding.set(group.len(), bytes);
                        group.len() == self.size
                    }
                    None => break,
                },
                None => true,
            };
            if full && let Some(&id) = members.first() {
                outlet.site().meter.grouped(id, std::mem::take(&mut members));
                let value = std::mem::replace(&mut group, Vec::with_capacity(self.size.min(1024)));
                deadline = None;
                holding.set(0, 0);
                outlet.send_item(Item { id, bytes: std::mem::take(&mut bytes), value }).await?;
            }
        }
        holding.set(0, 0);
        match members.first() {
            Some(&id) if !self.drop_last => {
                outlet.site().meter.grouped(id, members);
                outlet.send_item(Item { id, bytes, value: group }).await
            }
            _ => Ok(()),
        }
    }

    fn index(self, input: Index<T>) -> Result<Index<Vec<T>>, (Self, Index<T>)> {
        let size = self.size as u64;
        let len = if self.drop_last { input.len() / size } else { input.len().div_ceil(size) };
        Ok(input.each_epoch(move |_, items| {
            Index::new(len, move |i| {
                let end = ((i + 1) * size).min(items.len());
                (i * size..end).map(|j| items.get(j)).collect()
            })
        }))
    }
}

/// The items of groups, see [`unbatch`].
#[derive(Debug)]
pub struct Unbatch<T> {
    items: PhantomData<fn(T)>,
}

/// Takes groups apart: their items follow each other.
pub fn unbatch<T>() -> Unbatch<T> {
    Unbatch { items: PhantomData }
}

impl<T: Send + 'static> Stage for Unbatch<T> {
    type In = Vec<T>;
    type Out = T;

    fn name(&self) -> &str {
        "unbatch"
    }

    fn entering(&self) -> Entering {
        Entering::Many
    }

    async fn run(self, inlet: &mut Inlet<Vec<T>>, outlet: &mut Outlet<T>) -> Result<(), Stop> {
        let mut holding = Holding::nothing::<T>(outlet.site());
        while let Some(group) = inlet.recv_item().await? {
            let each = group.bytes / group.value.len().max(1) as u64;
            let mut group = group.value.into_iter();
            while let Some(item) = group.next() {
                holding.set(group.len(), each * group.len() as u64);
                outlet.send(item).await?;
            }
        }
        Ok(())
    }
}
