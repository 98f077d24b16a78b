//! A GPU that is not there, is too old, has no memory left, or fails in the middle.

use forebay::device::cuda;
use forebay::prelude::*;

use super::simulation::{Gpu, on_gpu, on_gpu_of, on_gpu_with};
use super::support::batches;

#[test]
fn without_a_driver_there_is_the_host() {
    if cuda::count().is_ok() {
        println!("skipped: this machine has a driver");
        return;
    }
    assert_eq!(device::auto().name(), "host");
    let error = device::named("cuda:0").unwrap_err().to_string();
    assert!(error.contains("this machine has no driver for NVIDIA GPUs"), "{error}");
    let error = device::named("gpu").unwrap_err().to_string();
    assert!(error.contains("write `auto`, `host` or `cuda:0`"), "{error}");
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    on_gpu("failures::a_gpu_that_is_not_there_is_named", |_| {
        let error = device::named("cuda:3").unwrap_err().to_string();
        assert_eq!(error, "there is no GPU 3: the only one is `cuda:0`");
    });
}

#[test]
fn a_driver_that_sees_no_gpu_says_so() {
    let name = "failures::a_driver_that_sees_no_gpu_says_so";
    on_gpu_with(name, &[("SIMULATED_GPUS", "0")], |_| {
        let error = device::named("cuda:0").unwrap_err().to_string();
        assert!(error.contains("the driver sees none"), "{error}");
        assert_eq!(device::auto().name(), "host");
    });
}

#[test]
fn a_driver_that_is_too_old_says_what_is_needed() {
    let name = "failures::a_driver_that_is_too_old_says_what_is_needed";
    on_gpu_with(name, &[("SIMULATED_VERSION", "11080")], |_| {
        let error = device::named("cuda:0").unwrap_err().to_string();
        assert!(error.contains("serves CUDA 11.8, and 12.0 or newer is needed"), "{error}");
        assert_eq!(device::auto().name(), "host");
    });
}

#[test]
fn a_driver_that_lacks_a_function_says_which() {
    let name = "failures::a_driver_that_lacks_a_function_says_which";
    on_gpu_of(name, &["--cfg", "without_host_memory"], |_| {
        let error = device::named("cuda:0").unwrap_err().to_string();
        assert!(error.contains("the driver has no function `cuMemHostAlloc`"), "{error}");
        assert_eq!(device::auto().name(), "host");
    });
}

/// Runs 100 batches to the GPU, and gives the error.
fn fails(gpu: &Gpu) -> String {
    let device = device::named("cuda:0").unwrap();
    let run = batches(device.host_pool(), 100)
        .then(device::upload(&device))
        .then(device::cast(DType::F64))
        .run()
        .unwrap();
    let error = run.drain().unwrap_err().to_string();
    assert_eq!(device.host_pool().stats().lent_bytes, 0, "all memory came back");
    drop(device);
    gpu.check_clean();
    error
}

#[test]
fn a_gpu_without_memory_says_what_to_do() {
    on_gpu("failures::a_gpu_without_memory_says_what_to_do", |gpu| {
        gpu.set("memory_bytes", 40_000.0);
        let error = fails(gpu);
        assert!(
            error.contains("the GPU has no") && error.contains("make batches smaller"),
            "{error}"
        );
    });
}

#[test]
fn an_ecc_error_ends_the_run() {
    on_gpu("failures::an_ecc_error_ends_the_run", |gpu| {
        gpu.set("ecc_after_copies", 20.0);
        let error = fails(gpu);
        assert!(error.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{error}");
    });
}

#[test]
fn a_kernel_that_fails_ends_the_run() {
    on_gpu("failures::a_kernel_that_fails_ends_the_run", |gpu| {
        gpu.set("launch_failure_after_kernels", 20.0);
        let error = fails(gpu);
        assert!(error.contains("CUDA_ERROR_LAUNCH_FAILED"), "{error}");
    });
}

#[test]
fn a_gpu_that_is_lost_ends_the_run() {
    on_gpu("failures::a_gpu_that_is_lost_ends_the_run", |gpu| {
        gpu.set("lost_after_copies", 3.0);
        let error = fails(gpu);
        assert!(error.contains("CUDA_ERROR_DEVICE_UNAVAILABLE"), "{error}");
    });
}
