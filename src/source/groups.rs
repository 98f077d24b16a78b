//! Items that are best visited together, and random orders that do so.

use std::sync::Arc;

use super::chosen::{Chosen, Shuffled};
use crate::flow::Permutation;
use crate::item::mix;

/// Groups of neighbouring items on a grid: windows that are cut from the same chunks.
///
/// Items are numbered in row-major order over the axes. Along each axis so many neighbours belong to
/// one group; the first and the last group of an axis may have fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    axes: Vec<Axis>,
    len: u64,
    mixed: u64,
    /// Places beside the axes, of which not all are there; one if all are.
    chosen: Arc<Chosen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    count: u64,
    per: u64,
    /// Items in the first group, if it has fewer than the others; else 0.
    first: u64,
}

impl Axis {
    fn groups(&self) -> u64 {
        u64::from(self.first > 0) + (self.count - self.first).div_ceil(self.per)
    }

    /// The group of the item at place `at`.
    fn of(&self, at: u64) -> u64 {
        match at.checked_sub(self.first) {
            Some(at) => u64::from(self.first > 0) + at / self.per,
            None => 0,
        }
    }

    /// The groups of each size: the first item, how many groups there are, and the items in each.
    fn classes(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let rest = self.count - self.first;
        let (full, last) = (rest / self.per, rest % self.per);
        let classes = [
            (self.first, full, self.per),
            (0, u64::from(self.first > 0), self.first),
            (self.first + full * self.per, u64::from(last > 0), last),
        ];
        classes.into_iter().filter(|(_, groups, _)| *groups > 0)
    }
}

impl Groups {
    /// Groups on a grid, given for each axis by how many items there are and how many of them make
    /// a group.
    ///
    /// # Panics
    /// If a group has no items, or there are more than 2^64 items.
    pub fn new(axes: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self::beginning(axes.into_iter().map(|(count, per)| (count, per, 0)))
    }

    /// The same where the first group of an axis has fewer items: their number is the third one, or
    /// 0 if it has as many as the others.
    ///
    /// # Panics
    /// If a group has no items, or there are more than 2^64 items.
    pub fn beginning(axes: impl IntoIterator<Item = (u64, u64, u64)>) -> Self {
        let axes: Vec<_> = axes
            .into_iter()
            .map(|(count, per, first)| {
                assert!(per > 0, "a group has items");
                Axis { count, per: per.min(count.max(1)), first: (first % per).min(count) }
            })
            .collect();
        let len = axes.iter().map(|axis| axis.count).try_fold(1, u64::checked_mul);
        Groups {
            axes,
            len: len.expect("the items can be counted"),
            mixed: 16,
            chosen: Arc::new(Chosen::one()),
        }
    }

    /// How many groups are mixed with each other at a time, unless a shuffle says otherwise: as many
    /// as what they hold fits into memory at once. 16 if nothing is said.
    pub fn mixing(self, groups: u64) -> Self {
        Groups { mixed: groups.max(1), ..self }
    }

    /// The same for places of which not all are there: the `i`-th one belongs with those of the same
    /// `group(i)`. Items are then numbered with the places running fastest, `places` of them, and the
    /// axes behind them as before.
    ///
    /// # Panics
    /// If there are more than 2^32 places, or more than 2^64 items.
    pub fn choosing(self, places: u64, group: impl Fn(u64) -> u64) -> Self {
        let len = self.len.checked_mul(places).expect("the items can be counted");
        Groups { len, chosen: Arc::new(Chosen::new(places, group)), ..self }
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
        self.axes.iter().map(Axis::groups).product::<u64>() * self.chosen.groups()
    }

    /// How many groups are mixed at a time if a shuffle does not say.
    pub fn mixed(&self) -> u64 {
        self.mixed
    }

    /// How many neighbours along each axis make a group.
    pub(crate) fn per(&self) -> impl Iterator<Item = u64> {
        self.axes.iter().map(|axis| axis.per)
    }

    /// The group of an item, numbered in row-major order; those of chosen places come first.
    pub fn of(&self, item: u64) -> u64 {
        let places = self.chosen.len().max(1);
        let (mut below, mut group) = (self.len / places, self.chosen.group(item % places));
        let item = item / places;
        for axis in &self.axes {
            below /= axis.count;
            group = group * axis.groups() + axis.of(item / below % axis.count);
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
    /// The groups of places, in an order of their own, which is gone through again and again: each
    /// time each of them meets another group of the axes.
    places: Shuffled,
    mixed: u64,
    seed: u64,
}

/// The groups of one size: inner ones, or those at the beginning or the end of some axes.
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
        // Inner groups, or those that lie at the beginning or the end of some axes.
        let mut kinds: Vec<Vec<_>> = vec![Vec::new()];
        for axis in &groups.axes {
            let each = |kind: Vec<_>| {
                axis.classes().map(move |class| kind.iter().copied().chain([class]).collect())
            };
            kinds = kinds.into_iter().flat_map(each).collect();
        }
        for (number, axes) in kinds.into_iter().enumerate() {
            let count: u64 = axes.iter().map(|(_, groups, _)| groups).product();
            let items = axes.iter().map(|(.., items)| items).product();
            let seed = mix(seed, number as u64);
            let order = Permutation::new(count, seed);
            classes.push(Class { start, groups: count, items, order, seed, axes });
            start += count * items * groups.chosen.len();
        }
        let counts = groups.axes.iter().map(|axis| axis.count).collect();
        let places = Shuffled::new(Arc::clone(&groups.chosen), seed);
        GroupOrder { classes, counts, places, mixed: mixed.max(1), seed }
    }

    /// The item at place `at`, which must be below the number of items.
    pub fn get(&self, at: u64) -> u64 {
        let class = self.classes.partition_point(|class| class.start <= at) - 1;
        let class = &self.classes[class];
        let at = at - class.start;
        // So many groups at a time are mixed: the block that this place lies in.
        let number = self.places.group_at(at / class.items) / self.mixed;
        let end = ((number + 1) * self.mixed).min(class.groups * self.places.groups());
        let begin = self.places.before(number * self.mixed) * class.items;
        let len = self.places.before(end) * class.items - begin;
        let seed = mix(class.seed ^ self.seed, number);
        let at = begin + Permutation::new(len, seed).get(at - begin);
        let (round, turn, place) = self.places.get(at / class.items);
        let order = match turn {
            0 => class.order,
            _ => Permutation::new(class.groups, mix(class.seed, turn)),
        };
        let (mut group, mut within) = (order.get(round), at % class.items);
        // From the last axis to the first, as the last one runs fastest.
        let (mut item, mut scale) = (0, 1);
        for (&(first, groups, items), count) in class.axes.iter().zip(&self.counts).rev() {
            let place = first + group % groups * items + within % items;
            (group, within) = (group / groups, within / items);
            item += place * scale;
            scale *= count;
        }
        item * self.places.len() + place
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Where in `order` each group of `groups` begins and ends, all of whose items come once.
    fn spans(groups: &Groups, order: &GroupOrder, what: &str) -> BTreeMap<u64, (usize, usize)> {
        let items: Vec<_> = (0..groups.len()).map(|i| order.get(i)).collect();
        let mut sorted = items.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..groups.len()), "{what}");
        let mut spans = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            spans.entry(groups.of(*item)).or_insert((at, at)).1 = at;
        }
        assert_eq!(spans.len() as u64, groups.count(), "{what}");
        spans
    }

    #[test]
    fn every_item_comes_once_and_groups_stay_together() {
        let plain = |axes: &[(u64, u64)]| axes.iter().map(|(n, per)| (*n, *per, 0)).collect();
        for axes in [
            plain(&[(10, 3)]),
            plain(&[(7, 7)]),
            plain(&[(12, 4), (9, 2)]),
            plain(&[(5, 2), (7, 3), (4, 4)]),
            vec![(10, 4, 3)],
            vec![(2, 4, 3)],
            vec![(9, 4, 1), (8, 3, 2), (5, 5, 0)],
        ] {
            let groups = Groups::beginning(axes.clone());
            for mixed in [1, 2, 5, 1000] {
                let order = GroupOrder::new(&groups, mixed, 7);
                // A group is left for good once `mixed` others have been begun after it.
                let spans = spans(&groups, &order, &format!("{axes:?} {mixed}"));
                let most = axes.iter().map(|(_, per, _)| per).product::<u64>() * mixed;
                assert!(spans.values().all(|(first, last)| (last - first) as u64 <= most));
            }
        }
    }

    #[test]
    fn of_chosen_places_every_item_comes_once_and_groups_stay_together() {
        // Of 40 places in rows of 5 those that a mask would leave, in groups of different sizes.
        let left: Vec<u64> = (0..40).filter(|place| place * place % 7 < 3 || *place > 33).collect();
        for (axes, mixed) in [(vec![], 1), (vec![(10, 4, 3)], 3), (vec![(9, 4, 1), (5, 2, 0)], 4)] {
            let groups = Groups::beginning(axes.clone());
            let groups = groups.choosing(left.len() as u64, |i| left[i as usize] / 5);
            let each = axes.iter().map(|(n, ..)| n).product::<u64>();
            assert_eq!(groups.len(), each * left.len() as u64);
            let order = GroupOrder::new(&groups, mixed, 7);
            let spans = spans(&groups, &order, &format!("{axes:?} {mixed}"));
            // Never more than `mixed` at a time have begun and have not ended.
            let under_way = |at: &usize| {
                spans.values().filter(|(first, last)| (first..=last).contains(&at)).count() as u64
            };
            assert!(
                (0..groups.len() as usize).all(|at| under_way(&at) <= mixed),
                "{axes:?} {mixed}"
            );
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
