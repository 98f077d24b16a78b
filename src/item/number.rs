//! Elements as numbers, by way of f64, which holds every element of 32 bits or less exactly.

use half::{bf16, f16};

use super::Element;

/// An element that is a number.
pub(crate) trait Number: Element + Send + Sync {
    /// As a f64, to the nearest where it has more digits.
    fn widen(self) -> f64;

    /// The nearest that the type has; for integers cut off at the point, and NaN is 0.
    fn narrow(x: f64) -> Self;
}

macro_rules! numbers {
    ($($rust:ty),*) => {
        $(impl Number for $rust {
            fn widen(self) -> f64 {
                self as f64
            }

            fn narrow(x: f64) -> Self {
                x as $rust
            }
        })*
    };
}

numbers!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Number for f16 {
    fn widen(self) -> f64 {
        self.to_f64()
    }

    fn narrow(x: f64) -> Self {
        f16::from_f64(x)
    }
}

impl Number for bf16 {
    fn widen(self) -> f64 {
        self.to_f64()
    }

    fn narrow(x: f64) -> Self {
        bf16::from_f64(x)
    }
}

/// Evaluates an expression with a name for the type of a [`DType`](super::DType)'s elements; those of
/// `bool` are `u8`.
macro_rules! for_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::item::DType::Bool | $crate::item::DType::U8 => for_type!(@ $T = u8, $body),
            $crate::item::DType::I8 => for_type!(@ $T = i8, $body),
            $crate::item::DType::I16 => for_type!(@ $T = i16, $body),
            $crate::item::DType::I32 => for_type!(@ $T = i32, $body),
            $crate::item::DType::I64 => for_type!(@ $T = i64, $body),
            $crate::item::DType::U16 => for_type!(@ $T = u16, $body),
            $crate::item::DType::U32 => for_type!(@ $T = u32, $body),
            $crate::item::DType::U64 => for_type!(@ $T = u64, $body),
            $crate::item::DType::F16 => for_type!(@ $T = half::f16, $body),
            $crate::item::DType::BF16 => for_type!(@ $T = half::bf16, $body),
            $crate::item::DType::F32 => for_type!(@ $T = f32, $body),
            $crate::item::DType::F64 => for_type!(@ $T = f64, $body),
        }
    };
    (@ $T:ident = $type:ty, $body:expr) => {{
        type $T = $type;
        $body
    }};
}

pub(crate) use for_type;
