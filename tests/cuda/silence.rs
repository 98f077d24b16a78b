//! A GPU that does not answer any more: nobody waits for it without an end, and memory that it may still
//! use is neither freed nor used again.

use std::sync::Arc;
use std::time::Duration;

use forebay::device::cuda;
use forebay::prelude::*;

use super::log;
use super::simulation::{Gpu, comes_true, on_gpu};
use super::support::{batches, elements};

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(200);
/// A batch.
const BYTES: u64 = 16_384;

fn open(running: Duration, ending: Duration) -> (Arc<cuda::Cuda>, Arc<dyn Device>) {
    let cuda = cuda::open(0).unwrap();
    cuda.wait_at_most(running, ending);
    let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
    (cuda, device)
}

/// Nobody waited for the GPU to end what it was told, and nothing that it may use was used or freed.
fn nobody_waited(gpu: &Gpu) {
    assert_eq!(gpu.wrong(), "");
    assert_eq!((gpu.count("syncs"), gpu.count("frees"), gpu.count("unpinnings")), (0.0, 0.0, 0.0));
}

#[test]
fn one_that_falls_silent_in_a_download_ends_the_run() {
    on_gpu("silence::one_that_falls_silent_in_a_download_ends_the_run", |gpu| {
        log::keep();
        gpu.set("silent_after_downloads", 3.0);
        let (_cuda, device) = open(SHORT, HOUR);
        let pipeline = || {
            let there = batches(device.host_pool(), 100).then(device::upload(&device));
            there.then(device::download())
        };
        let mut run = pipeline().run().unwrap();
        let error = run.by_ref().find_map(Result::err).unwrap().to_string();
        for part in ["stage `download` failed", "cuda:0 has not answered for 0.", "`nvidia-smi`"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        run.close();
        nobody_waited(gpu);
        let told = format!("{BYTES} bytes of the host's memory are left to cuda:0");
        assert!(log::kept().contains(&told), "{}", log::kept());
        // The batch that it may still write.
        let lent = || device.host_pool().stats().lent_bytes;
        assert!(comes_true(|| lent() == BYTES), "{}", lent());
        let (streams, copies) = (gpu.count("streams"), gpu.count("copies"));
        let error = pipeline().run().unwrap().drain().unwrap_err().to_string();
        assert!(error.contains("cuda:0 has not answered"), "{error}");
        assert_eq!((gpu.count("streams"), gpu.count("copies")), (streams, copies));
        // It writes what it was told to write, and is used again.
        gpu.set("answers", 1.0);
        while pipeline().run().unwrap().drain().is_err() {
            std::thread::yield_now();
        }
        nobody_waited(gpu);
        assert!(comes_true(|| lent() == BYTES), "that stays lost");
    });
}

#[test]
fn a_tensor_is_not_waited_for_without_an_end() {
    on_gpu("silence::a_tensor_is_not_waited_for_without_an_end", |gpu| {
        log::keep();
        let (_cuda, device) = open(SHORT, HOUR);
        let mut run = batches(device.host_pool(), 1).then(device::upload(&device)).run().unwrap();
        let batch = run.next().unwrap().unwrap();
        run.drain().unwrap();
        gpu.set("silent_after_downloads", 0.0);
        let tensor = || batch.tensors()[0].to_host(&Pool::default());
        for _ in 0..2 {
            let error = tensor().unwrap_err().to_string();
            assert!(error.contains("cuda:0 has not answered for 0."), "{error}");
        }
        nobody_waited(gpu);
        assert!(log::kept().contains("are left to cuda:0, which may still use them"));
        gpu.set("answers", 1.0);
        while tensor().is_err() {
            std::thread::yield_now();
        }
        assert_eq!(elements(&batch)[..2], [0.0, 1.0]);
        nobody_waited(gpu);
    });
}

#[test]
fn a_copy_of_which_no_end_is_known_is_not_waited_for_either() {
    on_gpu("silence::a_copy_of_which_no_end_is_known_is_not_waited_for_either", |gpu| {
        log::keep();
        gpu.set("silent_after_copies", 0.0);
        // The lane's beginning, the batch's, and then the end of its copy.
        gpu.set("record_fails_after", 2.0);
        let (_cuda, device) = open(HOUR, SHORT);
        let run = batches(device.host_pool(), 3).then(device::upload(&device)).run().unwrap();
        let error = run.drain().unwrap_err().to_string();
        assert!(error.contains("recording an event"), "{error}");
        nobody_waited(gpu);
        let lent = || device.host_pool().stats().lent_bytes;
        assert!(comes_true(|| lent() == BYTES), "the GPU may still read it, and no other");
        let told = format!("{BYTES} bytes of the host's memory are left to cuda:0");
        assert!(log::kept().contains(&told), "{}", log::kept());
        gpu.set("answers", 1.0);
    });
}

#[test]
fn one_that_is_silent_in_a_kernel_holds_up_nobody_who_lets_go_of_it() {
    on_gpu("silence::one_that_is_silent_in_a_kernel_holds_up_nobody_who_lets_go_of_it", |gpu| {
        gpu.set("silent_after_kernels", 2.0);
        let (cuda, device) = open(HOUR, SHORT);
        let there = batches(device.host_pool(), 100).then(device::upload(&device));
        let mut run = there.then(device::cast(DType::F64)).run().unwrap();
        for _ in 0..3 {
            drop(run.next().unwrap().unwrap());
        }
        run.close();
        drop((device, cuda));
        nobody_waited(gpu);
        gpu.set("answers", 1.0);
    });
}
