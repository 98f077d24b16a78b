//! Copies to the GPU and back.

use std::sync::Arc;
use std::time::Duration;

use forebay::device::cuda;
use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;
use forebay::trace::DeviceStats;

use super::simulation::{Gpu, comes_true, on_gpu};
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
fn nobody_waits_for_a_stream_in_kernels_and_copies_back_either() {
    let name = "copies::nobody_waits_for_a_stream_in_kernels_and_copies_back_either";
    on_gpu(name, |gpu| {
        gpu.set("copy_latency_s", 1e-4);
        gpu.set("kernel_s", 1e-4);
        let device = device::named("cuda:0").unwrap();
        let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 1.0, std: 2.0 })].into());
        let rows = [("row".to_owned(), (1..4).into())].into();
        let mut run = batches(device.host_pool(), 230)
            .then(device::upload(&device))
            .then(device::crop(rows))
            .then(device::flip(vec!["column".to_owned()]))
            .then(device::cast(DType::F64))
            .then(device::normalize(stats))
            .then(device::download())
            .run()
            .unwrap();
        for i in 0..230_u32 {
            let batch = run.next().unwrap().unwrap();
            let first: &[f64] = batch.tensors()[0].elements();
            // Row 1 of 512 columns, turned around.
            assert_eq!(first[0], (f64::from(i) + 1_023.0 - 1.0) / 2.0);
            if i == 20 {
                gpu.set("steady", 1.0);
            }
            if i == 220 {
                assert_eq!((gpu.wrong(), gpu.count("syncs")), (String::new(), 0.0));
                assert!(gpu.count("kernels") >= 200.0 * 4.0);
                gpu.set("steady", 0.0);
            }
        }
        drop(run);
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn how_fast_copies_are_is_as_the_gpu_says() {
    on_gpu("copies::how_fast_copies_are_is_as_the_gpu_says", |gpu| {
        gpu.set("copy_bytes_per_s", 1e7);
        let device = device::named("cuda:0").unwrap();
        let mut run = batches(device.host_pool(), 40).then(device::upload(&device)).run().unwrap();
        assert_eq!(run.by_ref().filter(Result::is_ok).count(), 40);
        let stats = run.close();
        let DeviceStats { copies, copied_bytes, copy_ns, .. } = stats.stages[2].device;
        assert_eq!(copied_bytes, copies * 16_384);
        // A busy machine makes them slower, and nothing makes them faster.
        let per_s = copied_bytes as f64 / (copy_ns as f64 / 1e9);
        assert!(copies >= 38 && per_s < 1.01e7, "{copies} copies at {per_s} bytes/s");
    });
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
            let lent = || device.host_pool().stats().lent_bytes;
            assert!(comes_true(|| lent() == 0), "{} bytes after {taken}", lent());
            assert!(comes_true(|| gpu.count("streams") == 0.0), "{}", gpu.count("streams"));
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

#[test]
fn a_kernel_that_waits_for_a_copy_does_not_run_yet() {
    on_gpu("copies::a_kernel_that_waits_for_a_copy_does_not_run_yet", |gpu| {
        gpu.set("copy_latency_s", 20e-3);
        gpu.set("kernel_s", 1e-3);
        let device = device::named("cuda:0").unwrap();
        let one = MeanStd { mean: 0.0, std: 1.0 };
        let stats = Stats::Given([("x".to_owned(), one)].into());
        let mut run = batches(device.host_pool(), 20)
            .then(device::upload(&device))
            .then(device::normalize(stats))
            .run()
            .unwrap();
        assert_eq!(run.by_ref().filter(|batch| batch.is_ok()).count(), 20);
        let kernels = run.close().stages[3].device;
        let each_ms = kernels.kernel_ns as f64 / kernels.kernel_batches as f64 / 1e6;
        assert!(each_ms < 10.0, "{each_ms} ms");
    });
}
