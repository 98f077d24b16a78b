//! Stages that the run block stands for: `shard` and `epochs`, each at the place among the others where
//! it is meant. From there on they are stages like any other.

use std::collections::BTreeMap;

use super::catalog::{Catalog, Takes};
use super::check::Step;
use super::problem::Problem;
use super::tree::{Key, Node, Value};
use crate::options::Options;

/// Stages that work on positions alone behind a source that is computed by position.
const BY_POSITION: [&str; 6] = ["shuffle", "shard", "take", "skip", "batch", "repeat"];

/// Adds the stages that the keys of `run` stand for to `steps`.
pub(super) fn add(
    run: Option<&Node>,
    catalog: &Catalog,
    steps: &mut Vec<Step>,
    problems: &mut Vec<Problem>,
) {
    // Behind a shuffle, so that a rank has other items in each epoch, and the shuffle knows the chunks.
    let shard = |steps: &[Step]| {
        1 + steps.iter().skip(1).take_while(|step| step.key.text == "shuffle").count()
    };
    // No batch crosses an epoch, and each has an order of its own.
    let epochs = |steps: &[Step]| {
        let names = steps.iter().skip(1).map(|step| step.key.text.as_str());
        1 + names.take_while(|name| BY_POSITION.contains(name)).count()
    };
    let mut one = |name, operator, at: &dyn Fn(&[Step]) -> usize| {
        if let Some(node) = run.and_then(|run| run.get(name)).filter(|node| !node.is_unknown())
            && let Err(problem) = insert((name, node), operator, at, catalog, steps, problems)
        {
            problems.push(*problem);
        }
    };
    one("shard", "shard", &shard);
    one("epochs", "repeat", &epochs);
}

fn insert(
    (name, node): (&str, &Node),
    operator: &str,
    at: &dyn Fn(&[Step]) -> usize,
    catalog: &Catalog,
    steps: &mut Vec<Step>,
    problems: &mut Vec<Problem>,
) -> Result<(), Box<Problem>> {
    let wrong = |message: String| Problem::new("forebay::run", message, &node.place, "here");
    if name == "epochs" && !matches!(node.value, Value::Int(1..=0xffff_ffff)) {
        return Err(Box::new(
            wrong("`run.epochs` is not an integer from 1 to 4294967295".to_owned())
                .help("write how many times the items are gone through, `epochs: 10`"),
        ));
    }
    if name == "shard" && !matches!(node.value, Value::Map(_)) {
        let help = "write `shard: { rank: 0, world: 4 }`, or variables that read the environment: `{ rank: \
                    $(rank), world: $(world) }`";
        return Err(Box::new(wrong(format!("`run.shard` is {}", node.kind())).help(help)));
    }
    if let Some(own) = steps.iter().find(|step| step.key.text == operator) {
        return Err(Box::new(
            wrong(format!("`run.{name}` stands for a stage `{operator}`, and there is one"))
                .and(&own.key.place, "this one")
                .help("leave out one of the two"),
        ));
    }
    // What comes before a mistake may not be there: that was told.
    let (Some(first), Some(found)) = (steps.first(), catalog.get(operator)) else { return Ok(()) };
    if steps.iter().filter(|step| step.after.is_empty()).count() > 1 {
        return Err(Box::new(
            wrong(format!("`run.{name}` is for definitions with one source")).help(format!(
                "write a stage `- {operator}:` behind each of the sources that it is meant for"
            )),
        ));
    }
    let key = Key { text: operator.to_owned(), place: node.place.clone() };
    problems.extend(found.check(&key, node));
    let is_any = |form: &super::catalog::Form| form.takes == Takes::Any;
    let form = found.forms.iter().position(is_any).expect("it takes what any source yields");
    let (at, of) = (at(steps), first.of.clone());
    let taken = |id: &str| steps.iter().any(|step| step.id == id);
    let numbered = |n: u32| if n == 1 { name.to_owned() } else { format!("{name}-{n}") };
    let id = (1..).map(numbered).find(|id| !taken(id)).expect("a number is free");
    let options = Options { id: Some(id.clone()), ..Options::default() };
    let (yields, places) = (steps[at - 1].yields, BTreeMap::new());
    for step in &mut steps[at..] {
        step.after.iter_mut().for_each(|after| *after += usize::from(*after >= at));
    }
    if let Some(next) = steps.get_mut(at) {
        next.after = vec![at];
    }
    let (after, node, retries_by_default) = (vec![at - 1], node.clone(), false);
    let step = Step { id, key, node, options, places, form, yields, after, of, retries_by_default };
    steps.insert(at, step);
    Ok(())
}
