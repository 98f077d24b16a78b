//! Numbers as nested lists, as people write small tensors: `[[1, 2], [3, 4]]`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};

use crate::item::{Number, Tensor, for_type};

/// Two numbers are alike if they are no farther apart than this share of the largest of their tensor.
const ALIKE: f64 = 1e-5;

/// Numbers in C order, and how many there are in each dimension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(super) shape: Vec<u64>,
    pub(super) flat: Vec<f64>,
}

impl Numbers {
    /// The elements of a tensor.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        let spec = tensor.spec();
        let flat = for_type!(spec.dtype, T => {
            bytemuck::cast_slice::<u8, T>(tensor.bytes()).iter().map(|x| x.widen()).collect()
        });
        Numbers { shape: spec.shape.to_vec(), flat }
    }

    /// Where `found` is otherwise: what is expected there, and what was found.
    pub(crate) fn difference(&self, found: &Numbers) -> Option<(String, String)> {
        if self.shape != found.shape {
            return Some((format!("with extents {:?}", self.shape), format!("{:?}", found.shape)));
        }
        let finite = self.flat.iter().filter(|x| x.is_finite());
        let apart = ALIKE * finite.fold(0.0, |most: f64, x| most.max(x.abs()));
        let is_alike =
            |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= apart;
        let mut all = self.flat.iter().zip(&found.flat);
        let at = all.position(|(&a, &b)| !is_alike(a, b))?;
        let (expected, found) = (self.flat[at], found.flat[at]);
        Some((format!("{expected} at {:?}", self.place(at)), found.to_string()))
    }

    /// The position along each dimension of the n-th number.
    fn place(&self, n: usize) -> Vec<u64> {
        let mut left = n as u64;
        let along = self.shape.iter().rev().map(|extent| {
            let at = left % extent;
            left /= extent;
            at
        });
        let mut place: Vec<_> = along.collect();
        place.reverse();
        place
    }

    fn one(x: f64) -> Self {
        Numbers { shape: Vec::new(), flat: vec![x] }
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nested)
    }
}

/// Reads a number, or a list of what it reads.
pub(super) struct Nested;

impl<'de> Visitor<'de> for Nested {
    type Value = Numbers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or nested lists of numbers such as [[1, 2], [3, 4]]")
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Numbers, E> {
        Ok(Numbers::one(n as f64))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Numbers, E> {
        Ok(Numbers::one(n as f64))
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<Numbers, E> {
        Ok(Numbers::one(x))
    }

    /// What is not finite comes as text.
    fn visit_str<E: Error>(self, text: &str) -> Result<Numbers, E> {
        match text.parse::<f64>() {
            Ok(x) if !x.is_finite() => Ok(Numbers::one(x)),
            _ => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
        let Some(first) = list.next_element::<Numbers>()? else {
            return Err(A::Error::custom("a list of numbers is empty"));
        };
        let Numbers { shape: each, mut flat } = first;
        let mut n = 1;
        while let Some(next) = list.next_element::<Numbers>()? {
            if next.shape != each {
                return Err(A::Error::custom("its lists have different lengths"));
            }
            flat.extend(next.flat);
            n += 1;
        }
        Ok(Numbers { shape: [n].into_iter().chain(each).collect(), flat })
    }
}

impl JsonSchema for Numbers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Numbers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let inner = generator.subschema_for::<Numbers>();
        json_schema!({ "anyOf": [{ "type": "number" }, { "type": "array", "items": inner, "minItems": 1 }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Numbers, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn nested_lists_have_extents_and_the_first_difference_a_place() {
        let numbers = read("[[1, 2.5, \"NaN\"], [4, -5, 6]]").expect("numbers");
        assert_eq!(numbers.shape, [2, 3]);
        assert_eq!(numbers.difference(&numbers), None);
        let other = read("[[1, 2.50004, \"NaN\"], [4, -5.001, 7]]").expect("numbers");
        let told = numbers.difference(&other).expect("it differs");
        assert_eq!(told, ("-5 at [1, 1]".to_owned(), "-5.001".to_owned()));
        let told = numbers.difference(&read("[1]").expect("numbers")).expect("it differs");
        assert_eq!(told.0, "with extents [2, 3]");
        for (wrong, said) in
            [("[[1], [2, 3]]", "different lengths"), ("[]", "empty"), ("[\"a\"]", "nested")]
        {
            let told = read(wrong).expect_err("it is wrong");
            assert!(told.contains(said), "{told}");
        }
    }
}
