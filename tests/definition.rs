//! Pipelines from YAML: what is wrong is told, and what is right is the Rust chain.

use std::path::{Path, PathBuf};

use forebay::definition::{Catalog, Definition, Set};
use forebay::prelude::*;

fn yaml_in(folder: &str) -> Vec<PathBuf> {
    let entries = Path::new(folder).read_dir().expect("a folder").flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .filter(|path| !path.to_string_lossy().ends_with(".test.yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn set(values: &[(&str, &str)]) -> Set {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Golden files: `UPDATE_GOLDEN=1 cargo test` writes them anew.
/// F48: every mistake with its place, in one pass.
#[test]
fn every_broken_definition_gives_its_errors() {
    for file in yaml_in("pipelines/broken") {
        let catalog = Catalog::builtin();
        let checked = Definition::load(&file, &catalog, &Set::new()).and_then(|definition| {
            let survey = definition.survey(&catalog, true)?;
            if survey.warnings.is_empty() {
                definition.build(&catalog)?;
            }
            Ok(survey.warnings)
        });
        let problems = checked.unwrap_or_else(|problems| problems);
        assert!(!problems.is_empty(), "{} has no problem", file.display());
        let golden = file.with_extension("txt");
        let got = problems.render(false, 100);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &got).expect("written");
        }
        let want = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(got, want, "{}", golden.display());
    }
}

#[test]
fn every_pipeline_is_right() {
    for file in yaml_in("pipelines") {
        let definition = Definition::load(&file, &Catalog::builtin(), &Set::new());
        definition.unwrap_or_else(|problems| panic!("{problems}"));
    }
}

/// The quickstart as a Rust chain.
fn chain(batch: usize) -> Pipeline<DeviceBatch> {
    let store = Store::open("sample://era5").expect("opens");
    let spec = WindowsSpec {
        variables: ["t2m", "u10", "v10"].map(str::to_owned).into(),
        window: [("time", 1)].into(),
        ..WindowsSpec::default()
    };
    // The seed of a stage is a function of the run's seed and its id.
    let seed = forebay::definition::stage_seed(42, "shuffle");
    Pipeline::from(zarr::windows(&store, &spec).expect("windows"))
        .then(flow::shuffle(seed))
        .then(flow::batch(batch))
        .then(flow::repeat(4))
        .then(io::map("fetch", zarr::fetch).workers(3))
        .then(cpu::map("decode", zarr::decode(&Pool::default())))
        .then(cpu::map("normalize", ops::normalize(ops::Stats::Auto)))
        .then(device::upload(&device::host()))
}

/// The windows of a batch, and a few of its values.
type Seen = (Vec<u64>, Vec<f32>);

/// What was delivered: the windows of each batch, and a few of the values.
fn delivered(pipeline: Pipeline<DeviceBatch>) -> (u64, Vec<Seen>) {
    let mut run = pipeline.run().expect("runs");
    let mut all = Vec::new();
    for batch in run.by_ref() {
        let batch = batch.expect("no fault");
        let windows = batch.windows().iter().map(Window::number).collect();
        let values = batch.get("v10").expect("there").as_host::<f32>().expect("on the host");
        all.push((windows, values.iter().step_by(300_000).copied().collect()));
    }
    (run.close().fingerprint, all)
}

#[test]
fn a_definition_gives_what_the_rust_chain_gives() {
    for batch in [4, 5] {
        let values = set(&[("batch", &batch.to_string()), ("decode.workers", "1")]);
        let definition = "pipelines/quickstart.yaml";
        let loaded = Pipeline::<DeviceBatch>::load_with(definition, &Catalog::builtin(), &values)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let (from_yaml, from_rust) = (delivered(loaded), delivered(chain(batch)));
        assert_eq!(from_yaml.0, from_rust.0, "the same items in the same order");
        assert_eq!(from_yaml.1, from_rust.1, "with the same content");
    }
}

#[test]
fn a_decoder_that_normalizes_gives_what_a_stage_behind_it_gives() {
    let quickstart = std::fs::read_to_string("pipelines/quickstart.yaml").expect("there");
    let apart = "  - zarr.decode:\n    workers: auto\n  - tensor.normalize: { stats: auto }\n";
    let folder = tempfile::tempdir().expect("a folder");
    let run = |decode: &str| {
        assert!(quickstart.contains(apart));
        let file = folder.path().join("pipeline.yaml");
        std::fs::write(&file, quickstart.replace(apart, decode)).expect("written");
        let file = file.to_str().expect("UTF-8");
        let loaded = Pipeline::<DeviceBatch>::load_with(file, &Catalog::builtin(), &set(&[]));
        delivered(loaded.unwrap_or_else(|problems| panic!("{problems}"))).1
    };
    let (fused, behind) = (run("  - zarr.decode: { normalize: auto }\n"), run(apart));
    assert!(fused == behind, "to the last bit");
    assert!(behind != run("  - zarr.decode:\n"), "it changes something");
}

#[test]
fn what_a_definition_yields_is_checked_at_load() {
    let told = Pipeline::<Batch>::load("pipelines/quickstart.yaml").expect_err("another type");
    let told = told.render(false, 100);
    assert!(told.contains("yields DeviceBatch, but the program takes Batch"), "{told}");
    let told = Pipeline::<Batch>::load("pipelines/nowhere.yaml").expect_err("no file");
    assert!(told.to_string().contains("can't read `pipelines/nowhere.yaml`"), "{told}");
}

fn parse(text: &str, values: &[(&str, &str)]) -> Result<Definition, String> {
    Definition::parse("test.yaml", text, &Catalog::builtin(), &set(values))
        .map_err(|problems| problems.render(false, 100))
}

const HEAD: &str = "version: 1\nname: test\n";
const WINDOWS: &str = "  - zarr.windows: { store: nowhere, variables: [t2m] }\n";

/// F47: only what is declared is replaced, and it is typed.
#[test]
fn variables_are_typed_and_come_from_where_they_may() {
    let text = format!(
        "{HEAD}vars:\n  n: {{ type: int, default: 4, env: FOREBAY_TEST_UNSET }}\nstages:\n\
         {WINDOWS}  - batch: $(n)\n"
    );
    assert!(parse(&text, &[]).is_ok());
    assert!(parse(&text, &[("n", "8")]).is_ok());
    let told = parse(&text, &[("n", "eight")]).expect_err("no number");
    assert!(told.contains("variable `n` is of type int"), "{told}");
    let told = parse(&text, &[("m", "8")]).expect_err("not declared");
    assert!(told.contains("there is no variable `m`"), "{told}");
    let told = parse(&text, &[("batch.workers", "8")]).expect_err("makes no calls");
    assert!(told.contains("does not apply to a flow stage"), "{told}");
    let told = parse(&text, &[("bath.workers", "8")]).expect_err("no such stage");
    assert!(told.contains("did you mean `batch`?"), "{told}");
    // A variable takes part in text, and `$$(` is no variable.
    let text = format!(
        "{HEAD}vars:\n  n: {{ default: 7 }}\nstages:\n  - zarr.windows: {{ store: a$(n)b$$(n), \
         variables: [t2m] }}\n"
    );
    let definition = parse(&text, &[]).expect("right");
    assert_eq!(definition.stages().count(), 1);
}

/// A secret in the environment is not shown, even where it is wrong.
#[test]
fn a_value_from_the_environment_is_never_shown() {
    // PATH is set everywhere and no integer anywhere.
    let text = format!(
        "{HEAD}vars:\n  n: {{ type: int, env: PATH }}\nstages:\n{WINDOWS}  - batch: $(n)\n"
    );
    let told = parse(&text, &[]).expect_err("no integer");
    assert!(told.contains("the environment's `PATH` is not"), "{told}");
    assert!(!told.contains(&std::env::var("PATH").expect("set")), "{told}");
}

#[test]
fn hostile_text_is_an_error_and_never_a_crash() {
    let deep = "[".repeat(100_000);
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n\
                  c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n\
                  e: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                  g: [*f,*f,*f,*f,*f,*f,*f,*f]\n";
    let texts = [
        "",
        "\n",
        "~",
        "1",
        "text",
        "[]",
        "{}",
        "- a",
        "stages: 1",
        "version: 1\nstages: {}",
        "version: 1\nstages:\n  - 1\n",
        "version: 1\nstages:\n  -\n",
        "version: 1\nvars: 3\n",
        "version: 1\nvars: { a: 1 }\n",
        "version: 1\nrun: []\nstages: [a]",
        "\u{0}",
        "\t- x",
        "version: 1\nstages:\n  - { }\n",
        "version: 1\ndefaults: 4\nstages:\n  - batch: 1\n",
        "version: 1\nstages:\n  - zarr.fetch: $(\n",
        "version: 99999999999999999999999999\n",
        "version: 1\nstages:\n  - batch: 99999999999999999999999999\n",
        "a: b: c",
        "? [a]: b",
        "version: 1\nname: [x]\nstages:\n  - zarr.fetch\n",
        "&a [*a]",
        "!!binary x",
        deep.as_str(),
        laughs,
    ];
    for text in texts {
        assert!(parse(text, &[]).is_err(), "{:.60}", text);
    }
    // Any text at all, cut anywhere.
    let good = std::fs::read_to_string("pipelines/windows.yaml").expect("there");
    for end in (0..good.len()).filter(|end| good.is_char_boundary(*end)) {
        drop(parse(&good[..end], &[]));
    }
}

#[test]
fn types_are_followed_past_a_mistake() {
    // The wrong argument of one stage does not hide the mismatch of later ones.
    let text = format!(
        "{HEAD}stages:\n{WINDOWS}  - batch: {{ sise: 4 }}\n  - zarr.decode:\n  - zarr.fetch:\n"
    );
    let told = parse(&text, &[]).expect_err("several");
    assert!(told.contains("`batch` has no argument `sise`"), "{told}");
    assert!(told.contains("`zarr.decode` cannot take what `batch` yields"), "{told}");
    assert!(told.contains("`zarr.fetch` cannot take what `zarr.decode` yields"), "{told}");
}

/// Adds to every number.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    by: u64,
}

/// Counts up.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    to: u64,
}

#[test]
fn operators_of_ones_own_are_one_line_each() {
    let catalog = Catalog::builtin()
        .source("test.count", |args: Count, _| Ok(source::iter("count", 0..args.to)))
        .main("to")
        .stage("test.add", Kind::Cpu, |args: Add, _| {
            Ok(cpu::map("add", move |x: u64| Ok::<_, Never>(x + args.by)).retryable())
        })
        .main("by")
        .batch::<u64>();
    let text = format!(
        "{HEAD}stages:\n  - test.count: 5\n  - test.add: 10\n    workers: 2\n    retry: 2\n\
         \x20\x20- batch: 2\n"
    );
    let definition = Definition::parse("own.yaml", &text, &catalog, &Set::new());
    let built = definition.expect("right").build(&catalog).expect("builds");
    let pipeline = built.pipeline.downcast::<Vec<u64>>().expect("its type");
    let items: Vec<_> = pipeline.run().expect("runs").map(|item| item.expect("no fault")).collect();
    assert_eq!(items, [vec![10, 11], vec![12, 13], vec![14]]);
}

/// What editors are told of a definition: every file that runs fits, and what is wrong in one place
/// does not.
#[test]
fn the_schema_fits_what_is_right_and_nothing_else() {
    let schema = Catalog::builtin().schema();
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let read = |text: &str| -> serde_json::Value { serde_saphyr::from_str(text).expect("YAML") };
    for file in yaml_in("pipelines") {
        let text = std::fs::read_to_string(&file).expect("readable");
        let errors: Vec<_> =
            validator.iter_errors(&read(&text)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
    let good = "version: 1\nstages:\n  - zarr.windows: { store: s, variables: [a], window: { time: 1 } }\n  - batch: 4\n";
    assert!(validator.is_valid(&read(good)));
    let wrong = [
        ("version: 1", "version: 2"),
        ("stages", "stage"),
        ("zarr.windows", "zarr.window"),
        ("variables: [a]", "variabels: [a]"),
        (", variables: [a]", ""),
        ("time: 1", "time: one"),
        ("batch: 4", "batch: four"),
        ("- batch: 4", "- shuffle"),
        ("variables: [a]", "variables: [a], dtype: float"),
        ("batch: 4", "batch: 4\n    workers: 0"),
        ("batch: 4", "batch: 4\n    wrokers: 2"),
        ("batch: 4", "batch: 4\n    retry: { max: 2, of: 3 }"),
        ("batch: 4", "batch: 4\n    shuffle: full"),
        ("version: 1", "version: 1\nvars: { a: { type: number } }"),
        ("version: 1", "version: 1\nrun: { sede: 1 }"),
    ];
    for (from, to) in wrong {
        assert!(good.contains(from));
        assert!(!validator.is_valid(&read(&good.replacen(from, to, 1))), "{to}");
    }
    assert!(validator.is_valid(&read(&good.replace("[a]", "[a], dtype: float32"))));
    for defaults in ["workers: 2", "io: { retry: 3 }, timeout: 60s"] {
        let text = good.replace("stages", &format!("defaults: {{ {defaults} }}\nstages"));
        assert!(validator.is_valid(&read(&text)), "{defaults}");
        Definition::parse("here", &text, &Catalog::builtin(), &Set::new()).expect("right");
    }
    let wrong = good.replace("stages", "defaults: { gpu: { retry: 3 } }\nstages");
    assert!(!validator.is_valid(&read(&wrong)));
    let named = good
        .replace("stages:\n", "sources:\n  a:\n")
        .replace("batch: 4", "batch: 4\nstages:\n  - merge: [a, b]");
    assert!(validator.is_valid(&read(&named)), "{named}");
    for (from, to) in [
        ("  a:\n", "  a.b:\n"),
        ("[a, b]", "a"),
        ("[a, b]", "{ of: [a] }"),
        ("[a, b]", "{ sources: [a], order: any }"),
    ] {
        assert!(!validator.is_valid(&read(&named.replacen(from, to, 1))), "{to}");
    }
    // A variable may stand anywhere.
    let variables = good.replace("time: 1", "time: $(n)").replace("batch: 4", "batch: $(size)");
    assert!(validator.is_valid(&read(&variables)));
}

#[test]
fn secrets_are_left_out_of_what_is_kept() {
    let text = r#"
version: 1
vars:
  secret_key: { type: text, default: "abc-secret-1" }
  url: { type: url, default: "https://me:abc-secret-2@host/a?sig=abc-secret-3" }
stages:
  - zarr.windows:
      store: $(url)
      options:
        access_key_id: "abc-secret-4"
        secret_access_key: $(secret_key)
        token: abc-secret-5 # of mine
        region: eu-west-1
      variables: [t2m]
"#;
    let definition = Definition::parse("a.yaml", text, &Catalog::builtin(), &Set::new());
    let shown = definition.expect("it is right").text_without_secrets();
    assert!(!shown.contains("abc-secret"), "{shown}");
    for part in ["region: eu-west-1", "# of mine", "https://host/a", "variables: [t2m]"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn a_run_cannot_fail_on_stalls_that_are_not_looked_for() {
    let stages = "stages:\n  - zarr.windows: { store: s, variables: [a], window: { time: 1 } }\n";
    let text = format!("version: 1\nrun: {{ stall: off, stall_fails: true }}\n{stages}");
    let told = parse(&text, &[]).expect_err("a contradiction");
    assert!(told.contains("`stall_fails` needs stalls to be looked for"), "{told}");
}

/// A default holds where it can: of stages that can't try an item again it is no word.
#[test]
fn a_retry_for_all_stages_is_for_those_that_can() {
    let stages = "stages:\n  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }\n  \
                  - batch: 4\n  - zarr.fetch:\n  - zarr.decode:\n  - test.flip:\n";
    /// Nothing to say.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let catalog = Catalog::builtin().stage("test.flip", Kind::Cpu, |_: Nothing, _| {
        Ok(cpu::map("flip", |batch: Batch| Ok::<_, Never>(batch)))
    });
    let built = |text: &str| {
        let definition = Definition::parse("test.yaml", text, &catalog, &Set::new())?;
        definition.build(&catalog).map(drop)
    };
    for defaults in ["retry: 3", "cpu: { retry: 3 }, io: { retry: 2 }"] {
        let text = format!("{HEAD}defaults: {{ {defaults} }}\n{stages}");
        built(&text).unwrap_or_else(|problems| panic!("{problems}"));
    }
    // What is said of a stage itself is not left out in silence.
    let told = built(&format!("{HEAD}{stages}    retry: 3\n")).expect_err("it can't");
    assert!(told.to_string().contains("`retry` does not apply to `flip`"), "{told}");
}
