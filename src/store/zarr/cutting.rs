//! How variables are cut into windows, from what people ask for and what the store has: which
//! entries are read, along which axes windows move, and what each tensor takes of its variable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::aligning::{Aligned, AlignedDims};
use super::coordinate::{Coordinate, Entries};
use super::cut::{Along, Axis, Cut};
use super::error::{ZarrError, hint};
use super::meta::Known;
use super::picks::Picks;
use super::spec::{Also, Edge, Extents, Offsets, WindowsSpec};
use super::variable::{Variable, numbers};
use crate::store::StoreOptions;

/// A window of a sample: the sample's own, or one of `also`.
pub(super) struct Part<'a> {
    name: Option<&'a str>,
    pub(super) variables: &'a [String],
    window: &'a Extents,
    offset: Option<&'a Offsets>,
    /// The URL and the options of its store, if it has one of its own.
    pub(super) elsewhere: Option<(&'a str, &'a StoreOptions)>,
    /// Which store its variables come from; the sample's own is number 0.
    pub(super) source: usize,
    /// How the entries of its store are found, if it has one of its own.
    pub(super) also: Option<&'a Also>,
    /// Where they lie, by dimension.
    pub(super) aligned: AlignedDims,
}

impl Part<'_> {
    /// Where it begins from the sample's window, which has `size` entries, and how many it has.
    fn along(&self, dim: &str, size: u64) -> (i64, u64) {
        let offset = self.offset.and_then(|offset| offset.get(dim)).unwrap_or(0);
        (offset, self.window.get(dim).unwrap_or(size))
    }
}

pub(super) fn parts(spec: &WindowsSpec) -> Vec<Part<'_>> {
    let own = Part {
        name: None,
        variables: &spec.variables,
        window: &spec.window,
        offset: None,
        elsewhere: None,
        source: 0,
        also: None,
        aligned: AlignedDims::new(),
    };
    let also = spec.also.iter().map(|(name, also)| Part {
        name: Some(name),
        variables: if also.variables.is_empty() { &spec.variables } else { &also.variables },
        window: &also.window,
        offset: Some(&also.offset),
        elsewhere: also.store.as_deref().map(|store| (store, &also.options)),
        source: 0,
        also: Some(also),
        aligned: AlignedDims::new(),
    });
    std::iter::once(own).chain(also).collect()
}

pub(super) type Lengths = BTreeMap<Arc<str>, u64>;
pub(super) type Within = BTreeMap<Arc<str>, Entries>;

/// The lengths of all dimensions, which must be the same in all variables.
pub(super) fn lengths(variables: &[Variable]) -> Result<Lengths, ZarrError> {
    let mut lengths = BTreeMap::<Arc<str>, (u64, &str)>::new();
    for variable in variables {
        for (dim, &len) in variable.dims.iter().zip(&variable.shape) {
            let (known, of) = *lengths.entry(Arc::clone(dim)).or_insert((len, &variable.name));
            if known != len {
                return Err(ZarrError::DimLength {
                    dim: dim.to_string(),
                    one: of.to_owned(),
                    a: known,
                    other: variable.name.to_string(),
                    b: len,
                });
            }
        }
    }
    Ok(lengths.into_iter().map(|(dim, (len, _))| (dim, len)).collect())
}

/// The dimension `dim` and its length.
pub(super) fn known<'a>(dim: &str, lengths: &'a Lengths) -> Result<(&'a Arc<str>, u64), ZarrError> {
    if let Some((name, len)) = lengths.get_key_value(dim) {
        return Ok((name, *len));
    }
    let known: Vec<_> = lengths.keys().map(|dim| dim.to_string()).collect();
    Err(ZarrError::NoDim { dim: dim.to_owned(), hint: hint(dim, &known) })
}

/// The entries that are read of dimensions of which not all are.
pub(super) fn within(
    metadata: &Known<'_>,
    spec: &WindowsSpec,
    variables: &[Variable],
    lengths: &Lengths,
) -> Result<Within, ZarrError> {
    let mut within = Within::new();
    let wrong = |dim: &str, why: String| ZarrError::Window { dim: dim.to_owned(), why };
    for (dim, span) in &spec.range {
        let (name, len) = known(dim, lengths)?;
        let (start, end) = (span.start, span.end);
        if start >= end || end > len {
            let why = format!("is taken from the entries {start}..{end}, but there are {len}");
            return Err(wrong(dim, why));
        }
        within.insert(Arc::clone(name), Entries { start, end, ring: false });
    }
    for (dim, labels) in &spec.select {
        let (name, len) = known(dim, lengths)?;
        if within.contains_key(name) {
            let why = "is chosen by `range` and by `select`: give one of them".to_owned();
            return Err(wrong(dim, why));
        }
        let of = variables.iter().find(|variable| variable.dims.contains(name));
        let of = of.map_or("", |variable| &variable.name);
        let coordinate = Coordinate::read(metadata, of, dim, len)?;
        let entries = coordinate.find(labels).map_err(|why| wrong(dim, why))?;
        within.insert(Arc::clone(name), entries);
    }
    Ok(within)
}

/// Leaves the part of a dimension that is to be read.
pub(super) fn split(
    spec: &WindowsSpec,
    lengths: &Lengths,
    within: &mut Within,
) -> Result<(), ZarrError> {
    let wrong = |dim: &str, why: String| ZarrError::Window { dim: dim.to_owned(), why };
    if let Some(split) = &spec.split {
        let (name, len) = known(&split.by, lengths)?;
        let all = Entries { start: 0, end: len, ring: false };
        let entries = within.entry(Arc::clone(name)).or_insert(all);
        let part = split.entries(entries.end - entries.start);
        let part = part.map_err(|why| wrong(&split.by, format!("is split, but {why}")))?;
        if part.is_empty() {
            let (take, count) = (&split.take, entries.end - entries.start);
            let why = format!("is split, and `{take}` gets none of its {count} entries");
            return Err(wrong(&split.by, why));
        }
        (entries.start, entries.end) = (entries.start + part.start, entries.start + part.end);
    }
    Ok(())
}

pub(super) fn axes(
    spec: &WindowsSpec,
    parts: &[Part<'_>],
    lengths: &Lengths,
    within: &Within,
) -> Result<Vec<Axis>, ZarrError> {
    let also = |also: &super::spec::Also| {
        also.window.keys().chain(also.offset.keys()).cloned().collect::<Vec<_>>()
    };
    let named = (spec.stride.keys().map(|dim| (dim.clone(), "its stride")))
        .chain(spec.overlap.keys().map(|dim| (dim.clone(), "its overlap")))
        .chain(spec.edges.dims().map(|dim| (dim.clone(), "what happens at its edges")))
        .chain(spec.also.values().flat_map(also).map(|dim| (dim, "another window in it")));
    for (dim, what) in named {
        if !spec.window.contains_key(&dim) {
            let why = format!("is not given, but {what} is: add it to `window`");
            return Err(ZarrError::Window { dim, why });
        }
    }
    let axis = |(dim, &size): (&String, &u64)| {
        let wrong = |why: String| ZarrError::Window { dim: dim.clone(), why };
        let (name, whole) = known(dim, lengths)?;
        let entries = within.get(name).copied();
        let (start, len) = entries.map_or((0, whole), |e| (e.start, e.end - e.start));
        let stride = stride(spec, dim, size).map_err(wrong)?;
        let mut reach = 0..0_i64;
        for part in parts {
            let (offset, size) = part.along(dim, size);
            if size == 0
                || size > i64::MAX as u64 / 4
                || offset.unsigned_abs() > i64::MAX as u64 / 4
            {
                return Err(wrong(format!("has {size} entries: write 1 to {len}")));
            }
            reach = reach.start.min(offset)..reach.end.max(offset + size as i64);
        }
        let edge = spec.edges.of(dim);
        let span = reach.end.abs_diff(reach.start);
        let reach_of = reach.clone();
        let axis = move |start, count| {
            let (name, reach) = (Arc::clone(name), reach_of);
            Axis { name, start, size, stride, count, reach }
        };
        Ok(match edge {
            Edge::Drop if span > len && span == size => {
                return Err(wrong(format!("has {size} entries: write 1 to {len}")));
            }
            Edge::Drop if span > len => {
                let why = format!("reaches over {span} entries with those of `also`, of {len}");
                return Err(wrong(why));
            }
            Edge::Drop => {
                let first = start + reach.start.unsigned_abs();
                axis(first, (len - span) / stride + 1)
            }
            Edge::Short if span != size => {
                let why = "can't be short beside the windows of `also`: pad it".to_owned();
                return Err(wrong(why));
            }
            Edge::Pad | Edge::Short => axis(start, len.div_ceil(stride)),
            Edge::Wrap if entries.is_some_and(|entries| entries.end - entries.start != whole) => {
                let why = "wraps around, but not all entries of the dimension are read".to_owned();
                return Err(wrong(why));
            }
            Edge::Wrap if size > whole => {
                return Err(wrong(format!("has {size} entries: write 1 to {whole}")));
            }
            Edge::Wrap => axis(start, len.div_ceil(stride)),
        })
    };
    spec.window.iter().map(axis).collect()
}

/// How far apart windows begin in `dim`.
fn stride(spec: &WindowsSpec, dim: &str, size: u64) -> Result<u64, String> {
    match (spec.stride.get(dim), spec.overlap.get(dim)) {
        (Some(_), Some(_)) => Err("has a stride and an overlap: give one of them".to_owned()),
        (Some(0), None) => Err("has a stride of 0: write 1 or more".to_owned()),
        (Some(stride), None) => Ok(stride),
        (None, Some(overlap)) if overlap >= size => Err(format!(
            "has {size} entries, of which {overlap} overlap: an overlap is smaller than the window"
        )),
        // A window without entries is refused where its size is looked at.
        (None, overlap) => Ok((size - overlap.unwrap_or(0)).max(1)),
    }
}

/// What `part` takes along the dimension `dim` of a variable, which has `len` entries.
pub(super) fn along_of(
    spec: &WindowsSpec,
    part: &Part<'_>,
    axes: &[Axis],
    within: &Within,
    dim: &Arc<str>,
    (len, chunk): (u64, u64),
) -> Along {
    let (shift, nearest) = match part.aligned.get(dim) {
        Some(Aligned::Shift(shift)) => (Some(shift), None),
        Some(Aligned::Nearest(nearest)) => (None, Some(nearest)),
        None => (None, None),
    };
    // The entries of the sample's store are counted, which others stand for.
    let len = nearest.map_or(len, |nearest| nearest.at.len() as u64);
    let picks = |size| nearest.map(|nearest| Picks::new(nearest, chunk, size));
    let whole = Entries { start: 0, end: len, ring: false };
    let Entries { start, end, ring } = within.get(dim).copied().unwrap_or(whole);
    let len = shift.map_or(len, |shift| shift.len);
    let by = shift.map_or(0, |shift| shift.by);
    let ring = (ring || shift.is_some_and(|shift| shift.ring)).then_some(len);
    let bounds = start as i64 + by..end as i64 + by;
    match axes.iter().position(|axis| axis.name == *dim) {
        None => {
            let (start, size) = (start as i64 + by, end - start);
            Along { axis: None, start, size, bounds, short: false, ring, picks: picks(size) }
        }
        Some(axis) => {
            let (start, size) = part.along(dim, axes[axis].size);
            let start = start + by;
            let edge = spec.edges.of(dim);
            let (bounds, ring) = match edge {
                Edge::Wrap => (i64::MIN..i64::MAX, Some(len)),
                _ => (bounds, ring),
            };
            let (short, picks) = (edge == Edge::Short, picks(size));
            Along { axis: Some(axis), start, size, bounds, short, ring, picks }
        }
    }
}

pub(super) fn cuts(
    spec: &WindowsSpec,
    parts: &[Part<'_>],
    variables: &[Variable],
    axes: &[Axis],
    within: &Within,
) -> Vec<Cut> {
    let each = |part: &Part<'_>| {
        let cut = |name: &String| {
            let variable =
                variables.iter().position(|v| v.source == part.source && *v.name == **name);
            let variable = variable.expect("every variable that is named was read");
            let of = &variables[variable];
            let dims = of.dims.iter().zip(of.shape.iter().copied().zip(numbers(&of.chunk)));
            Cut {
                name: match part.name {
                    Some(part) => format!("{part}/{name}").into(),
                    None => Arc::clone(&of.name),
                },
                variable,
                along: dims
                    .map(|(dim, len)| along_of(spec, part, axes, within, dim, len))
                    .collect(),
            }
        };
        part.variables.iter().map(cut).collect::<Vec<_>>()
    };
    parts.iter().flat_map(each).collect()
}
