//! The store that is written to: made, or found as it must be, before the first chunk is written.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::error::WriteError;
use super::output::{Output, coordinate, encode_whole};
use super::spec::WriteSpec;
use super::writer::check_ranks;
use crate::item::Spec;
use crate::nearest::nearest;
use crate::store::Store;
use crate::store::zarr::WindowsSpec;
use crate::store::zarr::dataset::Dataset;
use crate::store::zarr::error::ZarrError;
use crate::store::zarr::meta::Known;
use crate::store::zarr::request::first_blocking;

/// More than the metadata of an array or a group has.
const METADATA_MAX: u64 = 64 << 20;

/// What of the metadata of an array must be as it is, and what people call it.
const FIXED: [(&str, &str); 6] = [
    ("/shape", "the shape"),
    ("/data_type", "the data type"),
    ("/chunk_grid/configuration/chunk_shape", "chunks of"),
    ("/codecs", "the codecs"),
    ("/dimension_names", "the dimensions"),
    ("/attributes/forebay", "what it is made of"),
];

/// The arrays for the tensors of a batch and the numbers of their chunks that are there already.
type Created = (Vec<Output>, Vec<HashSet<u64>>);

/// Makes the store, its arrays and their coordinates, or checks what of them there is.
pub(super) fn create(
    store: &Store,
    spec: &WriteSpec,
    dataset: &Arc<Dataset>,
    tensors: &[Spec],
) -> Result<Created, WriteError> {
    let outputs = outputs(spec, dataset, tensors)?;
    check_ranks(spec, dataset, &outputs)?;
    let key = |name: &str| format!("{name}/zarr.json");
    let dims = dims(dataset, &outputs)?;
    let mut keys = vec!["zarr.json".to_owned(), ".zgroup".to_owned(), ".zarray".to_owned()];
    keys.extend(outputs.iter().map(|output| key(&output.name)));
    keys.extend(dims.iter().map(|(dim, ..)| key(dim)));
    let mut found = read(store, &keys)?.into_iter();
    let (root, v2, array) = (found.next().flatten(), found.next(), found.next());
    let is_array = root.as_ref().is_some_and(|root| root["node_type"] == "array");
    if v2.flatten().or(array.flatten()).is_some() || is_array {
        return Err(WriteError::Argument(format!(
            "`{store}` is a Zarr v2 store or a single array: give a new folder, or a Zarr v3 group"
        )));
    }
    let mut objects = Vec::new();
    let (mut members, mut done) = (Map::new(), Vec::new());
    for output in &outputs {
        match found.next().flatten() {
            Some(there) => {
                compare(store, output, &there)?;
                done.push(chunks(store, output)?);
                members.insert(output.name.clone(), there);
            }
            None => {
                objects.push((key(&output.name), json_bytes(&output.metadata)));
                done.push(HashSet::new());
                members.insert(output.name.clone(), output.metadata.clone());
            }
        }
    }
    for (dim, len, of) in &dims {
        match found.next().flatten() {
            Some(there) if there["shape"] != json!([len]) => {
                return Err(exists(store, dim, "the shape", &there["shape"], &json!([len])));
            }
            Some(there) => drop(members.insert(dim.to_string(), there)),
            None => {
                let Some((metadata, values)) = copied(dataset, *of, dim, *len)? else { continue };
                objects.push((format!("{dim}/c/0"), values));
                objects.push((key(dim), json_bytes(&metadata)));
                members.insert(dim.to_string(), metadata);
            }
        }
    }
    // The group names its arrays, so it comes last.
    let root = group(root, members, dataset, &outputs)?;
    objects.extend(root.map(|root| ("zarr.json".to_owned(), json_bytes(&root))));
    store.put_blocking(objects)?;
    Ok((outputs, done))
}

fn outputs(
    spec: &WriteSpec,
    dataset: &Dataset,
    tensors: &[Spec],
) -> Result<Vec<Output>, WriteError> {
    let known: Vec<_> = tensors.iter().map(|tensor| &*tensor.name).collect();
    for name in spec.variables.iter().chain(spec.like.keys()) {
        if !known.contains(&name.as_str()) {
            let hint = match nearest(name, &known) {
                Some(other) => format!("did you mean `{other}`?"),
                None => format!("they have {}", known.join(", ")),
            };
            let why = format!("batches have no tensor of that name: {hint}");
            return Err(WriteError::Tensor { tensor: name.clone(), why });
        }
    }
    let wanted = |tensor: &&Spec| {
        spec.variables.is_empty() || spec.variables.iter().any(|name| **name == *tensor.name)
    };
    let outputs = tensors.iter().filter(wanted).map(|tensor| Output::new(spec, dataset, tensor));
    let outputs: Vec<_> = outputs.collect::<Result<_, _>>()?;
    let mut names = HashSet::new();
    for output in &outputs {
        if !names.insert(&output.name) {
            let why =
                format!("two arrays would be named `{}`: choose with `variables`", output.name);
            return Err(WriteError::Tensor { tensor: output.tensor.to_string(), why });
        }
    }
    let dims = |output: &Output| &dataset.variables[dataset.cuts[output.cut].variable].dims;
    for dim in spec.chunks.keys() {
        let known: Vec<&str> =
            outputs.iter().flat_map(|output| dims(output).iter().map(|dim| &**dim)).collect();
        if !known.contains(&dim.as_str()) {
            let hint = nearest(dim, &known).map(|dim| format!(": did you mean `{dim}`?"));
            let hint = hint.unwrap_or_default();
            let why = format!("`chunks` names `{dim}`, which no tensor has{hint}");
            return Err(WriteError::Argument(why));
        }
    }
    Ok(outputs)
}

/// The dimensions of all outputs with their lengths, and the first output that has each.
fn dims(dataset: &Dataset, outputs: &[Output]) -> Result<Vec<(Arc<str>, u64, usize)>, WriteError> {
    let mut dims: Vec<(Arc<str>, u64, usize)> = Vec::new();
    for output in outputs {
        let cut = output.cut;
        let of = &dataset.variables[dataset.cuts[cut].variable];
        for (dim, len) in of.dims.iter().zip(&of.shape) {
            match dims.iter().find(|(known, ..)| known == dim) {
                None => dims.push((Arc::clone(dim), *len, cut)),
                Some((_, known, _)) if known == len => {}
                Some((_, known, _)) => {
                    let why = format!(
                        "`{dim}` has {len} entries in it and {known} in another: write them to two \
                         stores, each with its `variables`"
                    );
                    return Err(WriteError::Tensor { tensor: output.tensor.to_string(), why });
                }
            }
        }
    }
    Ok(dims)
}

/// The metadata and the values of the coordinate of `dim` as the source of the cut `of` has it; none
/// if it has none that are numbers.
fn copied(
    dataset: &Dataset,
    of: usize,
    dim: &str,
    len: u64,
) -> Result<Option<(Value, Bytes)>, WriteError> {
    let of = &dataset.variables[dataset.cuts[of].variable];
    let known = Known::read(&of.store)?;
    let groups = of.name.match_indices('/').map(|(at, _)| &of.name[..=at]).rev().chain([""]);
    for group in groups {
        let spec = WindowsSpec {
            variables: vec![format!("{group}{dim}")],
            cache: Some(0),
            ..WindowsSpec::default()
        };
        let whole = match Dataset::open_known(&known, &spec) {
            Ok(whole) => Arc::new(whole),
            Err(ZarrError::NoVariable { .. }) => continue,
            Err(error @ ZarrError::Unsupported { .. }) => {
                tracing::warn!(%error, "a coordinate is not copied");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let variable = &whole.variables[0];
        if variable.shape != [len] {
            return Ok(None);
        }
        let metadata = coordinate(dim, len, variable.dtype, variable.attributes.clone());
        let batch = first_blocking(&whole)?;
        let values = encode_whole(&metadata, batch.tensors()[0].bytes(), len);
        let values =
            values.map_err(|why| WriteError::Encode { chunk: format!("{dim}/c/0"), why })?;
        return Ok(Some((metadata, values)));
    }
    Ok(None)
}

/// The metadata of the group with its arrays, if it is not there as it must be.
fn group(
    root: Option<Value>,
    members: Map<String, Value>,
    dataset: &Dataset,
    outputs: &[Output],
) -> Result<Option<Value>, WriteError> {
    let mut all =
        match root.as_ref().and_then(|root| root.pointer("/consolidated_metadata/metadata")) {
            Some(Value::Object(all)) => all.clone(),
            _ => Map::new(),
        };
    if root.is_some() && members.keys().all(|name| all.contains_key(name)) {
        return Ok(None);
    }
    let mut group = match root {
        Some(root) => root,
        None => {
            let of = outputs.first().map(|output| dataset.cuts[output.cut].variable);
            let attributes = match of.map(|of| Known::read(&dataset.variables[of].store)) {
                Some(known) => known?.attributes,
                None => Map::new(),
            };
            json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes })
        }
    };
    all.extend(members);
    group["consolidated_metadata"] =
        json!({ "kind": "inline", "must_understand": false, "metadata": all });
    Ok(Some(group))
}

/// Refuses an array that is there and is not what would be written.
fn compare(store: &Store, output: &Output, there: &Value) -> Result<(), WriteError> {
    for (pointer, what) in FIXED {
        let (found, here) = (there.pointer(pointer), output.metadata.pointer(pointer));
        let (found, here) = (found.unwrap_or(&Value::Null), here.unwrap_or(&Value::Null));
        if found != here {
            return Err(exists(store, &output.name, what, found, here));
        }
    }
    Ok(())
}

fn exists(store: &Store, name: &str, what: &str, there: &Value, here: &Value) -> WriteError {
    WriteError::Exists {
        name: name.to_owned(),
        store: store.url().to_owned(),
        what: what.to_owned(),
        there: there.to_string(),
        here: here.to_string(),
    }
}

/// The numbers of the chunks that are there.
fn chunks(store: &Store, output: &Output) -> Result<HashSet<u64>, WriteError> {
    let folder = format!("{}/c", output.name);
    let place = |key: &String| -> Option<Vec<u64>> {
        let place = key.strip_prefix(&folder)?.strip_prefix('/')?;
        let place: Vec<u64> = place.split('/').map(|at| at.parse().ok()).collect::<Option<_>>()?;
        (place.len() == output.shape.len()).then_some(place)
    };
    if output.shape.is_empty() {
        let there = store.sizes_blocking(&[folder])?[0].is_some();
        return Ok(there.then_some(0).into_iter().collect());
    }
    let keys = store.keys_blocking(&folder)?;
    Ok(keys.iter().filter_map(place).map(|place| output.number(&place)).collect())
}

fn read(store: &Store, keys: &[String]) -> Result<Vec<Option<Value>>, WriteError> {
    let found = store.read_blocking(keys, METADATA_MAX)?.into_iter().zip(keys);
    let parse = |(bytes, key): (Option<Bytes>, &String)| {
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let why = format!("`{key}` in `{store}` is not JSON ({error}): give a new folder");
            WriteError::Argument(why)
        })
    };
    found.map(parse).collect()
}

fn json_bytes(value: &Value) -> Bytes {
    Bytes::from(format!("{value:#}"))
}
