//! How chunks become elements: compressions and checksums are undone here, within the memory that a
//! chunk can have; what lies below them is zarrs' to decode.
//!
//! A few bytes can claim to be a terabyte, or be one once they are decompressed. So nothing here
//! believes a header: every layer is undone into memory of the size that it must have.

use std::io::Read;
use std::sync::Arc;

use serde_json::Value;
use zarrs::array::codec::CodecChain;
use zarrs::array::codec::api::{ArrayToBytesCodecTraits as _, BytesToBytesCodecTraits, Codec};
use zarrs::array::{
    ArrayBytesDecodeIntoTarget, BytesRepresentation, ChunkShape, CodecOptions, DataType, FillValue,
};
use zarrs::metadata::v3::MetadataV3;

use crate::item::{Buffer, Pool};

/// The codecs of a variable's chunks, or of the inner chunks of its shards.
pub(super) struct Chain {
    /// Outermost first.
    layers: Vec<Layer>,
    rest: Arc<CodecChain>,
    /// Whether the rest is nothing but elements as this machine stores them.
    is_plain: bool,
    /// Whether the rest begins with blosc, whose header says how much memory it takes.
    is_blosc: bool,
    shape: ChunkShape,
    dtype: DataType,
    fill: FillValue,
    /// Bytes of all elements.
    bytes: u64,
}

/// Something that lies around the bytes of a chunk.
struct Layer {
    undo: Undo,
    /// Bytes within, at most.
    most: u64,
    /// Whether there must be as many.
    exact: bool,
}

enum Undo {
    Zstd,
    Gzip,
    Zlib,
    Bz2,
    Lz4,
    /// numcodecs' way to pack eight bools into a byte.
    PackBits,
    Blosc(Arc<dyn BytesToBytesCodecTraits>),
    Zarrs(Arc<dyn BytesToBytesCodecTraits>, BytesRepresentation),
}

/// The layers that are taken off a variable's metadata, outermost first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Taken(Vec<Name>);

#[derive(Debug, PartialEq)]
enum Name {
    Zstd,
    Gzip,
    Zlib,
    Bz2,
    Lz4,
    PackBits,
    Blosc,
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

impl Name {
    fn of(codec: &Value) -> Option<Name> {
        Some(match id(codec)? {
            "zstd" => Name::Zstd,
            "gzip" => Name::Gzip,
            "zlib" => Name::Zlib,
            "bz2" => Name::Bz2,
            "lz4" => Name::Lz4,
            "crc32c" | "adler32" | "fletcher32" | "shuffle" => Name::Other(codec.clone()),
            _ => return None,
        })
    }
}

impl Taken {
    /// Takes off the layers that are undone here, so that zarrs need not know them.
    pub(super) fn from_metadata(metadata: &mut Value) -> Taken {
        if let Some(compressor) = metadata.get("compressor").cloned() {
            let mut packed = false;
            // Version 2 has one compressor around its filters.
            let name = Name::of(&compressor).filter(|name| !matches!(name, Name::Other(_)));
            if name.is_some() {
                metadata["compressor"] = Value::Null;
            }
            let mut taken: Vec<_> = name.into_iter().collect();
            if let Some(Value::Array(filters)) = metadata.get_mut("filters") {
                filters.retain(|filter| !is_rounding(filter));
                if let [only] = &filters[..]
                    && id(only) == Some("packbits")
                {
                    filters.clear();
                    packed = true;
                }
            }
            if packed && id(&compressor) == Some("blosc") {
                metadata["compressor"] = Value::Null;
                taken.push(Name::Blosc);
            }
            taken.extend(packed.then_some(Name::PackBits));
            return Taken(taken);
        }
        let codecs = match metadata.pointer("/codecs/0/name").and_then(Value::as_str) {
            Some("sharding_indexed") => "/codecs/0/configuration/codecs",
            _ => "/codecs",
        };
        let mut taken = Vec::new();
        if let Some(Value::Array(codecs)) = metadata.pointer_mut(codecs) {
            while let Some(name) = codecs.last().and_then(Name::of) {
                taken.push(name);
                codecs.pop();
            }
            codecs.retain(|codec| !is_rounding(codec));
            // Not the codec `packbits` of version 3 itself, which zarrs knows.
            if codecs.first().is_some_and(|codec| codec["name"] == "numcodecs.packbits") {
                match codecs.iter().skip(1).map(id).collect::<Vec<_>>()[..] {
                    [Some("bytes")] => {}
                    [Some("bytes"), Some("blosc")] => {
                        codecs.pop();
                        taken.push(Name::Blosc);
                    }
                    _ => return Taken(taken),
                }
                codecs.remove(0);
                taken.push(Name::PackBits);
            }
        }
        Taken(taken)
    }
}

impl Chain {
    /// What is left when `taken` is taken off is `rest`. `most` is what an encoded chunk has at most.
    pub(super) fn new(
        taken: Taken,
        rest: Arc<CodecChain>,
        shape: ChunkShape,
        (dtype, fill): (DataType, FillValue),
        most: u64,
    ) -> Result<Self, String> {
        let elements: u64 = shape.iter().map(|n| n.get()).product();
        let bytes = elements * dtype.fixed_size().unwrap_or(1) as u64;
        let mut within = rest
            .encoded_representation(&shape, &dtype, &fill)
            .map_err(|error| error.to_string())?;
        let mut layers = Vec::new();
        for name in taken.0.into_iter().rev() {
            let exact = matches!(within, BytesRepresentation::FixedSize(_));
            let size = within.size().unwrap_or(most).min(most);
            let mut outside = BytesRepresentation::UnboundedSize;
            let undo = match name {
                Name::Zstd => Undo::Zstd,
                Name::Gzip => Undo::Gzip,
                Name::Zlib => Undo::Zlib,
                Name::Bz2 => Undo::Bz2,
                Name::Lz4 => Undo::Lz4,
                Name::PackBits => Undo::PackBits,
                // Any will do: how a chunk was compressed stands in its header.
                Name::Blosc => Undo::Blosc(codec_of(&serde_json::json!({
                    "name": "blosc",
                    "configuration": {
                        "cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0,
                    },
                }))?),
                Name::Other(codec) => {
                    let codec = codec_of(&codec)?;
                    outside = codec.encoded_representation(&within);
                    Undo::Zarrs(codec, within)
                }
            };
            layers.push(Layer { undo, most: size, exact });
            within = outside;
        }
        layers.reverse();
        let first = rest.bytes_to_bytes_codecs().last();
        let is_blosc = first.is_some_and(|codec| format!("{codec:?}").starts_with("BloscCodec"));
        let is_plain = first.is_none() && is_plain(&rest, &dtype);
        Ok(Chain { layers, rest, is_plain, is_blosc, shape, dtype, fill, bytes })
    }

    /// Whether its elements can be written without anything between.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Writes the elements of a plain chunk.
    pub(super) fn fill(&self, encoded: &[u8], to: &mut [u8], pool: &Pool) -> Result<(), String> {
        let Some((last, outer)) = self.layers.split_last() else {
            let (got, want) = (encoded.len(), to.len());
            if got != want {
                return Err(format!("it has {got} bytes instead of {want}"));
            }
            to.copy_from_slice(encoded);
            return Ok(());
        };
        let held = undo_all(outer, encoded, pool)?;
        last.undo(held.as_deref().unwrap_or(encoded), to).map(|_| ())
    }

    /// Decodes a chunk into a part of a tensor that has as many elements.
    pub(super) fn decode_into(
        &self,
        encoded: &[u8],
        to: ArrayBytesDecodeIntoTarget<'_>,
        pool: &Pool,
    ) -> Result<(), String> {
        let held = undo_all(&self.layers, encoded, pool)?;
        let bytes = held.as_deref().unwrap_or(encoded);
        if self.is_blosc {
            check_blosc(bytes, self.bytes)?;
        }
        // The work is split over chunks, not inside them.
        let options = CodecOptions::default().with_concurrent_target(1);
        self.rest
            .decode_into(bytes.into(), &self.shape, &self.dtype, &self.fill, to, &options)
            .map_err(|error| error.to_string())
    }
}

/// What lies within all `layers`; `None` if there are none.
fn undo_all(layers: &[Layer], encoded: &[u8], pool: &Pool) -> Result<Option<Buffer>, String> {
    let mut held: Option<Buffer> = None;
    for layer in layers {
        let mut to = pool.take(layer.most as usize);
        let len = layer.undo(held.as_deref().unwrap_or(encoded), &mut to)?;
        to.truncate(len);
        held = Some(to);
    }
    Ok(held)
}

impl Layer {
    /// Writes what lies within to `to`, which has as many bytes as there may be; gives how many
    /// there are.
    fn undo(&self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        let len = match &self.undo {
            Undo::Zstd => decompress_zstd(from, to)?,
            Undo::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(from), to)?,
            Undo::Zlib => read_all(flate2::bufread::ZlibDecoder::new(from), to)?,
            Undo::Bz2 => read_all(bzip2::bufread::MultiBzDecoder::new(from), to)?,
            Undo::Lz4 => {
                // numcodecs writes the size before the block.
                let block = from.get(4..).ok_or("it is too short for lz4")?;
                lz4_flex::block::decompress_into(block, to).map_err(|error| error.to_string())?
            }
            Undo::PackBits => unpack_bits(from, to)?,
            Undo::Blosc(codec) => {
                check_blosc(from, self.most)?;
                undo_with(codec, &BytesRepresentation::BoundedSize(self.most), from, to)?
            }
            Undo::Zarrs(codec, within) => undo_with(codec, within, from, to)?,
        };
        if self.exact && len != to.len() {
            return Err(format!("it has {len} bytes instead of {}", to.len()));
        }
        Ok(len)
    }
}

fn undo_with(
    codec: &Arc<dyn BytesToBytesCodecTraits>,
    within: &BytesRepresentation,
    from: &[u8],
    to: &mut [u8],
) -> Result<usize, String> {
    let options = CodecOptions::default().with_concurrent_target(1);
    let decoded = codec.decode(from.into(), within, &options);
    let decoded = decoded.map_err(|error| error.to_string())?;
    let most = to.len() as u64;
    let room = to.get_mut(..decoded.len()).ok_or_else(|| too_long(most))?;
    room.copy_from_slice(&decoded);
    Ok(decoded.len())
}

fn too_long(most: u64) -> String {
    format!("it holds more than the {most} bytes of a chunk")
}

fn decompress_zstd(from: &[u8], to: &mut [u8]) -> Result<usize, String> {
    thread_local! {
        // Setting a context up costs more than decompressing a small chunk.
        static CONTEXT: std::cell::RefCell<zstd_safe::DCtx<'static>> =
            std::cell::RefCell::new(zstd_safe::DCtx::create());
    }
    let most = to.len() as u64;
    match zstd_safe::get_frame_content_size(from) {
        Ok(Some(claimed)) if claimed > most => {
            return Err(format!("its header claims {claimed} bytes, but a chunk has {most}"));
        }
        _ => {}
    }
    let decompressed = CONTEXT.with_borrow_mut(|context| context.decompress(to, from));
    decompressed.map_err(|code| match zstd_safe::get_error_name(code) {
        "Destination buffer is too small" => too_long(most),
        name => name.to_owned(),
    })
}

/// Reads to the end, which must come before `to` is full or with it.
fn read_all(mut from: impl Read, to: &mut [u8]) -> Result<usize, String> {
    let mut len = 0;
    loop {
        let read = match &mut to[len..] {
            [] => match from.read(&mut [0]).map_err(|error| error.to_string())? {
                0 => return Ok(len),
                _ => return Err(too_long(to.len() as u64)),
            },
            room => from.read(room).map_err(|error| error.to_string())?,
        };
        if read == 0 {
            return Ok(len);
        }
        len += read;
    }
}

/// Unpacks bits, the highest of a byte first, behind a byte that says how many of the last byte's
/// are not used.
fn unpack_bits(from: &[u8], to: &mut [u8]) -> Result<usize, String> {
    let Some((&unused @ 0..8, bits)) = from.split_first() else {
        return Err("its packed bits do not say how many there are".to_owned());
    };
    let len = (bits.len() * 8).checked_sub(unused as usize);
    let len = len.ok_or("it has no packed bits")?;
    let room = to.get_mut(..len).ok_or_else(|| too_long(len as u64))?;
    for (i, bit) in room.iter_mut().enumerate() {
        *bit = bits[i / 8] >> (7 - i % 8) & 1;
    }
    Ok(len)
}

/// Refuses a blosc chunk whose header claims more than `most` decoded bytes: the decoder would
/// believe it.
fn check_blosc(encoded: &[u8], most: u64) -> Result<(), String> {
    // The header's second field: the decoded size, little-endian.
    let claimed = match encoded.get(4..8) {
        Some(size) if encoded.len() >= 16 => {
            u64::from(u32::from_le_bytes(size.try_into().expect("four bytes")))
        }
        _ => return Err(format!("{} bytes are too few for blosc", encoded.len())),
    };
    // A filter before the compression may add a little.
    match claimed > most + 1024 {
        true => Err(format!("its header claims {claimed} bytes, but a chunk has {most}")),
        false => Ok(()),
    }
}

fn codec_of(codec: &Value) -> Result<Arc<dyn BytesToBytesCodecTraits>, String> {
    let metadata: MetadataV3 =
        serde_json::from_value(codec.clone()).map_err(|error| error.to_string())?;
    match Codec::from_metadata(&metadata).map_err(|error| error.to_string())? {
        Codec::BytesToBytes(codec) => Ok(codec),
        _ => Err(format!("the codec {codec} stands behind the bytes, but takes none")),
    }
}

/// Whether the chain is nothing but the codec `bytes` in this machine's order.
fn is_plain(rest: &CodecChain, dtype: &DataType) -> bool {
    let bytes = rest.array_to_bytes_codec();
    let is_bytes = format!("{bytes:?}").starts_with("BytesCodec");
    let metadata = rest.create_metadatas(&Default::default());
    let endian = metadata
        .first()
        .and_then(|bytes| bytes.configuration()?.get("endian")?.as_str().map(str::to_owned));
    let native = if cfg!(target_endian = "little") { "little" } else { "big" };
    rest.array_to_array_codecs().is_empty()
        && is_bytes
        && (dtype.fixed_size() == Some(1) || endian.as_deref() == Some(native))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn layer(undo: Undo, most: u64) -> Layer {
        Layer { undo, most, exact: true }
    }

    #[test]
    fn a_header_that_claims_a_terabyte_is_refused() {
        let bomb = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
        let error = layer(Undo::Zstd, 4096).undo(&bomb, &mut [0; 4096]).expect_err("refused");
        assert!(error.contains("claims 1099511627776 bytes"), "{error}");
        let mut blosc = [0; 16];
        blosc[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(check_blosc(&blosc, 4096).is_err());
    }

    /// What is larger once it is decompressed than a chunk can be ends there, however small it is.
    #[test]
    fn bombs_without_a_size_are_refused() {
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&zeros).expect("in memory");
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&zeros).expect("in memory");
        let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        bz2.write_all(&zeros).expect("in memory");
        let mut lz4 = (1_u32 << 20).to_le_bytes().to_vec();
        lz4.extend(lz4_flex::block::compress(&zeros));
        let bombs = [
            (Undo::Gzip, gzip.finish().expect("in memory")),
            (Undo::Zlib, zlib.finish().expect("in memory")),
            (Undo::Bz2, bz2.finish().expect("in memory")),
            (Undo::Lz4, lz4),
            (Undo::Zstd, unsized_frame(&zeros)),
        ];
        for (undo, bomb) in bombs {
            assert!(bomb.len() < 8192, "it is small");
            let layer = layer(undo, 4096);
            assert!(layer.undo(&bomb, &mut [0; 4096]).is_err());
            assert_eq!(layer.undo(&bomb, &mut vec![1; 1 << 20]), Ok(1 << 20));
            assert!(
                layer.undo(&bomb[..bomb.len() - 8], &mut vec![1; 1 << 20]).is_err(),
                "cut short"
            );
            assert!(layer.undo(&[], &mut [0; 16]).is_err(), "empty");
        }
    }

    /// A zstd frame whose header does not say how much it holds.
    fn unsized_frame(bytes: &[u8]) -> Vec<u8> {
        let mut context = zstd_safe::CCtx::create();
        let mut frame = vec![0; zstd_safe::compress_bound(bytes.len())];
        let no_size = zstd_safe::CParameter::ContentSizeFlag(false);
        context.set_parameter(no_size).expect("a parameter");
        let len = context.compress2(&mut frame[..], bytes).expect("fits");
        frame.truncate(len);
        assert_eq!(zstd_safe::get_frame_content_size(&frame).expect("a frame"), None);
        frame
    }

    #[test]
    fn layers_are_taken_off_as_far_as_they_are_known() {
        let mut v3 = json!({ "codecs": [
            { "name": "bytes" }, { "name": "numcodecs.zlib" }, { "name": "crc32c" }
        ]});
        let Taken(taken) = Taken::from_metadata(&mut v3);
        assert_eq!(taken, [Name::Other(json!({ "name": "crc32c" })), Name::Zlib]);
        assert_eq!(v3, json!({ "codecs": [{ "name": "bytes" }] }));
        let mut blosc = json!({ "codecs": [{ "name": "bytes" }, { "name": "blosc" }] });
        assert_eq!(Taken::from_metadata(&mut blosc), Taken(vec![]));
        let rounded = json!([{ "name": "numcodecs.bitround" }, { "name": "bytes" }]);
        let mut rounded = json!({ "codecs": rounded });
        assert_eq!(Taken::from_metadata(&mut rounded), Taken(vec![]));
        assert_eq!(rounded, json!({ "codecs": [{ "name": "bytes" }] }));
        let mut v2 = json!({ "compressor": { "id": "lz4" }, "filters": [] });
        assert_eq!(Taken::from_metadata(&mut v2), Taken(vec![Name::Lz4]));
        assert_eq!(v2["compressor"], Value::Null);
        for odd in [json!({ "codecs": [3, null] }), json!({ "compressor": 3 }), json!({})] {
            assert_eq!(Taken::from_metadata(&mut odd.clone()), Taken(vec![]), "{odd}");
        }
    }
}
