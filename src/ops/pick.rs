//! Boxes of tensors, and dimensions turned around.

use std::collections::BTreeMap;
use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn, Slice};

use crate::item::{Batch, Pool, Spec, Tensor};
use crate::store::zarr::Span;

/// Dimensions that a tensor can have here.
const DIMS: usize = 8;

/// Which elements of tensors are taken.
#[derive(Clone, Debug)]
pub enum Pick {
    /// All, with these dimensions turned around.
    Flip(Vec<String>),
    /// Those of a box.
    Crop(BTreeMap<String, Span>),
}

/// A tensor that can't be cropped or flipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// It has no entries there.
    #[error(
        "`{tensor}` has {extent} entries along `{dim}`, so {from}..{to} is not in it: write a range \
         within 0..{extent}"
    )]
    Beyond {
        /// The tensor.
        tensor: Spec,
        /// The dimension.
        dim: String,
        /// Its extent.
        extent: u64,
        /// Where the range begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// There is no memory for what is picked.
    #[error("{why}")]
    NoMemory {
        /// What was asked for, and what to do.
        why: String,
    },
    /// It has too many dimensions.
    #[error("`{tensor}` has more than {DIMS} dimensions")]
    TooManyDims {
        /// The tensor.
        tensor: Spec,
    },
    /// No tensor of the batch has the dimension.
    #[error("no variable has a dimension `{dim}`: there are {there}")]
    NoDim {
        /// The dimension.
        dim: String,
        /// Those that there are.
        there: String,
    },
}

/// The elements taken of a tensor, and where they are in it: the n-th dimension of the eight has
/// `shape[n]` entries, `strides[n]` elements apart, the first of all at `offset`.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) spec: Spec,
    pub(crate) offset: u64,
    pub(crate) shape: [i64; DIMS],
    pub(crate) strides: [i64; DIMS],
}

impl Picked {
    /// None if the tensor stays as it is.
    pub(crate) fn of(spec: &Spec, pick: &Pick) -> Result<Option<Self>, PickError> {
        if spec.shape.len() > DIMS {
            return Err(PickError::TooManyDims { tensor: spec.clone() });
        }
        let (mut shape, mut strides) = ([1; DIMS], [0; DIMS]);
        let (mut offset, mut stride, mut changed) = (0, 1, false);
        let mut extents = spec.shape.to_vec();
        for (dim, &extent) in spec.shape.iter().enumerate().rev() {
            let at = DIMS - spec.shape.len() + dim;
            let (from, to, back) = along(spec, dim, pick)?;
            changed |= back || from != 0 || to != extent;
            extents[dim] = to - from;
            (shape[at], strides[at]) = ((to - from) as i64, stride as i64);
            offset += from * stride;
            if back && to > from {
                offset += (to - from - 1) * stride;
                strides[at] = -strides[at];
            }
            stride *= extent;
        }
        let spec = Spec { shape: Arc::from(extents), ..spec.clone() };
        Ok(changed.then_some(Picked { spec, offset, shape, strides }))
    }
}

/// The entries taken along a dimension, and whether they are turned around.
fn along(spec: &Spec, dim: usize, pick: &Pick) -> Result<(u64, u64, bool), PickError> {
    let (name, extent) = (&*spec.dims[dim], spec.shape[dim]);
    match pick {
        Pick::Flip(dims) => Ok((0, extent, dims.iter().any(|dim| dim == name))),
        Pick::Crop(ranges) => match ranges.get(name) {
            None => Ok((0, extent, false)),
            Some(&Span { start, end }) if start < end && end <= extent => Ok((start, end, false)),
            Some(&Span { start: from, end: to }) => {
                let (tensor, dim) = (spec.clone(), name.to_owned());
                Err(PickError::Beyond { tensor, dim, extent, from, to })
            }
        },
    }
}

/// Refuses dimensions that no tensor has.
pub(crate) fn has_dims<'a>(
    pick: &Pick,
    specs: impl Iterator<Item = &'a Spec> + Clone,
) -> Result<(), PickError> {
    let there = |dim: &str| specs.clone().any(|spec| spec.dims.iter().any(|d| **d == *dim));
    let missing = match pick {
        Pick::Flip(dims) => dims.iter().find(|dim| !there(dim)),
        Pick::Crop(ranges) => ranges.keys().find(|dim| !there(dim)),
    };
    missing.map_or(Ok(()), |dim| {
        let mut dims: Vec<_> = specs.flat_map(|spec| spec.dims.iter()).collect();
        dims.sort();
        dims.dedup();
        let there = dims.iter().map(|dim| format!("`{dim}`")).collect::<Vec<_>>().join(", ");
        Err(PickError::NoDim { dim: dim.clone(), there })
    })
}

/// Cuts a box out of all tensors of a batch, into memory from `pool`: for a cpu stage. A tensor that
/// lacks a dimension keeps what it has; the batch's windows stay those that were read.
pub fn crop(
    ranges: BTreeMap<String, Span>,
    pool: &Pool,
) -> impl Fn(Batch) -> Result<Batch, PickError> + Send + Sync + use<> {
    let (pick, pool) = (Pick::Crop(ranges), pool.clone());
    move |batch| picked(batch, &pick, &pool)
}

/// Turns dimensions of all tensors of a batch around, into memory from `pool`: for a cpu stage.
pub fn flip(
    dims: Vec<String>,
    pool: &Pool,
) -> impl Fn(Batch) -> Result<Batch, PickError> + Send + Sync + use<> {
    let (pick, pool) = (Pick::Flip(dims), pool.clone());
    move |batch| picked(batch, &pick, &pool)
}

pub(crate) fn picked(batch: Batch, pick: &Pick, pool: &Pool) -> Result<Batch, PickError> {
    has_dims(pick, batch.tensors().iter().map(Tensor::spec))?;
    let (tensors, windows) = batch.into_parts();
    let tensors = tensors.into_iter().map(|tensor| match Picked::of(tensor.spec(), pick)? {
        None => Ok(tensor),
        Some(Picked { spec, .. }) => {
            let out = Tensor::try_take(pool, spec);
            let mut out = out.map_err(|error| PickError::NoMemory { why: error.to_string() })?;
            match out.spec().dtype.size() {
                1 => copy::<u8>(&tensor, &mut out, pick),
                2 => copy::<u16>(&tensor, &mut out, pick),
                4 => copy::<u32>(&tensor, &mut out, pick),
                _ => copy::<u64>(&tensor, &mut out, pick),
            }
            Ok(out)
        }
    });
    Ok(Batch::new(tensors.collect::<Result<_, PickError>>()?, windows))
}

/// Copies elements of as many bytes as `T` has.
fn copy<T: bytemuck::Pod>(from: &Tensor, to: &mut Tensor, pick: &Pick) {
    let shape = |spec: &Spec| IxDyn(&spec.shape.iter().map(|&n| n as usize).collect::<Vec<_>>());
    let spec = from.spec();
    let elements = bytemuck::cast_slice::<u8, T>(from.bytes());
    let mut view = ArrayViewD::from_shape(shape(spec), elements).expect("made for the shape");
    for axis in 0..spec.shape.len() {
        let (from, to, back) = along(spec, axis, pick).expect("found before");
        view.slice_axis_inplace(Axis(axis), Slice::from(from as usize..to as usize));
        if back {
            view.invert_axis(Axis(axis));
        }
    }
    let shape = shape(to.spec());
    let elements = bytemuck::cast_slice_mut::<u8, T>(to.bytes_mut());
    ArrayViewMutD::from_shape(shape, elements).expect("made for the shape").assign(&view);
}
