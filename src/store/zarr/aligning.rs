//! How another store of a sample lies to the sample's own, by the coordinates of both: which entries
//! have the same coordinates, or which are nearest.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::coordinate::{Coordinate, Entries};
use super::cutting::{Lengths, Part, Within, known, lengths};
use super::error::ZarrError;
use super::meta::Known;
use super::nearest::Nearest;
use super::spec::{Align, Also, Edge, WindowsSpec};
use super::variable::Variable;
use crate::store::redacted;

/// How the entries of a dimension in another store lie to those of the sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    /// The entry of the other store for the sample's first one.
    pub(super) by: i64,
    /// Entries of the other store.
    pub(super) len: u64,
    /// Whether both go around, so that every entry has its counterpart.
    pub(super) ring: bool,
}

/// How the entries of a dimension in another store are found.
#[derive(Debug)]
pub(super) enum Aligned {
    Shift(Shift),
    Nearest(Nearest),
}

pub(super) type AlignedDims = BTreeMap<Arc<str>, Aligned>;

/// Refuses an alignment that means nothing.
pub(super) fn check_align(spec: &WindowsSpec) -> Result<(), ZarrError> {
    for (name, also) in &spec.also {
        let wrong = |why: &str| ZarrError::Also { name: name.clone(), why: why.to_owned() };
        let is_nearest = also.align == Align::Nearest;
        if is_nearest && also.store.is_none() {
            return Err(wrong("`align: nearest` is for another store: give its `store`"));
        }
        if !is_nearest && !also.tolerance.is_empty() {
            return Err(wrong("a `tolerance` is for `align: nearest`: write that, too"));
        }
    }
    Ok(())
}

/// How the dimensions that `others`, of the store `other`, share with the sample's variables lie to
/// theirs, by the coordinates in both stores.
pub(super) fn align(
    also: &Also,
    (metadata, variables): (&Known<'_>, &[Variable]),
    (other, others): (&Known<'_>, &[Variable]),
    base: &Lengths,
) -> Result<AlignedDims, ZarrError> {
    let mut dims = AlignedDims::new();
    let theirs = lengths(others)?;
    for dim in also.tolerance.keys() {
        known(dim, &theirs)?;
    }
    for (dim, len) in theirs {
        let Some(&here_len) = base.get(&dim) else { continue };
        let coordinate = |known: &Known<'_>, variables: &[Variable], len| {
            let of = variables.iter().find(|variable| variable.dims.contains(&dim));
            Coordinate::read(known, of.map_or("", |variable| &variable.name), &dim, len)
        };
        let here = coordinate(metadata, variables, here_len)?;
        let there = coordinate(other, others, len)?;
        let aligned = match also.align {
            Align::Exact => {
                let shift = |(by, ring)| Aligned::Shift(Shift { by, len, ring });
                here.align(&there).map(shift)
            }
            Align::Nearest => {
                Nearest::new(here, there, also.tolerance.get(&dim)).map(Aligned::Nearest)
            }
        };
        let apart = |why| apart(&dim, metadata.store.url(), other.store.url(), why);
        let aligned = aligned.map_err(apart)?;
        dims.insert(dim, aligned);
    }
    Ok(dims)
}

fn apart(dim: &str, one: &str, other: &str, why: String) -> ZarrError {
    ZarrError::Align { dim: dim.to_owned(), one: one.to_owned(), other: other.to_owned(), why }
}

/// Refuses what is read of the sample's store but is near to nothing in that of `part`.
pub(super) fn settle(part: &mut Part<'_>, one: &str, within: &Within) -> Result<(), ZarrError> {
    let Some((url, _)) = part.elsewhere else { return Ok(()) };
    for (dim, aligned) in &mut part.aligned {
        let Aligned::Nearest(nearest) = aligned else { continue };
        let all = Entries { start: 0, end: nearest.at.len() as u64, ring: false };
        let entries = within.get(dim).copied().unwrap_or(all);
        nearest.settle(entries).map_err(|why| apart(dim, one, &redacted(url), why))?;
    }
    Ok(())
}

/// Leaves the entries that another store has, too.
pub(super) fn common(
    spec: &WindowsSpec,
    aligned: &AlignedDims,
    lengths: &Lengths,
    within: &mut Within,
) -> Result<(), ZarrError> {
    for (dim, aligned) in aligned {
        let Aligned::Shift(shift) = aligned else { continue };
        let wrong = |why: &str| ZarrError::Window { dim: dim.to_string(), why: why.to_owned() };
        let len = lengths[dim];
        let all = Entries { start: 0, end: len, ring: false };
        let entries = within.entry(Arc::clone(dim)).or_insert(all);
        let same = shift.ring || (shift.by, shift.len) == (0, len);
        if same {
            continue;
        }
        if entries.ring || spec.edges.of(dim) == Edge::Wrap {
            return Err(wrong("goes around, which another store of the sample does not"));
        }
        let last = shift.len.saturating_add_signed(-shift.by);
        entries.start = entries.start.max(0_u64.saturating_add_signed(-shift.by));
        entries.end = entries.end.min(last);
        if entries.start >= entries.end {
            return Err(wrong("has no entries that all stores of the sample have"));
        }
    }
    Ok(())
}
