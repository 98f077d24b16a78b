//! A dataset: some variables of a Zarr store, cut into windows. Arithmetic on coordinates only;
//! nothing of the data is read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::cache::{ChunkCache, Ticket};
use super::error::{ZarrError, hint};
use super::fetch::each_chunk;
use super::index_cache::IndexCache;
use super::variable::{Variable, numbers};
use super::windows::{Span, WindowsSpec};
use super::{meta, windows};
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
    pub(super) indexes: IndexCache,
    /// Chunks that more than one window on its way wants; none if nothing may be kept.
    pub(super) cache: Option<Arc<ChunkCache>>,
    axes: Vec<Axis>,
    /// The entries that are read of dimensions of which not all are.
    within: BTreeMap<Arc<str>, Span>,
    /// How many windows there are.
    pub(super) len: u64,
}

/// A dimension along which windows are cut.
#[derive(Debug)]
struct Axis {
    name: Arc<str>,
    /// Where the first window begins.
    start: u64,
    size: u64,
    stride: u64,
    count: u64,
}

impl Dataset {
    pub(super) fn open(store: &Store, spec: &WindowsSpec) -> Result<Self, ZarrError> {
        let found = meta::read(store, &spec.variables)?;
        let variables = found.into_iter().map(Variable::new).collect::<Result<Vec<_>, _>>()?;
        let lengths = lengths(&variables)?;
        let within = within(spec, &lengths)?;
        let axes = axes(spec, &lengths, &within)?;
        let len = axes.iter().map(|axis| axis.count).try_fold(1, u64::checked_mul);
        let too_many = || ZarrError::Window {
            dim: axes.iter().map(|axis| &*axis.name).collect::<Vec<_>>().join(", "),
            why: "gives more windows than can be counted".to_owned(),
        };
        let len = len.ok_or_else(too_many)?;
        let (store, indexes) = (store.clone(), IndexCache::default());
        let budget = spec.cache.unwrap_or(CACHE);
        let cache = (budget > 0).then(|| ChunkCache::new(budget));
        let dataset = Dataset { store, variables, indexes, cache, axes, within, len };
        dataset.check()?;
        Ok(dataset)
    }

    /// Says that the window `number` is on its way and will want its chunks.
    pub(super) fn announce(&self, number: u64) -> Option<Ticket> {
        let cache = self.cache.as_ref()?;
        let mut chunks = Vec::new();
        for (at, variable) in self.variables.iter().enumerate() {
            each_chunk(variable, &self.region(variable, number), |place| {
                chunks.push(variable.chunk_id(at, place));
            });
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
            let overlapping = if axis.size > axis.stride { 4 * axis.size } else { 0 };
            let per = (chunk.max(overlapping) / axis.stride).clamp(1, axis.count.max(1));
            (axis.count, per)
        });
        let groups = Groups::new(axes);
        let first = self.region_of_group(&groups);
        let bytes: u64 = (self.variables.iter().zip(first))
            .map(|(variable, chunks)| chunks.saturating_mul(variable.decoded_bytes()))
            .fold(0, u64::saturating_add);
        // Half the budget: while some groups are used up, the next ones come in.
        let budget = self.cache.as_ref().map_or(0, |cache| cache.budget());
        groups.mixing(budget / 2 / bytes.max(1))
    }

    /// How many chunks of each variable the windows of one group want.
    fn region_of_group(&self, groups: &Groups) -> Vec<u64> {
        let per: Vec<_> = groups.per().collect();
        let chunks = |variable: &Variable| {
            let mut region = self.region(variable, 0);
            for (axis, per) in self.axes.iter().zip(&per) {
                if let Some(dim) = variable.dims.iter().position(|dim| *dim == axis.name) {
                    region[dim].end = region[dim].start + axis.size + (per - 1) * axis.stride;
                }
            }
            let along = region.iter().zip(&variable.chunk);
            along
                .map(|(range, chunk)| range.end.div_ceil(chunk.get()) - range.start / chunk.get())
                .product()
        };
        self.variables.iter().map(chunks).collect()
    }

    /// Refuses windows whose size or chunks can't be meant.
    fn check(&self) -> Result<(), ZarrError> {
        let mut total = 0_u64;
        for variable in &self.variables {
            let region = self.region(variable, 0);
            let extents = region.iter().map(|range| range.end - range.start);
            let size = variable.dtype.size() as u64;
            let bytes = extents.clone().try_fold(size, u64::checked_mul);
            let chunks = (region.iter().zip(&variable.chunk))
                .map(|(range, chunk)| range.end.div_ceil(chunk.get()) - range.start / chunk.get())
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
                    dim: variable.name.to_string(),
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

    /// Where the window `number` begins and ends along each dimension that is cut.
    pub(super) fn ranges(&self, number: u64) -> impl Iterator<Item = (&Arc<str>, Range<u64>)> {
        let mut below = self.len.max(1);
        self.axes.iter().map(move |axis| {
            below /= axis.count.max(1);
            let start = axis.start + number / below % axis.count.max(1) * axis.stride;
            (&axis.name, start..start + axis.size)
        })
    }

    /// What the window `number` takes of `variable`: a range along each of its dimensions.
    pub(super) fn region(&self, variable: &Variable, number: u64) -> Vec<Range<u64>> {
        let whole = |(dim, len): (&Arc<str>, &u64)| match self.within.get(dim) {
            Some(span) => span.start..span.end,
            None => 0..*len,
        };
        let mut region: Vec<_> = variable.dims.iter().zip(&variable.shape).map(whole).collect();
        for (name, range) in self.ranges(number) {
            if let Some(dim) = variable.dims.iter().position(|dim| dim == name) {
                region[dim] = range;
            }
        }
        region
    }

    /// Decoded bytes of one window.
    pub(super) fn bytes(&self) -> u64 {
        self.variables.iter().map(|variable| self.spec(variable, 1).bytes()).sum()
    }

    /// The tensor that holds `windows` windows of `variable`, one after the other.
    pub(super) fn spec(&self, variable: &Variable, windows: u64) -> Spec {
        let region = self.region(variable, 0);
        let extents = region.iter().map(|range| range.end - range.start);
        let dims = std::iter::once(Arc::from("sample")).chain(variable.dims.iter().cloned());
        Spec {
            name: Arc::clone(&variable.name),
            dtype: variable.dtype,
            dims: dims.collect(),
            shape: std::iter::once(windows).chain(extents).collect(),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| &*variable.name == name)
    }

    pub(super) fn dtypes(&self) -> impl Iterator<Item = (&str, DType)> {
        self.variables.iter().map(|variable| (&*variable.name, variable.dtype))
    }
}

/// The lengths of all dimensions, which must be the same in all variables.
fn lengths(variables: &[Variable]) -> Result<BTreeMap<Arc<str>, u64>, ZarrError> {
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

/// The entries that are read of dimensions of which not all are.
fn within(
    spec: &WindowsSpec,
    lengths: &BTreeMap<Arc<str>, u64>,
) -> Result<BTreeMap<Arc<str>, Span>, ZarrError> {
    let one = |(dim, span): (&String, &Span)| {
        let Some((name, &len)) = lengths.get_key_value(dim.as_str()) else {
            let known: Vec<_> = lengths.keys().map(|dim| dim.to_string()).collect();
            return Err(ZarrError::NoDim { dim: dim.clone(), hint: hint(dim, &known) });
        };
        if span.start >= span.end || span.end > len {
            let Span { start, end } = span;
            let why = format!("is taken from the entries {start}..{end}, but there are {len}");
            return Err(ZarrError::Window { dim: dim.clone(), why });
        }
        Ok((Arc::clone(name), *span))
    };
    spec.range.iter().map(one).collect()
}

fn axes(
    spec: &WindowsSpec,
    lengths: &BTreeMap<Arc<str>, u64>,
    within: &BTreeMap<Arc<str>, Span>,
) -> Result<Vec<Axis>, ZarrError> {
    for (name, of) in [("stride", &spec.stride), ("overlap", &spec.overlap)] {
        if let Some(dim) = of.keys().find(|dim| !spec.window.contains_key(dim)) {
            let why = format!("is not given, but its {name} is: add it to `window`");
            return Err(ZarrError::Window { dim: dim.clone(), why });
        }
    }
    let axis = |(dim, &size): (&String, &u64)| {
        let wrong = |why: String| ZarrError::Window { dim: dim.clone(), why };
        let Some((name, &len)) = lengths.get_key_value(dim.as_str()) else {
            let known: Vec<_> = lengths.keys().map(|dim| dim.to_string()).collect();
            return Err(ZarrError::NoDim { dim: dim.clone(), hint: hint(dim, &known) });
        };
        let (start, len) = within.get(name).map_or((0, len), |s| (s.start, s.end - s.start));
        if size == 0 || size > len {
            return Err(wrong(format!("has {size} entries: write 1 to {len}")));
        }
        let stride = windows::stride(spec, dim, size).map_err(wrong)?;
        let count = (len - size) / stride + 1;
        Ok(Axis { name: Arc::clone(name), start, size, stride, count })
    };
    spec.window.iter().map(axis).collect()
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
