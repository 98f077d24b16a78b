//! Tensors that go from a file to the GPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay::device::FilePart;
#[cfg(feature = "cufile")]
use forebay::device::cuda::{self, Argument};
use forebay::prelude::*;

use super::log;
#[cfg(not(feature = "cufile"))]
use super::simulation::on_gpu;
#[cfg(feature = "cufile")]
use super::simulation::{Gpu, on_gpu, on_gpu_of};
use super::support::spec;

/// 8 records of 1,500 f32 each, which count on, in a file with `head` bytes before them. The last ends
/// with the file, in the middle of a page.
fn file(name: &str, stride: u64, head: u64) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bin"));
    let mut bytes = vec![0; (head + 7 * stride + 6_000) as usize];
    for record in 0..8 {
        let at = (head + record * stride) as usize;
        for (i, to) in bytes[at..at + 6_000].chunks_exact_mut(4).enumerate() {
            to.copy_from_slice(&((record * 10_000 + i as u64) as f32).to_le_bytes());
        }
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Reads the records three times over, and checks what is on the GPU.
fn read(path: &Path, stride: u64, head: u64, device: &Arc<dyn Device>) {
    let path: Arc<Path> = Arc::from(path);
    let part = move |i: u64| {
        let spec = spec("x", DType::F32, 3, 500);
        FilePart { path: Arc::clone(&path), offset: head + i % 8 * stride, spec }
    };
    let run = Pipeline::from(source::index("parts", Index::new(24, part)));
    let run = run.then(device::read(device)).then(device::cast(DType::F64)).run().unwrap();
    let mut seen = 0;
    for (i, batch) in run.enumerate() {
        let tensor = batch.unwrap().tensors()[0].to_host(&Pool::default()).unwrap();
        let numbers: &[f64] = tensor.elements();
        let first = (i % 8 * 10_000) as f64;
        assert_eq!((numbers[0], numbers[1_499]), (first, first + 1_499.0), "{i}");
        seen += 1;
    }
    assert_eq!(seen, 24);
}

/// Everything arrives, read by the host; says why, once.
fn the_host_reads(name: &str, stride: u64, head: u64, why: &str) {
    log::keep();
    let device = device::named("cuda:0").unwrap();
    read(&file(name, stride, head), stride, head, &device);
    let log = log::kept();
    let told = "stage `read`: the host reads for the GPU (no GPUDirect): ";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(log.contains(why), "{log}");
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    let path: Arc<Path> = Arc::from(file("short", 8_192, 0));
    let part = FilePart { path, offset: 60_000, spec: spec("x", DType::F32, 3, 500) };
    let run = Pipeline::from(source::iter("parts", [part])).then(device::read(&device::host()));
    let error = run.run().unwrap().drain().unwrap_err().to_string();
    let says = "has 63344 bytes, but `x` begins at 60000 and has 6000";
    assert!(error.contains("stage `read` failed") && error.contains(says), "{error}");
}

#[test]
fn the_host_device_reads_files() {
    read(&file("host", 8_192, 0), 8_192, 0, &device::host());
}

#[cfg(not(feature = "cufile"))]
#[test]
fn without_the_feature_the_host_reads_and_says_so() {
    on_gpu("reads::without_the_feature_the_host_reads_and_says_so", |gpu| {
        the_host_reads("absent", 8_192, 0, "build it with `--features cufile`");
        gpu.check_clean();
    });
}

#[cfg(feature = "cufile")]
#[test]
fn the_gpu_reads_files_itself() {
    on_gpu("reads::the_gpu_reads_files_itself", |gpu| {
        // Memory is used again while kernels still read it, unless that is waited for.
        gpu.set("kernel_s", 1e-3);
        let device = device::named("cuda:0").unwrap();
        read(&file("itself", 8_192, 4_096), 8_192, 4_096, &device);
        assert_eq!((gpu.count("direct_reads"), gpu.count("copies")), (24.0, 0.0));
        // Memory is pinned only for what the test copies back.
        assert_eq!((gpu.count("pinnings"), gpu.count("files")), (1.0, 0.0));
        drop(device);
        gpu.check_clean();
    });
}

#[cfg(feature = "cufile")]
#[test]
fn memory_is_read_to_only_after_its_last_use() {
    on_gpu("reads::memory_is_read_to_only_after_its_last_use", |gpu| {
        // Kernels are told far ahead and batches are dropped at once: a read is on no stream, so nothing
        // but the host orders it after them.
        let cuda = cuda::open(0).unwrap();
        let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
        let (stream, kernels) = (cuda.stream().unwrap(), cuda.load(cuda::KERNELS).unwrap());
        let path: Arc<Path> = Arc::from(file("last-use", 8_192, 0));
        let part = move |i: u64| {
            let spec = spec("x", DType::F32, 3, 500);
            FilePart { path: Arc::clone(&path), offset: i % 8 * 8_192, spec }
        };
        let parts = Pipeline::from(source::index("parts", Index::new(50, part)));
        for batch in parts.then(device::read(&device)).run().unwrap() {
            let batch = batch.unwrap();
            let view = batch.tensors()[0].memory().as_cuda().unwrap().on(&stream).unwrap();
            let arguments = [Argument::Address(view.address()), Argument::U64(3_000_000)];
            #[expect(unsafe_code, reason = "what a kernel does is between it and the GPU")]
            // SAFETY: the kernel takes two numbers and touches no memory. By the address the simulation
            // knows what the kernel is to use.
            unsafe { kernels.run(&stream, "spin", 1, 1, &arguments) }.unwrap();
        }
        assert_eq!(gpu.count("direct_reads"), 50.0);
        drop((device, stream, kernels, cuda));
        gpu.check_clean();
    });
}

#[cfg(feature = "cufile")]
#[test]
fn what_is_no_whole_page_is_read_by_the_host() {
    on_gpu("reads::what_is_no_whole_page_is_read_by_the_host", |gpu| {
        // Every other record begins with a page.
        the_host_reads("unaligned", 6_144, 0, "is read where no multiple of 4096 is");
        assert_eq!((gpu.count("direct_reads"), gpu.count("copies")), (12.0, 12.0));
        assert_eq!(gpu.count("files"), 0.0);
        gpu.check_clean();
    });
}

/// The host reads from the first failure on, `direct` reads before it.
#[cfg(feature = "cufile")]
fn falls_back(gpu: &Gpu, setting: &str, value: f64, direct: f64, why: &str) {
    gpu.set(setting, value);
    the_host_reads(setting, 8_192, 0, why);
    assert_eq!((gpu.count("direct_reads"), gpu.count("copies")), (direct, 24.0 - direct));
    assert_eq!(gpu.count("files"), 0.0);
    gpu.check_clean();
}

#[cfg(feature = "cufile")]
#[test]
fn without_nvidia_fs_the_host_reads() {
    on_gpu("reads::without_nvidia_fs_the_host_reads", |gpu| {
        falls_back(gpu, "cufile_serves", 0.0, 0.0, "the driver `nvidia-fs` is not loaded");
    });
}

#[cfg(feature = "cufile")]
#[test]
fn a_library_that_does_not_start_is_not_used() {
    on_gpu("reads::a_library_that_does_not_start_is_not_used", |gpu| {
        falls_back(gpu, "cufile_open", 5010.0, 0.0, "`libcufile` can't be started (error 5010)");
    });
}

#[cfg(feature = "cufile")]
#[test]
fn a_file_system_that_is_not_served_is_read_by_the_host() {
    on_gpu("reads::a_file_system_that_is_not_served_is_read_by_the_host", |gpu| {
        falls_back(gpu, "cufile_register", 5008.0, 0.0, "can't read the file system of");
    });
}

#[cfg(feature = "cufile")]
#[test]
fn a_read_that_fails_is_made_again_by_the_host() {
    on_gpu("reads::a_read_that_fails_is_made_again_by_the_host", |gpu| {
        falls_back(gpu, "cufile_read_fails_after", 5.0, 5.0, "error 5008");
    });
}

#[cfg(feature = "cufile")]
#[test]
fn without_the_library_the_host_reads() {
    let name = "reads::without_the_library_the_host_reads";
    on_gpu_of(name, &["--cfg", "without_cufile"], |gpu| {
        the_host_reads("no-library", 8_192, 0, "`libcufile.so.0` was not found");
        gpu.check_clean();
    });
}
