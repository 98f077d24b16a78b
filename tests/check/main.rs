//! What is known of a definition before it runs, and what `check` says of it.
#![recursion_limit = "256"]

mod command;
mod hostile;

use forebay::definition::{Catalog, Definition, Flow, Misfit, Set, Survey};
use forebay::prelude::*;

const WINDOWS: &str =
    "  - zarr.windows: { store: \"sample://era5\", variables: [t2m, u10], window: { time: 1 } }\n";

fn parse(stages: &str, catalog: &Catalog) -> Definition {
    let text = format!("version: 1\nname: test\n{stages}");
    let parsed = Definition::parse("test.yaml", &text, catalog, &Set::new());
    parsed.unwrap_or_else(|problems| panic!("{problems}"))
}

fn survey(stages: &str) -> Result<Survey, String> {
    // The sample is made if it is not there.
    forebay::store::sample::ensure("era5", &|_, _| {}).expect("the sample");
    let catalog = Catalog::builtin();
    let surveyed = parse(stages, &catalog).survey(&catalog, false);
    surveyed.map_err(|problems| problems.render(false, 100))
}

#[test]
fn what_flows_is_known_before_anything_is_read() {
    let stages = format!(
        "stages:\n{WINDOWS}  - take: 10\n  - batch: 4\n  - zarr.fetch:\n  - zarr.decode:\n\
         \x20\x20- tensor.cast: f64\n  - tensor.normalize:\n  - tensor.cast: bf16\n"
    );
    let edges = survey(&stages).expect("fits").edges;
    let shown = |at: usize| edges[at].flow.to_string();
    assert_eq!(shown(0), "t2m, u10: f32[sample 1, time 1, latitude 721, longitude 1440]");
    assert_eq!(shown(4), "t2m, u10: f32[sample 4, time 1, latitude 721, longitude 1440]");
    assert_eq!(shown(5), "t2m, u10: f64[sample 4, time 1, latitude 721, longitude 1440]");
    assert_eq!(shown(7), "t2m, u10: bf16[sample 4, time 1, latitude 721, longitude 1440]");
    let items: Vec<_> = edges.iter().map(|edge| edge.flow.items).collect();
    assert_eq!(items, [16, 10, 3, 3, 3, 3, 3, 3].map(Some));
    assert_eq!(edges[4].flow.bytes, Some(2 * 4 * 721 * 1440 * 4));
    // What was said is what comes: the first batch of a run is of that spec.
    let catalog = Catalog::builtin();
    let built = parse(&stages, &catalog).build(&catalog).expect("builds");
    let mut run = built.pipeline.downcast::<Batch>().expect("batches").run().expect("runs");
    let first = run.next().expect("an item").expect("no fault");
    let said = edges[7].flow.tensors.as_ref().expect("known");
    for (tensor, outline) in first.tensors().iter().zip(said) {
        assert_eq!(
            forebay::definition::Outline::from(tensor.spec()).to_string(),
            outline.to_string()
        );
    }
}

/// The sum of the bounds, worked out by hand; that stages keep to their bounds is tested elsewhere.
#[test]
fn the_worst_case_is_the_sum_of_what_may_be_held() {
    let stages = format!(
        "run: {{ cores: 2, memory: 4GiB }}\nstages:\n{WINDOWS}  - zarr.fetch:\n    workers: 2\n\
         \x20\x20\x20\x20ordered: false\n    buffer: 1\n  - zarr.decode:\n    workers: 1\n\
         \x20\x20\x20\x20ordered: false\n    buffer: 2\n"
    );
    let survey = survey(&stages).expect("fits");
    let tensor = 2 * 721 * 1440 * 4_u64;
    let encoded = survey.edges[1].flow.bytes.expect("known");
    assert!(encoded > tensor && encoded < tensor * 5 / 4, "{encoded}");
    let window = survey.edges[0].flow.bytes.expect("known");
    let source = (512 << 20) + 16 * window + window;
    let fetch = 2 * (window + encoded) + encoded;
    let decode = (encoded + tensor) + 2 * tensor;
    let each: Vec<_> = survey.edges.iter().map(|edge| edge.memory).collect();
    assert_eq!(each, [source, fetch, decode].map(Some));
    assert_eq!(survey.memory, Some(source + fetch + decode + tensor));
    assert_eq!(survey.memory_max, Some(4 << 30));
}

#[test]
fn more_than_the_run_may_take_is_refused_also_when_it_is_built() {
    let stages = format!("run: {{ memory: 256MiB }}\nstages:\n{WINDOWS}  - zarr.fetch:\n");
    let told = survey(&stages).expect_err("too much");
    assert!(told.contains("lower its `cache`"), "{told}");
    let catalog = Catalog::builtin();
    let told = parse(&stages, &catalog).build(&catalog).expect_err("too much").to_string();
    assert!(told.contains("forebay::memory"), "{told}");
}

/// Room for more than the run may take is no mistake as long as an item of each stage fits.
#[test]
fn room_for_more_than_the_run_may_take_is_a_warning() {
    let stages = |memory: &str| {
        format!(
            "run: {{ memory: {memory}, cores: 2 }}\nstages:\n{WINDOWS}  - batch: 4\n  - zarr.fetch:\n\
             \x20 - zarr.decode:\n"
        )
    };
    let known = survey(&stages("64GiB")).expect("fits");
    assert!(known.warnings.is_empty(), "{}", known.warnings);
    // What the source may keep, and a batch of each stage.
    let items = known.edges.iter().filter(|edge| !edge.flow.by_position);
    let floor = (512 << 20) + items.map(|edge| edge.flow.bytes.expect("known")).sum::<u64>();
    assert!(floor < known.memory.expect("known"));
    let known = survey(&stages(&format!("{floor}B"))).expect("fits");
    assert_eq!(known.warnings.codes().collect::<Vec<_>>(), ["forebay::lint::memory"]);
    let told = survey(&stages(&format!("{}B", floor - 1))).expect_err("too little");
    assert!(told.contains("forebay::memory"), "{told}");
}

/// Doubles.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Twice {}

#[test]
fn an_operator_of_ones_own_may_say_what_flows() {
    let add = |catalog: Catalog| {
        catalog.stage("test.twice", Kind::Cpu, |_: Twice, _| {
            Ok(cpu::map("twice", |batch: Batch| Ok::<_, Never>(batch)))
        })
    };
    let silent = add(Catalog::builtin());
    let stages = format!(
        "run: {{ memory: 64GiB }}\nstages:\n{WINDOWS}  - zarr.fetch:\n  - zarr.decode:\n\
         \x20\x20- test.twice:\n  - tensor.normalize:\n"
    );
    let known = parse(&stages, &silent).survey(&silent, false).expect("fits");
    assert_eq!(known.edges[3].flow, Flow::default(), "unknown from there on");
    assert_eq!((known.edges[4].flow.tensors.as_ref(), known.memory), (None, None));
    assert!(known.warnings.render(false, 100).contains("is not known"), "{}", known.warnings);

    let tells = add(Catalog::builtin()).flows(|_: Twice, before| Ok(before.clone()));
    let known = parse(&stages, &tells).survey(&tells, false).expect("fits");
    assert!(known.memory.is_some() && known.warnings.is_empty());

    let refuses = add(Catalog::builtin()).flows(|_: Twice, _| {
        Err(Misfit::new("it is too hot").help("wait").before("tensor.cast: f64"))
    });
    let told = parse(&stages, &refuses).survey(&refuses, false).expect_err("refused").to_string();
    assert!(told.contains("it is too hot") && told.contains("- tensor.cast: f64"), "{told}");
}

/// Without its metadata, names are known all the same.
#[test]
fn of_a_store_elsewhere_the_names_are_known() {
    let windows = "stages:\n  - zarr.windows: { store: \"s3://nowhere/x\", variables: [t2m], \
                   also: { target: { window: { time: 1 } } }, window: { time: 1 } }\n";
    let known = survey(&format!("{windows}  - take: 3\n  - batch: 8\n  - zarr.fetch:\n"));
    let known = known.expect("fits");
    assert_eq!(known.edges[2].flow.to_string(), "t2m, target/t2m");
    assert_eq!((known.edges[2].flow.items, known.memory), (Some(1), None));
    assert!(known.warnings.to_string().contains("3 of 8 items"), "{}", known.warnings);
    let stats = "  - zarr.fetch:\n  - zarr.decode:\n  - tensor.normalize: { stats: { t2n: { mean: 1, std: 1 } } }\n";
    let told = survey(&format!("{windows}{stats}")).expect_err("no such tensor");
    assert!(told.contains("did you mean `t2m`?"), "{told}");
}

#[test]
fn a_stage_is_there_only_when_that_is_true() {
    let stages = |value: &str| {
        format!(
            "vars:\n  mix: {{ type: bool, default: {value} }}\nstages:\n{WINDOWS}  - shuffle:\n    \
             when: $(mix)\n  - batch: 2\n"
        )
    };
    let ids = |text: &str| {
        let edges = survey(text).expect("fits").edges;
        edges.into_iter().map(|edge| edge.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&stages("true")), ["windows", "shuffle", "batch"]);
    assert_eq!(ids(&stages("false")), ["windows", "batch"]);
    let gpu = stages("true")
        .replace("$(mix)", "gpu")
        .replace("vars:\n  mix: { type: bool, default: true }\n", "");
    let has_gpu = device::auto().name() != "host";
    assert_eq!(ids(&gpu).len(), if has_gpu { 3 } else { 2 });
}
