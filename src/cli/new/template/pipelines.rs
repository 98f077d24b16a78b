//! The pipelines are right, and give what they should.

use forebay::definition::{Definition, Set};
use forebay::prelude::*;

#[test]
fn every_pipeline_is_right() {
    for entry in std::fs::read_dir("pipelines").expect("a folder") {
        let file = entry.expect("an entry").path();
        if let Err(problems) = Definition::load(&file, &operators::catalog(), &Set::new()) {
            panic!("{problems}");
        }
    }
}

#[test]
fn temperatures_are_in_degrees_celsius() {
    let file = "pipelines/first.yaml";
    let pipeline = Pipeline::<Batch>::load_with(file, &operators::catalog(), &Set::new());
    let mut run = pipeline.expect("it is right").run().expect("it runs");
    let batch = run.next().expect("a batch").expect("no fault");
    let temperatures = batch.get("t2m").expect("the temperature").elements::<f32>();
    assert!(temperatures.iter().all(|t| (-120.0..80.0).contains(t)));
    run.close();
}
