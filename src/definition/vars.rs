//! Variables: declared under `vars`, given by default, environment or `--set`, and put in place of
//! `$(name)` after parsing, in scalars only.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::problem::{Problem, suggest};
use super::tree::{Key, Node, Place, Value};
use super::units;

/// The types that a variable can be declared with.
pub(super) const TYPES: [&str; 8] = ["text", "int", "float", "bool", "url", "path", "size", "time"];
/// For so many names that are not declared it is said what was probably meant.
const SUGGESTIONS: usize = 100;
/// The keys of a declaration.
const KEYS: [&str; 4] = ["type", "default", "env", "doc"];

/// The declared variables and their values.
#[derive(Debug, Default)]
pub(crate) struct Vars {
    all: BTreeMap<String, Var>,
}

#[derive(Debug)]
struct Var {
    /// `None` if a problem with it was told already.
    value: Option<Value>,
    declared: Place,
    used: bool,
}

impl Vars {
    /// Reads the declarations; `set` holds what was given on the command line, by name.
    pub(crate) fn read(
        block: Option<&Node>,
        set: &mut BTreeMap<String, String>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut vars = Vars::default();
        let Some(block) = block else { return vars };
        let Value::Map(entries) = &block.value else {
            let message = format!("`vars` is {}, not a mapping", block.kind());
            problems.push(
                Problem::new("forebay::var", message, &block.place, "here")
                    .help("write `vars: { name: { type: int, default: 4 } }`"),
            );
            return vars;
        };
        for (key, node) in entries {
            let given = set.remove(&key.text);
            let value = declaration(key, node, given, problems);
            let var = Var { value, declared: key.place.clone(), used: false };
            vars.all.insert(key.text.clone(), var);
        }
        vars
    }

    /// The names declared.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Replaces every `$(name)` below `node`.
    pub(crate) fn substitute(&mut self, node: &mut Node, problems: &mut Vec<Problem>) {
        match &mut node.value {
            Value::Text(text) if text.contains("$(") => {
                let text = std::mem::take(text);
                node.value = self.replace(&text, &node.place, problems);
            }
            Value::List(nodes) => {
                nodes.iter_mut().for_each(|node| self.substitute(node, problems));
            }
            Value::Map(entries) => {
                entries.iter_mut().for_each(|(_, node)| self.substitute(node, problems));
            }
            _ => {}
        }
    }

    fn replace(&mut self, text: &str, place: &Place, problems: &mut Vec<Problem>) -> Value {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("$(") {
            let (before, after) = rest.split_at(at);
            let Some(end) = after.find(')') else {
                let message = "`$(` is never closed";
                problems.push(
                    Problem::new("forebay::var", message, place, "here")
                        .help("write `$(name)`, or `$$(` for a plain `$(`"),
                );
                return Value::Unknown;
            };
            let name = after[2..end].trim();
            rest = &after[end + 1..];
            if let Some(plain) = before.strip_suffix('$') {
                // `$$(name)` is the text `$(name)`.
                out.push_str(plain);
                out.push_str(&after[..=end]);
                continue;
            }
            out.push_str(before);
            let value = match self.all.entry(name.to_owned()) {
                Entry::Occupied(mut var) => {
                    var.get_mut().used = true;
                    var.get().value.clone()
                }
                Entry::Vacant(_) => {
                    let message = format!("variable `{name}` is not declared");
                    let problem = Problem::new("forebay::var", message, place, "used here");
                    let problem = match self.all.is_empty() {
                        true => problem
                            .help(format!("declare it: `vars: {{ {name}: {{ type: text }} }}`")),
                        // After so many, one more name to look for helps nobody.
                        false if problems.len() > SUGGESTIONS => problem,
                        false => problem.meant(name, self.all.keys().map(String::as_str)),
                    };
                    // The one that was probably meant is not unused.
                    for (known, var) in self.all.iter_mut().filter(|_| problem.fix.is_some()) {
                        var.used |= problem.help == Some(suggest(name, [known.as_str()]));
                    }
                    problems.push(problem);
                    None
                }
            };
            match value {
                // The whole scalar: the variable's own type.
                Some(value) if out.is_empty() && rest.is_empty() && before.is_empty() => {
                    return value;
                }
                Some(Value::Text(text)) => out.push_str(&text),
                Some(Value::Int(n)) => out.push_str(&n.to_string()),
                Some(Value::Float(x)) => out.push_str(&x.to_string()),
                Some(Value::Bool(b)) => out.push_str(&b.to_string()),
                _ => return Value::Unknown,
            }
        }
        out.push_str(rest);
        Value::Text(out)
    }

    /// Variables that nothing uses are mistakes.
    pub(crate) fn check_used(&self, problems: &mut Vec<Problem>) {
        for (name, var) in self.all.iter().filter(|(_, var)| !var.used) {
            let message = format!("variable `{name}` is declared but never used");
            problems.push(
                Problem::new("forebay::var", message, &var.declared, "declared here")
                    .help(format!("write `$({name})` where it belongs, or leave it out")),
            );
        }
    }
}

/// The value of a declared variable.
fn declaration(
    key: &Key,
    node: &Node,
    given: Option<String>,
    problems: &mut Vec<Problem>,
) -> Option<Value> {
    let name = &key.text;
    let Value::Map(entries) = &node.value else {
        let message = format!("variable `{name}` is declared as {}", node.kind());
        problems.push(
            Problem::new("forebay::var", message, &node.place, "not a mapping")
                .help(format!("write `{name}: {{ type: int, default: 4 }}`")),
        );
        return None;
    };
    for (key, _) in entries.iter().filter(|(key, _)| !KEYS.contains(&key.text.as_str())) {
        let message = format!("a variable has no `{}`", key.text);
        problems.push(
            Problem::new("forebay::var", message, &key.place, "unknown").meant(&key.text, KEYS),
        );
    }
    let kind = match node.get("type") {
        None => "text",
        Some(node) => match node.as_text().filter(|text| TYPES.contains(text)) {
            Some(kind) => kind,
            None => {
                let message = format!("variable `{name}` has a type that is not known");
                let found = node.as_text().unwrap_or_default();
                problems.push(
                    Problem::new("forebay::var", message, &node.place, "unknown type")
                        .meant(found, TYPES),
                );
                return None;
            }
        },
    };
    let from_env = || {
        let name = node.get("env")?.as_text()?;
        std::env::var(name).ok().map(|value| (value, format!("the environment's `{name}`")))
    };
    let text = given.map(|value| (value, format!("`--set {name}`"))).or_else(from_env);
    // What the environment holds may be a secret: it is never shown.
    let (value, from, shown) = match (text, node.get("default")) {
        (Some((text, from)), _) => (scalar(&text), from, false),
        (None, Some(default)) => (default.value.clone(), "its default".to_owned(), true),
        (None, None) => {
            let message = format!("variable `{name}` has no value");
            let help = match node.get("env").and_then(Node::as_text) {
                Some(env) => format!(
                    "give it one: {env} in the environment, `--set {name}=...`, or a `default:`"
                ),
                None => format!("give it one: `--set {name}=...`, or a `default:`"),
            };
            problems.push(
                Problem::new("forebay::var", message, &key.place, "declared here").help(help),
            );
            return None;
        }
    };
    match typed(kind, &value) {
        Ok(value) => Some(value),
        Err(why) => {
            let place = node.get("default").map_or(&key.place, |default| &default.place);
            let why = if shown { why } else { "is not".to_owned() };
            let message = format!("variable `{name}` is of type {kind}, but {from} {why}");
            let problem = Problem::new("forebay::var", message, place, "declared here");
            problems.push(problem.help(format!("write {}", wanted(kind))));
            None
        }
    }
}

/// A value that was given as text.
pub(crate) fn scalar(text: &str) -> Value {
    match super::tree::parse(text) {
        Ok(node) if !matches!(node.value, Value::Null) => node.value,
        _ => Value::Text(text.to_owned()),
    }
}

/// What a value of a type looks like.
fn wanted(kind: &str) -> &'static str {
    match kind {
        "int" => "a whole number, such as 4",
        "float" => "a number, such as 0.5",
        "bool" => "true or false",
        "size" => "a size with its unit, such as `2GiB`",
        "time" => "a time with its unit, such as `30s`",
        "url" => "a path or a URL, such as `s3://bucket/era5.zarr`",
        _ => "text, in quotes if it looks like something else",
    }
}

/// `value` as a variable's type has it.
fn typed(kind: &str, value: &Value) -> Result<Value, String> {
    let shown = match value {
        Value::Text(text) => format!("is `{text}`"),
        Value::Int(n) => format!("is {n}"),
        Value::Float(x) => format!("is {x}"),
        Value::Bool(b) => format!("is {b}"),
        _ => "is no scalar".to_owned(),
    };
    match (kind, value) {
        ("int", Value::Int(_)) | ("bool", Value::Bool(_)) | ("float", Value::Float(_)) => {
            Ok(value.clone())
        }
        ("float", Value::Int(n)) => Ok(Value::Float(*n as f64)),
        ("text" | "url" | "path", Value::Text(_)) => Ok(value.clone()),
        ("text" | "path", Value::Int(n)) => Ok(Value::Text(n.to_string())),
        ("text" | "path", Value::Bool(b)) => Ok(Value::Text(b.to_string())),
        ("text" | "path", Value::Float(x)) => Ok(Value::Text(x.to_string())),
        ("size", Value::Text(text)) => units::bytes(text).map(|_| value.clone()),
        ("time", Value::Text(text)) => units::duration(text).map(|_| value.clone()),
        _ => Err(shown),
    }
}
