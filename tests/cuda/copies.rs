//! Copies to the GPU and back.

use std::sync::Arc;
use std::time::Duration;

use forebay::device::cuda;
use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;
use forebay::trace::DeviceStats;

use super::simulation::{Gpu, on_gpu};
use super::support::{batch, batches, elements};

#[test]
fn every_batch_arrives_as_it_was_made() {
    on_gpu("copies::every_batch_arrives_as_it_was_made", |gpu| {
        let device = device::named("cuda:0").unwrap();
        assert_eq!(device::auto().name(), "cuda:0");
        let mut run = batches(device.host_pool(), 200).then(device::upload(&device)).run().unwrap();
        let mut seen = 0;
        for (i, batch) in run.by_ref().enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.device().name(), "cuda:0");
            let elements = elements(&batch);
            assert_eq!((elements[0], elements[4095]), (i as f32, i as f32 + 4095.0));
            seen += 1;
        }
        assert_eq!(seen, 200);
        let stats = run.close();
        let upload = &stats.stages[2].device;
        assert_eq!(upload.pageable_copies, 0);
        // Those that were under way when the stage ended are not counted.
        assert!((198..=200).contains(&upload.copies), "{upload:?}");
        // As many buffers as the stages can hold: 2 workers, a window of 16, 4 in the buffer, and what
        // the upload has under way.
        assert!(gpu.count("pinnings") <= 30.0, "{}", gpu.count("pinnings"));
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn memory_is_allocated_for_what_the_stages_hold_and_nobody_waits_for_a_stream() {
    on_gpu(
        "copies::memory_is_allocated_for_what_the_stages_hold_and_nobody_waits_for_a_stream",
        |gpu| {
            gpu.set("copy_latency_s", 1e-3);
            let device = cuda::open(0).unwrap();
            let stream = device.stream().unwrap();
            let as_device: Arc<dyn Device> = Arc::clone(&device) as _;
            let mut run =
                batches(as_device.host_pool(), 300).then(device::upload(&as_device)).run().unwrap();
            for i in 0..300 {
                let batch = run.next().unwrap().unwrap();
                // Only the stream of the consumer waits for the copy.
                let memory = batch.tensors()[0].memory().as_cuda().unwrap();
                assert!(memory.on(&stream).unwrap().address() > 0);
                if i == 100 {
                    gpu.set("steady", 1.0);
                }
            }
            gpu.set("steady", 0.0);
            // Nothing was freed, so these are all that were ever allocated: one in the hands of the
            // consumer, four in the buffer, one that the lane fills, three left to the GPU.
            assert!(gpu.count("blocks") <= 9.0, "{}", gpu.count("blocks"));
            drop(run);
            drop((as_device, stream, device));
            gpu.check_clean();
        },
    );
}

#[test]
fn memory_that_is_not_pinned_is_copied_there_and_counted() {
    on_gpu("copies::memory_that_is_not_pinned_is_copied_there_and_counted", |gpu| {
        let device = device::named("cuda").unwrap();
        let run = batches(&Pool::default(), 20).then(device::upload(&device)).run().unwrap();
        let report = {
            let mut run = run;
            for (i, batch) in run.by_ref().enumerate() {
                assert_eq!(elements(&batch.unwrap())[0], i as f32);
            }
            let stats = run.close();
            assert_eq!(stats.stages[2].device.pageable_copies, 20);
            forebay::trace::report(&stats, forebay::trace::Delivered { items: 20, batches: 20 })
        };
        assert!(report.contains("the host copied 20 tensors to pinned memory first"), "{report}");
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn a_run_dropped_at_any_point_leaves_nothing_behind() {
    on_gpu("copies::a_run_dropped_at_any_point_leaves_nothing_behind", |gpu| {
        gpu.set("copy_latency_s", 2e-4);
        let device = device::named("cuda:0").unwrap();
        for taken in 0..100 {
            let pipeline = batches(device.host_pool(), 1_000).then(device::upload(&device));
            let mut run = pipeline.then(device::cast(DType::F64)).run().unwrap();
            for _ in 0..taken % 10 {
                run.next().unwrap().unwrap();
            }
            drop(run);
            assert_eq!(device.host_pool().stats().lent_bytes, 0, "after {taken}");
            assert_eq!(gpu.count("streams"), 0.0);
        }
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn copies_go_on_while_kernels_run() {
    on_gpu("copies::copies_go_on_while_kernels_run", |gpu| {
        // Without work on the host nothing else can hold up the GPU, whatever this machine is at.
        let copies = copy_5_ms_and_compute_10_ms(gpu, Duration::ZERO);
        let overlapped = gpu.count("overlapped");
        assert!(overlapped >= BATCHES as f64 * 0.9, "{overlapped} copies ran beside a kernel");
        assert!(copies.overlap_ns * 2 > copies.copy_ns, "{copies:?}");
        gpu.check_clean();
    });
}

#[test]
fn the_slowest_of_decoding_copies_and_kernels_sets_the_pace() {
    on_gpu("copies::the_slowest_of_decoding_copies_and_kernels_sets_the_pace", |gpu| {
        copy_5_ms_and_compute_10_ms(gpu, Duration::from_millis(8));
        // Told and not asserted, as it depends on what else this machine does.
        let each_ms = gpu.count("kernel_span_s") / (BATCHES - 1) as f64 * 1e3;
        let overlapped = gpu.count("overlapped");
        println!(
            "figure: with 8 ms to decode, 5 to copy and 10 to compute a batch leaves every \
             {each_ms:.2} ms; {overlapped} of {BATCHES} copies ran beside a kernel"
        );
        gpu.check_clean();
    });
}

const BATCHES: u64 = 200;

fn copy_5_ms_and_compute_10_ms(gpu: &Gpu, decode: Duration) -> DeviceStats {
    gpu.set("copy_latency_s", 5e-3);
    gpu.set("kernel_s", 10e-3);
    let device = device::named("cuda:0").unwrap();
    let pool = device.host_pool().clone();
    let make = move |i: u64| {
        std::thread::park_timeout(decode);
        Ok::<_, Never>(batch(&pool, i, 8, 512))
    };
    let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 0.0, std: 1.0 })].into());
    let pipeline = Pipeline::from(source::iter("numbers", 0..BATCHES))
        .then(cpu::map("decode", make).workers(1).buffer(2))
        .then(device::upload(&device))
        .then(device::normalize(stats));
    let mut run = pipeline.run().unwrap();
    assert_eq!(run.by_ref().filter(|batch| batch.is_ok()).count() as u64, BATCHES);
    let copies = run.close().stages[2].device;
    assert_eq!(copies.pageable_copies, 0);
    copies
}

#[test]
fn another_library_takes_a_tensor_without_a_copy() {
    on_gpu("copies::another_library_takes_a_tensor_without_a_copy", |gpu| {
        gpu.set("copy_latency_s", 2e-3);
        let device = cuda::open(0).unwrap();
        let stream = Arc::new(device.stream().unwrap());
        let as_device: Arc<dyn Device> = Arc::clone(&device) as _;
        let upload = || batches(as_device.host_pool(), 20).then(device::upload(&as_device));
        for of in [Some(&stream), None] {
            for batch in upload().run().unwrap() {
                let (_, tensors, _) = batch.unwrap().into_parts();
                for tensor in tensors {
                    let dlpack = tensor.into_dlpack(of.map(Arc::clone)).unwrap();
                    let taken = dlpack.validate().unwrap();
                    assert_eq!(taken.shape(), [8, 512]);
                    assert_eq!(taken.device(), dlpark::ffi::DLDevice::cuda(0));
                    assert!(taken.data_ptr() as u64 > 1 << 60, "the GPU's own address");
                }
            }
        }
        let on_host = batch(&Pool::default(), 3, 2, 2).into_parts().0.pop().unwrap().into_dlpack();
        #[expect(unsafe_code, reason = "the protocol does not say how much memory is there")]
        // SAFETY: the tensor was made with as many elements.
        let elements = unsafe { on_host.validate().unwrap().cpu_slice::<f32>().unwrap() };
        assert_eq!(elements, [3.0, 4.0, 5.0, 6.0]);
        drop((stream, as_device, device));
        gpu.check_clean();
    });
}
