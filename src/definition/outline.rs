//! A definition as pictures and lists need it: its stages with their kinds, types and runtime keys, and
//! what each takes from.
//! Nothing is opened or built.

use super::tree::{Node, Value};
use super::{Catalog, Definition, FlowType};
use crate::stage::Kind;

/// A stage of a definition, as it can be shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageOutline {
    /// Its id.
    pub id: String,
    /// Its operator.
    pub operator: String,
    /// Its kind.
    pub kind: Kind,
    /// What it yields.
    pub yields: FlowType,
    /// The stages that it takes from, by their place in the outline: none for a source, several where
    /// named sources flow together.
    pub after: Vec<usize>,
    /// Its argument, if a scalar or a list stands for all of them: the `4` of `- batch: 4`.
    pub argument: Option<String>,
    /// Its runtime keys: `workers 8, retry 5`.
    pub keys: String,
}

impl Definition {
    /// Its stages, the source first. `catalog` is the one that it was checked against.
    pub fn outline(&self, catalog: &Catalog) -> Vec<StageOutline> {
        let stages = self.checked.steps.iter().filter_map(|step| {
            Some(StageOutline {
                id: step.id.clone(),
                operator: step.key.text.clone(),
                kind: catalog.get(&step.key.text)?.kind(),
                yields: step.yields,
                after: step.after.clone(),
                argument: shown(&step.node),
                keys: step.options.to_string(),
            })
        });
        stages.collect()
    }
}

fn shown(node: &Node) -> Option<String> {
    match &node.value {
        Value::List(nodes) => {
            let each = nodes.iter().map(scalar).collect::<Option<Vec<_>>>()?;
            Some(format!("[{}]", each.join(", ")))
        }
        _ => scalar(node),
    }
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Bool(b) => Some(b.to_string()),
        Value::Int(n) => Some(n.to_string()),
        Value::Float(x) => Some(x.to_string()),
        Value::Text(text) => Some(text.clone()),
        Value::Null | Value::List(_) | Value::Map(_) | Value::Unknown => None,
    }
}
