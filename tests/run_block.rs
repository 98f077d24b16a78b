//! Keys of the run block that stand for stages are those stages, each where it is meant.

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;

const WINDOWS: &str =
    "  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }\n";

fn definition(run: &str, stages: &str) -> Definition {
    let text = format!("version: 1\nrun: {{ {run} }}\nstages:\n{WINDOWS}{stages}");
    let definition = Definition::parse("run.yaml", &text, &Catalog::builtin(), &Set::new());
    definition.unwrap_or_else(|problems| panic!("{problems}"))
}

fn ids(definition: &Definition) -> Vec<&str> {
    definition.stages().map(|(id, ..)| id).collect()
}

/// The numbers of the windows in each group, in order.
fn groups(definition: &Definition) -> Vec<Vec<u64>> {
    let built = definition.build(&Catalog::builtin());
    let pipeline = built.unwrap_or_else(|problems| panic!("{problems}")).pipeline;
    let run = pipeline.downcast::<Vec<Window>>().expect("groups").run().expect("runs");
    let group = |group: Vec<Window>| group.iter().map(Window::number).collect();
    run.map(|item| group(item.expect("no fault"))).collect()
}

#[test]
fn epochs_and_shard_are_the_stages_that_they_stand_for() {
    let stages = "  - shuffle: chunks\n  - batch: 3\n";
    let implied = definition("seed: 9, epochs: 2, shard: { rank: 1, world: 2 }", stages);
    assert_eq!(ids(&implied), ["windows", "shuffle", "shard", "batch", "epochs"]);
    let written = definition(
        "seed: 9",
        "  - shuffle: chunks\n  - shard: { rank: 1, world: 2 }\n  - batch: 3\n  - repeat: 2\n",
    );
    assert_eq!(groups(&implied), groups(&written));
}

/// Each epoch has an order of its own, no batch crosses one, and the ranks share the windows out.
#[test]
fn ranks_have_each_window_once_in_each_epoch() {
    let rank = |rank| {
        let run = format!("seed: 4, epochs: 3, shard: {{ rank: {rank}, world: 2 }}");
        groups(&definition(&run, "  - shuffle:\n  - batch: 3\n"))
    };
    let (left, right) = (rank(0), rank(1));
    let sizes: Vec<_> = left.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3, 2, 3, 3, 2, 3, 3, 2]);
    let mut orders = Vec::new();
    for epoch in 0..3 {
        let of = |rank: &[Vec<u64>]| rank[3 * epoch..3 * epoch + 3].concat();
        let order = [of(&left), of(&right)].concat();
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
        orders.push(order);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
}

/// Where it is meant: behind what works on positions, before what reads.
#[test]
fn epochs_stand_before_the_first_stage_that_reads() {
    let read = definition("epochs: 2", "  - zarr.fetch:\n  - zarr.decode:\n  - take: 20\n");
    assert_eq!(ids(&read), ["windows", "epochs", "fetch", "decode", "take"]);
    let survey = read.survey(&Catalog::builtin(), true).expect("fits");
    assert_eq!(survey.edges[1].flow.items, Some(32));
    assert_eq!(survey.edges[2].after, ["epochs"]);
    let named = definition("epochs: 2", "  - shuffle:\n    id: epochs\n");
    assert_eq!(ids(&named), ["windows", "epochs", "epochs-2"]);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Hasty {}

/// What only the stage itself knows is told when it is made.
#[test]
fn what_an_operator_of_ones_own_does_to_the_order_is_told_too() {
    let catalog = Catalog::builtin().stage("own.hasty", Kind::Cpu, |_: Hasty, _| {
        Ok(cpu::map("hasty", |x: Window| Ok::<_, Never>(x)).unordered())
    });
    for (run, code) in [
        ("deterministic: true", "the order depends on timing: `hasty` sends items as they finish"),
        ("checkpoint: { path: a.ckpt }", "no run can go on from a checkpoint: `hasty` sends items"),
    ] {
        let text = format!("version: 1\nrun: {{ {run} }}\nstages:\n{WINDOWS}  - own.hasty:\n");
        let definition = Definition::parse("own.yaml", &text, &catalog, &Set::new());
        let definition = definition.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(definition.survey(&catalog, true).expect("fits").entry, None);
        let problems = definition.build(&catalog).expect_err("it depends on timing");
        assert!(problems.to_string().contains(code), "{problems}");
    }
}

#[test]
fn the_schema_knows_the_run_block() {
    let validator = jsonschema::draft202012::new(&Catalog::builtin().schema()).expect("a schema");
    let valid = |run: &str| {
        let text = format!("version: 1\nrun: {{ {run} }}\nstages:\n{WINDOWS}");
        validator.is_valid(&serde_saphyr::from_str::<serde_json::Value>(&text).expect("YAML"))
    };
    let every = |every: &str| {
        let definition = definition(&format!("checkpoint: {{ path: a.ckpt{every} }}"), "");
        definition.checkpoint().expect("one").clone()
    };
    let checkpoint = Checkpoint::new("a.ckpt");
    assert_eq!(every(""), checkpoint);
    let items = checkpoint.clone().every(Every::Items(500));
    assert_eq!((every(", every: 500"), every(", every: 500 batches")), (items.clone(), items));
    let time = checkpoint.every(Every::Time(std::time::Duration::from_secs(90)));
    assert_eq!(every(", every: 1.5min"), time);
    for right in [
        "checkpoint: { path: a.ckpt }",
        "checkpoint: { path: $(path), every: 500 }",
        "checkpoint: { path: a.ckpt, every: 30s }",
        "checkpoint: { path: a.ckpt, every: 500 batches }",
        "epochs: 3, deterministic: true",
        "shard: { rank: $(rank), world: 4, uneven: pad }",
    ] {
        assert!(valid(right), "{right}");
    }
    for wrong in [
        "checkpoint: { every: 500 }",
        "checkpoint: { path: a.ckpt, every: often }",
        "epochs: 0",
        "deterministic: 1",
        "shard: { rank: 0 }",
        "shard: { rank: 0, world: 4, uneven: keep }",
    ] {
        assert!(!valid(wrong), "{wrong}");
    }
}
