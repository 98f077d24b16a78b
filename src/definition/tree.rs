//! A YAML file as a tree in which every value knows where it stands. The only file that names the
//! YAML library.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::problem::Problem;

/// Nothing in a definition is nested deeper.
const DEPTH_MAX: usize = 24;
/// More values are refused, so that a file is read within a moment whatever it is.
const NODES_MAX: usize = 20_000;

/// A place in the text, in bytes.
pub(crate) type Place = Range<usize>;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// A variable without a value, of which a problem was told already.
    Unknown,
}

/// A key of a mapping and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) place: Place,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Node {
    /// What people call it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null | Value::Unknown => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it, or anything in it, has no value because of a problem that was told.
    pub(crate) fn is_unknown(&self) -> bool {
        match &self.value {
            Value::Unknown => true,
            Value::List(nodes) => nodes.iter().any(Node::is_unknown),
            Value::Map(entries) => entries.iter().any(|(_, node)| node.is_unknown()),
            _ => false,
        }
    }

    /// The entry of a mapping.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    /// The key of a mapping.
    #[cfg(test)]
    fn key(&self, name: &str) -> Option<&Key> {
        match &self.value {
            Value::Map(entries) => entries.iter().map(|(key, _)| key).find(|key| key.text == name),
            _ => None,
        }
    }

    /// The same value for a type's own deserializer.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null | Value::Unknown => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => match (i64::try_from(*n), u64::try_from(*n)) {
                (Ok(n), _) => n.into(),
                (_, Ok(n)) => n.into(),
                _ => (*n as f64).into(),
            },
            // What is not finite has no JSON; as text the type refuses it in words.
            Value::Float(x) => serde_json::Number::from_f64(*x)
                .map_or_else(|| Json::String(x.to_string()), Json::Number),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect()
            }
        }
    }
}

/// Parses a file, or says the first thing that is wrong with its syntax.
pub(crate) fn parse(text: &str) -> Result<Node, Box<Problem>> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX, max_nodes: NODES_MAX, max_events: 4 * NODES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: NODES_MAX },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Tree>>(text, options) {
        Ok(tree) => Ok(node(tree)),
        Err(error) => {
            let place = error.location().map_or(0..0, |at| {
                let span = at.span();
                place_of(&span, text.len())
            });
            let full = error.to_string();
            // The library's position stands at the end; the marker shows it anyway.
            let message = full.split(" at line ").next().unwrap_or(&full).trim();
            let message = message.lines().next().unwrap_or(message);
            let (message, help) = said(message);
            Err(Box::new(Problem::new("forebay::yaml", message, &place, "here").help(help)))
        }
    }
}

/// What the library says of a file, and what to do about it.
fn said(message: &str) -> (String, &'static str) {
    let near = "check the indentation, the quotes and the brackets near this place";
    if let Some(rest) = message.strip_prefix("duplicate mapping key: ") {
        let key = rest.split(',').next().unwrap_or(rest);
        return (format!("the key `{key}` is there twice"), "leave one of them out");
    }
    if message.contains("tabs disallowed") {
        return ("a tab stands where YAML takes spaces only".to_owned(), "indent with spaces");
    }
    if message.contains("Depth") {
        let message = format!("it is nested more than {DEPTH_MAX} levels deep");
        return (message, "no part of a definition needs so many: check the brackets");
    }
    if message.contains("budget breached") || message.contains("alias") {
        let message = format!("it has more than {NODES_MAX} values, or aliases that make so many");
        return (message, "write a value out where it is needed, or make several definitions");
    }
    (message.to_owned(), near)
}

fn place_of(span: &serde_saphyr::Span, len: usize) -> Place {
    let start = span.byte_offset().unwrap_or_else(|| span.offset()) as usize;
    let n = span.byte_len().unwrap_or_else(|| span.len()) as usize;
    start.min(len)..(start + n).min(len)
}

/// The tree as the deserializer gives it.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

fn node(tree: Spanned<Tree>) -> Node {
    let place = place_of(&tree.referenced.span(), usize::MAX);
    let value = match tree.value {
        Tree::Scalar(value) => value,
        Tree::List(items) => Value::List(items.into_iter().map(node).collect()),
        Tree::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    let place = place_of(&key.referenced.span(), usize::MAX);
                    (Key { text: key.value, place }, node(value))
                })
                .collect(),
        ),
    };
    Node { value, place }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, b: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Bool(b)))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Int(n.into())))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Int(n.into())))
    }

    fn visit_i128<E>(self, n: i128) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Int(n)))
    }

    fn visit_u128<E>(self, n: u128) -> Result<Tree, E> {
        Ok(Tree::Scalar(i128::try_from(n).map_or(Value::Float(n as f64), Value::Int)))
    }

    fn visit_f64<E>(self, x: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Float(x)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Text(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place() {
        let text = "a: 1\nstages:\n  - batch: $(n)\n    workers: 50%\n  - zarr.fetch:\n";
        let tree = parse(text).expect("valid");
        let Value::List(stages) = &tree.get("stages").expect("there").value else { panic!() };
        let batch = stages[0].get("batch").expect("there");
        assert_eq!(&text[batch.place.clone()], "$(n)");
        assert_eq!(&text[stages[0].key("workers").expect("there").place.clone()], "workers");
        assert_eq!(stages[1].get("zarr.fetch").expect("there").value, Value::Null);
        assert_eq!(tree.get("a").expect("there").value, Value::Int(1));
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let problem = parse("a: 1\na: 2\n").expect_err("twice");
        assert_eq!(problem.message, "the key `a` is there twice");
        assert_eq!(problem.labels[0].0, 5..6);
        assert!(parse("a: [1, 2").is_err());
        assert!(parse(&"[".repeat(20_000)).is_err());
    }
}
