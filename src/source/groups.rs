//! Items that are best visited together, and random orders that do so.

use crate::flow::Permutation;
use crate::item::mix;

/// Groups of neighbouring items on a grid: windows that are cut from the same chunks.
///
/// Items are numbered in row-major order over the axes. Along each axis so many neighbours belong to
/// one group; the last group of an axis may have fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    axes: Vec<Axis>,
    len: u64,
    mixed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    count: u64,
    per: u64,
}

impl Groups {
    /// Groups on a grid, given for each axis by how many items there are and how many of them make
    /// a group.
    ///
    /// # Panics
    /// If a group has no items, or there are more than 2^64 items.
    pub fn new(axes: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let axes: Vec<_> = axes
            .into_iter()
            .map(|(count, per)| {
                assert!(per > 0, "a group has items");
                Axis { count, per: per.min(count.max(1)) }
            })
            .collect();
        let len = axes.iter().map(|axis| axis.count).try_fold(1, u64::checked_mul);
        Groups { axes, len: len.expect("the items can be counted"), mixed: 16 }
    }

    /// How many groups are mixed with each other at a time, unless a shuffle says otherwise: as many
    /// as what they hold fits into memory at once. 16 if nothing is said.
    pub fn mixing(self, groups: u64) -> Self {
        Groups { mixed: groups.max(1), ..self }
    }

    /// How many items there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many groups there are.
    pub fn count(&self) -> u64 {
        self.axes.iter().map(|axis| axis.count.div_ceil(axis.per)).product()
    }

    /// How many groups are mixed at a time if a shuffle does not say.
    pub fn mixed(&self) -> u64 {
        self.mixed
    }

    /// How many neighbours along each axis make a group.
    pub(crate) fn per(&self) -> impl Iterator<Item = u64> {
        self.axes.iter().map(|axis| axis.per)
    }

    /// The group of an item, numbered in row-major order.
    pub fn of(&self, item: u64) -> u64 {
        let (mut below, mut group) = (self.len, 0);
        for Axis { count, per } in &self.axes {
            below /= count;
            let at = item / below % count;
            group = group * count.div_ceil(*per) + at / per;
        }
        group
    }

    /// How many different groups `draws` items next to each other in a random order come from, in
    /// the mean, if `mixed` groups are mixed at a time.
    pub fn drawn(mixed: u64, draws: u64) -> f64 {
        let mixed = mixed as f64;
        mixed * (1.0 - (1.0 - 1.0 / mixed).powf(draws as f64))
    }
}

/// A random order in which the items of a group come close together: groups in random order, so many
/// at a time, and the items of those in random order. Any place of it is computed in constant time.
#[derive(Clone, Debug)]
pub struct GroupOrder {
    classes: Vec<Class>,
    counts: Vec<u64>,
    mixed: u64,
    seed: u64,
}

/// The groups of one size: inner ones, or those at the end of some axes.
#[derive(Clone, Debug)]
struct Class {
    /// The first place in the order.
    start: u64,
    groups: u64,
    /// Items in each group.
    items: u64,
    order: Permutation,
    seed: u64,
    /// Along each axis: the first item, the number of groups, and the items in each.
    axes: Vec<(u64, u64, u64)>,
}

impl GroupOrder {
    /// The order that belongs to `seed`, with `mixed` groups at a time.
    pub fn new(groups: &Groups, mixed: u64, seed: u64) -> Self {
        let mut classes = Vec::new();
        let mut start = 0;
        // Which axes a group lies at the end of, where it has fewer items than the others.
        for ends in 0..1_u64 << groups.axes.len() {
            let along = |(i, axis): (usize, &Axis)| {
                let (full, rest) = (axis.count / axis.per, axis.count % axis.per);
                match (ends >> i & 1 == 1, rest) {
                    (false, _) => (0, full, axis.per),
                    (true, 0) => (0, 0, 0),
                    (true, rest) => (full * axis.per, 1, rest),
                }
            };
            let axes: Vec<_> = groups.axes.iter().enumerate().map(along).collect();
            let count: u64 = axes.iter().map(|(_, groups, _)| groups).product();
            if count == 0 {
                continue;
            }
            let items = axes.iter().map(|(.., items)| items).product();
            let seed = mix(seed, ends);
            let order = Permutation::new(count, seed);
            classes.push(Class { start, groups: count, items, order, seed, axes });
            start += count * items;
        }
        let counts = groups.axes.iter().map(|axis| axis.count).collect();
        GroupOrder { classes, counts, mixed: mixed.max(1), seed }
    }

    /// The item at place `at`, which must be below the number of items.
    pub fn get(&self, at: u64) -> u64 {
        let class = self.classes.partition_point(|class| class.start <= at) - 1;
        let class = &self.classes[class];
        let at = at - class.start;
        let block = class.items * self.mixed;
        let (number, at) = (at / block, at % block);
        let groups = self.mixed.min(class.groups - number * self.mixed);
        let seed = mix(class.seed ^ self.seed, number);
        let at = Permutation::new(groups * class.items, seed).get(at);
        let mut group = class.order.get(number * self.mixed + at / class.items);
        let mut within = at % class.items;
        // From the last axis to the first, as the last one runs fastest.
        let (mut item, mut scale) = (0, 1);
        for (&(first, groups, items), count) in class.axes.iter().zip(&self.counts).rev() {
            let place = first + group % groups * items + within % items;
            (group, within) = (group / groups, within / items);
            item += place * scale;
            scale *= count;
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_comes_once_and_groups_stay_together() {
        for axes in
            [vec![(10, 3)], vec![(7, 7)], vec![(12, 4), (9, 2)], vec![(5, 2), (7, 3), (4, 4)]]
        {
            let groups = Groups::new(axes.clone());
            for mixed in [1, 2, 5, 1000] {
                let order = GroupOrder::new(&groups, mixed, 7);
                let items: Vec<_> = (0..groups.len()).map(|i| order.get(i)).collect();
                let mut sorted = items.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..groups.len()), "{axes:?} {mixed}");
                // A group is left for good once `mixed` others have been begun after it.
                let mut open = std::collections::BTreeMap::new();
                for (at, item) in items.iter().enumerate() {
                    let seen = open.entry(groups.of(*item)).or_insert((at, at));
                    seen.1 = at;
                }
                assert_eq!(open.len() as u64, groups.count());
                let most = axes.iter().map(|(_, per)| per).product::<u64>() * mixed;
                assert!(open.values().all(|(first, last)| (last - first) as u64 <= most));
            }
        }
    }

    #[test]
    fn seeds_and_places_differ() {
        let groups = Groups::new([(64, 8), (64, 8)]);
        let order = |seed| {
            let order = GroupOrder::new(&groups, 4, seed);
            (0..groups.len()).map(|i| order.get(i)).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        // 32 items next to each other come from nearly as many groups as 32 draws from 4 do.
        let drawn: Vec<_> = order(3)[..256]
            .chunks(32)
            .map(|batch| {
                batch.iter().map(|i| groups.of(*i)).collect::<std::collections::BTreeSet<_>>()
            })
            .map(|groups| groups.len() as f64)
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - Groups::drawn(4, 32)).abs() < 0.5, "{mean}");
    }

    #[test]
    fn large_grids_work() {
        let groups = Groups::new([(1 << 31, 24), (1 << 31, 7)]);
        let order = GroupOrder::new(&groups, 16, 1);
        assert!(order.get(groups.len() - 1) < groups.len());
    }
}
