//! The layers around the bytes of a chunk, as a variable's metadata names them.

use serde_json::Value;

use super::blosc;
use super::layer::Plain;

/// The layers that are taken off a variable's metadata, outermost first.
#[derive(Debug, PartialEq)]
pub(in crate::store::zarr) struct Taken(pub(super) Vec<Name>);

#[derive(Debug, PartialEq)]
pub(super) enum Name {
    Plain(Plain),
    Other(Value),
}

/// A codec's name without the prefix that tells where it comes from.
fn id(codec: &Value) -> Option<&str> {
    let id = codec.get("name").or_else(|| codec.get("id")).unwrap_or(codec).as_str()?;
    Some(id.trim_start_matches("numcodecs."))
}

/// Whether a codec only rounds values when they are written.
fn is_rounding(codec: &Value) -> bool {
    let configuration = codec.get("configuration").unwrap_or(codec);
    let kept = configuration.get("astype").is_none_or(|to| Some(to) == configuration.get("dtype"));
    matches!(id(codec), Some("bitround")) || (id(codec) == Some("quantize") && kept)
}

/// Whether a codec is blosc with a compressor that is built in.
fn is_known_blosc(codec: &Value) -> bool {
    match codec.get("configuration").unwrap_or(codec).get("cname") {
        Some(cname) => cname.as_str().is_some_and(|cname| blosc::COMPRESSORS.contains(&cname)),
        None => true,
    }
}

impl Name {
    fn of(codec: &Value) -> Option<Name> {
        Some(match id(codec)? {
            "zstd" => Name::Plain(Plain::Zstd),
            "gzip" => Name::Plain(Plain::Gzip),
            "zlib" => Name::Plain(Plain::Zlib),
            "bz2" => Name::Plain(Plain::Bz2),
            "lz4" => Name::Plain(Plain::Lz4),
            "blosc" if is_known_blosc(codec) => Name::Plain(Plain::Blosc),
            "crc32c" | "adler32" | "fletcher32" | "shuffle" => Name::Other(codec.clone()),
            _ => return None,
        })
    }
}

impl Taken {
    /// Takes off the layers that are undone here, so that zarrs need not know them.
    pub(in crate::store::zarr) fn from_metadata(metadata: &mut Value) -> Taken {
        Taken(match metadata.get("compressor").cloned() {
            Some(compressor) => from_v2(metadata, &compressor),
            None => from_v3(metadata),
        })
    }
}

/// Version 2 has one compressor around its filters.
fn from_v2(metadata: &mut Value, compressor: &Value) -> Vec<Name> {
    let name = Name::of(compressor).filter(|name| !matches!(name, Name::Other(_)));
    let mut taken: Vec<_> = name.into_iter().collect();
    let mut is_packed = false;
    if let Some(Value::Array(filters)) = metadata.get_mut("filters") {
        filters.retain(|filter| !is_rounding(filter));
        is_packed = matches!(&filters[..], [only] if id(only) == Some("packbits"));
        if is_packed {
            filters.clear();
        }
    }
    if !taken.is_empty() {
        metadata["compressor"] = Value::Null;
    }
    taken.extend(is_packed.then_some(Name::Plain(Plain::PackBits)));
    taken
}

fn from_v3(metadata: &mut Value) -> Vec<Name> {
    let codecs = match metadata.pointer("/codecs/0/name").and_then(Value::as_str) {
        Some("sharding_indexed") => "/codecs/0/configuration/codecs",
        _ => "/codecs",
    };
    let mut taken = Vec::new();
    let Some(Value::Array(codecs)) = metadata.pointer_mut(codecs) else { return taken };
    while let Some(name) = codecs.last().and_then(Name::of) {
        taken.push(name);
        codecs.pop();
    }
    codecs.retain(|codec| !is_rounding(codec));
    // Not the codec `packbits` of version 3 itself, which zarrs knows.
    if codecs.first().is_some_and(|codec| codec["name"] == "numcodecs.packbits") {
        match codecs.iter().skip(1).map(id).collect::<Vec<_>>()[..] {
            [Some("bytes")] => {}
            _ => return taken,
        }
        codecs.remove(0);
        taken.push(Name::Plain(Plain::PackBits));
    }
    taken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn layers_are_taken_off_as_far_as_they_are_known() {
        let mut v3 = json!({ "codecs": [
            { "name": "bytes" }, { "name": "numcodecs.zlib" }, { "name": "crc32c" }
        ]});
        let Taken(taken) = Taken::from_metadata(&mut v3);
        assert_eq!(taken, [Name::Other(json!({ "name": "crc32c" })), Name::Plain(Plain::Zlib)]);
        assert_eq!(v3, json!({ "codecs": [{ "name": "bytes" }] }));
        let mut blosc = json!({ "codecs": [{ "name": "bytes" }, { "name": "blosc" }] });
        assert_eq!(Taken::from_metadata(&mut blosc), Taken(vec![Name::Plain(Plain::Blosc)]));
        let mut odd =
            json!({ "codecs": [{ "name": "blosc", "configuration": { "cname": "lzo" } }] });
        assert_eq!(Taken::from_metadata(&mut odd), Taken(vec![]));
        let rounded = json!([{ "name": "numcodecs.bitround" }, { "name": "bytes" }]);
        let mut rounded = json!({ "codecs": rounded });
        assert_eq!(Taken::from_metadata(&mut rounded), Taken(vec![]));
        assert_eq!(rounded, json!({ "codecs": [{ "name": "bytes" }] }));
        let mut v2 = json!({ "compressor": { "id": "lz4" }, "filters": [] });
        assert_eq!(Taken::from_metadata(&mut v2), Taken(vec![Name::Plain(Plain::Lz4)]));
        assert_eq!(v2["compressor"], Value::Null);
        for odd in [json!({ "codecs": [3, null] }), json!({ "compressor": 3 }), json!({})] {
            assert_eq!(Taken::from_metadata(&mut odd.clone()), Taken(vec![]), "{odd}");
        }
    }
}
