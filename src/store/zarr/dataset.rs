//! A dataset: some variables of a Zarr store, cut into windows. Arithmetic on coordinates only;
//! nothing of the data is read.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::cache::{ChunkCache, Ticket};
use super::coordinate::{Coordinate, Entries};
use super::cut::{Along, Axis, Cut};
use super::error::{ZarrError, hint};
use super::fetch::each_chunk;
use super::index_cache::IndexCache;
use super::keep::Kept;
use super::meta;
use super::spec::{Edge, Extents, Offsets, WindowsSpec};
use super::variable::{Variable, numbers};
use crate::item::{DType, Spec};
use crate::source::Groups;
use crate::store::Store;

/// Bytes of chunks that are kept for later windows, unless told otherwise.
const CACHE: u64 = 512 << 20;
/// A window of more bytes is refused: it was surely not meant.
const WINDOW_MAX: u64 = 1 << 40;
/// A window that touches more chunks is refused.
const CHUNKS_MAX: u64 = 1 << 22;

/// Variables and how they are cut into windows.
pub(super) struct Dataset {
    pub(super) store: Store,
    pub(super) variables: Vec<Variable>,
    /// The tensors of a batch.
    pub(super) cuts: Vec<Cut>,
    pub(super) indexes: IndexCache,
    /// Chunks that more than one window on its way wants; none if nothing may be kept.
    pub(super) cache: Option<Arc<ChunkCache>>,
    /// How many calls have begun to fetch.
    pub(super) turns: AtomicU64,
    axes: Vec<Axis>,
    /// How many windows there are.
    len: u64,
    /// Those of them that are kept, if not all are.
    kept: Option<Kept>,
}

impl Dataset {
    pub(super) fn open(store: &Store, spec: &WindowsSpec) -> Result<Self, ZarrError> {
        let parts = parts(spec);
        let mut names: Vec<_> = parts.iter().flat_map(|part| part.variables).cloned().collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let found = meta::read(store, &names)?;
        let variable = |found| Variable::new(found, spec.dtype);
        let variables = found.into_iter().map(variable).collect::<Result<Vec<_>, _>>()?;
        let lengths = lengths(&variables)?;
        let within = within(store, spec, &lengths)?;
        let axes = axes(spec, &parts, &lengths, &within)?;
        let cuts = cuts(spec, &parts, &variables, &axes, &within);
        let len = axes.iter().map(|axis| axis.count).try_fold(1, u64::checked_mul);
        let too_many = || ZarrError::Window {
            dim: axes.iter().map(|axis| &*axis.name).collect::<Vec<_>>().join(", "),
            why: "gives more windows than can be counted".to_owned(),
        };
        let len = len.ok_or_else(too_many)?;
        let choose = |keep: &super::spec::Keep| {
            Kept::choose(store, keep, &axes, |dims, shape| {
                for (dim, len) in dims.iter().zip(shape) {
                    let (_, other) = known(dim, &lengths)?;
                    if other != *len {
                        let why = format!("it has {len} entries in `{dim}`, others have {other}");
                        return Err(ZarrError::Keep { variable: keep.variable.clone(), why });
                    }
                }
                let along = dims.iter().zip(shape);
                let along =
                    along.map(|(dim, len)| along_of(spec, &parts[0], &axes, &within, dim, *len));
                Ok(Cut { name: Arc::from("mask"), variable: 0, along: along.collect() })
            })
        };
        let kept = spec.keep.as_ref().map(choose).transpose()?;
        let (store, indexes) = (store.clone(), IndexCache::default());
        let budget = spec.cache.unwrap_or(CACHE);
        let cache = (budget > 0).then(|| ChunkCache::new(budget));
        let turns = AtomicU64::new(0);
        let dataset = Dataset { store, variables, cuts, indexes, cache, turns, axes, len, kept };
        dataset.check()?;
        Ok(dataset)
    }

    /// Says that the window `number` is on its way and will want its chunks.
    pub(super) fn announce(&self, number: u64) -> Option<Ticket> {
        let cache = self.cache.as_ref()?;
        let mut chunks = Vec::new();
        let starts = self.starts(number);
        for cut in &self.cuts {
            let variable = &self.variables[cut.variable];
            for piece in cut.pieces(&starts) {
                each_chunk(variable, &piece.from, |place| {
                    chunks.push(variable.chunk_id(cut.variable, place));
                });
            }
        }
        Some(cache.announce(chunks.into()))
    }

    /// How windows group: those of a group are cut from the same chunks.
    pub(super) fn groups(&self) -> Groups {
        let axes = self.axes.iter().map(|axis| {
            let chunks = self.variables.iter().filter_map(|variable| {
                let dim = variable.dims.iter().position(|dim| *dim == axis.name)?;
                Some(variable.chunk[dim].get())
            });
            // Windows larger than a chunk share chunks with their neighbours on both sides: of four
            // times as many as overlap, one in five chunks is wanted twice.
            let chunk = chunks.max().unwrap_or(1);
            let reach = axis.reach.end.abs_diff(axis.reach.start);
            let overlapping = if reach > axis.stride { reach.saturating_mul(4) } else { 0 };
            let per = (chunk.max(overlapping) / axis.stride).clamp(1, axis.count.max(1));
            (axis.count, per)
        });
        let groups = Groups::new(axes);
        let bytes = self.bytes_of_group(&groups);
        // Half the budget: while some groups are used up, the next ones come in.
        let budget = self.cache.as_ref().map_or(0, |cache| cache.budget());
        groups.mixing(budget / 2 / bytes.max(1))
    }

    /// Bytes of the chunks that the windows of one group want, decoded.
    fn bytes_of_group(&self, groups: &Groups) -> u64 {
        let last: Vec<_> = groups.per().map(|per| per - 1).collect();
        let starts = self.starts(0);
        let mut bytes = 0_u64;
        for (at, variable) in self.variables.iter().enumerate() {
            let mut hull: Vec<Option<Range<u64>>> = vec![None; variable.dims.len()];
            for cut in self.cuts.iter().filter(|cut| cut.variable == at) {
                let along = cut.starts(&starts).zip(&cut.along).zip(&mut hull);
                for ((start, along), hull) in along {
                    let start = start.max(0) as u64;
                    let moves = along.axis.map_or(0, |axis| last[axis] * self.axes[axis].stride);
                    let end = start + along.size + moves;
                    *hull = Some(match hull {
                        Some(hull) => hull.start.min(start)..hull.end.max(end),
                        None => start..end,
                    });
                }
            }
            let chunks = hull.into_iter().flatten().zip(&variable.chunk);
            let chunks: u64 = chunks.map(|(range, chunk)| touched(&range, *chunk)).product();
            bytes = bytes.saturating_add(chunks.saturating_mul(variable.decoded_bytes()));
        }
        bytes
    }

    /// Refuses windows whose size or chunks can't be meant.
    fn check(&self) -> Result<(), ZarrError> {
        let mut total = 0_u64;
        for cut in &self.cuts {
            let variable = &self.variables[cut.variable];
            let extents = cut.along.iter().map(|along| along.size);
            let size = variable.dtype.size() as u64;
            let bytes = extents.clone().try_fold(size, u64::checked_mul);
            let chunks = (extents.clone().zip(&variable.chunk))
                .map(|(extent, chunk)| extent.div_ceil(chunk.get()))
                .try_fold(1, u64::checked_mul);
            let grid = (variable.shape.iter().zip(&variable.chunk))
                .map(|(len, chunk)| len.div_ceil(chunk.get()))
                .try_fold(1, u64::checked_mul);
            total = match (bytes, chunks, grid) {
                (Some(bytes), Some(chunks), Some(_)) if chunks <= CHUNKS_MAX => {
                    total.saturating_add(bytes)
                }
                _ => u64::MAX,
            };
            if total > WINDOW_MAX {
                let dims = variable.dims.iter().map(|dim| format!("`{dim}`"));
                return Err(ZarrError::Window {
                    dim: cut.name.to_string(),
                    why: format!(
                        "holds {} elements: more than a terabyte, or more than {CHUNKS_MAX} \
                         chunks; cut {} into smaller windows",
                        extents.map(|n| n.to_string()).collect::<Vec<_>>().join(" x "),
                        dims.collect::<Vec<_>>().join(", "),
                    ),
                });
            }
        }
        Ok(())
    }

    /// How many windows there are to read.
    pub(super) fn windows(&self) -> u64 {
        self.kept.as_ref().map_or(self.len, |kept| kept.len)
    }

    /// How many windows are left out because the mask says so.
    pub(super) fn left_out(&self) -> u64 {
        self.len - self.windows()
    }

    /// The number of the `i`-th window that is read.
    pub(super) fn number(&self, i: u64) -> u64 {
        self.kept.as_ref().map_or(i, |kept| kept.number(i))
    }

    /// Where the window `number` begins along each axis.
    pub(super) fn starts(&self, number: u64) -> Vec<u64> {
        let mut below = self.len.max(1);
        let start = |axis: &Axis| {
            below /= axis.count.max(1);
            axis.start + number / below % axis.count.max(1) * axis.stride
        };
        self.axes.iter().map(start).collect()
    }

    /// Where the window `number` begins and ends along each dimension that is cut.
    pub(super) fn ranges(&self, number: u64) -> impl Iterator<Item = (&Arc<str>, Range<u64>)> {
        let starts = self.starts(number).into_iter();
        self.axes.iter().zip(starts).map(|(axis, start)| (&axis.name, start..start + axis.size))
    }

    /// Decoded bytes of one window.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |cut: &Cut| {
            let elements: u64 = cut.along.iter().map(|along| along.size).product();
            elements * self.variables[cut.variable].dtype.size() as u64
        };
        self.cuts.iter().map(bytes).sum()
    }

    /// The tensor that holds `windows` windows of `cut` like the one whose axes begin at `starts`,
    /// one after the other.
    pub(super) fn spec(&self, cut: &Cut, starts: &[u64], windows: u64) -> Spec {
        let variable = &self.variables[cut.variable];
        let dims = std::iter::once(Arc::from("sample")).chain(variable.dims.iter().cloned());
        Spec {
            name: Arc::clone(&cut.name),
            dtype: variable.dtype,
            dims: dims.collect(),
            shape: std::iter::once(windows).chain(cut.extents(starts)).collect(),
        }
    }

    /// The variable of the tensor `name`.
    pub(super) fn variable(&self, name: &str) -> Option<&Variable> {
        let cut = self.cuts.iter().find(|cut| &*cut.name == name)?;
        Some(&self.variables[cut.variable])
    }

    pub(super) fn dtypes(&self) -> impl Iterator<Item = (&str, DType)> {
        self.cuts.iter().map(|cut| (&*cut.name, self.variables[cut.variable].dtype))
    }
}

/// How many chunks hold a part of `range`.
fn touched(range: &Range<u64>, chunk: NonZeroU64) -> u64 {
    range.end.div_ceil(chunk.get()) - range.start / chunk.get()
}

/// A window of a sample: the sample's own, or one of `also`.
struct Part<'a> {
    name: Option<&'a str>,
    variables: &'a [String],
    window: &'a Extents,
    offset: Option<&'a Offsets>,
}

impl Part<'_> {
    /// Where it begins from the sample's window, which has `size` entries, and how many it has.
    fn along(&self, dim: &str, size: u64) -> (i64, u64) {
        let offset = self.offset.and_then(|offset| offset.get(dim)).unwrap_or(0);
        (offset, self.window.get(dim).unwrap_or(size))
    }
}

fn parts(spec: &WindowsSpec) -> Vec<Part<'_>> {
    let own = Part { name: None, variables: &spec.variables, window: &spec.window, offset: None };
    let also = spec.also.iter().map(|(name, also)| Part {
        name: Some(name),
        variables: if also.variables.is_empty() { &spec.variables } else { &also.variables },
        window: &also.window,
        offset: Some(&also.offset),
    });
    std::iter::once(own).chain(also).collect()
}

type Lengths = BTreeMap<Arc<str>, u64>;
type Within = BTreeMap<Arc<str>, Entries>;

/// The lengths of all dimensions, which must be the same in all variables.
fn lengths(variables: &[Variable]) -> Result<Lengths, ZarrError> {
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
fn known<'a>(dim: &str, lengths: &'a Lengths) -> Result<(&'a Arc<str>, u64), ZarrError> {
    if let Some((name, len)) = lengths.get_key_value(dim) {
        return Ok((name, *len));
    }
    let known: Vec<_> = lengths.keys().map(|dim| dim.to_string()).collect();
    Err(ZarrError::NoDim { dim: dim.to_owned(), hint: hint(dim, &known) })
}

/// The entries that are read of dimensions of which not all are.
fn within(store: &Store, spec: &WindowsSpec, lengths: &Lengths) -> Result<Within, ZarrError> {
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
        let coordinate = Coordinate::read(store, dim, len)?;
        let entries = coordinate.find(labels).map_err(|why| wrong(dim, why))?;
        within.insert(Arc::clone(name), entries);
    }
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
    Ok(within)
}

fn axes(
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
fn along_of(
    spec: &WindowsSpec,
    part: &Part<'_>,
    axes: &[Axis],
    within: &Within,
    dim: &Arc<str>,
    len: u64,
) -> Along {
    let whole = Entries { start: 0, end: len, ring: false };
    let Entries { start, end, ring } = within.get(dim).copied().unwrap_or(whole);
    let ring = ring.then_some(len);
    let bounds = start as i64..end as i64;
    match axes.iter().position(|axis| axis.name == *dim) {
        None => {
            let (start, size) = (start as i64, end - start);
            Along { axis: None, start, size, bounds, short: false, ring }
        }
        Some(axis) => {
            let (start, size) = part.along(dim, axes[axis].size);
            let edge = spec.edges.of(dim);
            let (bounds, ring) = match edge {
                Edge::Wrap => (i64::MIN..i64::MAX, Some(len)),
                _ => (bounds, ring),
            };
            Along { axis: Some(axis), start, size, bounds, short: edge == Edge::Short, ring }
        }
    }
}

fn cuts(
    spec: &WindowsSpec,
    parts: &[Part<'_>],
    variables: &[Variable],
    axes: &[Axis],
    within: &Within,
) -> Vec<Cut> {
    let each = |part: &Part<'_>| {
        let cut = |name: &String| {
            let variable = variables.iter().position(|v| *v.name == **name);
            let variable = variable.expect("every variable that is named was read");
            let of = &variables[variable];
            let dims = of.dims.iter().zip(&of.shape);
            Cut {
                name: match part.name {
                    Some(part) => format!("{part}/{name}").into(),
                    None => Arc::clone(&of.name),
                },
                variable,
                along: dims
                    .map(|(dim, len)| along_of(spec, part, axes, within, dim, *len))
                    .collect(),
            }
        };
        part.variables.iter().map(cut).collect::<Vec<_>>()
    };
    parts.iter().flat_map(each).collect()
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let variables: Vec<_> = self
            .variables
            .iter()
            .map(|v| format!("{} {:?} chunk {:?}", v.name, v.shape, numbers(&v.chunk)))
            .collect();
        f.debug_struct("Dataset")
            .field("store", &self.store)
            .field("variables", &variables)
            .field("axes", &self.axes)
            .finish_non_exhaustive()
    }
}
