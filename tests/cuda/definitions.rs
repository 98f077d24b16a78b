//! Pipelines from YAML whose batches go to a GPU.

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;

use super::simulation::{on_gpu, on_gpu_with_compiler};

const YAML: &str = "
version: 1
name: to-the-gpu
stages:
  - zarr.windows:
      store: sample://era5
      variables: [t2m, u10]
      window: { time: 1 }
  - batch: 4
  - zarr.fetch:
  - zarr.decode:
  - tensor.normalize: { stats: auto }
  - device.upload: { device: 'cuda:0' }
  - device.crop: { ranges: { latitude: 0..64 } }
";

#[test]
fn what_decodes_for_the_gpu_takes_its_memory_from_there() {
    on_gpu("definitions::what_decodes_for_the_gpu_takes_its_memory_from_there", |gpu| {
        let catalog = Catalog::builtin();
        let definition = Definition::parse("gpu.yaml", YAML, &catalog, &Set::new());
        let definition = match definition {
            Ok(definition) => definition,
            Err(problems) => panic!("{problems}"),
        };
        let built = definition.build(&catalog).unwrap_or_else(|problems| panic!("{problems}"));
        // All memory that batches need is pinned before there is one.
        let pinned = gpu.count("pinnings");
        assert!(pinned > 0.0);
        let mut run = built.pipeline.downcast::<DeviceBatch>().unwrap().run().unwrap();
        let mut batches = 0;
        for batch in run.by_ref() {
            let batch = batch.unwrap();
            let spec = batch.get("t2m").unwrap().spec();
            assert_eq!(
                spec.shape[spec.dims.iter().position(|dim| &**dim == "latitude").unwrap()],
                64
            );
            batches += 1;
        }
        let stats = run.close();
        let upload = stats.stages.iter().find(|stage| stage.id == "upload").unwrap();
        assert!(batches > 0 && upload.device.copies > 0);
        assert_eq!(upload.device.pageable_copies, 0, "decoded where the GPU copies from");
        assert_eq!(gpu.count("pinnings"), pinned, "none was pinned while the run went on");
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_with_its_place() {
    on_gpu("definitions::a_gpu_that_is_not_there_is_an_error_with_its_place", |_| {
        let catalog = Catalog::builtin();
        let yaml = YAML.replace("cuda:0", "cuda:7");
        let definition = Definition::parse("gpu.yaml", &yaml, &catalog, &Set::new()).unwrap();
        let problems = definition.build(&catalog).unwrap_err().to_string();
        assert!(problems.contains("there is no GPU 7: the only one is `cuda:0`"), "{problems}");
    });
}

fn built(yaml: &str) -> (Definition, forebay::definition::Built) {
    let catalog = Catalog::builtin();
    let definition = Definition::parse("gpu.yaml", yaml, &catalog, &Set::new());
    let definition = definition.unwrap_or_else(|problems| panic!("{problems}"));
    let built = definition.build(&catalog).unwrap_or_else(|problems| panic!("{problems}"));
    (definition, built)
}

#[test]
fn the_last_batch_with_fewer_windows_takes_memory_that_is_there() {
    on_gpu("definitions::the_last_batch_with_fewer_windows_takes_memory_that_is_there", |gpu| {
        let yaml = YAML.replace("  - batch: 4\n", "  - take: 9\n  - batch: 4\n");
        let (_, built) = built(&yaml);
        let pinned = gpu.count("pinnings");
        // Three batches of two variables, however much the stages could hold.
        assert_eq!(pinned, 6.0);
        let run = built.pipeline.downcast::<DeviceBatch>().unwrap().run().unwrap();
        let sizes: Vec<_> = run.map(|batch| batch.unwrap().len()).collect();
        assert_eq!(sizes, [4, 4, 1]);
        assert_eq!(gpu.count("pinnings"), pinned);
        assert_eq!(gpu.wrong(), "");
    });
}

#[test]
fn a_ring_is_pinned_at_once_where_sizes_are_not_known_before() {
    on_gpu("definitions::a_ring_is_pinned_at_once_where_sizes_are_not_known_before", |gpu| {
        let device = device::named("cuda:0").unwrap();
        let pool = device.host_pool().ring(32);
        let run = super::support::batches(&pool, 200).then(device::upload(&device)).run().unwrap();
        run.drain().unwrap();
        // 2 workers, a window of 16, 4 in the buffer and what the upload has under way: 32 are enough.
        assert_eq!((gpu.count("pinnings"), gpu.count("pinnings_behind_copies")), (32.0, 0.0));
        drop((pool, device));
        gpu.check_clean();
    });
}

#[test]
fn a_pool_that_two_stages_copy_from_is_counted_once() {
    on_gpu("definitions::a_pool_that_two_stages_copy_from_is_counted_once", |_| {
        let twice =
            "  - device.download:\n  - tensor.cast: f32\n  - device.upload: { device: 'cuda:0' }\n";
        let (_, once) = built(YAML);
        let (_, twice) = built(&format!("{YAML}{twice}"));
        // The store's, the GPU's, and the one of what no device copies.
        assert_eq!((once.pools().stats().len(), twice.pools().stats().len()), (3, 3));
    });
}

#[test]
fn memory_of_the_gpu_is_told_apart_from_the_hosts() {
    on_gpu("definitions::memory_of_the_gpu_is_told_apart_from_the_hosts", |gpu| {
        let survey = |device: &str| {
            let yaml =
                YAML.replace("cuda:0", device).replace("  - batch", "  - repeat: 10\n  - batch");
            let definition = Definition::parse("gpu.yaml", &yaml, &Catalog::builtin(), &Set::new());
            definition.unwrap().survey(&Catalog::builtin(), false).unwrap()
        };
        let (on_gpu, on_host) = (survey("cuda:0"), survey("host"));
        assert_eq!(on_host.device_memory, Some(0));
        let device = on_gpu.device_memory.unwrap();
        assert!(device > 0 && on_gpu.memory < on_host.memory, "{on_gpu:?} {on_host:?}");
        assert_eq!(survey("auto").device_memory, Some(device), "this machine has a GPU");
        let upload = on_gpu.edges.iter().find(|edge| edge.id == "upload").unwrap();
        let [batch, held] = [upload.flow.bytes.unwrap(), upload.memory.unwrap()];
        // A batch in the lane's call, seven behind it, and two that the GPU reads.
        assert_eq!(held, 10 * batch);
        assert_eq!(gpu.count("contexts"), 0.0, "it was not opened");
    });
}

/// The problems that `check` finds with a kernel of this body behind the pipeline.
fn with_kernel(body: &str) -> String {
    let kernel = format!(
        "  - device.kernel:\n      name: scale\n      numbers: [0.5]\n      source: |\n        extern \"C\" \
         __global__ void scale(float *x, unsigned long long n, float by) {{\n          {body};\n        }}\n"
    );
    let yaml = format!("{YAML}{kernel}");
    let catalog = Catalog::builtin();
    let definition = Definition::parse("gpu.yaml", &yaml, &catalog, &Set::new()).unwrap();
    definition.survey(&catalog, false).err().map(|all| all.to_string()).unwrap_or_default()
}

#[test]
fn check_compiles_kernels_and_names_their_lines() {
    on_gpu_with_compiler("definitions::check_compiles_kernels_and_names_their_lines", |gpu| {
        assert_eq!(with_kernel("x[blockIdx.x] *= by"), "");
        let wrong = with_kernel("x[blockIdx.x] *= bye");
        assert!(wrong.contains("forebay::kernel"), "{wrong}");
        assert!(wrong.contains("line 2: identifier \"bye\" is undefined"), "{wrong}");
        // The line of the file, and from where in it.
        let line = YAML.lines().count() + 6;
        assert!(wrong.contains(&format!("gpu.yaml:{line}:11")), "{wrong}");
        assert_eq!(gpu.count("contexts"), 0.0, "no GPU was opened");
    });
}
