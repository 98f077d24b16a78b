//! Batches that a case gives in place of a stage's. That stage and what comes before it are not made, so
//! that a case needs no store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::any::{AnyPipeline, FlowType};
use super::flow::Flow;
use super::numbers::{Nested, Numbers};
use super::problem::{Problem, Problems, suggest};
use super::{Definition, check::Step};
use crate::item::{Batch, DType, Number, Pool, Spec, Tensor, for_type};
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::source::{self, Index};

/// The batches that a case gives: in place of those of stages by their ids, or of the first stage that
/// yields batches.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    First(Arc<[GivenBatch]>),
    Of(BTreeMap<String, Arc<[GivenBatch]>>),
}

/// The tensors of a batch, by name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "BTreeMap<String, GivenTensor>")]
#[schemars(with = "BTreeMap<String, Numbers>")]
pub(crate) struct GivenBatch(BTreeMap<String, GivenTensor>);

/// A tensor whose outermost dimension counts windows.
#[derive(Clone, Debug)]
struct GivenTensor {
    dtype: DType,
    dims: Arc<[Arc<str>]>,
    values: Numbers,
}

/// What takes the place of the stages of a definition.
#[derive(Debug, Default)]
pub(super) struct Given {
    batches: BTreeMap<usize, Arc<[GivenBatch]>>,
    /// Those and all before them.
    replaced: BTreeSet<usize>,
    /// Those of them that begin the pipeline.
    sources: BTreeSet<usize>,
}

impl Given {
    /// Whether the stage `at` is not made.
    pub(super) fn replaces(&self, at: usize) -> bool {
        self.replaced.contains(&at)
    }

    /// What is made instead of the stage `at`, called `id`; nothing for what comes before one.
    pub(super) fn instead(&self, at: usize, id: &str) -> Option<(AnyPipeline, Flow)> {
        let batches = Arc::clone(self.batches.get(&at)?);
        let options = Options { id: Some(id.to_owned()), ..Options::default() };
        let n = batches.len() as u64;
        let pool = Pool::default();
        let batch = move |i: u64| batches[i as usize].batch(&pool);
        let pipeline = match self.sources.contains(&at) {
            true => Pipeline::from_with(source::index(id, Index::new(n, batch)), options),
            // What is behind it has a stream before it, as in a run.
            false => Pipeline::from_with(source::iter(id, (0..n).map(batch)), options),
        };
        let flow = Flow { items: Some(n), ..Flow::default() };
        Some((AnyPipeline::new(pipeline), flow))
    }
}

impl Definition {
    /// The same with the batches `items` in place of those of its stages.
    ///
    /// # Errors
    /// There is no such stage, or it yields something else than batches.
    pub(crate) fn given(self, items: &Items) -> Result<Self, Problems> {
        let steps = &self.checked.steps;
        let mut given = Given::default();
        let mut problems = Vec::new();
        let by_id = match items {
            Items::Of(by_id) => by_id.clone(),
            Items::First(batches) => {
                let first = steps.iter().find(|step| yields_batches(step)).unwrap_or(&steps[0]);
                BTreeMap::from([(first.id.clone(), Arc::clone(batches))])
            }
        };
        for (id, batches) in by_id {
            match place_of(steps, &id) {
                Ok(at) => {
                    given.batches.insert(at, batches);
                }
                Err(problem) => problems.push(*problem),
            }
        }
        for &at in given.batches.keys() {
            let mut before = vec![at];
            while let Some(at) = before.pop() {
                given.replaced.insert(at);
                before.extend(&steps[at].after);
                given.sources.extend(steps[at].after.is_empty().then_some(at));
            }
        }
        let is_before = |at: &&usize| {
            let behind = steps.iter().position(|step| step.after.contains(at));
            behind.is_some_and(|behind| given.replaces(behind))
        };
        problems.extend(given.batches.keys().filter(is_before).map(|&at| {
            let message = format!("what is given for `{}` goes nowhere", steps[at].id);
            Problem::new("forebay::case", message, &steps[at].key.place, "this stage")
                .help("a stage behind it is given batches, too: leave out one of them")
        }));
        match problems.is_empty() {
            true => Ok(Definition { given, ..self }),
            false => Err(Problems::new(&self.file, &self.text, problems)),
        }
    }
}

fn yields_batches(step: &Step) -> bool {
    step.yields == FlowType::of::<Batch>()
}

/// Which of `steps` is called `id`, if it yields batches.
fn place_of(steps: &[Step], id: &str) -> Result<usize, Box<Problem>> {
    let wrong = |step: &Step, message: String| {
        Problem::new("forebay::case", message, &step.key.place, "here")
    };
    let batches = || steps.iter().filter(|step| yields_batches(step)).map(|step| &*step.id);
    let Some(at) = steps.iter().position(|step| step.id == id) else {
        let message = format!("batches are given for the stage `{id}`, which is not there");
        return Err(Box::new(wrong(&steps[0], message).help(suggest(id, batches()))));
    };
    if yields_batches(&steps[at]) {
        return Ok(at);
    }
    let message = format!("`{id}` yields {}, but a case gives batches", steps[at].yields);
    let all: Vec<_> = batches().map(|id| format!("`{id}`")).collect();
    let help = match &all[..] {
        [] => "no stage of it yields batches: leave `given` out".to_owned(),
        all => format!("give those of {}", all.join(" or ")),
    };
    Err(Box::new(wrong(&steps[at], message).help(help)))
}

impl GivenBatch {
    fn batch(&self, pool: &Pool) -> Batch {
        let tensors = self.0.iter().map(|(name, tensor)| tensor.tensor(name, pool));
        Batch::new(tensors.collect(), Vec::new())
    }
}

impl TryFrom<BTreeMap<String, GivenTensor>> for GivenBatch {
    type Error = String;

    fn try_from(tensors: BTreeMap<String, GivenTensor>) -> Result<Self, String> {
        let mut windows = tensors.iter().map(|(name, tensor)| (name, tensor.values.shape[0]));
        let Some((first, n)) = windows.next() else {
            return Err("a batch has one tensor at least".to_owned());
        };
        match windows.find(|(_, other)| *other != n) {
            None => Ok(GivenBatch(tensors)),
            Some((name, other)) => Err(format!(
                "`{first}` has {n} windows and `{name}` {other}: the outermost lists of a batch are \
                 equally long"
            )),
        }
    }
}

impl GivenTensor {
    /// Numbers of a type that has them.
    fn new(dtype: DType, dims: Option<Vec<String>>, values: Numbers) -> Result<Self, String> {
        let n = values.shape.len();
        if n == 0 {
            return Err("the values of a tensor are a list, such as [[1, 2], [3, 4]]".to_owned());
        }
        let has = |x: f64| for_type!(dtype, T => T::narrow(x).widen() == x);
        if let Some(x) = values.flat.iter().find(|x| !dtype.is_float() && !has(**x)) {
            return Err(format!("{x} is no {dtype}"));
        }
        let dims = dims.unwrap_or_else(|| {
            let others = (1..n).map(|n| format!("dim_{n}"));
            ["sample".to_owned()].into_iter().chain(others).collect()
        });
        if dims.len() != n {
            return Err(format!("{} `dims` for values in {n} dimensions", dims.len()));
        }
        let dims = dims.into_iter().map(Arc::from).collect();
        Ok(GivenTensor { dtype, dims, values })
    }

    fn tensor(&self, name: &str, pool: &Pool) -> Tensor {
        let GivenTensor { dtype, dims, values } = self;
        let (dims, shape) = (Arc::clone(dims), Arc::from(&values.shape[..]));
        let mut tensor = Tensor::take(pool, Spec { name: name.into(), dtype: *dtype, dims, shape });
        for_type!(*dtype, T => {
            let elements = bytemuck::cast_slice_mut::<u8, T>(tensor.bytes_mut());
            for (element, x) in elements.iter_mut().zip(&values.flat) {
                *element = T::narrow(*x);
            }
        });
        tensor
    }
}

impl<'de> Deserialize<'de> for GivenTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            dtype: Option<DType>,
            dims: Option<Vec<String>>,
            values: Numbers,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = GivenTensor;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[[1, 2], [3, 4]], or { dtype: i16, dims: [sample, x], values: [[1, 2], [3, 4]] }")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<GivenTensor, A::Error> {
                let values = Nested.visit_seq(list)?;
                GivenTensor::new(DType::F32, None, values).map_err(A::Error::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GivenTensor, A::Error> {
                let whole = Whole::deserialize(MapAccessDeserializer::new(map))?;
                let dtype = whole.dtype.unwrap_or(DType::F32);
                GivenTensor::new(dtype, whole.dims, whole.values).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Items;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of batches such as [{ t2m: [[1, 2]] }], or such lists by stage")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
                let mut batches = Vec::new();
                while let Some(batch) = list.next_element()? {
                    batches.push(batch);
                }
                Ok(Items::First(batches.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Items, A::Error> {
                let map = MapAccessDeserializer::new(map);
                let by_id = BTreeMap::<String, Vec<GivenBatch>>::deserialize(map)?;
                Ok(Items::Of(by_id.into_iter().map(|(id, all)| (id, all.into())).collect()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Items {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Items".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let list = generator.subschema_for::<Vec<GivenBatch>>();
        schemars::json_schema!({
            "anyOf": [list, { "type": "object", "additionalProperties": list }]
        })
    }
}
