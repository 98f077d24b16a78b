//! Changes the type of elements.

use half::{bf16, f16};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use crate::item::{Batch, DType, Element, Pool, Spec, Tensor};

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
/// are.
pub fn cast(
    to: DType,
    pool: &Pool,
) -> impl Fn(Batch) -> Result<Batch, CastError> + Send + Sync + use<> {
    let pool = pool.clone();
    move |batch| {
        let (tensors, windows) = batch.into_parts();
        let cast = tensors.into_iter().map(|tensor| one(tensor, to, &pool));
        Ok(Batch::new(cast.collect::<Result<_, _>>()?, windows))
    }
}

/// What a tensor is once it is cast.
pub(crate) fn cast_spec(spec: &Spec, to: DType) -> Result<Spec, CastError> {
    let from = spec.dtype;
    let is_float = matches!(to, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    if !is_float && from != to {
        return Err(CastError { variable: spec.name.to_string(), from, to });
    }
    Ok(Spec { dtype: to, ..spec.clone() })
}

fn one(tensor: Tensor, to: DType, pool: &Pool) -> Result<Tensor, CastError> {
    let spec = cast_spec(tensor.spec(), to)?;
    if tensor.spec().dtype == to {
        return Ok(tensor);
    }
    let mut out = Tensor::take(pool, spec);
    match to {
        DType::F32 => to_float(&tensor, out.elements_mut::<f32>(), |x| x as f32),
        DType::F64 => to_float(&tensor, out.elements_mut::<f64>(), |x| x),
        DType::F16 => to_float(&tensor, out.elements_mut::<f16>(), f16::from_f64),
        DType::BF16 => to_float(&tensor, out.elements_mut::<bf16>(), bf16::from_f64),
        _ => unreachable!("refused above"),
    }
    Ok(out)
}

/// Casts by way of f64, which holds every element of 32 bits or less exactly.
fn to_float<T: Element + Send>(from: &Tensor, to: &mut [T], narrow: fn(f64) -> T) {
    fn run<S: Element + Sync, T: Element + Send>(
        from: &Tensor,
        to: &mut [T],
        widen: fn(S) -> f64,
        narrow: fn(f64) -> T,
    ) {
        let pieces = from.elements::<S>().par_chunks(PIECE).zip(to.par_chunks_mut(PIECE));
        pieces.for_each(|(from, to)| {
            for (to, from) in to.iter_mut().zip(from) {
                *to = narrow(widen(*from));
            }
        });
    }
    match from.spec().dtype {
        DType::Bool => {
            for (to, from) in to.iter_mut().zip(from.bytes()) {
                *to = narrow(f64::from(u8::from(*from != 0)));
            }
        }
        DType::I8 => run::<i8, T>(from, to, f64::from, narrow),
        DType::I16 => run::<i16, T>(from, to, f64::from, narrow),
        DType::I32 => run::<i32, T>(from, to, f64::from, narrow),
        DType::I64 => run::<i64, T>(from, to, |x| x as f64, narrow),
        DType::U8 => run::<u8, T>(from, to, f64::from, narrow),
        DType::U16 => run::<u16, T>(from, to, f64::from, narrow),
        DType::U32 => run::<u32, T>(from, to, f64::from, narrow),
        DType::U64 => run::<u64, T>(from, to, |x| x as f64, narrow),
        DType::F16 => run::<f16, T>(from, to, f16::to_f64, narrow),
        DType::BF16 => run::<bf16, T>(from, to, bf16::to_f64, narrow),
        DType::F32 => run::<f32, T>(from, to, f64::from, narrow),
        DType::F64 => run::<f64, T>(from, to, |x| x, narrow),
    }
}
