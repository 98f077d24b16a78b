//! A random order of `n` items, computed per index: no list of indices is ever made.

use crate::item::mix;

/// A permutation of `0..len` that depends on a seed alone. Any place of it is computed in constant
/// time (a Feistel network of four rounds over the next power of four, walked until it falls below
/// `len`).
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `0..len` that belongs to `seed`.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let keys = [1, 2, 3, 4].map(|round| mix(seed, round));
        Permutation { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `i` goes. `i` must be below the length.
    pub fn get(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        let mut at = i;
        // The network permutes fewer than four times as many numbers as there are; the cycle that
        // begins at `i` comes back to `i`, so the walk ends, after four steps in the mean at most.
        loop {
            at = self.round_trip(at);
            if at < self.len {
                return at;
            }
        }
    }

    fn round_trip(&self, at: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (at >> self.half_bits, at & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(key, right) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_permuted_and_seeds_differ() {
        for len in (1..130).chain([1000, 4096, 4097]) {
            let order = Permutation::new(len, 7);
            let mut seen: Vec<u64> = (0..len).map(|i| order.get(i)).collect();
            let other = Permutation::new(len, 8);
            let same = (0..len).filter(|&i| other.get(i) == seen[i as usize]).count() as u64;
            assert!(len < 20 || same < len / 4, "{len}: {same} places in common");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn the_largest_length_works() {
        let order = Permutation::new(u64::MAX, 1);
        assert!(order.get(0) < u64::MAX && order.get(u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn the_order_is_well_mixed() {
        // The mean distance between places of neighbours is a third of the length if random.
        let len = 10_000;
        let order = Permutation::new(len, 42);
        let total: u64 = (1..len).map(|i| order.get(i).abs_diff(order.get(i - 1))).sum();
        let mean = total as f64 / (len - 1) as f64 / len as f64;
        assert!((0.31..0.36).contains(&mean), "{mean}");
    }
}
