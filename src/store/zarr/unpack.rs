//! The CF conventions for packed values: `scale_factor`, `add_offset`, `_FillValue` and
//! `missing_value`. Values are unpacked, and missing ones become NaN, on their way into the batch.

use half::{bf16, f16};
use serde_json::{Map, Value};

use crate::item::{DType, Element};

/// How stored values become what is delivered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unpack {
    stored: DType,
    scale: f64,
    offset: f64,
    missing: Vec<f64>,
}

impl Unpack {
    /// From a variable's attributes and its fill value, which in v2 is what xarray writes a
    /// variable's `_FillValue` to. `None` if values are delivered as they are stored.
    pub(super) fn new(
        stored: DType,
        attributes: &Map<String, Value>,
        fill_v2: Option<&Value>,
    ) -> Result<Option<Self>, String> {
        let number = |name: &str| match attributes.get(name).map(single) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(format!("its attribute `{name}` is {value}, not a number")),
            },
        };
        let (scale, offset) = (number("scale_factor")?, number("add_offset")?);
        let is_packed = scale.is_some() || offset.is_some();
        let fill_v2 = fill_v2.filter(|_| is_packed);
        let named = ["_FillValue", "missing_value"].map(|name| attributes.get(name));
        let missing: Vec<f64> = named
            .into_iter()
            .flatten()
            .chain(fill_v2)
            .filter_map(|value| single(value).as_f64())
            .collect();
        if stored == DType::Bool || (!is_packed && missing.is_empty()) {
            return Ok(None);
        }
        let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
        Ok(Some(Unpack { stored, scale, offset, missing }))
    }

    /// The type that is delivered.
    pub(super) fn dtype(&self) -> DType {
        if self.stored == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Unpacks as many elements as there are.
    pub(super) fn row(&self, from: &[u8], to: &mut [u8]) {
        match self.stored {
            DType::Bool | DType::U8 => self.run::<u8>(from, to, f64::from),
            DType::I8 => self.run::<i8>(from, to, f64::from),
            DType::I16 => self.run::<i16>(from, to, f64::from),
            DType::I32 => self.run::<i32>(from, to, f64::from),
            DType::I64 => self.run::<i64>(from, to, |x| x as f64),
            DType::U16 => self.run::<u16>(from, to, f64::from),
            DType::U32 => self.run::<u32>(from, to, f64::from),
            DType::U64 => self.run::<u64>(from, to, |x| x as f64),
            DType::F16 => self.run::<f16>(from, to, f16::to_f64),
            DType::BF16 => self.run::<bf16>(from, to, bf16::to_f64),
            DType::F32 => self.run::<f32>(from, to, f64::from),
            DType::F64 => self.run::<f64>(from, to, |x| x),
        }
    }

    fn run<T: Element>(&self, from: &[u8], to: &mut [u8], widen: fn(T) -> f64) {
        let from: &[T] = bytemuck::cast_slice(from);
        let value = |x: &T| {
            let x = widen(*x);
            match self.missing.contains(&x) {
                true => f64::NAN,
                false => x * self.scale + self.offset,
            }
        };
        if self.dtype() == DType::F64 {
            let to: &mut [f64] = bytemuck::cast_slice_mut(to);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = value(from));
        } else {
            let to: &mut [f32] = bytemuck::cast_slice_mut(to);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = value(from) as f32);
        }
    }
}

/// The value, or the only one of a list.
fn single(value: &Value) -> &Value {
    match value {
        Value::Array(values) if values.len() == 1 => &values[0],
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes(value: &Value) -> Map<String, Value> {
        value.as_object().expect("a mapping").clone()
    }

    #[test]
    fn values_are_unpacked_and_missing_ones_are_nan() {
        let packed = attributes(&json!({ "scale_factor": 0.5, "add_offset": [10.0] }));
        let unpack = Unpack::new(DType::I16, &packed, Some(&json!(-32767))).expect("numbers");
        let unpack = unpack.expect("packed");
        assert_eq!(unpack.dtype(), DType::F32);
        let mut to = [0_f32; 3];
        let from = [4_i16, -2, -32767];
        unpack.row(bytemuck::cast_slice(&from), bytemuck::cast_slice_mut(&mut to));
        assert_eq!(to[..2], [12.0, 9.0]);
        assert!(to[2].is_nan());
    }

    #[test]
    fn what_is_not_packed_stays_as_it_is() {
        let none = |stored, value: Value, fill: Option<Value>| {
            Unpack::new(stored, &attributes(&value), fill.as_ref()).expect("numbers").is_none()
        };
        assert!(none(DType::F32, json!({}), Some(json!(0.0))));
        assert!(none(DType::I16, json!({ "units": "K" }), Some(json!(0))));
        // NaN marks itself.
        assert!(none(DType::F32, json!({ "_FillValue": "NaN" }), None));
        assert!(!none(DType::F32, json!({ "_FillValue": 1e20 }), None));
        let text = attributes(&json!({ "scale_factor": "two" }));
        assert!(Unpack::new(DType::I16, &text, None).is_err());
    }
}
