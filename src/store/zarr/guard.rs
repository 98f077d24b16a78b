//! Looks at what a compressed chunk says of itself before any decoder believes it: a header of 16
//! bytes can claim a terabyte, and allocating that ends the process.

use serde_json::Value;

/// What the outermost compression of a variable's chunks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    Zstd,
    Blosc,
    Other,
}

impl Guard {
    /// From a variable's metadata, for its chunks or the inner chunks of its shards.
    pub(super) fn new(metadata: &Value, sharded: bool) -> Guard {
        let name = if let Some(compressor) = metadata.get("compressor") {
            compressor.get("id").and_then(Value::as_str)
        } else {
            let at = if sharded { "/codecs/0/configuration/codecs" } else { "/codecs" };
            let codecs = metadata.pointer(at).and_then(Value::as_array);
            let names = codecs.into_iter().flatten().rev().filter_map(|codec| {
                codec.get("name").and_then(Value::as_str).or_else(|| codec.as_str())
            });
            // Checksums stand behind the data and leave its head as it is.
            let checksums = ["crc32c", "adler32", "fletcher32", "numcodecs.crc32c"];
            names.into_iter().find(|name| !checksums.contains(name))
        };
        match name.map(|name| name.trim_start_matches("numcodecs.")) {
            Some("zstd") => Guard::Zstd,
            Some("blosc") => Guard::Blosc,
            _ => Guard::Other,
        }
    }

    /// Whether chunks are nothing but zstd frames of the elements as this machine stores them, so
    /// that a frame can be decompressed right into a tensor.
    pub(super) fn is_plain_zstd(metadata: &Value, sharded: bool) -> bool {
        if !cfg!(target_endian = "little") || metadata.get("compressor").is_some() {
            return false;
        }
        let at = if sharded { "/codecs/0/configuration/codecs" } else { "/codecs" };
        let codecs = metadata.pointer(at).and_then(Value::as_array).map(Vec::as_slice);
        let Some([bytes, zstd]) = codecs else { return false };
        let endian = bytes.pointer("/configuration/endian").and_then(Value::as_str);
        bytes["name"] == "bytes" && endian == Some("little") && zstd["name"] == "zstd"
    }

    /// Refuses a chunk whose header claims more than `most` decoded bytes.
    pub(super) fn check(self, encoded: &[u8], most: u64) -> Result<(), String> {
        let claimed = match self {
            Guard::Zstd => match zstd_safe::get_frame_content_size(encoded) {
                Ok(size) => size,
                Err(_) => return Err("it is not a zstd frame".to_owned()),
            },
            // The header's second field: the decoded size, little-endian.
            Guard::Blosc => match encoded.get(4..8) {
                Some(size) if encoded.len() >= 16 => {
                    Some(u64::from(u32::from_le_bytes(size.try_into().expect("four bytes"))))
                }
                _ => return Err(format!("{} bytes are too few for blosc", encoded.len())),
            },
            Guard::Other => None,
        };
        match claimed {
            // A filter before the compression may add a little.
            Some(claimed) if claimed > most + 1024 => {
                Err(format!("its header claims {claimed} bytes, but a chunk has {most}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_claims_a_terabyte_is_refused() {
        let bomb = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
        let error = Guard::Zstd.check(&bomb, 4096).expect_err("refused");
        assert!(error.contains("claims 1099511627776 bytes"), "{error}");
        let mut blosc = [0; 16];
        blosc[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Guard::Blosc.check(&blosc, 4096).is_err());
    }

    #[test]
    fn checksums_do_not_hide_the_compression() {
        let codecs = serde_json::json!({ "codecs": [
            {"name": "bytes"}, {"name": "zstd"}, {"name": "crc32c"}
        ]});
        assert_eq!(Guard::new(&codecs, false), Guard::Zstd);
        let v2 = serde_json::json!({ "compressor": {"id": "blosc"} });
        assert_eq!(Guard::new(&v2, false), Guard::Blosc);
    }
}
