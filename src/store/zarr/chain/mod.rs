//! How chunks become elements: compressions and checksums are undone here, within the memory that a
//! chunk can have; what lies below them is zarrs' to decode.
//!
//! A few bytes can claim to be a terabyte, or be one once they are decompressed. So nothing here
//! believes a header: every layer is undone into memory of the size that it must have.

mod blosc;
mod layer;
mod taken;

use std::sync::Arc;

use zarrs::array::codec::CodecChain;
use zarrs::array::codec::api::ArrayToBytesCodecTraits as _;
use zarrs::array::{
    ArrayBytesDecodeIntoTarget, BytesRepresentation, ChunkShape, CodecOptions, DataType, FillValue,
};
use zarrs::metadata::v3::MetadataV3;

pub(super) use taken::Taken;

use crate::item::Pool;
use layer::{Layer, Undo, codec_of, undo_all};
use taken::Name;

/// The codecs of a variable's chunks, or of the inner chunks of its shards.
pub(super) struct Chain {
    /// Outermost first.
    layers: Vec<Layer>,
    rest: Arc<CodecChain>,
    /// Whether the rest is nothing but elements as this machine stores them.
    is_plain: bool,
    shape: ChunkShape,
    dtype: DataType,
    fill: FillValue,
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
        let mut within = rest
            .encoded_representation(&shape, &dtype, &fill)
            .map_err(|error| error.to_string())?;
        let mut layers = Vec::new();
        for name in taken.0.into_iter().rev() {
            let exact = matches!(within, BytesRepresentation::FixedSize(_));
            let size = within.size().unwrap_or(most).min(most);
            let mut outside = BytesRepresentation::UnboundedSize;
            let undo = match name {
                Name::Plain(plain) => Undo::Plain(plain),
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
        let codecs = rest.create_metadatas(&Default::default());
        let is_plain = matches!(&codecs[..], [only] if is_native(only, &dtype));
        Ok(Chain { layers, rest, is_plain, shape, dtype, fill })
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
        // The work is split over chunks, not inside them.
        let options = CodecOptions::default().with_concurrent_target(1);
        self.rest
            .decode_into(bytes.into(), &self.shape, &self.dtype, &self.fill, to, &options)
            .map_err(|error| error.to_string())
    }
}

/// Whether the codec is `bytes` in this machine's order.
fn is_native(codec: &MetadataV3, dtype: &DataType) -> bool {
    let endian = codec.configuration().and_then(|configuration| configuration.get("endian"));
    let native = if cfg!(target_endian = "little") { "little" } else { "big" };
    let has_order = dtype.fixed_size() != Some(1);
    codec.name() == "bytes"
        && (!has_order || endian.and_then(|endian| endian.as_str()) == Some(native))
}
