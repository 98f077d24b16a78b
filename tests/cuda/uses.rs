//! Memory of the GPU is used again only after its last use, although the driver may refuse to say when
//! that is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::device::cuda::{self, Argument, CudaMemory, Module, Stream};
use forebay::device::{DeviceTensor, Memory};
use forebay::fault::Result;
use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;

use super::log;
use super::simulation::on_gpu;
use super::support::{batches, elements};

#[test]
fn memory_whose_last_use_has_no_known_end_is_lost() {
    on_gpu("uses::memory_whose_last_use_has_no_known_end_is_lost", |gpu| {
        log::keep();
        let cuda = cuda::open(0).unwrap();
        let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
        let (stream, kernels) = (cuda.stream().unwrap(), cuda.load(cuda::KERNELS).unwrap());
        gpu.set("records_fail_on", stream.handle() as usize as f64);
        let run = batches(device.host_pool(), 30).then(device::upload(&device)).run().unwrap();
        for batch in run {
            let batch = batch.unwrap();
            let view = batch.tensors()[0].memory().as_cuda().unwrap().on(&stream).unwrap();
            let arguments = [Argument::Address(view.address()), Argument::U64(5_000_000)];
            #[expect(unsafe_code, reason = "what a kernel does is between it and the GPU")]
            // SAFETY: the kernel takes two numbers and touches no memory. By the address the simulation
            // knows what the kernel is to use.
            unsafe { kernels.run(&stream, "spin", 1, 1, &arguments) }.unwrap();
        }
        assert!(gpu.count("records_refused") >= 30.0);
        assert_eq!(gpu.wrong(), "");
        let log = log::kept();
        assert_eq!(log.matches("bytes of cuda:0 are lost, as it may still use them").count(), 30);
        assert!(log.contains("CUDA_ERROR_OPERATING_SYSTEM"), "{log}");
        drop((device, stream, kernels, cuda));
        assert_eq!((gpu.wrong(), gpu.count("blocks")), (String::new(), 30.0));
    });
}

#[test]
fn memory_that_another_library_used_without_a_known_end_is_lost() {
    on_gpu("uses::memory_that_another_library_used_without_a_known_end_is_lost", |gpu| {
        log::keep();
        let cuda = cuda::open(0).unwrap();
        let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
        let stream = Arc::new(cuda.stream().unwrap());
        gpu.set("records_fail_on", stream.handle() as usize as f64);
        let run = batches(device.host_pool(), 5).then(device::upload(&device)).run().unwrap();
        for batch in run {
            let (_, tensors, _) = batch.unwrap().into_parts();
            for tensor in tensors {
                drop(tensor.into_dlpack(Some(Arc::clone(&stream))).unwrap());
            }
        }
        let log = log::kept();
        assert_eq!(log.matches("bytes of cuda:0 are lost").count(), 5, "{log}");
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn whichever_moment_the_driver_refuses_to_record_nothing_is_used_too_early_or_lost() {
    let name =
        "uses::whichever_moment_the_driver_refuses_to_record_nothing_is_used_too_early_or_lost";
    on_gpu(name, |gpu| {
        gpu.set("kernel_s", 1e-3);
        gpu.set("copy_latency_s", 1e-3);
        let device = device::named("cuda:0").unwrap();
        for nth in 0..60 {
            let refused = gpu.count("records_refused");
            gpu.set("record_fails_after", f64::from(nth));
            let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 0.0, std: 1.0 })].into());
            let run = batches(device.host_pool(), 12)
                .then(device::upload(&device).on_error(OnError::skip()))
                .then(device::cast(DType::F64).on_error(OnError::skip()))
                .then(device::normalize(stats).on_error(OnError::skip()))
                .then(device::download().on_error(OnError::skip()))
                .run()
                .unwrap();
            // Who fails where its lane begins ends the run.
            let _ended = run.drain();
            assert_eq!(gpu.count("records_refused"), refused + 1.0, "{nth}");
            assert_eq!(gpu.wrong(), "", "{nth}");
        }
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn a_driver_that_records_nothing_more_ends_the_run_and_nothing_is_used_again() {
    let name = "uses::a_driver_that_records_nothing_more_ends_the_run_and_nothing_is_used_again";
    on_gpu(name, |gpu| {
        gpu.set("kernel_s", 1e-3);
        let device = device::named("cuda:0").unwrap();
        for nth in [20.0, 23.0, 26.0, 29.0] {
            gpu.set("records_fail_after", nth);
            let run = batches(device.host_pool(), 100)
                .then(device::upload(&device))
                .then(device::cast(DType::F64))
                .then(device::download())
                .run()
                .unwrap();
            let error = run.drain().unwrap_err().to_string();
            assert!(error.contains("recording an event"), "{error}");
            assert_eq!(gpu.wrong(), "", "{nth}");
        }
        assert_eq!(gpu.count("syncs"), 0.0);
    });
}

/// Memory of somebody's own that lends a tensor's, and no more than that.
struct Lends(DeviceTensor);

impl Memory for Lends {
    fn bytes(&self) -> usize {
        self.0.memory().bytes()
    }

    fn as_host(&self) -> Option<&[u8]> {
        None
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        self.0.memory().download(to)
    }

    fn as_cuda(&self) -> Option<&CudaMemory> {
        self.0.memory().as_cuda()
    }
}

#[test]
fn memory_that_somebody_lends_is_used_again_only_after_its_last_use() {
    on_gpu("uses::memory_that_somebody_lends_is_used_again_only_after_its_last_use", |gpu| {
        gpu.set("kernel_s", 5e-3);
        let device = device::named("cuda:0").unwrap();
        let lend = |_: &Worker| Ok::<_, Never>(());
        let lent = device::with(lend).map("lend", |(), _, batch: DeviceBatch| {
            let (device, tensors, windows) = batch.into_parts();
            let lends = |tensor: DeviceTensor| {
                DeviceTensor::new(tensor.spec().clone(), Box::new(Lends(tensor))).unwrap()
            };
            let tensors = tensors.into_iter().map(lends).collect();
            Ok::<_, Never>(DeviceBatch::new(device, tensors, windows))
        });
        let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 1.0, std: 1.0 })].into());
        let run = batches(device.host_pool(), 30)
            .then(device::upload(&device))
            .then(lent)
            .then(device::normalize(stats))
            .run()
            .unwrap();
        let first: Vec<_> = run.map(|batch| elements(&batch.unwrap())[0]).collect();
        assert_eq!(first, (0..30_u8).map(|i| f32::from(i) - 1.0).collect::<Vec<_>>());
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn a_tensor_is_handed_over_without_a_stream_once_work_on_it_is_over() {
    on_gpu("uses::a_tensor_is_handed_over_without_a_stream_once_work_on_it_is_over", |_| {
        let cuda = cuda::open(0).unwrap();
        let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
        let (stream, kernels) = (cuda.stream().unwrap(), cuda.load(cuda::KERNELS).unwrap());
        let run = batches(device.host_pool(), 1).then(device::upload(&device)).run().unwrap();
        for batch in run {
            let (_, tensors, _) = batch.unwrap().into_parts();
            for tensor in tensors {
                let begun = Instant::now();
                let view = tensor.memory().as_cuda().unwrap().on(&stream).unwrap();
                spin(&kernels, &stream, view.address(), Duration::from_millis(300));
                drop(view);
                let handed = tensor.into_dlpack(None).unwrap();
                assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
                drop(handed);
            }
        }
    });
}

#[test]
fn memory_that_is_short_is_waited_for_as_long_as_a_run_goes_on() {
    on_gpu("uses::memory_that_is_short_is_waited_for_as_long_as_a_run_goes_on", |gpu| {
        let cuda = cuda::open(0).unwrap();
        let device: Arc<dyn Device> = Arc::clone(&cuda) as _;
        let (stream, kernels) = (cuda.stream().unwrap(), cuda.load(cuda::KERNELS).unwrap());
        // Four batches (the consumer's, one that waits, one that is ready, one that is made), and work
        // on each that takes longer than anything may once the run ends.
        gpu.set("memory_bytes", 72_000.0);
        cuda.wait_at_most(Duration::from_secs(60), Duration::from_millis(50));
        let run =
            batches(device.host_pool(), 8).then(device::upload(&device).buffer(1)).run().unwrap();
        let mut seen = 0;
        for batch in run {
            let batch = batch.unwrap();
            let view = batch.tensors()[0].memory().as_cuda().unwrap().on(&stream).unwrap();
            spin(&kernels, &stream, view.address(), Duration::from_millis(300));
            seen += 1;
        }
        assert_eq!((seen, gpu.wrong()), (8, String::new()));
    });
}

/// Lets the GPU work on what is at `address`, for so long.
fn spin(kernels: &Module, stream: &Stream, address: u64, time: Duration) {
    let arguments = [Argument::Address(address), Argument::U64(time.as_nanos() as u64)];
    #[expect(unsafe_code, reason = "what a kernel does is between it and the GPU")]
    // SAFETY: the kernel takes two numbers and touches no memory. By the address the simulation
    // knows what the kernel is to use.
    unsafe { kernels.run(stream, "spin", 1, 1, &arguments) }.unwrap();
}
