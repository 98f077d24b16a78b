//! Two GPUs in one process: each has its own memory, streams and kernels.

use std::sync::Arc;

use forebay::definition::{Catalog, Definition, Set};
use forebay::device::cuda;
use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;

use super::simulation::{Gpu, on_gpu_with};
use super::support::{batches, elements};

fn on_two(name: &str, test: impl FnOnce(&Gpu)) {
    on_gpu_with(name, &[("SIMULATED_GPUS", "2")], test);
}

#[test]
fn each_has_its_number_and_one_too_high_names_the_last() {
    on_two("two::each_has_its_number_and_one_too_high_names_the_last", |gpu| {
        assert_eq!(cuda::count(), Ok(2));
        let there: Vec<_> =
            ["cuda:0", "cuda:1", "auto"].map(|name| device::named(name).unwrap()).into();
        let names: Vec<_> = there.iter().map(|device| device.name()).collect();
        assert_eq!(names, ["cuda:0", "cuda:1", "cuda:0"]);
        let none = "there is no GPU 2: the last of 2 is `cuda:1`";
        assert_eq!(device::named("cuda:2").unwrap_err().to_string(), none);
        drop(there);
        let catalog = Catalog::builtin();
        let build = |device: &str| {
            let yaml = format!(
                "version: 1\nname: two\nstages:\n  - zarr.windows: {{ store: sample://era5, \
                 variables: [t2m], window: {{ time: 1 }} }}\n  - take: 4\n  - batch: 2\n  \
                 - zarr.fetch:\n  - zarr.decode:\n  - device.upload: {{ device: '{device}' }}\n"
            );
            let definition = Definition::parse("two.yaml", &yaml, &catalog, &Set::new()).unwrap();
            definition.build(&catalog).map_err(|problems| problems.to_string())
        };
        let run = build("cuda:1").unwrap().pipeline.downcast::<DeviceBatch>().unwrap().run();
        let on: Vec<_> =
            run.unwrap().map(|batch| batch.unwrap().device().name().to_owned()).collect();
        assert_eq!(on, ["cuda:1", "cuda:1"]);
        let problems = build("cuda:2").unwrap_err();
        assert!(problems.contains(none), "{problems}");
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn one_pipeline_goes_through_both() {
    on_two("two::one_pipeline_goes_through_both", |gpu| {
        gpu.set("kernel_s", 1e-4);
        let [first, second] = ["cuda:0", "cuda:1"].map(|name| device::named(name).unwrap());
        let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 1.0, std: 2.0 })].into());
        let run = batches(first.host_pool(), 60)
            .then(device::upload(&first))
            .then(device::cast(DType::F64))
            .then(device::download())
            .then(device::upload(&second).id("upload-again"))
            .then(device::normalize(stats))
            .run()
            .unwrap();
        let mut seen = 0;
        for (i, batch) in run.enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.device().name(), "cuda:1");
            let tensor = batch.tensors()[0].to_host(&Pool::default()).unwrap();
            assert_eq!(tensor.elements::<f64>()[4_095], (i as f64 + 4_095.0 - 1.0) / 2.0);
            seen += 1;
        }
        assert_eq!((seen, gpu.count("copies")), (60, 120.0));
        drop((first, second));
        gpu.check_clean();
    });
}

#[test]
fn two_pipelines_run_beside_each_other() {
    on_two("two::two_pipelines_run_beside_each_other", |gpu| {
        gpu.set("copy_latency_s", 1e-4);
        let devices = ["cuda:0", "cuda:1"].map(|name| device::named(name).unwrap());
        let run = |device: &Arc<dyn Device>| {
            let there = batches(device.host_pool(), 60).then(device::upload(device));
            there.then(device::download()).then(device::upload(device).id("again")).run().unwrap()
        };
        let mut runs = [run(&devices[0]), run(&devices[1])];
        for i in 0..60 {
            for (n, run) in runs.iter_mut().enumerate() {
                let batch = run.next().unwrap().unwrap();
                assert_eq!(batch.device().name(), format!("cuda:{n}"));
                assert_eq!(elements(&batch)[..2], [i as f32, i as f32 + 1.0]);
                let (_, mut tensors, _) = batch.into_parts();
                let dlpack = tensors.pop().unwrap().into_dlpack(None).unwrap();
                assert_eq!(
                    dlpack.validate().unwrap().device(),
                    dlpark::ffi::DLDevice::cuda(n as i32)
                );
            }
        }
        drop((runs, devices));
        gpu.check_clean();
    });
}

#[test]
fn memory_of_one_is_refused_on_the_other() {
    on_two("two::memory_of_one_is_refused_on_the_other", |gpu| {
        let refused = "memory of cuda:0 can't be used on a stream of cuda:1: take a stream of the \
                       batch's own device";
        let other = cuda::open(1).unwrap();
        let stream = other.stream().unwrap();
        let first = device::named("cuda:0").unwrap();
        let there = || batches(first.host_pool(), 4).then(device::upload(&first));
        for batch in there().run().unwrap() {
            let batch = batch.unwrap();
            let error = batch.tensors()[0].memory().as_cuda().unwrap().on(&stream).unwrap_err();
            assert!(error.to_string().contains(refused), "{error}");
        }
        // Also where a batch says that it is on the other.
        let says = Arc::clone(&other);
        let lies = move |batch: DeviceBatch| {
            let (_, tensors, windows) = batch.into_parts();
            let device: Arc<dyn Device> = Arc::clone(&says) as _;
            Ok::<_, Never>(DeviceBatch::new(device, tensors, windows))
        };
        let run =
            there().then(cpu::map("lies", lies)).then(device::cast(DType::F64)).run().unwrap();
        let error = run.drain().unwrap_err().to_string();
        assert!(error.contains("stage `cast` failed") && error.contains(refused), "{error}");
        drop((first, stream, other));
        gpu.check_clean();
    });
}

#[test]
fn one_that_fails_leaves_the_other_as_it_was() {
    on_two("two::one_that_fails_leaves_the_other_as_it_was", |gpu| {
        let [first, second] = ["cuda:0", "cuda:1"].map(|name| device::named(name).unwrap());
        gpu.set("ecc_after_copies", 3.0);
        let to = |device: &Arc<dyn Device>| {
            batches(device.host_pool(), 40).then(device::upload(device)).run().unwrap()
        };
        let error = to(&first).drain().unwrap_err().to_string();
        assert!(error.contains("memory of the GPU is broken"), "{error}");
        gpu.set("ecc_after_copies", 1e9);
        let last = to(&second).map(|batch| elements(&batch.unwrap())[0]).last();
        assert_eq!(last, Some(39.0));
        let error = to(&first).drain().unwrap_err().to_string();
        assert!(error.contains("memory of the GPU is broken"), "{error}");
        drop((first, second));
        gpu.check_clean();
    });
}
