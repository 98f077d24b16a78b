//! Brings variables to mean 0 and deviation 1, in place.

use std::collections::BTreeMap;

use rayon::iter::{IntoParallelRefMutIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::item::{Batch, DType, Spec};
use crate::store::zarr::Window;

/// Elements that one thread normalizes at a time.
const PIECE: usize = 1 << 18;

/// The mean and the standard deviation of each variable.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Stats {
    /// As the store's attributes `mean` and `std` of each variable say.
    #[default]
    Auto,
    /// As given, by variable.
    Given(BTreeMap<String, MeanStd>),
}

impl<'de> Deserialize<'de> for Stats {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Stats;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`auto`, or `{ t2m: { mean: 278.6, std: 21.2 } }`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Stats, E> {
                match text {
                    "auto" => Ok(Stats::Auto),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Stats, A::Error> {
                BTreeMap::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    .map(Stats::Given)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Stats {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Stats".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let given = generator.subschema_for::<BTreeMap<String, MeanStd>>();
        schemars::json_schema!({ "anyOf": [{ "const": "auto" }, given] })
    }
}

/// The mean and the standard deviation of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeanStd {
    /// The mean, in the variable's unit.
    pub mean: f64,
    /// The standard deviation, in the variable's unit; not 0.
    pub std: f64,
}

/// A variable that can't be normalized.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{variable}` can't be normalized: {why}")]
pub struct NormalizeError {
    /// The variable.
    pub variable: String,
    /// What is missing, and what to do.
    pub why: String,
}

/// Brings each variable of a batch to mean 0 and deviation 1, in place: for a cpu stage,
/// `cpu::map("normalize", ops::normalize(Stats::Auto))`.
///
/// Variables must be of type f32 or f64; [`cast`](super::cast) others first. A tensor `target/t2m`
/// is normalized as its variable `t2m` is, unless it is named itself.
pub fn normalize(stats: Stats) -> impl Fn(Batch) -> Result<Batch, NormalizeError> + Send + Sync {
    move |mut batch| {
        let window = batch.windows().first().cloned();
        batch.tensors_mut().par_iter_mut().try_for_each(|tensor| {
            let of = stats.of(window.as_ref(), &tensor.spec().name)?;
            let scale = Scale::new(of, tensor.spec())?;
            let piece = PIECE * tensor.spec().dtype.size();
            tensor.bytes_mut().par_chunks_mut(piece).for_each(|piece| scale.apply(piece));
            Ok(())
        })?;
        Ok(batch)
    }
}

impl MeanStd {
    /// Whether numbers that are normalized with it are numbers.
    pub(crate) fn makes_numbers(self) -> bool {
        self.std.is_finite() && self.std != 0.0 && self.mean.is_finite()
    }
}

impl Stats {
    /// Those of the tensor `name` of a batch that begins with `window`.
    pub(crate) fn of(
        &self,
        window: Option<&Window>,
        name: &str,
    ) -> Result<MeanStd, NormalizeError> {
        let of = match self {
            Stats::Auto => from_attributes(window, name),
            Stats::Given(stats) => {
                let none = || "no mean and deviation are given for it".to_owned();
                let variable = || window?.variable(name);
                let of = stats.get(name).or_else(|| stats.get(variable()?));
                of.copied().ok_or_else(none)
            }
        };
        of.and_then(|of| match of {
            of if of.makes_numbers() => Ok(of),
            MeanStd { mean, std } => {
                Err(format!("a mean of {mean} and a deviation of {std} make no numbers"))
            }
        })
        .map_err(|why| NormalizeError { variable: name.to_owned(), why })
    }
}

/// The tensor is of a type that can't be normalized.
pub(crate) fn not_normal(spec: &Spec) -> NormalizeError {
    let why = format!("its elements are {}: cast it to f32 first", spec.dtype);
    NormalizeError { variable: spec.name.to_string(), why }
}

fn from_attributes(window: Option<&Window>, variable: &str) -> Result<MeanStd, String> {
    let number = |name: &str| window?.attribute(variable, name).and_then(Value::as_f64);
    match (number("mean"), number("std")) {
        (Some(mean), Some(std)) => Ok(MeanStd { mean, std }),
        _ => Err("the store gives it no attributes `mean` and `std`: give them in the pipeline, \
                  such as `stats: { t2m: { mean: 278.6, std: 21.2 } }`"
            .to_owned()),
    }
}

/// How the elements of one tensor are normalized.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    F32 { mean: f32, inverse: f32 },
    F64 { mean: f64, inverse: f64 },
}

impl Scale {
    pub(crate) fn new(
        MeanStd { mean, std }: MeanStd,
        spec: &Spec,
    ) -> Result<Scale, NormalizeError> {
        let inverse = 1.0 / std;
        match spec.dtype {
            DType::F32 => Ok(Scale::F32 { mean: mean as f32, inverse: inverse as f32 }),
            DType::F64 => Ok(Scale::F64 { mean, inverse }),
            _ => Err(not_normal(spec)),
        }
    }

    /// Normalizes `elements`, which are of the tensor's type.
    pub(crate) fn apply(self, elements: &mut [u8]) {
        match self {
            Scale::F32 { mean, inverse } => bytemuck::cast_slice_mut::<u8, f32>(elements)
                .iter_mut()
                .for_each(|x| *x = (*x - mean) * inverse),
            Scale::F64 { mean, inverse } => bytemuck::cast_slice_mut::<u8, f64>(elements)
                .iter_mut()
                .for_each(|x| *x = (*x - mean) * inverse),
        }
    }
}
