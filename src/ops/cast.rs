//! Changes the type of elements.

use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use crate::fault::Result;
use crate::item::{Batch, DType, Number, Pool, Spec, Tensor, for_type};

/// Elements that one thread casts at a time.
const PIECE: usize = 1 << 18;

/// A type that can't be cast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` can't be cast from {from} to {to}: {to} is not a type of floating point")]
pub struct CastError {
    /// The variable.
    pub variable: String,
    /// The type that it has.
    pub from: DType,
    /// The type asked for.
    pub to: DType,
}

/// Casts all variables of a batch to a type of floating point, into memory from `pool`: for a cpu
/// stage, `cpu::map("cast", ops::cast(DType::F32, &pool))`. Variables of that type stay as they
/// are. Fails with a [`CastError`], or where `pool` has no memory.
pub fn cast(to: DType, pool: &Pool) -> impl Fn(Batch) -> Result<Batch> + Send + Sync + use<> {
    let pool = pool.clone();
    move |batch| {
        let (tensors, windows) = batch.into_parts();
        let cast = tensors.into_iter().map(|tensor| one(tensor, to, &pool));
        Ok(Batch::new(cast.collect::<Result<_>>()?, windows))
    }
}

/// What a tensor is once it is cast.
pub(crate) fn cast_spec(spec: &Spec, to: DType) -> Result<Spec, CastError> {
    let from = spec.dtype;
    if !to.is_float() && from != to {
        return Err(CastError { variable: spec.name.to_string(), from, to });
    }
    Ok(Spec { dtype: to, ..spec.clone() })
}

fn one(tensor: Tensor, to: DType, pool: &Pool) -> Result<Tensor> {
    let spec = cast_spec(tensor.spec(), to)?;
    if tensor.spec().dtype == to {
        return Ok(tensor);
    }
    let mut out = Tensor::try_take(pool, spec)?;
    for_type!(to, T => convert::<T>(&tensor, &mut out));
    Ok(out)
}

fn convert<T: Number>(from: &Tensor, to: &mut Tensor) {
    let to = to.elements_mut::<T>();
    if from.spec().dtype == DType::Bool {
        // Whatever is not 0 is true.
        for (to, from) in to.iter_mut().zip(from.bytes()) {
            *to = T::narrow(u8::from(*from != 0).widen());
        }
        return;
    }
    for_type!(from.spec().dtype, S => {
        let pieces = from.elements::<S>().par_chunks(PIECE).zip(to.par_chunks_mut(PIECE));
        pieces.for_each(|(from, to)| {
            for (to, from) in to.iter_mut().zip(from) {
                *to = T::narrow(from.widen());
            }
        });
    });
}
