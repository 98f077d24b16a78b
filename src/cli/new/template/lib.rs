//! Operators of our own: each is a struct of arguments, whose doc comments are its help, a function, and
//! an entry in the catalogue.

use forebay::cpu;
use forebay::definition::Catalog;
use forebay::item::{Batch, DType};
use forebay::stage::Kind;

/// Turns a temperature from kelvin into degrees Celsius.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Celsius {
    /// The variable that holds the temperature.
    variable: String,
}

/// An error names what was found: the run then tells the stage and the item, too.
fn celsius(mut batch: Batch, variable: &str) -> Result<Batch, String> {
    let is_it = |tensor: &&mut forebay::item::Tensor| &*tensor.spec().name == variable;
    let Some(tensor) = batch.tensors_mut().iter_mut().find(is_it) else {
        return Err(format!("the batch has no variable `{variable}`"));
    };
    let dtype = tensor.spec().dtype;
    if dtype != DType::F32 {
        return Err(format!("`{variable}` is of type {dtype}: cast it to f32 before"));
    }
    for value in tensor.elements_mut::<f32>() {
        *value -= 273.15;
    }
    Ok(batch)
}

/// The built-in operators and ours.
pub fn catalog() -> Catalog {
    Catalog::builtin()
        .stage("own.celsius", Kind::Cpu, |args: Celsius, _| {
            Ok(cpu::map("celsius", move |batch| celsius(batch, &args.variable)))
        })
        .main("variable")
}
