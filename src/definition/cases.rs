//! Cases that stand beside a pipeline: what it is given, and what is expected of it. Read here, run by
//! the command line.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::absent::instead;
use super::check::only;
use super::given::Items;
use super::numbers::Numbers;
use super::problem::{Problem, Problems};
use super::tree::{self, Key, Node, Value};
use super::{Set, args};
use crate::item::{DType, Spec};

/// What is given, and what is expected.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// What the case shows, as a sentence.
    pub(crate) name: String,
    /// Values of variables and runtime keys, as `--set` gives them.
    #[serde(default)]
    set: BTreeMap<String, Json>,
    /// Batches that take the place of those of a stage: a list, in place of the first stage that yields
    /// batches, or lists by the ids of stages. What comes before those is not made.
    #[serde(default)]
    pub(crate) given: Option<Items>,
    /// The pipeline stops after so many items (batches, if it makes batches).
    #[serde(default)]
    pub(crate) limit: Option<NonZeroU64>,
    /// What is expected.
    pub(crate) expect: Expect,
}

/// What is expected of a run; what is not said may be anything.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// So many windows, or other single items, are delivered.
    #[serde(default)]
    pub(crate) items: Option<u64>,
    /// So many batches are delivered.
    #[serde(default)]
    pub(crate) batches: Option<u64>,
    /// The order fingerprint, which says which items came in which order.
    #[serde(default)]
    pub(crate) fingerprint: Option<String>,
    /// The tensors of the first batch, in order.
    #[serde(default)]
    pub(crate) specs: Option<Vec<Tensor>>,
    /// The numbers in the tensors of the batches, in order: all of the batches, and of each the tensors
    /// that are named.
    #[serde(default)]
    pub(crate) values: Option<Vec<BTreeMap<String, Numbers>>>,
    /// The definition is refused, or the run fails, with a message that contains this.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// What is expected of a tensor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tensor {
    /// The variable's name.
    name: String,
    /// The type of its elements.
    #[serde(default)]
    dtype: Option<DType>,
    /// Its extent in each dimension.
    #[serde(default)]
    shape: Option<Vec<u64>>,
}

impl Case {
    /// What `--set` would be given.
    pub(crate) fn set(&self) -> Set {
        let text = |value: &Json| match value {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.set.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

impl Tensor {
    /// Whether `found` is as expected.
    pub(crate) fn fits(&self, found: &Spec) -> bool {
        self.name == *found.name
            && self.dtype.is_none_or(|dtype| dtype == found.dtype)
            && self.shape.as_deref().is_none_or(|shape| *shape == *found.shape)
    }
}

/// `t2m f32 [4, 721, 1440]`, as far as it is said.
impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tensor { name, dtype, shape } = self;
        write!(f, "{name}")?;
        dtype.map_or(Ok(()), |dtype| write!(f, " {dtype}"))?;
        shape.as_ref().map_or(Ok(()), |shape| write!(f, " {shape:?}"))
    }
}

/// The cases in `file`.
///
/// # Errors
/// The file can't be read, or everything that is wrong with it.
pub(crate) fn cases(file: &Path) -> Result<Vec<Case>, Problems> {
    let shown = file.display().to_string();
    match std::fs::read_to_string(file) {
        Ok(text) => read(&text).map_err(|list| Problems::new(&shown, &Arc::from(text), list)),
        Err(error) => {
            let definition = file.with_extension("").with_extension("yaml");
            let other = instead(&definition).filter(|_| !definition.with_extension("yml").exists());
            let help = "write cases there: forebay explain forebay::case".to_owned();
            let problem = Problem::unreadable(&shown, error).help(other.unwrap_or(help));
            Err(Problems::new(&shown, &Arc::from(""), vec![problem]))
        }
    }
}

fn read(text: &str) -> Result<Vec<Case>, Vec<Problem>> {
    let top = tree::parse(text).map_err(|problem| vec![*problem])?;
    let mut problems = Vec::new();
    only("a file of cases", &top, &["cases"], &mut problems);
    let whole = 0..text.lines().next().map_or(0, str::len);
    let nodes = match top.get("cases").map(|node| &node.value) {
        Some(Value::List(nodes)) if !nodes.is_empty() => &nodes[..],
        _ => {
            let message = "a file of cases has a list `cases` with one case at least";
            let help = "write `cases:` and below it `  - { name: ..., expect: { items: 16 } }`";
            problems.push(Problem::new("forebay::case", message, &whole, "here").help(help));
            &[]
        }
    };
    let mut cases = Vec::new();
    for node in nodes {
        match case(node) {
            Ok(case) => cases.push(case),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if problems.is_empty() { Ok(cases) } else { Err(problems) }
}

fn case(node: &Node) -> Result<Case, Vec<Problem>> {
    let key = Key { text: "case".to_owned(), place: node.place.clone() };
    let case: Case = args::read(&key, node, None)?;
    let Expect { items, batches, fingerprint, specs, values, error } = &case.expect;
    let of_items = [
        items.is_some(),
        batches.is_some(),
        fingerprint.is_some(),
        specs.is_some(),
        values.is_some(),
    ];
    let message = match (of_items.contains(&true), error) {
        (false, None) => "this case expects nothing",
        (true, Some(_)) => "this case expects an error and items, too",
        _ => return Ok(case),
    };
    let place = node.get("expect").map_or(&node.place, |expect| &expect.place);
    let help = "expect `items`, `batches`, `fingerprint`, `specs` or `values`; or an `error` alone";
    Err(vec![Problem::new("forebay::case", message, place, "here").help(help)])
}
