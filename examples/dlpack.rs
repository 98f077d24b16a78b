//! Batches handed to another library without a copy, by DLPack: here one written in Rust, of a few lines.
//!
//! ```sh
//! cargo run --release --example dlpack
//! ```
//!
//! On a GPU it is `DeviceTensor::into_dlpack`, with the stream on which the taker works.

#![expect(clippy::print_stdout, reason = "it is a program for a terminal")]

use std::error::Error;

use forebay::device::Dlpack;
use forebay::prelude::*;

/// The other library: knows DLPack, and nothing of Forebay.
mod other {
    #![expect(unsafe_code, reason = "the protocol is one of pointers")]

    use super::{Dlpack, Error};

    /// Where the elements are, and their mean. Dropping what was taken gives it back.
    pub(crate) fn mean(taken: Dlpack) -> Result<(usize, f64), Box<dyn Error + Send + Sync>> {
        let tensor = taken.validate()?;
        // SAFETY: the elements are there, and nobody writes to them, until `taken` is dropped.
        let elements: &[f32] = unsafe { tensor.cpu_slice()? };
        let sum: f64 = elements.iter().map(|&x| f64::from(x)).sum();
        Ok((elements.as_ptr() as usize, sum / elements.len() as f64))
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = Store::open("sample://era5")?;
    let spec = WindowsSpec {
        variables: vec!["t2m".to_owned()],
        window: zarr::Extents::from([("time", 1)]),
        ..WindowsSpec::default()
    };
    let pool = Pool::default();
    let run = Pipeline::from(zarr::windows(&store, &spec)?)
        .then(flow::batch(4))
        .then(io::map("fetch", zarr::fetch))
        .then(cpu::map("decode", zarr::decode(&pool)))
        .run()?;
    for batch in run {
        let (tensors, windows) = batch?.into_parts();
        for tensor in tensors {
            let (name, at) = (tensor.spec().to_string(), tensor.bytes().as_ptr() as usize);
            let (taken_at, mean) = other::mean(tensor.into_dlpack())?;
            assert_eq!(taken_at, at, "nothing was copied");
            println!("{} windows of {name}: {mean:.2} on average", windows.len());
        }
    }
    assert_eq!(pool.stats().lent_bytes, 0, "all memory came back");
    Ok(())
}
