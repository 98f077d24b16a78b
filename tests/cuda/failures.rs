//! A GPU that is not there, is too old, has no memory left, or fails in the middle.

use std::sync::Arc;
use std::time::Duration;

use forebay::device::cuda;
use forebay::prelude::*;

use super::log;
use super::simulation::{Gpu, comes_true, on_gpu, on_gpu_of, on_gpu_with};
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

/// The same test in one process for each case, which is told its number.
fn each<'a>(
    name: &str,
    variable: &str,
    cases: impl IntoIterator<Item = &'a (u32, &'a str)>,
    test: impl Fn(&Gpu, u32, &str),
) {
    for &(code, says) in cases {
        let text = code.to_string();
        on_gpu_with(name, &[(variable, &text)], |gpu| {
            if std::env::var(variable).is_ok_and(|asked| asked == text) {
                test(gpu, code, says);
            }
        });
    }
}

#[test]
fn a_driver_that_does_not_start_says_what_to_do() {
    let cases = [
        (34, "(CUDA_ERROR_STUB_LIBRARY): the `libcuda.so` that was found is the toolkit's"),
        (
            802,
            "(CUDA_ERROR_SYSTEM_NOT_READY): what connects the GPUs of this machine has not started",
        ),
        (
            803,
            "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): `libcuda.so` and the driver in the kernel are of",
        ),
        (
            804,
            "(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE): `cuda-compat` stands in for a newer driver",
        ),
    ];
    let name = "failures::a_driver_that_does_not_start_says_what_to_do";
    each(name, "SIMULATED_INIT", &cases, |_, _, says| {
        let error = device::named("cuda:0").unwrap_err().to_string();
        assert!(error.starts_with("the driver for NVIDIA GPUs can't be started: "), "{error}");
        assert!(error.contains(says), "{error}");
        assert_eq!(device::auto().name(), "host");
    });
}

#[test]
fn kernels_that_the_gpu_or_its_driver_is_too_old_for_say_so() {
    let cases = [
        (209, "(CUDA_ERROR_NO_BINARY_FOR_GPU): the kernels are not for such an old GPU: compute"),
        (222, "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION): the driver is older than the compiler of"),
    ];
    let name = "failures::kernels_that_the_gpu_or_its_driver_is_too_old_for_say_so";
    each(name, "SIMULATED_LOAD", &cases, |_, _, says| {
        let error = device::named("cuda:0").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    });
}

#[test]
fn a_gpu_that_fails_says_what_that_means_and_what_to_do() {
    let cases = [
        (
            46,
            "(CUDA_ERROR_DEVICE_UNAVAILABLE): another process has the GPU to itself, or it is lost",
        ),
        (101, "(CUDA_ERROR_INVALID_DEVICE): the GPU is not there, or not any more"),
        (214, "(CUDA_ERROR_ECC_UNCORRECTABLE): memory of the GPU is broken, and what was on it is"),
        (220, "(CUDA_ERROR_NVLINK_UNCORRECTABLE): a link between GPUs failed"),
        (
            700,
            "(CUDA_ERROR_ILLEGAL_ADDRESS): a kernel used memory that it was not given: run this under",
        ),
        (
            702,
            "(CUDA_ERROR_LAUNCH_TIMEOUT): a kernel took longer than the system lets a GPU with a",
        ),
        (719, "(CUDA_ERROR_LAUNCH_FAILED): a kernel crashed: run a kernel of your own under"),
        (
            999,
            "(CUDA_ERROR_UNKNOWN): look for `Xid` in `dmesg`, and whether `nvidia-smi` still sees",
        ),
    ];
    let name = "failures::a_gpu_that_fails_says_what_that_means_and_what_to_do";
    each(name, "FAILS_WITH", &cases, |gpu, code, says| {
        gpu.set("fails_with", f64::from(code));
        gpu.set("fails_after_copies", 3.0);
        let device = device::named("cuda:0").unwrap();
        let run = batches(device.host_pool(), 100).then(device::upload(&device)).run().unwrap();
        let error = run.drain().unwrap_err().to_string();
        assert!(error.contains("stage `upload` failed") && error.contains(says), "{error}");
        // Nothing is freed that it may still use: of that code nobody knows.
        let lent = || device.host_pool().stats().lent_bytes;
        assert!(if code == 999 { lent() > 0 } else { comes_true(|| lent() == 0) }, "{}", lent());
        assert_eq!(gpu.wrong(), "");
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
    assert!(comes_true(|| device.host_pool().stats().lent_bytes == 0), "all memory came back");
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

/// A GPU that does five copies and then nothing.
fn silent(gpu: &Gpu, running: Duration, ending: Duration) -> (Arc<cuda::Cuda>, Arc<dyn Device>) {
    gpu.set("silent_after_copies", 5.0);
    let cuda = cuda::open(0).unwrap();
    cuda.wait_at_most(running, ending);
    let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
    (cuda, device)
}

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn a_gpu_that_never_answers_ends_the_run_and_keeps_what_it_may_use() {
    let name = "failures::a_gpu_that_never_answers_ends_the_run_and_keeps_what_it_may_use";
    on_gpu(name, |gpu| {
        let (_cuda, device) = silent(gpu, SHORT, HOUR);
        let pipeline = || batches(device.host_pool(), 100).then(device::upload(&device));
        let mut run = pipeline().run().unwrap();
        let error = run.by_ref().find_map(Result::err).unwrap().to_string();
        for part in ["stage `upload` failed", "cuda:0 has not answered for 0.", "`nvidia-smi`"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        run.close();
        // Two copies are under way, and what they read is neither freed nor lent again.
        assert_eq!(device.host_pool().stats().lent_bytes, 2 * 16_384);
        assert_eq!(gpu.count("unpinnings"), 0.0);
        let streams = gpu.count("streams");
        let error = pipeline().run().unwrap().drain().unwrap_err().to_string();
        assert!(error.contains("cuda:0 has not answered"), "{error}");
        assert_eq!(gpu.count("streams"), streams, "it was told nothing more");
        // It reads what it was told to read, which is still there, and is used again.
        gpu.set("answers", 1.0);
        while pipeline().run().unwrap().drain().is_err() {
            std::thread::yield_now();
        }
        assert_eq!(gpu.wrong(), "");
        assert_eq!(device.host_pool().stats().lent_bytes, 2 * 16_384, "that stays lost");
    });
}

#[test]
fn a_gpu_that_never_answers_does_not_hold_up_the_end_of_a_run() {
    let name = "failures::a_gpu_that_never_answers_does_not_hold_up_the_end_of_a_run";
    on_gpu(name, |gpu| {
        log::keep();
        let (cuda, device) = silent(gpu, HOUR, SHORT);
        let pipeline = batches(device.host_pool(), 100).then(device::upload(&device));
        let mut run = pipeline.then(device::download()).run().unwrap();
        for _ in 0..5 {
            run.next().unwrap().unwrap();
        }
        run.close();
        let log = log::kept();
        let told = "stage `upload` ends without its GPU: cuda:0 has not answered for 0.";
        assert!(log.contains(told), "{log}");
        // Whatever is dropped now is left to the GPU, and nobody waits.
        assert!(device.host_pool().stats().lent_bytes > 0);
        drop((device, cuda));
        assert_eq!((gpu.count("unpinnings"), gpu.count("frees")), (0.0, 0.0));
        gpu.set("answers", 1.0);
        assert_eq!(gpu.wrong(), "");
    });
}
