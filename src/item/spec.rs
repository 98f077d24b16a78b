//! What a tensor is: its name, element type, dimensions and shape.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements. Definitions may name it as numpy does, too: `float32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    Bool,
    #[serde(alias = "int8")]
    I8,
    #[serde(alias = "int16")]
    I16,
    #[serde(alias = "int32")]
    I32,
    #[serde(alias = "int64")]
    I64,
    #[serde(alias = "uint8")]
    U8,
    #[serde(alias = "uint16")]
    U16,
    #[serde(alias = "uint32")]
    U32,
    #[serde(alias = "uint64")]
    U64,
    #[serde(alias = "float16")]
    F16,
    #[serde(alias = "bfloat16")]
    BF16,
    #[serde(alias = "float32")]
    F32,
    #[serde(alias = "float64")]
    F64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Whether it is a type of floating point.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
}

// By hand, as a derived one leaves numpy's names out.
impl schemars::JsonSchema for DType {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DType".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [
            "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64",
            "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
            "bfloat16", "float32", "float64",
        ]})
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        })
    }
}

/// A Rust type that tensors can be viewed as.
pub trait Element: bytemuck::Pod {
    /// Its name among tensors.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32,
    u64 => U64, half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64);

/// What a tensor is. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The variable's name.
    pub name: Arc<str>,
    /// The type of its elements.
    pub dtype: DType,
    /// The names of its dimensions, outermost first.
    pub dims: Arc<[Arc<str>]>,
    /// Its extent in each, in elements.
    pub shape: Arc<[u64]>,
}

/// Memory that is not as long as the tensor that is said to be in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{tensor}` has {needed} bytes, but its memory holds {held}: give it memory of {needed} bytes, or say \
     another shape or type"
)]
pub struct OtherLength {
    tensor: Spec,
    needed: u64,
    held: u64,
}

impl Spec {
    /// Elements in all; of more than 64 bits can count, as many as they can.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product, &n| product.saturating_mul(n))
    }

    /// Bytes in all; of more than 64 bits can count, as many as they can.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.size() as u64)
    }

    /// Refuses memory of `held` bytes that is not as long as the tensor.
    pub(crate) fn check_length(&self, held: usize) -> Result<(), OtherLength> {
        let (needed, held) = (self.bytes(), held as u64);
        if needed == held {
            Ok(())
        } else {
            Err(OtherLength { tensor: self.clone(), needed, held })
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}[", self.name, self.dtype)?;
        for (i, (dim, n)) in self.dims.iter().zip(self.shape.iter()).enumerate() {
            write!(f, "{}{dim} {n}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
