//! Undoing what lies around the bytes of a chunk, each layer within the memory that it may have.

use std::io::Read;
use std::sync::Arc;

use serde_json::Value;
use zarrs::array::codec::api::{BytesToBytesCodecTraits, Codec};
use zarrs::array::{BytesRepresentation, CodecOptions};
use zarrs::metadata::v3::MetadataV3;

use crate::item::{Buffer, Pool};

/// Something that lies around the bytes of a chunk.
pub(super) struct Layer {
    pub(super) undo: Undo,
    /// Bytes within, at most.
    pub(super) most: u64,
    /// Whether there must be as many.
    pub(super) exact: bool,
}

/// What is undone without knowing more than its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Zstd,
    Gzip,
    Zlib,
    Bz2,
    Lz4,
    Blosc,
    /// numcodecs' way to pack eight bools into a byte.
    PackBits,
}

pub(super) enum Undo {
    Plain(Plain),
    Zarrs(Arc<dyn BytesToBytesCodecTraits>, BytesRepresentation),
}

/// What lies within all `layers`; `None` if there are none.
pub(super) fn undo_all(
    layers: &[Layer],
    encoded: &[u8],
    pool: &Pool,
) -> Result<Option<Buffer>, String> {
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
    pub(super) fn undo(&self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        let len = match &self.undo {
            Undo::Plain(plain) => plain.undo(from, to)?,
            Undo::Zarrs(codec, within) => undo_with(codec, within, from, to)?,
        };
        if self.exact && len != to.len() {
            return Err(format!("it has {len} bytes instead of {}", to.len()));
        }
        Ok(len)
    }
}

impl Plain {
    fn undo(self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        match self {
            Plain::Zstd => decompress_zstd(from, to),
            Plain::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(from), to),
            Plain::Zlib => read_all(flate2::bufread::ZlibDecoder::new(from), to),
            Plain::Bz2 => read_all(bzip2::bufread::MultiBzDecoder::new(from), to),
            Plain::Lz4 => {
                // numcodecs writes the size before the block.
                let block = from.get(4..).ok_or("it is too short for lz4")?;
                lz4_flex::block::decompress_into(block, to).map_err(|error| error.to_string())
            }
            Plain::Blosc => super::blosc::decompress(from, to),
            Plain::PackBits => unpack_bits(from, to),
        }
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
        "Src size is incorrect" => {
            format!("its {} bytes are cut short, or more follow", from.len())
        }
        "Unknown frame descriptor" => "it does not begin as a zstd frame does".to_owned(),
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

pub(super) fn codec_of(codec: &Value) -> Result<Arc<dyn BytesToBytesCodecTraits>, String> {
    let metadata: MetadataV3 =
        serde_json::from_value(codec.clone()).map_err(|error| error.to_string())?;
    match Codec::from_metadata(&metadata).map_err(|error| error.to_string())? {
        Codec::BytesToBytes(codec) => Ok(codec),
        _ => Err(format!("the codec {codec} stands behind the bytes, but takes none")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn layer(plain: Plain, most: u64) -> Layer {
        Layer { undo: Undo::Plain(plain), most, exact: true }
    }

    #[test]
    fn a_header_that_claims_a_terabyte_is_refused() {
        let bomb = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
        let error = layer(Plain::Zstd, 4096).undo(&bomb, &mut [0; 4096]).expect_err("refused");
        assert!(error.contains("claims 1099511627776 bytes"), "{error}");
        let foreign = layer(Plain::Zstd, 4096).undo(&[0; 32], &mut [0; 4096]);
        assert_eq!(foreign, Err("it does not begin as a zstd frame does".to_owned()));
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
            (Plain::Gzip, gzip.finish().expect("in memory")),
            (Plain::Zlib, zlib.finish().expect("in memory")),
            (Plain::Bz2, bz2.finish().expect("in memory")),
            (Plain::Lz4, lz4),
            (Plain::Zstd, unsized_frame(&zeros)),
        ];
        for (plain, bomb) in bombs {
            assert!(bomb.len() < 8192, "it is small");
            let layer = layer(plain, 4096);
            assert!(layer.undo(&bomb, &mut [0; 4096]).is_err());
            assert_eq!(layer.undo(&bomb, &mut vec![1; 1 << 20]), Ok(1 << 20));
            assert!(
                layer.undo(&bomb[..bomb.len() - 8], &mut vec![1; 1 << 20]).is_err(),
                "cut short"
            );
            assert!(layer.undo(&[], &mut [0; 16]).is_err(), "empty");
        }
    }

    #[test]
    fn a_zstd_frame_that_is_cut_short_is_told_as_such() {
        let frame = unsized_frame(&[7; 4096]);
        let cut = layer(Plain::Zstd, 4096).undo(&frame[..frame.len() - 2], &mut [0; 4096]);
        let bytes = frame.len() - 2;
        assert_eq!(cut, Err(format!("its {bytes} bytes are cut short, or more follow")));
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
}
