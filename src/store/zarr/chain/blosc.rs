//! Decompresses blosc straight into memory that is there already; how a chunk was compressed stands
//! in its header.
#![expect(unsafe_code, reason = "the library's functions are foreign")]

use blosc_src::{BLOSC_MIN_HEADER_LENGTH, blosc_cbuffer_validate, blosc_decompress_ctx};

/// The compressors within blosc that are built in.
pub(super) const COMPRESSORS: [&str; 6] = ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"];

/// Writes what `from` holds to `to`, which has as many bytes as there may be; gives how many there are.
pub(super) fn decompress(from: &[u8], to: &mut [u8]) -> Result<usize, String> {
    let (given, most) = (from.len(), to.len());
    if given < BLOSC_MIN_HEADER_LENGTH as usize {
        return Err(format!("{given} bytes are too few for blosc"));
    }
    let mut claimed = 0;
    // SAFETY: the library reads a header within `given` bytes, which `from` has, and writes `claimed`.
    let flaw = unsafe { blosc_cbuffer_validate(from.as_ptr().cast(), given, &raw mut claimed) };
    if flaw != 0 {
        return Err(format!("its {given} bytes are no whole blosc chunk"));
    }
    if claimed > most {
        return Err(format!("its header claims {claimed} bytes, but a chunk has {most}"));
    }
    // SAFETY: the header was found to say that the chunk has the `given` bytes of `from`, and the library
    // reads no more; it writes at most `most` bytes, which `to` has. It starts no thread of its own.
    let written =
        unsafe { blosc_decompress_ctx(from.as_ptr().cast(), to.as_mut_ptr().cast(), most, 1) };
    match usize::try_from(written) {
        Ok(written) if written == claimed => Ok(written),
        _ => Err("blosc can't decompress it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use zarrs::array::CodecOptions;

    use super::super::layer::codec_of;
    use super::*;

    fn compressed(cname: &str, shuffle: &str, elements: &[u8]) -> Vec<u8> {
        let configuration = json!({
            "cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0,
        });
        let codec = codec_of(&json!({ "name": "blosc", "configuration": configuration }));
        let options = CodecOptions::default();
        codec.expect("known").encode(elements.into(), &options).expect("encoded").into_owned()
    }

    fn elements() -> Vec<u8> {
        (0..5000_u32).flat_map(|i| (i * i % 1009).to_le_bytes()).collect()
    }

    #[test]
    fn each_compressor_is_undone() {
        let elements = elements();
        for cname in COMPRESSORS {
            for shuffle in ["noshuffle", "shuffle", "bitshuffle"] {
                let chunk = compressed(cname, shuffle, &elements);
                let mut to = vec![1; elements.len()];
                assert_eq!(decompress(&chunk, &mut to), Ok(to.len()), "{cname} {shuffle}");
                assert!(to == elements, "{cname} {shuffle}");
            }
        }
    }

    #[test]
    fn a_chunk_of_another_length_is_told() {
        let chunk = compressed("lz4", "shuffle", &elements());
        let told = decompress(&chunk, &mut [0; 4096]).expect_err("too long");
        assert_eq!(told, "its header claims 20000 bytes, but a chunk has 4096");
        let (cut, mut to) = (chunk.len() - 1, vec![0; 20_000]);
        let told = decompress(&chunk[..cut], &mut to).expect_err("cut short");
        assert_eq!(told, format!("its {cut} bytes are no whole blosc chunk"));
        assert_eq!(
            decompress(&chunk[..9], &mut to),
            Err("9 bytes are too few for blosc".to_owned())
        );
        assert_eq!(decompress(&chunk, &mut vec![0; 30_000]), Ok(20_000));
    }

    /// A chunk that lies makes an error or other values, and nothing is written beyond its place.
    #[test]
    fn damaged_chunks_stay_in_their_place() {
        let elements = elements();
        let mut random = fastrand::Rng::with_seed(11);
        let (mut undone, mut refused) = (0, 0);
        for cname in COMPRESSORS {
            let whole = compressed(cname, "shuffle", &elements);
            for _ in 0..3000 {
                let mut chunk = whole.clone();
                // Half of the damage is in the header and the table of the blocks.
                let within = if random.bool() { 64 } else { chunk.len() };
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..within.min(chunk.len()));
                    chunk[at] =
                        if random.bool() { random.u8(..) } else { chunk[at] ^ 1 << random.u8(..8) };
                }
                let mut held = vec![0xa5; elements.len() + 4096];
                let (to, beyond) = held.split_at_mut(elements.len());
                match decompress(&chunk, to) {
                    Ok(_) => undone += 1,
                    Err(_) => refused += 1,
                }
                assert!(beyond.iter().all(|byte| *byte == 0xa5), "{cname}");
            }
        }
        assert!(undone > 0 && refused > 0, "{undone} {refused}");
    }
}
