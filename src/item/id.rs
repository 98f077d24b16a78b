//! Who an item is: a pure function of its place in the source, whatever the workers do.

use std::fmt;

/// The identity of an item: the position in the source that it came from and, where a stage makes
/// several items of one, the path from there.
///
/// Ids depend on the source's order and the pipeline alone, never on workers or timing, so the
/// sequence of ids that a consumer sees says whether two runs delivered the same items in the same
/// order (see [`Fingerprint`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ItemId {
    position: u64,
    path: u64,
}

impl ItemId {
    /// The id of the source's item at `position`, counted from 0.
    pub const fn source(position: u64) -> Self {
        ItemId { position, path: 0 }
    }

    /// The id of the `n`-th item that a stage makes of this one.
    pub fn child(self, n: u64) -> Self {
        ItemId { position: self.position, path: mix(self.path, n.wrapping_add(1)) }
    }

    pub(crate) const fn parts(self) -> (u64, u64) {
        (self.position, self.path)
    }

    pub(crate) const fn from_parts(position: u64, path: u64) -> Self {
        ItemId { position, path }
    }

    /// The position in the source that this item came from.
    pub const fn position(self) -> u64 {
        self.position
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.position)?;
        if self.path != 0 {
            write!(f, "/{:04x}", self.path & 0xffff)?;
        }
        Ok(())
    }
}

/// A rolling hash of the ids that a consumer received, in order: equal fingerprints mean the same
/// items in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Takes one more id into the hash.
    pub fn push(&mut self, id: ItemId) {
        self.0 = mix(mix(self.0, id.position.wrapping_add(1)), id.path);
    }

    /// The hash as a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for Fingerprint {
    fn from(value: u64) -> Self {
        Fingerprint(value)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(f, "{:04x}-{:04x}", (v >> 48) as u16 ^ (v >> 32) as u16, (v >> 16) as u16 ^ v as u16)
    }
}

/// Takes `value` into `state`; every bit of both reaches every bit of the result (splitmix64).
pub(crate) fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(23) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_differ_from_each_other_and_from_their_parent() {
        let parent = ItemId::source(41);
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|n| parent.child(n)).chain([parent]).collect();
        assert_eq!(ids.len(), 1001);
        assert!(ids.iter().all(|id| id.position() == 41));
    }

    #[test]
    fn a_fingerprint_depends_on_order() {
        let (mut ab, mut ba) = (Fingerprint::default(), Fingerprint::default());
        for i in [0, 1] {
            ab.push(ItemId::source(i));
            ba.push(ItemId::source(1 - i));
        }
        assert_ne!(ab, ba);
    }
}
