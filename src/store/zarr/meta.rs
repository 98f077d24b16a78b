//! Finds the metadata of variables: Zarr v3 (`zarr.json`, consolidated or not) and v2 (`.zmetadata`
//! or `.zarray` and `.zattrs`).

use serde_json::{Map, Value};

use super::error::{ZarrError, hint};
use crate::store::Store;

/// More than any metadata of use has.
const METADATA_MAX: u64 = 256 << 20;

/// The metadata of a variable: a v3 array's, or a v2 array's with its `attributes` added.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) metadata: Value,
}

/// What is read first of a store: the metadata of all its variables if it is consolidated.
pub(super) struct Known<'a> {
    pub(super) store: &'a Store,
    /// Those of the group itself.
    pub(super) attributes: Map<String, Value>,
    arrays: Map<String, Value>,
}

impl<'a> Known<'a> {
    pub(super) fn read(store: &'a Store) -> Result<Self, ZarrError> {
        let top = [".zmetadata", ".zgroup", ".zarray", "zarr.json"].map(str::to_owned);
        let [consolidated, group_v2, array_v2, top]: [_; 4] =
            read_all(store, &top)?.try_into().expect("as many answers as keys");
        let (mut arrays, mut attributes) = (Map::new(), Map::new());
        if let Some(top) = top {
            if let Some(Value::Object(own)) = top.get("attributes") {
                attributes.clone_from(own);
            }
            if top.get("node_type").and_then(Value::as_str) == Some("array") {
                return Err(ZarrError::IsArray(store.url().to_owned()));
            }
            if let Some(Value::Object(all)) = top.pointer("/consolidated_metadata/metadata") {
                let found = all.iter().filter(|(_, m)| m["node_type"] == "array");
                arrays.extend(found.map(|(name, m)| (name.clone(), m.clone())));
            }
        } else if let Some(consolidated) = consolidated {
            if let Some(Value::Object(all)) = consolidated.get("metadata") {
                if let Some(Value::Object(own)) = all.get(".zattrs") {
                    attributes.clone_from(own);
                }
                for (key, metadata) in all {
                    if let Some(name) = key.strip_suffix("/.zarray") {
                        let attributes = all.get(&format!("{name}/.zattrs"));
                        arrays.insert(name.to_owned(), with_attributes(metadata, attributes));
                    }
                }
            }
        } else if array_v2.is_some() {
            return Err(ZarrError::IsArray(store.url().to_owned()));
        } else if group_v2.is_none() {
            return Err(ZarrError::NoGroup(store.url().to_owned()));
        }
        Ok(Known { store, attributes, arrays })
    }

    /// The metadata of `names`, in their order.
    pub(super) fn find(&self, names: &[String]) -> Result<Vec<Found>, ZarrError> {
        for name in names {
            let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
            if !name.split('/').all(plain) {
                let why = "it is no name: write the path of an array below the store".to_owned();
                return Err(ZarrError::Unsupported { name: name.clone(), why });
            }
        }
        if names.is_empty() {
            return Err(ZarrError::NoVariables(hint("", &self.names())));
        }
        let find = |name: &String| {
            let metadata = match self.arrays.get(name) {
                Some(metadata) => Some(metadata.clone()),
                None => read_array(self.store, name)?,
            };
            let store = || self.store.url().to_owned();
            let missing = || ZarrError::NoVariable {
                name: name.clone(),
                store: store(),
                hint: hint(name, &self.names()),
            };
            Ok(Found { name: name.clone(), metadata: metadata.ok_or_else(missing)? })
        };
        names.iter().map(find).collect()
    }

    fn names(&self) -> Vec<String> {
        match self.arrays.is_empty() {
            true => self.store.list_blocking(),
            false => self.arrays.keys().cloned().collect(),
        }
    }
}

/// The metadata of an array that no consolidated metadata names.
fn read_array(store: &Store, name: &str) -> Result<Option<Value>, ZarrError> {
    let keys = ["zarr.json", ".zarray", ".zattrs"].map(|file| format!("{name}/{file}"));
    let [v3, v2, attributes]: [_; 3] =
        read_all(store, &keys)?.try_into().expect("as many answers as keys");
    Ok(match (v3, v2) {
        (Some(v3), _) if v3["node_type"] == "array" => Some(v3),
        (_, Some(v2)) => Some(with_attributes(&v2, attributes.as_ref())),
        _ => None,
    })
}

fn with_attributes(metadata: &Value, attributes: Option<&Value>) -> Value {
    let mut metadata = metadata.clone();
    if let (Value::Object(metadata), Some(attributes)) = (&mut metadata, attributes) {
        metadata.insert("attributes".to_owned(), attributes.clone());
    }
    metadata
}

/// What `bytes` are that are no JSON, as `error` says.
fn not_json(bytes: &[u8], error: &serde_json::Error) -> String {
    let begin = bytes.trim_ascii_start();
    let is_page = [&b"<!doctype"[..], b"<html"]
        .iter()
        .any(|tag| begin.get(..tag.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(tag)));
    match is_page {
        true => "it is a page of HTML, such as a proxy or a login page answers: check the URL, and open it \
                 in a browser from this machine"
            .to_owned(),
        false => format!("it is no JSON: {error}"),
    }
}

fn read_all(store: &Store, keys: &[String]) -> Result<Vec<Option<Value>>, ZarrError> {
    let read = store.read_blocking(keys, METADATA_MAX)?;
    let parse = |(key, bytes): (&String, Option<bytes::Bytes>)| {
        let Some(bytes) = bytes else { return Ok(None) };
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(value @ Value::Object(_)) => Ok(Some(value)),
            Ok(_) => {
                let why = "it is JSON, but not an object".to_owned();
                Err(ZarrError::Metadata { name: key.clone(), why })
            }
            Err(error) => {
                Err(ZarrError::Metadata { name: key.clone(), why: not_json(&bytes, &error) })
            }
        }
    };
    keys.iter().zip(read).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_html_is_told_as_such() {
        let told = |bytes: &[u8]| {
            let error = serde_json::from_slice::<Value>(bytes).expect_err("no JSON");
            not_json(bytes, &error)
        };
        for page in [&b"\n <!DOCTYPE html><html>"[..], b"<HTML><body>"] {
            assert!(told(page).starts_with("it is a page of HTML"), "{}", told(page));
        }
        for other in [&b"{ \"a\": "[..], b"<", b""] {
            assert!(told(other).starts_with("it is no JSON: "), "{}", told(other));
        }
    }
}
