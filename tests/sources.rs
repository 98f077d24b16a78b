//! Named sources: what `merge` and `zip` make of them, and what is told of those that do not fit.

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;

const ZARR: &str = "zarr.windows: { store: sample://era5, window: { time: 1 }, variables:";
const READ: &str = "    - zarr.fetch:\n    - zarr.decode:\n";

/// The source `name` of some variables in batches of four, with stages before they are made.
fn source(name: &str, variables: &str, stages: &str) -> String {
    format!("  {name}:\n    - {ZARR} {variables} }}\n{stages}    - batch: 4\n{READ}")
}

fn parse(text: &str, values: &[(&str, &str)]) -> Result<Definition, String> {
    let set: Set = values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Definition::parse("test.yaml", text, &Catalog::builtin(), &set)
        .map_err(|problems| problems.render(false, 100))
}

/// The windows of a batch and a few of its values.
type Seen = (Vec<u64>, Vec<(String, Vec<f32>)>);

/// The order fingerprint, and what was delivered.
fn delivered(text: &str, values: &[(&str, &str)]) -> (u64, Vec<Seen>) {
    let definition = parse(text, values).unwrap_or_else(|told| panic!("{told}"));
    let built = definition.build(&Catalog::builtin()).unwrap_or_else(|told| panic!("{told}"));
    let mut run = built.pipeline.downcast::<Batch>().expect("batches").run().expect("runs");
    let mut all = Vec::new();
    for batch in run.by_ref() {
        let batch = batch.expect("no fault");
        let few = |tensor: &Tensor| {
            let values = tensor.elements::<f32>().iter().step_by(300_000).copied();
            (tensor.spec().name.to_string(), values.collect())
        };
        let windows = batch.windows().iter().map(Window::number).collect();
        all.push((windows, batch.tensors().iter().map(few).collect()));
    }
    (run.close().fingerprint, all)
}

/// One chain reads what two branches read apart: the same items, in the same order, with the same
/// values, whatever the workers.
#[test]
fn what_is_zipped_is_what_one_source_would_have_given() {
    let shuffle = "    - shuffle:\n";
    let zipped = format!(
        "version: 1\nrun: {{ seed: 3 }}\nsources:\n{}{}stages:\n  - zip: [a, b]\n",
        source("a", "[t2m]", shuffle),
        source("b", "[u10, v10]", shuffle)
    );
    let chain = format!(
        "version: 1\nrun: {{ seed: 3 }}\nstages:\n  - {ZARR} [t2m, u10, v10] }}\n  - shuffle:\n  \
         - batch: 4\n  - zarr.fetch:\n  - zarr.decode:\n"
    );
    let (order, expected) = delivered(&chain, &[]);
    assert_eq!(expected.len(), 4);
    assert!(expected[0].0 != [0, 1, 2, 3], "it is shuffled");
    for workers in ["1", "3"] {
        let set = [("a.decode.workers", workers), ("b.fetch.workers", workers)];
        let (zipped_order, zipped) = delivered(&zipped, &set);
        assert_eq!(zipped, expected);
        assert_eq!(zipped_order, order);
    }
}

#[test]
fn zip_ends_with_its_shortest_branch() {
    let text = format!(
        "version: 1\nsources:\n{}{}{}stages:\n  - zip: [a, b, c]\n",
        source("a", "[t2m]", ""),
        source("b", "[u10]", "    - take: 8\n"),
        source("c", "[v10]", "")
    );
    let (_, zipped) = delivered(&text, &[]);
    let windows: Vec<_> = zipped.iter().map(|(windows, _)| windows.clone()).collect();
    assert_eq!(windows, [[0, 1, 2, 3], [4, 5, 6, 7]]);
    let names: Vec<_> = zipped[1].1.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["t2m", "u10", "v10"]);
}

#[test]
fn merge_takes_turns_or_one_after_the_other_or_what_comes() {
    let text = |order: &str| {
        format!(
            "version: 1\nsources:\n{}{}stages:\n  - merge: {{ sources: [a, b], order: {order} }}\n",
            source("a", "[t2m]", "    - take: 12\n"),
            source("b", "[t2m]", "    - skip: 8\n")
        )
    };
    let firsts = |order: &str, workers: &str| {
        let (fingerprint, all) = delivered(&text(order), &[("b.decode.workers", workers)]);
        (fingerprint, all.iter().map(|(windows, _)| windows[0]).collect::<Vec<_>>())
    };
    let (turns, windows) = firsts("turns", "1");
    assert_eq!(windows, [0, 8, 4, 12, 8]);
    assert_eq!(firsts("turns", "4"), (turns, windows));
    let (sequence, windows) = firsts("sequence", "1");
    assert_eq!(windows, [0, 4, 8, 8, 12]);
    assert_eq!(firsts("sequence", "4"), (sequence, windows));
    let (_, mut windows) = firsts("arrival", "2");
    windows.sort_unstable();
    assert_eq!(windows, [0, 4, 8, 8, 12]);
}

#[test]
fn a_source_can_begin_with_others() {
    let text = format!(
        "version: 1\nsources:\n{}{}{}  both:\n    - merge: {{ sources: [a, b], order: sequence }}\n    \
         - tensor.rename: {{ names: {{ t2m: x }} }}\nstages:\n  - zip: [c, both]\n    id: pairs\n",
        source("a", "[t2m]", "    - take: 4\n"),
        source("b", "[t2m]", "    - skip: 12\n"),
        source("c", "[u10]", "    - take: 8\n"),
    );
    let definition = parse(&text, &[]).expect("right");
    let ids: Vec<_> = definition.stages().map(|(id, ..)| id.to_owned()).collect();
    assert_eq!(ids[0], "c.windows", "what is taken first stands first");
    assert_eq!(ids[ids.len() - 3..], ["both.merge", "both.rename", "pairs"]);
    let (_, all) = delivered(&text, &[]);
    let names: Vec<Vec<_>> =
        all.iter().map(|(_, t)| t.iter().map(|(name, _)| name.clone()).collect()).collect();
    assert_eq!(names, [["u10", "x"], ["u10", "x"]]);
}

#[test]
fn memory_is_summed_over_all_branches() {
    let catalog = Catalog::builtin();
    let definition = Definition::load("pipelines/zip.yaml".as_ref(), &catalog, &Set::new());
    let survey = definition.expect("right").survey(&catalog, true).expect("it fits");
    let edges = survey.edges.iter().map(|edge| edge.memory.expect("known"));
    let consumer = survey.edges.last().and_then(|edge| edge.flow.bytes).expect("known");
    assert_eq!(survey.memory, Some(edges.sum::<u64>() + consumer));
    let zip = survey.edges.iter().find(|edge| edge.operator == "zip").expect("there");
    assert_eq!(zip.after, ["surface.normalize", "wind.rename"]);
    let bytes = |id: &str| {
        let edge = survey.edges.iter().find(|edge| edge.id == id).expect("there");
        edge.flow.bytes.expect("known")
    };
    assert_eq!(bytes("zip"), bytes("surface.normalize") + bytes("wind.rename"));
    // Each source has its own buffer, where its windows begin to flow.
    let windows = survey.edges.iter().filter(|edge| edge.operator == "zarr.windows");
    let memory: Vec<_> = windows.map(|edge| edge.memory).collect();
    assert_eq!(memory[0], memory[1]);
}

#[test]
fn a_name_that_is_nearly_right_is_told_once() {
    let text = format!(
        "version: 1\nsources:\n{}{}stages:\n  - zip: [north, soth]\n",
        source("north", "[t2m]", ""),
        source("south", "[u10]", "")
    );
    let told = parse(&text, &[]).expect_err("no such source");
    assert!(told.contains("there is no source `soth`"), "{told}");
    assert!(told.contains("did you mean `south`?"), "{told}");
    assert!(!told.contains("is not used"), "{told}");
}

#[test]
fn branches_that_are_left_out_are_told() {
    let off = "    - zarr.windows: { store: sample://era5, variables: [t2m] }\n      when: false\n";
    let text = format!(
        "version: 1\nsources:\n{}  b:\n{off}stages:\n  - zip: [a, b]\n",
        source("a", "[t2m]", "")
    );
    let told = parse(&text, &[]).expect_err("nothing is left");
    assert!(told.contains("nothing is left of the source `b`"), "{told}");
    // What takes them may be left out itself, if something else begins.
    let text = format!(
        "version: 1\nvars: {{ pair: {{ type: bool, default: false }} }}\nsources:\n{}{}stages:\n  \
         - zip: [a, b]\n    when: $(pair)\n  - {ZARR} [v10] }}\n  - zarr.fetch:\n  - zarr.decode:\n",
        source("a", "[t2m]", ""),
        source("b", "[u10]", "")
    );
    let definition = parse(&text, &[]).expect("right");
    assert_eq!(
        definition.stages().map(|(id, ..)| id).collect::<Vec<_>>(),
        ["windows", "fetch", "decode"]
    );
}

#[test]
fn a_plan_is_made_of_each_source() {
    forebay::store::sample::ensure("era5", &|_, _| {}).expect("the sample");
    let catalog = Catalog::builtin();
    let definition = Definition::load("pipelines/merge.yaml".as_ref(), &catalog, &Set::new());
    let plans = definition.expect("right").plan(&catalog).expect("planned");
    let found: Vec<_> = (plans.iter())
        .map(|one| (one.source.as_deref(), one.plan.windows, one.plan.batches))
        .collect();
    assert_eq!(found, [(Some("north"), 32, 8), (Some("south"), 24, 6)]);
    let requests: Vec<_> = plans.iter().map(|one| one.plan.requests).collect();
    let told = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let done = command.args(["plan", "merge"]).args(args).output().expect("started");
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    let text = told(&[]);
    assert!(text.starts_with("north\nt2m ") && text.contains("\n\nsouth\nt2m "), "{text}");
    let all = format!("\n{} requests for ", requests.iter().sum::<u64>());
    assert!(text.contains(&all) && text.ends_with("on the wire in all\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&told(&["--format", "json"])).expect("JSON");
    let of = |at: usize| (&json["sources"][at]["source"], &json["sources"][at]["plan"]["requests"]);
    assert_eq!(of(0), (&"north".into(), &requests[0].into()));
    assert_eq!(of(1), (&"south".into(), &requests[1].into()));
}

fn batch(names: &[&str], windows: usize) -> Batch {
    let all = zarr_windows();
    let tensor = |name: &&str| {
        let spec = forebay::item::Spec {
            name: (*name).into(),
            dtype: DType::F32,
            dims: ["sample".into()].into(),
            shape: [windows as u64].into(),
        };
        Tensor::take(&Pool::default(), spec)
    };
    Batch::new(names.iter().map(tensor).collect(), all[..windows].to_vec())
}

fn zarr_windows() -> Vec<Window> {
    let store = Store::open("sample://era5").expect("opens");
    let spec = WindowsSpec {
        variables: vec!["t2m".to_owned()],
        window: [("time", 1)].into(),
        ..WindowsSpec::default()
    };
    let pipeline = Pipeline::from(zarr::windows(&store, &spec).expect("windows"));
    let index = pipeline.index().expect("by position");
    (0..index.len()).map(|n| index.get(n)).collect()
}

#[test]
fn batches_that_do_not_fit_side_by_side_are_an_error() {
    let both = Batch::beside(vec![batch(&["a", "b"], 2), batch(&["c"], 2)]).expect("they fit");
    let names: Vec<_> = both.tensors().iter().map(|tensor| &*tensor.spec().name).collect();
    assert_eq!((names, both.len()), (vec!["a", "b", "c"], 2));
    let told = |batches| Batch::beside(batches).expect_err("they do not fit").to_string();
    assert!(told(vec![batch(&["a"], 2), batch(&["b"], 3)]).contains("a batch of 2"));
    assert!(told(vec![batch(&["a"], 2), batch(&["a"], 2)]).contains("two tensors are called `a`"));
}

/// Chunks of one source decoded as those of another would be wrong numbers.
#[test]
fn windows_of_two_sources_never_share_a_batch() {
    let mixed = vec![zarr_windows().remove(0), zarr_windows().remove(1)];
    let run = Pipeline::from(forebay::source::iter("mixed", [mixed]))
        .then(io::map("fetch", zarr::fetch::<Vec<Window>>))
        .run()
        .expect("runs");
    let told = run.map(|item| item.map(drop)).collect::<Result<Vec<_>, _>>().expect_err("refused");
    assert!(told.to_string().contains("windows of several sources"), "{told}");
}

fn forebay(args: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").output().expect("started")
}

#[test]
fn a_run_reports_the_stages_of_all_branches() {
    let args = ["run", "zip", "--limit", "2", "--format", "json", "--no-record", "--no-progress"];
    let done = forebay(&[&args[..], &["--set", "wind.decode.workers=1"]].concat());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let stages = json["stages"].as_array().expect("stages");
    let ids: Vec<_> = stages.iter().map(|stage| stage["id"].as_str().expect("text")).collect();
    let expected = "surface.windows surface.fetch surface.decode surface.normalize wind.windows \
                    wind.fetch wind.decode wind.crop wind.rename zip upload";
    assert_eq!(
        ids.iter().filter(|id| **id != "take").copied().collect::<Vec<_>>().join(" "),
        expected
    );
    assert!(json["verdict"]["sentence"].as_str().is_some_and(|said| !said.is_empty()), "{json}");
    let done = forebay(&["check", "zip", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let stages = json["files"][0]["stages"].as_array().expect("stages");
    let zip = stages.iter().find(|stage| stage["id"] == "zip").expect("there");
    assert_eq!(zip["after"], serde_json::json!(["surface.normalize", "wind.rename"]));
}

#[test]
fn fmt_keeps_named_sources() {
    for file in ["pipelines/zip.yaml", "pipelines/merge.yaml"] {
        let done = forebay(&["fmt", "--check", file]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    }
}

/// The batch has the windows of the first source: what the stores of others say is not found there.
#[test]
fn statistics_of_what_was_zipped_or_renamed_are_not_guessed() {
    let catalog = Catalog::builtin();
    let told = |end: &str| {
        let text = format!(
            "version: 1\nsources:\n{}{}stages:\n  - zip: [a, b]\n{end}",
            source("a", "[t2m]", ""),
            source("b", "[u10]", "")
        );
        let survey = parse(&text, &[]).expect("right").survey(&catalog, true);
        survey.map(drop).map_err(|problems| problems.render(false, 100))
    };
    let error = told("  - tensor.normalize: { stats: auto }\n").expect_err("of `u10`");
    assert!(error.contains("what the store says of `u10` is not known behind `zip`"), "{error}");
    let error = told(
        "  - tensor.rename: { names: { t2m: x } }\n  - tensor.normalize: { stats: { t2m: { mean: 280, \
         std: 20 }, u10: { mean: 0, std: 5 } } }\n",
    )
    .expect_err("of `x`");
    assert!(error.contains("no mean and deviation are given for `x`"), "{error}");
    let stats = "  - tensor.normalize: { stats: { t2m: { mean: 280, std: 20 }, u10: { mean: 0, std: 5 } } }\n";
    told(stats).expect("they are given");
    let error = told("  - tensor.rename: { names: { t2x: x } }\n").expect_err("no `t2x`");
    assert!(error.contains("no tensor is called `t2x`"), "{error}");
    assert!(error.contains("did you mean `t2m`?"), "{error}");
}
