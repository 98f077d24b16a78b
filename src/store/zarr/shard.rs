//! The index of a shard: where in it each inner chunk lies.

use std::num::NonZeroU64;

use zarrs::array::CodecOptions;
use zarrs::array::codec::CodecChain;
use zarrs::array::codec::api::ArrayToBytesCodecTraits as _;
use zarrs::array::{ChunkShape, DataType, FillValue, data_type};
use zarrs::metadata_ext::codec::sharding::{ShardingCodecConfigurationV1, ShardingIndexLocation};

use super::variable::numbers;
use crate::store::Part;

/// How a variable's shards are laid out.
pub(super) struct Sharding {
    /// Inner chunks of a shard along each dimension.
    pub(super) chunks: Vec<u64>,
    index: CodecChain,
    index_shape: ChunkShape,
    pub(super) index_bytes: u64,
    at_end: bool,
}

/// Where the inner chunks of one shard lie; `None` for those that are not there.
pub(super) struct ShardIndex(Vec<Option<std::ops::Range<u64>>>);

impl Sharding {
    pub(super) fn new(
        shard: &[NonZeroU64],
        configuration: ShardingCodecConfigurationV1,
    ) -> Result<Self, String> {
        let (shard, chunk) = (numbers(shard), numbers(&configuration.chunk_shape));
        let fits = shard.len() == chunk.len()
            && shard.iter().zip(&chunk).all(|(shard, chunk)| shard % chunk == 0);
        if !fits {
            return Err(format!(
                "its inner chunks of {chunk:?} do not divide its shards {shard:?}"
            ));
        }
        let chunks: Vec<u64> = shard.iter().zip(&chunk).map(|(s, c)| s / c).collect();
        let count = chunks.iter().copied().try_fold(1, u64::checked_mul);
        if count.is_none_or(|count| count > 1 << 26) {
            return Err("its shards have more inner chunks than an index can hold".to_owned());
        }
        let index = CodecChain::from_metadata(&configuration.index_codecs)
            .map_err(|error| error.to_string())?;
        let index_shape: ChunkShape = chunks
            .iter()
            .chain(&[2])
            .map(|n| NonZeroU64::new(*n).expect("a quotient of whole parts is at least 1"))
            .collect();
        let representation = index
            .encoded_representation(&index_shape, &data_type::uint64(), &empty())
            .map_err(|error| error.to_string())?;
        let index_bytes = representation
            .size()
            .ok_or("its shard index is compressed, so its place is unknown")?;
        let at_end = configuration.index_location == ShardingIndexLocation::End;
        Ok(Sharding { chunks, index, index_shape, index_bytes, at_end })
    }

    /// Where in a shard the index lies; a store without suffix ranges needs the shard's size.
    pub(super) fn index_part(&self, size: Option<u64>) -> Part {
        match (self.at_end, size) {
            (false, _) => Part::Range(0..self.index_bytes),
            (true, None) => Part::Last(self.index_bytes),
            (true, Some(size)) => Part::Range(size.saturating_sub(self.index_bytes)..size),
        }
    }

    /// Where in its shard's index the inner chunk at `place` of the whole grid is.
    pub(super) fn within(&self, place: &[u64]) -> u64 {
        place.iter().zip(&self.chunks).fold(0, |within, (at, n)| within * n + at % n)
    }

    pub(super) fn needs_size(&self) -> bool {
        self.at_end
    }

    /// Reads an index. `most` is what an inner chunk can have at most.
    pub(super) fn decode(&self, encoded: &[u8], most: u64) -> Result<ShardIndex, String> {
        if encoded.len() as u64 != self.index_bytes {
            let (got, want) = (encoded.len(), self.index_bytes);
            return Err(format!("its index has {got} bytes instead of {want}"));
        }
        let uint64: DataType = data_type::uint64();
        let options = CodecOptions::default().with_concurrent_target(1);
        let decoded = self
            .index
            .decode(encoded.into(), &self.index_shape, &uint64, &empty(), &options)
            .and_then(|bytes| bytes.into_fixed().map_err(Into::into))
            .map_err(|error| error.to_string())?;
        let entry = |bytes: &[u8]| {
            let number =
                |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let (offset, len) = (number(0), number(8));
            if (offset, len) == (u64::MAX, u64::MAX) {
                return Ok(None);
            }
            match offset.checked_add(len) {
                Some(end) if len <= most => Ok(Some(offset..end)),
                _ => Err(format!("its index claims {len} bytes at {offset} for a chunk")),
            }
        };
        decoded.chunks_exact(16).map(entry).collect::<Result<_, _>>().map(ShardIndex)
    }
}

impl ShardIndex {
    /// Where the inner chunk at `place` of the shard lies, if it is there.
    pub(super) fn get(&self, place: u64) -> Option<std::ops::Range<u64>> {
        self.0.get(place as usize).cloned().flatten()
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * size_of::<Option<std::ops::Range<u64>>>()) as u64
    }
}

fn empty() -> FillValue {
    FillValue::from(u64::MAX)
}
