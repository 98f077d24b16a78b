//! Reads an argument block into the operator's own type, and tells every mistake with its place.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use serde_path_to_error::Segment;

use super::problem::Problem;
use super::tree::{Key, Node, Value};
use crate::nearest::nearest;

/// The JSON Schema of an argument type.
pub(crate) fn schema<A: JsonSchema>() -> Json {
    schemars::schema_for!(A).to_value()
}

/// The arguments of the operation at `key`. `main` is the argument that a scalar or a list stands
/// for.
pub(crate) fn read<A: DeserializeOwned + JsonSchema>(
    key: &Key,
    node: &Node,
    main: Option<&str>,
) -> Result<A, Vec<Problem>> {
    let schema = schema::<A>();
    let mut problems = Vec::new();
    let short = match (&node.value, main) {
        (Value::Null | Value::Unknown | Value::Map(_), _) => false,
        (_, Some(_)) => true,
        (_, None) => {
            let message = format!("`{}` takes a mapping of arguments", key.text);
            let found = format!("this is {}", node.kind());
            let problem = Problem::new("forebay::arg", message, &node.place, found);
            return Err(vec![problem.help(takes(&schema))]);
        }
    };
    if let Value::Map(entries) = &node.value {
        let known = names(&schema);
        for (name, _) in entries.iter().filter(|(name, _)| !known.contains(&name.text.as_str())) {
            let message = format!("`{}` has no argument `{}`", key.text, name.text);
            let problem =
                Problem::new("forebay::arg::unknown", message, &name.place, "unknown argument");
            problems.push(match known.is_empty() {
                true => problem.help("it takes no arguments"),
                false => problem.meant(&name.text, known.iter().copied()),
            });
        }
        // The rest is checked without them, so that all mistakes come at once.
    }
    if !short && node.value != Value::Unknown {
        for name in required(&schema).filter(|name| node.get(name).is_none()) {
            let message = format!("`{}` needs the argument `{name}`", key.text);
            let problem = Problem::new("forebay::arg::missing", message, &key.place, "here");
            problems.push(problem.help(takes(&schema)));
        }
    }
    if !problems.is_empty() || node.is_unknown() {
        return Err(problems);
    }
    let json = match (&node.value, main) {
        (Value::Null, _) => Json::Object(serde_json::Map::new()),
        (Value::Map(_), _) => node.to_json(),
        (_, main) => serde_json::json!({ main.unwrap_or_default(): node.to_json() }),
    };
    serde_path_to_error::deserialize(json).map_err(|error| {
        let (path, place) = locate(node, short, error.path());
        let of = if path.is_empty() { String::new() } else { format!(" of `{path}`") };
        let why = plain(&error.inner().to_string());
        let message = format!("`{}` can't take this value{of}: {why}", key.text);
        let problem = Problem::new("forebay::arg::value", message, &place, "here");
        vec![match meant(&why, &text_at(node, &place)) {
            Some((word, other)) => problem.meant(word, [other]),
            None => problem.help(takes(&schema)),
        }]
    })
}

/// The word in `text`, and that among the words of `why` that it was probably meant as.
fn meant<'a>(why: &'a str, text: &'a Option<String>) -> Option<(&'a str, &'a str)> {
    let word = text.as_deref()?;
    let (_, wanted) = why.split_once("; write ")?;
    let words: Vec<_> = wanted.split('`').skip(1).step_by(2).collect();
    nearest(word, &words).map(|other| (word, other))
}

/// The text that stands at `place` in or below `node`, if it is text.
fn text_at(node: &Node, place: &super::tree::Place) -> Option<String> {
    match &node.value {
        Value::Text(text) if node.place == *place => Some(text.clone()),
        Value::List(nodes) => nodes.iter().find_map(|node| text_at(node, place)),
        Value::Map(entries) => entries.iter().find_map(|(_, node)| text_at(node, place)),
        _ => None,
    }
}

/// What a type's own deserializer says, in words that do not need Rust.
fn plain(error: &str) -> String {
    if let Some(name) = error.strip_prefix("missing field ") {
        return format!("it has no {name}, which it needs");
    }
    if let Some((found, known)) =
        error.strip_prefix("unknown variant ").and_then(|said| said.split_once(", expected "))
    {
        return format!("there is no {found}; write {known}");
    }
    if let Some((found, known)) =
        error.strip_prefix("unknown field ").and_then(|said| said.split_once(", expected "))
    {
        return format!("it has no {found}; there are {known}");
    }
    let said = error.strip_prefix("invalid type: ").or(error.strip_prefix("invalid value: "));
    let Some((found, wanted)) = said.and_then(|said| said.rsplit_once(", expected ")) else {
        return error.to_owned();
    };
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("text {text}"),
        Some(("integer", n)) => format!("the integer {}", n.trim_matches('`')),
        Some(("floating", n)) => {
            format!("the number {}", n.trim_start_matches("point ").trim_matches('`'))
        }
        Some(("boolean", b)) => b.trim_matches('`').to_owned(),
        _ => match found {
            "sequence" => "a list".to_owned(),
            "map" => "a mapping".to_owned(),
            "null" => "nothing".to_owned(),
            other => other.to_owned(),
        },
    };
    let wanted = match wanted {
        "a nonzero usize" | "a nonzero u64" => "a whole number, 1 or more",
        "usize" | "u64" | "u32" => "a whole number, 0 or more",
        "i64" | "i32" => "a whole number",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "string" => "text",
        "a sequence" => "a list, such as [a, b]",
        "string or map" | "map with a single key" => "a word",
        "a map" => "a mapping, such as { a: 1 }",
        other => other,
    };
    format!("this is {found}; write {wanted}")
}

/// The node at `path` below `node`, or the last one on the way to it.
fn locate(
    node: &Node,
    short: bool,
    path: &serde_path_to_error::Path,
) -> (String, super::tree::Place) {
    let (mut at, mut names) = (node, Vec::new());
    let mut segments = path.iter();
    if short {
        segments.next();
    }
    for segment in segments {
        let next = match (segment, &at.value) {
            (Segment::Map { key }, _) => {
                names.push(key.clone());
                at.get(key)
            }
            (Segment::Seq { index }, Value::List(nodes)) => {
                names.push(index.to_string());
                nodes.get(*index)
            }
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    (names.join("."), at.place.clone())
}

/// The names of the arguments.
pub(crate) fn names(schema: &Json) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Json::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

fn required(schema: &Json) -> impl Iterator<Item = &str> {
    let required = schema.get("required").and_then(Json::as_array);
    required.into_iter().flatten().filter_map(Json::as_str)
}

/// Whether the argument `name` has to be given.
pub(crate) fn is_required(schema: &Json, name: &str) -> bool {
    required(schema).any(|other| other == name)
}

/// `takes { size, drop_last? }`.
pub(crate) fn takes(schema: &Json) -> String {
    let required: Vec<_> = required(schema).collect();
    let all: Vec<_> = names(schema)
        .into_iter()
        .map(|name| if required.contains(&name) { name.to_owned() } else { format!("{name}?") })
        .collect();
    if all.is_empty() {
        "it takes no arguments".to_owned()
    } else {
        format!("it takes {{ {} }}", all.join(", "))
    }
}
