//! The JSON Schema of definitions, for editors: what a file can say, with the operators of a
//! catalogue and what their authors wrote of them.

use serde_json::{Map, Value as Json, json};

use super::catalog::{Catalog, Operator};
use super::keys::KEYS;
use super::stages::KINDS;
use super::vars::TYPES;

impl Catalog {
    /// The JSON Schema (draft 2020-12) of definitions that are built of these operators.
    pub fn schema(&self) -> Json {
        let mut definitions = runtime();
        let mut operators = Map::new();
        for operator in self.operators() {
            let (arguments, own) = arguments(operator);
            definitions.extend(own);
            operators.insert(operator.name().to_owned(), arguments);
        }
        let names: Vec<_> = operators.keys().cloned().collect();
        for key in KEYS {
            operators.insert(key.to_owned(), json!({ "$ref": format!("#/$defs/stage.{key}") }));
        }
        let one_of = names.iter().map(|name| json!({ "required": [name] }));
        let stage = json!({
            "type": "object",
            "properties": operators,
            "additionalProperties": false,
            "oneOf": one_of.collect::<Vec<_>>(),
        });
        definitions.insert("stage".into(), stage);
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A Forebay pipeline",
            "type": "object",
            "required": ["version", "stages"],
            "additionalProperties": false,
            "properties": {
                "version": { "const": 1, "description": "The version of the format." },
                "name": { "type": "string", "description": "What the pipeline is called. Default: the file's name." },
                "doc": { "type": "string", "description": "What it is for." },
                "vars": {
                    "description": "Variables, which stand as `$(name)` anywhere below.",
                    "type": "object",
                    "additionalProperties": { "$ref": "#/$defs/var" },
                },
                "run": { "$ref": "#/$defs/run" },
                "defaults": { "$ref": "#/$defs/defaults" },
                "sources": {
                    "description": "Named sources, each with its stages, that `merge` or `zip` makes one of.",
                    "type": "object",
                    "propertyNames": { "pattern": "^[\\p{L}\\p{N}_-]+$" },
                    "additionalProperties": {
                        "type": "array",
                        "minItems": 1,
                        "items": { "$ref": "#/$defs/stage" },
                    },
                },
                "stages": {
                    "description": "The source and the stages, in order.",
                    "type": "array",
                    "minItems": 1,
                    "items": { "$ref": "#/$defs/stage" },
                },
            },
        });
        schema["$defs"] = Json::Object(definitions);
        schema
    }
}

/// What a variable looks like where it is used.
fn variable() -> Json {
    json!({ "type": "string", "pattern": "\\$\\(", "description": "a variable" })
}

/// The schema of an operator's arguments, and what it refers to, under names of its own.
fn arguments(operator: &Operator) -> (Json, Map<String, Json>) {
    let mut schema = operator.schema().clone();
    let mut own = Map::new();
    let prefix = format!("#/$defs/{}.", operator.name());
    if let Some(Json::Object(definitions)) =
        schema.as_object_mut().and_then(|schema| schema.remove("$defs"))
    {
        for (name, mut definition) in definitions {
            adapt(&mut definition, &prefix);
            own.insert(format!("{}.{name}", operator.name()), definition);
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
    }
    let needs_none = schema["required"].as_array().is_none_or(Vec::is_empty);
    let main = operator.main_argument();
    let only_main = schema["required"]
        .as_array()
        .is_none_or(|required| required.iter().all(|name| name.as_str() == main));
    let scalar = main.filter(|_| only_main).map(|name| {
        let mut scalar = schema["properties"][name].clone();
        adapt(&mut scalar, &prefix);
        scalar
    });
    let description = schema["description"].clone();
    adapt(&mut schema, &prefix);
    let forms: Vec<_> = std::iter::once(schema)
        .chain(scalar)
        .chain(needs_none.then(|| json!({ "type": "null" })))
        .collect();
    (json!({ "description": description, "anyOf": forms }), own)
}

/// Makes room for variables wherever something else than text stands, and moves references.
fn adapt(schema: &mut Json, prefix: &str) {
    match schema {
        Json::Object(map) => {
            if let Some(Json::String(to)) = map.get_mut("$ref")
                && let Some(name) = to.strip_prefix("#/$defs/")
            {
                *to = format!("{prefix}{name}");
            }
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value) {
                    ("properties" | "patternProperties", Json::Object(each)) => {
                        each.values_mut().for_each(|value| adapt(value, prefix));
                    }
                    (
                        "items"
                        | "additionalProperties"
                        | "anyOf"
                        | "oneOf"
                        | "allOf"
                        | "prefixItems"
                        | "not",
                        value,
                    ) => adapt(value, prefix),
                    _ => {}
                }
            }
            let is_text =
                map.get("type").is_some_and(|of| of == "string") && !map.contains_key("enum");
            let is_schema = ["type", "enum", "const", "anyOf", "oneOf", "$ref"];
            if !is_text && is_schema.iter().any(|key| map.contains_key(*key)) {
                let description = map.get("description").cloned();
                let inner = std::mem::take(map);
                map.insert("anyOf".into(), json!([inner, variable()]));
                map.extend(description.map(|text| ("description".to_owned(), text)));
            }
        }
        Json::Array(list) => list.iter_mut().for_each(|schema| adapt(schema, prefix)),
        _ => {}
    }
}

/// The parts that do not depend on the operators.
fn runtime() -> Map<String, Json> {
    let of = |forms: Json, description: &str| {
        let mut forms = forms.as_array().cloned().unwrap_or_default();
        forms.push(variable());
        json!({ "anyOf": forms, "description": description })
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let count = |least: u64| json!({ "type": "integer", "minimum": least });
    let object = |properties: Json, required: &[&str]| {
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    };
    let time = of(
        json!([text("^[0-9.]+ *(ns|us|µs|ms|s|m|min|h)$")]),
        "A time, such as `30s` or `200ms`.",
    );
    let size = of(json!([text("^[0-9.]+ *([kMGT]|[KMGT]i)?B$")]), "A size, such as `2GiB`.");
    let entries = [
        (
            "id",
            of(
                json!([{ "type": "string" }]),
                "What the stage is called in reports and with --set.",
            ),
        ),
        (
            "kind",
            of(
                json!([{ "enum": ["io", "cpu", "device", "source", "flow"] }]),
                "The kind that the operator has; may be left out.",
            ),
        ),
        ("doc", of(json!([{ "type": "string" }]), "What it is for.")),
        (
            "when",
            of(
                json!([{ "type": "boolean" }, { "const": "gpu" }]),
                "The stage is left out unless this is true; `gpu` is where a GPU is found.",
            ),
        ),
        (
            "workers",
            of(
                json!([count(1), { "const": "auto" }, text("%$")]),
                "Calls at once: a count, a share of the cores such as `50%`, or `auto`.",
            ),
        ),
        (
            "buffer",
            of(
                json!([count(1), object(json!({ "items": count(1), "bytes": size }), &[])]),
                "Items that may wait behind the stage, and bytes of them.",
            ),
        ),
        (
            "ordered",
            of(
                json!([{ "type": "boolean" }, object(json!({ "window": count(1) }), &[])]),
                "Whether items leave in the order in which they came, and how far ahead calls may be.",
            ),
        ),
        ("timeout", time.clone()),
        ("deadline", time.clone()),
        (
            "retry",
            of(
                json!([
                    count(0),
                    object(
                        json!({
                            "max": count(0),
                            "backoff": text("\\.\\."),
                            "on": { "enum": ["any", "transient", "timeout"] },
                        }),
                        &[]
                    )
                ]),
                "How often a call that failed is made again.",
            ),
        ),
        (
            "rate",
            of(
                json!([
                    text("/"),
                    object(
                        json!({
                            "requests": text("/"), "bytes": text("/"), "burst": count(1),
                        }),
                        &[]
                    )
                ]),
                "Calls or bytes per second at most: `300/s`, `400MB/s`.",
            ),
        ),
        (
            "on_error",
            of(
                json!([{ "enum": ["fail", "skip"] }, object(json!({
                "skip": { "anyOf": [count(0), { "const": "any" }, text("%$")] },
                "log": { "type": "string" },
            }), &["skip"])]),
                "What happens to an item whose call failed: `fail`, `skip`, or `{ skip: 1%, log: FILE }`.",
            ),
        ),
    ];
    let mut all = Map::new();
    let mut runtime_keys = Map::new();
    for (key, schema) in entries {
        if !["id", "kind", "doc", "when"].contains(&key) {
            runtime_keys.insert(key.into(), json!({ "$ref": format!("#/$defs/stage.{key}") }));
        }
        all.insert(format!("stage.{key}"), schema);
    }
    all.insert("runtime".into(), object(Json::Object(runtime_keys.clone()), &[]));
    // Of all stages, or of those of a kind.
    for kind in KINDS {
        runtime_keys.insert(kind.into(), json!({ "$ref": "#/$defs/runtime" }));
    }
    let mut defaults = object(Json::Object(runtime_keys), &[]);
    defaults["description"] = "Runtime keys of all stages, or of all stages of a kind.".into();
    all.insert("defaults".into(), defaults);
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    all.insert("var".into(), object(json!({
        "type": { "enum": TYPES },
        "default": scalar,
        "env": { "type": "string", "description": "The environment variable that it is taken from." },
        "doc": { "type": "string" },
    }), &["type"]));
    let number = of(json!([count(0)]), "A number.");
    all.insert(
        "run".into(),
        object(
            json!({
                "seed": number, "cores": number, "io_threads": number,
                "epochs": of(json!([count(1)]), "How often the items are gone through, each time in an order of its own."),
                "shard": object(
                    json!({
                        "rank": of(json!([count(0)]), "Which rank this is, from 0."),
                        "world": of(json!([count(1)]), "How many ranks there are."),
                        "uneven": of(
                            json!([{ "enum": ["drop", "pad"] }]),
                            "What becomes of items that do not divide among the ranks.",
                        ),
                    }),
                    &["rank", "world"],
                ),
                "deterministic": of(
                    json!([{ "type": "boolean" }]),
                    "Refuses stages that make the order of the items depend on timing.",
                ),
                "memory": size,
                "stall": {
                    "description": "After how long without any movement it is said what the run \
                                    waits for: `10s`, or `off`.",
                    "anyOf": [{ "type": "string" }, { "const": false }],
                },
                "stall_fails": { "type": "boolean" },
                "checkpoint": object(
                    json!({
                        "path": {
                            "type": "string",
                            "description": "The file that the place of a run is kept in.",
                        },
                        "every": of(
                            json!([count(1), time, text("^[0-9]+ (items|batches)$")]),
                            "How often it is written: after so many items received, or a time, `30s`.",
                        ),
                    }),
                    &["path"],
                ),
            }),
            &[],
        ),
    );
    all
}
