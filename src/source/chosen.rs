//! Places of which not all are there, such as those that a mask leaves, in groups of any size; and an
//! order of the groups that is looked up by halving.

use std::sync::Arc;

use crate::flow::Permutation;
use crate::item::mix;

/// Places by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The places, those of a group next to each other.
    places: Vec<u32>,
    /// Where each group begins among them, and behind the last one the end.
    begins: Vec<u32>,
    /// The group of each place.
    group: Vec<u32>,
}

impl Chosen {
    /// One place.
    pub(super) fn one() -> Self {
        Chosen::new(1, |_| 0)
    }

    /// `len` places, of which those of the same `group` belong together.
    pub(super) fn new(len: u64, group: impl Fn(u64) -> u64) -> Self {
        let len = u32::try_from(len).expect("places can be counted in 32 bits");
        let named: Vec<u64> = (0..len).map(|place| group(u64::from(place))).collect();
        let mut places: Vec<u32> = (0..len).collect();
        places.sort_by_key(|place| named[*place as usize]);
        let (mut begins, mut group) = (Vec::new(), vec![0; len as usize]);
        let mut last = None;
        for (at, place) in places.iter().enumerate() {
            let name = named[*place as usize];
            if last != Some(name) {
                begins.push(at as u32);
                last = Some(name);
            }
            group[*place as usize] = begins.len() as u32 - 1;
        }
        begins.push(len);
        Chosen { places, begins, group }
    }

    pub(super) fn len(&self) -> u64 {
        self.places.len() as u64
    }

    pub(super) fn groups(&self) -> u64 {
        self.begins.len() as u64 - 1
    }

    /// The group of a place.
    pub(super) fn group(&self, place: u64) -> u64 {
        u64::from(self.group[place as usize])
    }
}

/// The groups of places in a random order, gone through in rounds that have no end.
#[derive(Clone, Debug)]
pub(super) struct Shuffled {
    chosen: Arc<Chosen>,
    order: Permutation,
    /// How many places come before each group of a round, and in all of it.
    before: Vec<u64>,
}

impl Shuffled {
    pub(super) fn new(chosen: Arc<Chosen>, seed: u64) -> Self {
        let groups = chosen.groups();
        let order = Permutation::new(groups, mix(seed, groups));
        let mut before = vec![0];
        for turn in 0..groups {
            let group = order.get(turn) as usize;
            let len = u64::from(chosen.begins[group + 1] - chosen.begins[group]);
            before.push(before[turn as usize] + len);
        }
        Shuffled { chosen, order, before }
    }

    /// Places in a round.
    pub(super) fn len(&self) -> u64 {
        self.chosen.len()
    }

    /// Groups in a round.
    pub(super) fn groups(&self) -> u64 {
        self.chosen.groups()
    }

    /// How many places come before the group `number`, counted through all rounds.
    pub(super) fn before(&self, number: u64) -> u64 {
        number / self.groups() * self.len() + self.before[(number % self.groups()) as usize]
    }

    /// The group, counted through all rounds, of the place that comes `at`-th.
    pub(super) fn group_at(&self, at: u64) -> u64 {
        at / self.len() * self.groups() + self.turn(at % self.len())
    }

    /// The round of the place that comes `at`-th, the turn of its group in it, and the place.
    pub(super) fn get(&self, at: u64) -> (u64, u64, u64) {
        let (round, at) = (at / self.len(), at % self.len());
        let turn = self.turn(at);
        let begin = u64::from(self.chosen.begins[self.order.get(turn) as usize]);
        let place = self.chosen.places[(begin + at - self.before[turn as usize]) as usize];
        (round, turn, u64::from(place))
    }

    fn turn(&self, at: u64) -> u64 {
        self.before.partition_point(|before| *before <= at) as u64 - 1
    }
}
