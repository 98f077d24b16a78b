//! A binary of one's own: the `forebay` command with two more operators in it.
//!
//!     cargo run --example own_operator -- run examples/own_operator.yaml
//!     cargo run --example own_operator -- ops acme.wind

use std::process::ExitCode;

use forebay::cpu;
use forebay::definition::Catalog;
use forebay::item::{Batch, DType, Spec, Tensor};
use forebay::stage::Kind;

/// Adds the speed of the wind, from its two components.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wind {
    /// The name of the new variable.
    #[serde(default = "speed")]
    name: String,
}

fn speed() -> String {
    "wind".to_owned()
}

/// Keeps batches whose first variable has a value above a threshold.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Above {
    /// The threshold, in the variable's unit.
    threshold: f32,
}

fn wind(batch: Batch, name: &str) -> Result<Batch, String> {
    let component = |name: &str| batch.get(name).ok_or(format!("there is no variable `{name}`"));
    let (u, v) = (component("u10")?, component("v10")?);
    let spec = Spec { name: name.into(), dtype: DType::F32, ..u.spec().clone() };
    let mut speed = Tensor::take(u.pool(), spec);
    let components = u.elements::<f32>().iter().zip(v.elements::<f32>());
    for (speed, (u, v)) in speed.elements_mut::<f32>().iter_mut().zip(components) {
        *speed = u.hypot(*v);
    }
    let (mut tensors, windows) = batch.into_parts();
    tensors.push(speed);
    Ok(Batch::new(tensors, windows))
}

fn is_above(batch: &Batch, threshold: f32) -> Result<bool, String> {
    let first = batch.tensors().first().ok_or("the batch has no variable")?;
    Ok(first.elements::<f32>().iter().any(|x| *x > threshold))
}

fn main() -> ExitCode {
    let catalog = Catalog::builtin()
        .stage("acme.wind", Kind::Cpu, |args: Wind, _| {
            Ok(cpu::map("wind", move |batch| wind(batch, &args.name)))
        })
        .main("name")
        .stage("acme.above", Kind::Cpu, |args: Above, _| {
            Ok(cpu::filter("above", move |batch: &Batch| is_above(batch, args.threshold)))
        })
        .main("threshold");
    forebay::cli::main(catalog)
}
