//! A kernel of one's own on batches that are on a GPU: it turns the temperature to degrees Celsius.
//!
//! ```sh
//! cargo run --release --example own_kernel
//! ```
//!
//! The source is compiled by NVIDIA's NVRTC before the run reads anything; without a GPU the program says
//! so.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]

use std::error::Error;

use forebay::device::Kernel;
use forebay::prelude::*;

const SOURCE: &str = r#"
extern "C" __global__ void shift(float *x, unsigned long long n, float by) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; i < n; i += (unsigned long long)gridDim.x * blockDim.x) x[i] += by;
}
"#;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let device = match device::named("cuda") {
        Ok(device) => device,
        Err(error) => {
            eprintln!("nothing to show: {error}");
            return Ok(());
        }
    };
    let store = Store::open("sample://era5")?;
    let spec = WindowsSpec {
        variables: vec!["t2m".to_owned()],
        window: zarr::Extents::from([("time", 1)]),
        ..WindowsSpec::default()
    };
    let celsius = Kernel {
        variables: vec!["t2m".to_owned()],
        numbers: vec![-273.15],
        ..Kernel::new("shift", SOURCE)
    };
    let run = Pipeline::from(zarr::windows(&store, &spec)?)
        .then(flow::batch(4))
        .then(io::map("fetch", zarr::fetch))
        // Decoded where the GPU copies from.
        .then(cpu::map("decode", zarr::decode(device.host_pool())))
        .then(device::upload(&device))
        .then(device::kernel(celsius))
        .run()?;
    for batch in run {
        let first = batch?.tensors()[0].to_host(&Pool::default())?;
        println!("{}: {:.1} degrees", first.spec(), first.elements::<f32>()[0]);
    }
    Ok(())
}
