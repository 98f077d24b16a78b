//! A system that pins no more memory: whoever needs it fails with what was asked for and what to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::definition::{Catalog, Definition, Set};
use forebay::ops;
use forebay::prelude::*;

use super::simulation::{comes_true, on_gpu};
use super::support::batches;

/// The run fails in this stage, for want of so many bytes.
fn fails<T: Send + 'static>(pipeline: Pipeline<T>, stage: &str, bytes: u64) {
    let fault = pipeline.run().unwrap().drain().unwrap_err();
    let error = fault.to_string();
    let refused =
        format!("the system could not pin {bytes} bytes of memory: lower the `buffer` or");
    for part in [&format!("stage `{stage}` failed"), &refused, "`workers`", "`ulimit -l`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("panic"), "{error}");
}

#[test]
fn a_copy_to_the_gpu_fails_with_what_it_asked_for() {
    on_gpu("pinning::a_copy_to_the_gpu_fails_with_what_it_asked_for", |gpu| {
        gpu.set("pinned_bytes_max", 10_000.0);
        let device = device::named("cuda:0").unwrap();
        fails(batches(&Pool::default(), 20).then(device::upload(&device)), "upload", 16_384);
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn a_copy_from_the_gpu_fails_with_what_it_asked_for() {
    on_gpu("pinning::a_copy_from_the_gpu_fails_with_what_it_asked_for", |gpu| {
        let device = device::named("cuda:0").unwrap();
        let there = batches(device.host_pool(), 1).then(device::upload(&device));
        let rows = [("row".to_owned(), (0..2).into())].into();
        let back = there.then(device::cast(DType::F64)).then(device::download());
        // What the batch itself lies in, and no more.
        gpu.set("pinned_bytes_max", 16_384.0);
        fails(back, "download", 32_768);
        assert!(comes_true(|| device.host_pool().stats().lent_bytes == 0));
        let mut run = batches(device.host_pool(), 1)
            .then(device::upload(&device))
            .then(device::crop(rows))
            .run()
            .unwrap();
        let batch = run.next().unwrap().unwrap();
        let error = batch.tensors()[0].to_host(&Pool::default()).unwrap_err().to_string();
        assert!(error.contains("could not pin 4096 bytes of memory"), "{error}");
        drop((run, batch, device));
        gpu.check_clean();
    });
}

#[test]
fn what_makes_batches_for_the_gpu_fails_with_what_it_asked_for() {
    on_gpu("pinning::what_makes_batches_for_the_gpu_fails_with_what_it_asked_for", |gpu| {
        gpu.set("pinned_bytes_max", 4_096.0);
        let device = device::named("cuda:0").unwrap();
        let pool = device.host_pool();
        let made = || batches(&Pool::default(), 4);
        fails(made().then(cpu::map("cast", ops::cast(DType::F64, pool))), "cast", 32_768);
        let rows: BTreeMap<_, _> = [("row".to_owned(), (0..4).into())].into();
        fails(made().then(cpu::map("crop", ops::crop(rows, pool))), "crop", 8_192);
        let store = Store::open("sample://era5").unwrap();
        let (variables, window) = (vec!["t2m".into()], [("time", 1)].into());
        let spec = WindowsSpec { variables, window, ..WindowsSpec::default() };
        let decoded = Pipeline::from(zarr::windows(&store, &spec).unwrap())
            .then(flow::take(1))
            .then(flow::batch(1))
            .then(io::map("fetch", zarr::fetch))
            .then(cpu::map("decode", zarr::decode(pool)));
        let fault = decoded.run().unwrap().drain().unwrap_err().to_string();
        assert!(fault.contains("stage `decode` failed") && !fault.contains("panic"), "{fault}");
        assert!(fault.contains("`t2m`") && fault.contains("could not pin"), "{fault}");
        let path: Arc<std::path::Path> = Arc::from(std::env::current_exe().unwrap());
        let spec = super::support::spec("x", DType::F32, 8, 512);
        let part = device::FilePart { path, offset: 1, spec };
        fails(
            Pipeline::from(source::iter("parts", [part])).then(device::read(&device)),
            "read",
            16_384,
        );
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn a_pipeline_that_needs_more_than_can_be_pinned_is_refused_with_its_stage() {
    let name = "pinning::a_pipeline_that_needs_more_than_can_be_pinned_is_refused_with_its_stage";
    on_gpu(name, |gpu| {
        gpu.set("pinned_bytes_max", 4_096.0);
        let yaml = "version: 1\nname: pinned\nstages:\n  - zarr.windows: { store: sample://era5, \
                    variables: [t2m], window: { time: 1 } }\n  - batch: 4\n  - zarr.fetch:\n  \
                    - zarr.decode:\n  - device.upload: { device: 'cuda:0' }\n";
        let catalog = Catalog::builtin();
        let definition = Definition::parse("pinned.yaml", yaml, &catalog, &Set::new()).unwrap();
        let problems = definition.build(&catalog).unwrap_err().to_string();
        for part in ["zarr.decode", "could not pin", "`ulimit -l`"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
    });
}
