//! What device stages do, on the GPU as on the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::ops::{MeanStd, Stats};
use forebay::prelude::*;

use super::simulation::on_gpu;
use super::support::{batch, batches, spec};

/// Every stage on batches of i16, copied back to the host.
fn through(device: &Arc<dyn Device>) -> Vec<Vec<f32>> {
    let pool = device.host_pool().clone();
    let make = move |i: u64| {
        let mut tensor = Tensor::take(&pool, spec("x", DType::I16, 6, 10));
        for (at, x) in tensor.elements_mut::<i16>().iter_mut().enumerate() {
            *x = (i as i16) * 100 + at as i16;
        }
        Ok::<_, Never>(Batch::new(vec![tensor], Vec::new()))
    };
    let stats = Stats::Given([("x".to_owned(), MeanStd { mean: 7.0, std: 2.5 })].into());
    let ranges =
        BTreeMap::from([("row".to_owned(), (1..4).into()), ("column".to_owned(), (2..9).into())]);
    let run = Pipeline::from(source::iter("numbers", 0..30_u64))
        .then(cpu::map("make", make))
        .then(device::upload(device))
        .then(device::crop(ranges))
        .then(device::flip(vec!["column".to_owned()]))
        .then(device::cast(DType::F32))
        .then(device::normalize(stats))
        .then(device::download())
        .run()
        .unwrap();
    run.map(|batch| batch.unwrap().tensors()[0].elements().to_vec()).collect()
}

#[test]
fn stages_do_the_same_on_the_gpu_as_on_the_host() {
    on_gpu("transforms::stages_do_the_same_on_the_gpu_as_on_the_host", |gpu| {
        let on_host = through(&device::host());
        assert_eq!(on_host[1].len(), 21);
        // Row 1, columns 8 down to 2.
        assert_eq!(on_host[1][0], (100.0 + 18.0 - 7.0) / 2.5);
        let device = device::named("cuda:0").unwrap();
        assert_eq!(through(&device), on_host);
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn a_stage_on_the_gpu_refuses_what_does_not_fit() {
    on_gpu("transforms::a_stage_on_the_gpu_refuses_what_does_not_fit", |gpu| {
        let device = device::named("cuda:0").unwrap();
        let on = || batches(device.host_pool(), 4).then(device::upload(&device));
        let ranges = |name: &str, to| BTreeMap::from([(name.to_owned(), (0..to).into())]);
        let error = on().then(device::crop(ranges("row", 9))).run().unwrap().drain().unwrap_err();
        assert!(error.to_string().contains("has 8 entries along `row`"), "{error}");
        let error = on().then(device::crop(ranges("lat", 9))).run().unwrap().drain().unwrap_err();
        assert!(error.to_string().contains("no variable has a dimension `lat`"), "{error}");
        let error = on().then(device::cast(DType::I16)).run().unwrap().drain().unwrap_err();
        assert!(error.to_string().contains("can't be cast from f32 to i16"), "{error}");
        let none = Stats::Given(BTreeMap::new());
        let error = on().then(device::normalize(none)).run().unwrap().drain().unwrap_err();
        assert!(error.to_string().contains("no mean and deviation are given"), "{error}");
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn memory_is_used_again_only_after_its_last_use() {
    on_gpu("transforms::memory_is_used_again_only_after_its_last_use", |gpu| {
        // Kernels are slow and the consumer drops batches at once: without events the next copy would
        // overwrite what a kernel still reads.
        gpu.set("kernel_s", 2e-3);
        let device = device::named("cuda:0").unwrap();
        let run = batches(device.host_pool(), 100)
            .then(device::upload(&device))
            .then(device::cast(DType::F64))
            .run()
            .unwrap();
        assert_eq!(run.filter(|batch| batch.is_ok()).count(), 100);
        assert_eq!(batch(device.host_pool(), 0, 1, 1).len(), 0);
        drop(device);
        gpu.check_clean();
    });
}
