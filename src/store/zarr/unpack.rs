//! The CF conventions for packed values: `scale_factor`, `add_offset`, `_FillValue` and
//! `missing_value`. Values are unpacked, and missing ones become NaN, on their way into the batch.

use serde_json::{Map, Value};

use crate::item::{DType, Number, for_type};

/// How stored values become what is delivered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unpack {
    stored: DType,
    delivered: DType,
    scale: f64,
    offset: f64,
    missing: Vec<f64>,
}

impl Unpack {
    /// From a variable's attributes and its fill value, which in v2 is what xarray writes a
    /// variable's `_FillValue` to; values are delivered as `asked` if that is given. `None` if they
    /// are delivered as they are stored.
    pub(super) fn new(
        stored: DType,
        asked: Option<DType>,
        attributes: &Map<String, Value>,
        fill_v2: Option<&Value>,
    ) -> Result<Option<Self>, String> {
        if asked == Some(DType::Bool) && stored != DType::Bool {
            return Err(format!("its {stored} can't be delivered as bool"));
        }
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
        let is_packed = stored != DType::Bool && (is_packed || !missing.is_empty());
        let unpacked = match (is_packed, stored) {
            (true, DType::F64) => DType::F64,
            (true, _) => DType::F32,
            (false, stored) => stored,
        };
        let delivered = asked.unwrap_or(unpacked);
        if !is_packed && delivered == stored {
            return Ok(None);
        }
        let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
        Ok(Some(Unpack { stored, delivered, scale, offset, missing }))
    }

    /// The type that is delivered.
    pub(super) fn dtype(&self) -> DType {
        self.delivered
    }

    /// Unpacks as many elements as there are.
    pub(super) fn row(&self, from: &[u8], to: &mut [u8]) {
        for_type!(self.stored, T => self.run::<T>(from, to));
    }

    fn run<T: Number>(&self, from: &[u8], to: &mut [u8]) {
        let from: &[T] = bytemuck::cast_slice(from);
        for_type!(self.delivered, U => self.into::<T, U>(from, to));
    }

    fn into<T: Number, U: Number>(&self, from: &[T], to: &mut [u8]) {
        let to: &mut [U] = bytemuck::cast_slice_mut(to);
        let each = to.iter_mut().zip(from);
        if self.missing.is_empty() && self.scale == 1.0 && self.offset == 0.0 {
            each.for_each(|(to, from)| *to = U::narrow(from.widen()));
            return;
        }
        each.for_each(|(to, from)| {
            let x = from.widen();
            *to = U::narrow(match self.missing.contains(&x) {
                true => f64::NAN,
                false => x * self.scale + self.offset,
            });
        });
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
    use half::bf16;
    use serde_json::json;

    use super::*;

    fn attributes(value: &Value) -> Map<String, Value> {
        value.as_object().expect("a mapping").clone()
    }

    #[test]
    fn values_are_unpacked_and_missing_ones_are_nan() {
        let packed = attributes(&json!({ "scale_factor": 0.5, "add_offset": [10.0] }));
        let unpack = Unpack::new(DType::I16, None, &packed, Some(&json!(-32767))).expect("numbers");
        let unpack = unpack.expect("packed");
        assert_eq!(unpack.dtype(), DType::F32);
        let mut to = [0_f32; 3];
        let from = [4_i16, -2, -32767];
        unpack.row(bytemuck::cast_slice(&from), bytemuck::cast_slice_mut(&mut to));
        assert_eq!(to[..2], [12.0, 9.0]);
        assert!(to[2].is_nan());
    }

    #[test]
    fn values_are_delivered_in_the_type_that_is_asked_for() {
        let none = Map::new();
        let row = |stored, asked, from: &[u8], to: &mut [u8]| {
            let unpack = Unpack::new(stored, Some(asked), &none, None).expect("known");
            unpack.expect("converted").row(from, to);
        };
        let (mut bf, mut i8s) = ([bf16::ZERO; 2], [0_i8; 3]);
        row(
            DType::F32,
            DType::BF16,
            bytemuck::bytes_of(&[1.5_f32, -2.0]),
            bytemuck::bytes_of_mut(&mut bf),
        );
        assert_eq!(bf.map(bf16::to_f32), [1.5, -2.0]);
        let wide = [1e9_f64, -3.7, f64::NAN];
        row(DType::F64, DType::I8, bytemuck::bytes_of(&wide), bytemuck::bytes_of_mut(&mut i8s));
        assert_eq!(i8s, [127, -3, 0]);
        assert!(Unpack::new(DType::F32, Some(DType::F32), &none, None).expect("known").is_none());
        assert!(Unpack::new(DType::F32, Some(DType::Bool), &none, None).is_err());
    }

    #[test]
    fn what_is_not_packed_stays_as_it_is() {
        let none = |stored, value: Value, fill: Option<Value>| {
            Unpack::new(stored, None, &attributes(&value), fill.as_ref())
                .expect("numbers")
                .is_none()
        };
        assert!(none(DType::F32, json!({}), Some(json!(0.0))));
        assert!(none(DType::I16, json!({ "units": "K" }), Some(json!(0))));
        // NaN marks itself.
        assert!(none(DType::F32, json!({ "_FillValue": "NaN" }), None));
        assert!(!none(DType::F32, json!({ "_FillValue": 1e20 }), None));
        let text = attributes(&json!({ "scale_factor": "two" }));
        assert!(Unpack::new(DType::I16, None, &text, None).is_err());
    }
}
