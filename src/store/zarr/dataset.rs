//! A dataset: some variables of a Zarr store, cut into windows. Arithmetic on coordinates only;
//! nothing of the data is read.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::aligning::{align, check_align, common, settle};
use super::cache::{ChunkCache, Ticket};
use super::cut::{Axis, Cut};
use super::cutting::{along_of, axes, cuts, known, lengths, parts, split, within};
use super::error::ZarrError;
use super::fetch::each_chunk;
use super::index_cache::IndexCache;
use super::keep::Kept;
use super::meta::Known;
use super::spec::WindowsSpec;
use super::variable::{Variable, numbers};
use crate::item::{DType, Spec};
use crate::source::Groups;
use crate::store::{Disk, Store, sample};

/// Bytes of chunks that are kept for later windows, unless told otherwise.
pub(crate) const CACHE: u64 = 512 << 20;
/// A window of more bytes is refused: it was surely not meant.
const WINDOW_MAX: u64 = 1 << 40;
/// A window that touches more chunks is refused.
const CHUNKS_MAX: u64 = 1 << 22;

/// Variables and how they are cut into windows.
pub(super) struct Dataset {
    pub(super) variables: Vec<Variable>,
    /// The tensors of a batch.
    pub(super) cuts: Vec<Cut>,
    pub(super) indexes: IndexCache,
    /// Chunks that more than one window on its way wants; none if nothing may be kept.
    pub(super) cache: Option<Arc<ChunkCache>>,
    /// What was read before, on local disk.
    pub(super) disk: Option<Disk>,
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
        Self::open_known(&Known::read(store)?, spec)
    }

    /// The whole of one variable, as f64, for what is needed before a run.
    pub(super) fn whole(known: &Known<'_>, variable: String) -> Result<Arc<Self>, ZarrError> {
        let spec = WindowsSpec {
            variables: vec![variable],
            dtype: Some(DType::F64),
            cache: Some(0),
            ..WindowsSpec::default()
        };
        Self::open_known(known, &spec).map(Arc::new)
    }

    pub(super) fn open_known(metadata: &Known<'_>, spec: &WindowsSpec) -> Result<Self, ZarrError> {
        let store = metadata.store;
        check_align(spec)?;
        let mut parts = parts(spec);
        let here = parts.iter().filter(|part| part.elsewhere.is_none());
        let names: Vec<_> = here.flat_map(|part| part.variables).collect();
        let mut variables = variables_of((metadata, 0), &names, spec)?;
        let lengths = lengths(&variables)?;
        let mut within = within(metadata, spec, &variables, &lengths)?;
        let own = variables.len();
        let elsewhere = parts.iter_mut().filter(|part| part.elsewhere.is_some());
        for (number, part) in elsewhere.enumerate() {
            let (Some((url, options)), Some(also)) = (part.elsewhere, part.also) else { continue };
            let other = Store::open_with(url, options)?;
            let names: Vec<_> = part.variables.iter().collect();
            let other = Known::read(&other)?;
            let others = variables_of((&other, number + 1), &names, spec)?;
            part.source = number + 1;
            let here = (metadata, &variables[..own]);
            part.aligned = align(also, here, (&other, &others), &lengths)?;
            common(spec, &part.aligned, &lengths, &mut within)?;
            variables.extend(others);
        }
        split(spec, &lengths, &mut within)?;
        for part in &mut parts {
            settle(part, store.url(), &within)?;
        }
        let axes = axes(spec, &parts, &lengths, &within)?;
        let cuts = cuts(spec, &parts, &variables, &axes, &within);
        if let Some(name) = spec.also.keys().find(|name| name.is_empty() || name.contains('/')) {
            return Err(ZarrError::PartName(name.clone()));
        }
        let mut tensors = std::collections::HashSet::new();
        if let Some(cut) = cuts.iter().find(|cut| !tensors.insert(Arc::clone(&cut.name))) {
            return Err(ZarrError::TwoTensors(cut.name.to_string()));
        }
        let len = axes.iter().map(|axis| axis.count).try_fold(1, u64::checked_mul);
        let too_many = || ZarrError::Window {
            dim: axes.iter().map(|axis| &*axis.name).collect::<Vec<_>>().join(", "),
            why: "gives more windows than can be counted".to_owned(),
        };
        let len = len.ok_or_else(too_many)?;
        let choose = |keep: &super::spec::Keep| {
            Kept::choose(metadata, keep, &axes, |dims, shape| {
                for (dim, len) in dims.iter().zip(shape) {
                    let (_, other) = known(dim, &lengths)?;
                    if other != *len {
                        let why = format!("it has {len} entries in `{dim}`, others have {other}");
                        return Err(ZarrError::Keep { variable: keep.variable.clone(), why });
                    }
                }
                let along = dims.iter().zip(shape);
                let along = along
                    .map(|(dim, len)| along_of(spec, &parts[0], &axes, &within, dim, (*len, *len)));
                Ok(Cut { name: Arc::from("mask"), variable: 0, along: along.collect() })
            })
        };
        let kept = spec.keep.as_ref().map(choose).transpose()?;
        let indexes = IndexCache::default();
        let budget = spec.cache.unwrap_or(CACHE);
        let cache = (budget > 0).then(|| ChunkCache::new(budget));
        let disk = match &spec.disk {
            Some(disk) if variables.iter().any(|variable| !variable.store.is_local()) => {
                Some(disk_of(store, disk)?)
            }
            _ => None,
        };
        let turns = AtomicU64::new(0);
        let dataset = Dataset { variables, cuts, indexes, cache, disk, turns, axes, len, kept };
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
            let chunks = self.cuts.iter().filter_map(|cut| {
                let variable = &self.variables[cut.variable];
                let dim = variable.dims.iter().position(|dim| *dim == axis.name)?;
                // In entries of the sample's store, which those of others stand for.
                let picks = cut.along[dim].picks.as_ref();
                Some(picks.map_or(variable.chunk[dim].get(), |picks| picks.in_chunk_max))
            });
            // Windows larger than a chunk share chunks with their neighbours on both sides: of four
            // times as many as overlap, one in five chunks is wanted twice.
            let chunk = chunks.max().unwrap_or(1);
            let reach = axis.reach.end.abs_diff(axis.reach.start);
            let overlapping = if reach > axis.stride { reach.saturating_mul(4) } else { 0 };
            let per = (chunk.max(overlapping) / axis.stride).clamp(1, axis.count.max(1));
            // The first chunk may begin before the first window does.
            let begun = (axis.start % chunk).div_ceil(axis.stride) % per;
            let first = if begun == 0 { 0 } else { per - begun };
            (axis.count, per, first)
        });
        let axes: Vec<_> = axes.collect();
        let groups = Groups::beginning(axes.iter().copied());
        let bytes = self.bytes_of_group(&groups);
        let groups = match &self.kept {
            Some(kept) => kept.groups(&axes, &self.axes),
            None => groups,
        };
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
                    let picked = along.picks.as_ref().map(|picks| picks.hull(start..end));
                    let Range { start, end } = picked.unwrap_or(start..end);
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
            let chunks = (cut.along.iter().zip(&variable.chunk))
                .map(|(along, chunk)| match &along.picks {
                    Some(picks) => picks.chunks_max,
                    None => along.size.div_ceil(chunk.get()),
                })
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

    /// The dimensions along which windows are cut.
    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Whether the window `number` is read: the mask may leave it out.
    pub(super) fn is_read(&self, number: u64) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.has(number))
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

    /// Bytes that the encoded chunks of one window have at most, wherever it begins.
    pub(super) fn encoded_max(&self) -> u64 {
        let of = |cut: &Cut| {
            let variable = &self.variables[cut.variable];
            let chunks = (cut.along.iter().zip(&variable.chunk).zip(&variable.shape)).map(
                |((along, chunk), len)| {
                    let chunk = chunk.get();
                    if let Some(picks) = &along.picks {
                        return picks.chunks_max.min(len.div_ceil(chunk));
                    }
                    let begins_a_chunk = along.start == 0
                        && along.axis.is_none_or(|axis| {
                            let Axis { start, stride, .. } = &self.axes[axis];
                            start % chunk == 0 && stride % chunk == 0
                        });
                    let more = u64::from(!begins_a_chunk);
                    (along.size.div_ceil(chunk) + more).min(len.div_ceil(chunk))
                },
            );
            chunks.fold(variable.encoded_max(), u64::saturating_mul)
        };
        self.cuts.iter().map(of).fold(0, u64::saturating_add)
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

/// The variables `names` of a store, each once.
fn variables_of(
    (known, source): (&Known<'_>, usize),
    names: &[&String],
    spec: &WindowsSpec,
) -> Result<Vec<Variable>, ZarrError> {
    let mut seen = std::collections::HashSet::new();
    let names: Vec<_> = names.iter().filter(|name| seen.insert(**name)).copied().cloned().collect();
    let found = known.find(&names)?.into_iter();
    found.map(|found| Variable::new((known.store, source), found, spec.dtype)).collect()
}

fn disk_of(store: &Store, disk: &super::spec::Disk) -> Result<Disk, ZarrError> {
    let folder = match &disk.path {
        Some(path) => path.clone(),
        None => sample::cache_folder().ok_or(ZarrError::NoCache)?.join("chunks"),
    };
    Ok(Disk::new(folder, disk.bytes, store.pool()))
}

/// How many chunks hold a part of `range`.
fn touched(range: &Range<u64>, chunk: NonZeroU64) -> u64 {
    range.end.div_ceil(chunk.get()) - range.start / chunk.get()
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let variables: Vec<_> = self
            .variables
            .iter()
            .map(|v| format!("{}/{} {:?} chunk {:?}", v.store, v.name, v.shape, numbers(&v.chunk)))
            .collect();
        f.debug_struct("Dataset")
            .field("variables", &variables)
            .field("axes", &self.axes)
            .finish_non_exhaustive()
    }
}
