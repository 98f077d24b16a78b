//! Pipelines from YAML whose batches go to a GPU.

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;

use super::simulation::on_gpu;

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
