//! What can be asked of an operator: its name, its help, its types.

use std::fmt;

use serde_json::Value as Json;

use super::args;
use super::catalog::{Form, Operator, Takes};
use super::problem::Problem;
use super::tree::{Key, Node};
use crate::stage::Kind;

impl Operator {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of stage that it makes.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it is for: the doc comment of its arguments.
    pub fn doc(&self) -> &str {
        self.schema.get("description").and_then(Json::as_str).unwrap_or_default()
    }

    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// The argument for which a scalar stands.
    pub fn main_argument(&self) -> Option<&str> {
        self.main
    }

    /// Whether its argument `name` has to be given.
    pub fn requires(&self, name: &str) -> bool {
        args::is_required(&self.schema, name)
    }

    /// Whether it can be used without arguments.
    pub(super) fn requires_nothing(&self) -> bool {
        args::names(&self.schema).iter().all(|name| !self.requires(name))
    }

    /// What goes in and comes out, one line for each form: `Vec<Window> -> Encoded`.
    pub fn types(&self) -> Vec<String> {
        let form = |form: &Form| match (form.takes, form.yields) {
            (Takes::Nothing, Some(yields)) => format!("() -> {yields}"),
            (Takes::One(takes), Some(yields)) => format!("{takes} -> {yields}"),
            (Takes::Named(Some(of)), _) => format!("{of}, {of}, ... -> {of}"),
            (Takes::Named(None), _) => "T, T, ... -> T".to_owned(),
            _ => "T -> T".to_owned(),
        };
        self.forms.iter().map(form).collect()
    }

    pub(super) fn check(&self, key: &Key, node: &Node) -> Vec<Problem> {
        (self.check)(key, node, self.main)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("types", &self.types())
            .finish_non_exhaustive()
    }
}
