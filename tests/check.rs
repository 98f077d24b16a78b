//! What is known of a definition before it runs, and what `check` says of it.

#![recursion_limit = "256"]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay::definition::{Catalog, Definition, Flow, Misfit, Set, Survey};
use forebay::prelude::*;
use serde_json::Value;

const WINDOWS: &str = "  - zarr.windows: { store: \"sample://era5\", variables: [t2m, u10], window: { time: 1 } }\n";

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
        assert_eq!(forebay::definition::Outline::from(tensor.spec()).to_string(), outline.to_string());
    }
}

/// The bound holds: no stage ever holds more than was said.
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

    let refuses = add(Catalog::builtin())
        .flows(|_: Twice, _| Err(Misfit::new("it is too hot").help("wait").before("tensor.cast: f64")));
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
    let gpu = stages("true").replace("$(mix)", "gpu").replace("vars:\n  mix: { type: bool, default: true }\n", "");
    let has_gpu = device::auto().name() != "host";
    assert_eq!(ids(&gpu).len(), if has_gpu { 3 } else { 2 });
}

fn forebay(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(folder).env("NO_COLOR", "1").output().expect("started")
}

const BROKEN: &str = "version: 1\nname: mended\n# kept\nvars:\n  size: { type: int, defualt: 4 }\n\
                      stages:\n  - zarr.windows: { store: \"sample://era5\", variables: [t2m], windwo: \
                      { time: 1 } }\n  - bacth: $(sise) # four\n  - zarr.decode:\n    wrokers: 2\n  - \
                      tensor.cast: f16\n  - tensor.normalize: { stats: { t2n: { mean: 280, std: 20 } } }\n";

#[test]
fn fixes_are_written_into_the_file() {
    forebay::store::sample::ensure("era5", &|_, _| {}).expect("the sample");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mended.yaml");
    std::fs::write(&file, BROKEN).expect("written");
    let done = forebay(&["check", "mended.yaml"], folder.path());
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{told}");
    assert!(told.contains("can be mended by `--fix`"), "{told}");
    let done = forebay(&["check", "mended.yaml", "--fix"], folder.path());
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{told}");
    let want = "version: 1\nname: mended\n# kept\nvars:\n  size: { type: int, default: 4 }\nstages:\n  \
                - zarr.windows: { store: \"sample://era5\", variables: [t2m], window: { time: 1 } }\n  - \
                batch: $(size) # four\n  - zarr.fetch:\n  - zarr.decode:\n    workers: 2\n  - tensor.cast: \
                f16\n  - tensor.cast: f32\n  - tensor.normalize: { stats: { t2m: { mean: 280, std: 20 } } }\n";
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), want, "{told}");
}

#[test]
fn sarif_has_the_shape_that_it_must_have() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a b.yaml"), BROKEN).expect("written");
    std::fs::write(folder.path().join("no.yaml"), b"\xff").expect("written");
    let done = forebay(&["check", "a b.yaml", "no.yaml", "--format", "sarif"], folder.path());
    assert_eq!(done.status.code(), Some(2));
    let sarif: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    // The parts of the official schema that are used.
    let region = serde_json::json!({
        "type": "object", "additionalProperties": false,
        "required": ["startLine", "startColumn", "endLine", "endColumn"],
        "properties": {
            "startLine": { "type": "integer", "minimum": 1 }, "startColumn": { "type": "integer", "minimum": 1 },
            "endLine": { "type": "integer", "minimum": 1 }, "endColumn": { "type": "integer", "minimum": 1 },
        }
    });
    let message = serde_json::json!({ "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": { "text": { "type": "string" } } });
    let artifact = serde_json::json!({ "type": "object", "required": ["uri"], "additionalProperties": false,
        "properties": { "uri": { "type": "string", "pattern": "^[^ ]+$" } } });
    let location = serde_json::json!({ "type": "object", "required": ["physicalLocation"], "additionalProperties": false,
        "properties": { "message": message, "physicalLocation": { "type": "object",
            "required": ["artifactLocation"], "additionalProperties": false,
            "properties": { "artifactLocation": artifact, "region": region } } } });
    let schema = serde_json::json!({
        "type": "object", "required": ["version", "runs"],
        "properties": { "version": { "const": "2.1.0" }, "runs": { "type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["tool", "results"], "additionalProperties": false,
            "properties": {
                "columnKind": { "enum": ["utf16CodeUnits", "unicodeCodePoints"] },
                "tool": { "type": "object", "required": ["driver"], "properties": { "driver": {
                    "type": "object", "required": ["name"], "properties": {
                        "rules": { "type": "array", "uniqueItems": true,
                            "items": { "type": "object", "required": ["id"] } } } } } },
                "results": { "type": "array", "minItems": 5, "items": {
                    "type": "object", "required": ["message", "ruleId", "ruleIndex"], "additionalProperties": false,
                    "properties": {
                        "ruleId": { "type": "string" }, "ruleIndex": { "type": "integer", "minimum": 0 },
                        "level": { "enum": ["none", "note", "warning", "error"] },
                        "message": message,
                        "locations": { "type": "array", "items": location },
                        "relatedLocations": { "type": "array", "items": location },
                        "fixes": { "type": "array", "minItems": 1, "items": { "type": "object",
                            "required": ["artifactChanges"], "properties": { "artifactChanges": { "type": "array",
                                "minItems": 1, "items": { "type": "object", "required": ["artifactLocation", "replacements"],
                                "properties": { "replacements": { "type": "array", "minItems": 1, "items": { "type": "object",
                                    "required": ["deletedRegion"], "properties": {
                                        "deletedRegion": region, "insertedContent": message } } } } } } } } },
                    } } },
            } } } }
    });
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<_> = validator.iter_errors(&sarif).map(|error| format!("{error} at {}", error.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{sarif:#}");
    let run = &sarif["runs"][0];
    for result in run["results"].as_array().expect("a list") {
        let index = result["ruleIndex"].as_u64().expect("a number") as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    }
    let results = run["results"].as_array().expect("a list");
    let first = results.iter().find(|result| result["fixes"].is_array()).expect("one");
    assert_eq!(first["locations"][0]["physicalLocation"]["region"]["startLine"], 5);
    assert_eq!(first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"], "default");
}

#[test]
fn github_gets_a_command_for_each_problem() {
    let done = forebay(
        &["check", "pipelines/broken/two-operations.yaml", "pipelines/broken/lint-rate.yaml", "--format", "github"],
        Path::new(env!("CARGO_MANIFEST_DIR")),
    );
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let want = "::error file=pipelines/broken/two-operations.yaml,line=5,col=5,endLine=5,endColumn=12,\
                title=forebay%3A%3Aop%3A%3Atwo::a stage has 2 operations%0Ahelp: put a dash before";
    assert!(lines[0].starts_with(want), "{}", lines[0]);
    assert!(lines[1].starts_with("::warning file=pipelines/broken/lint-rate.yaml,line=7"), "{}", lines[1]);
}

/// Ends with the test, whatever becomes of it.
struct Watching(std::process::Child);

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

#[test]
fn watch_checks_again_when_a_file_changes() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "version: 1\nstages: [\n").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["check", "a.yaml", "--watch"]).current_dir(folder.path());
    let mut child = Watching(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started"));
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    let mut until = |what: &str| lines.any(|line| line.expect("UTF-8").contains(what));
    assert!(until("forebay::yaml") && until("watching"));
    std::fs::write(&file, format!("version: 1\nstages:\n{WINDOWS}")).expect("written");
    assert!(until("checked: syntax") && until("watching"));
    std::fs::write(&file, "version: 7\nstages: []").expect("written");
    assert!(until("this version is not known"));
}

/// The processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn hostile_files_are_told_within_a_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hostile.yaml");
    let laughs: String = (b'b'..=b'z')
        .map(|c| format!("{0}: &{0} [*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1}]\n", c as char, (c - 1) as char))
        .collect();
    let stage = |stages: &str| format!("version: 1\nstages:\n{WINDOWS}{stages}").into_bytes();
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("100 MB", b"version: 1\nname: ".iter().copied().chain(std::iter::repeat_n(b'x', 100 << 20)).collect()),
        ("laughs", format!("a: &a [x, x]\n{laughs}").into_bytes()),
        ("a deep list", b"[".repeat(1 << 19)),
        ("a deep mapping", b"a: {".repeat(1 << 17)),
        ("deep indentation", (0..1400).flat_map(|n| format!("{}a:\n", " ".repeat(n % 700)).into_bytes()).collect()),
        ("many keys", (0..60_000).flat_map(|n| format!("k{n}: 1\n").into_bytes()).collect()),
        ("many stages", stage(&"  - zarr.fetsh:\n".repeat(5_000))),
        ("many variables", format!("version: 1\nvars:\n{}", (0..10_000).map(|n| format!("  v{n}: {{ default: $(v) }}\n")).collect::<String>()).into_bytes()),
        ("a long dollar", stage(&format!("  - batch: {}\n", "$(".repeat(200_000)))),
        ("no UTF-8", b"version: 1\nname: \xff\xfe\n".to_vec()),
        ("UTF-16", b"\xff\xfev\0e\0r\0".to_vec()),
        ("NUL", b"version: 1\0\nstages:\n".to_vec()),
        ("tabs", b"version: 1\nstages:\n\t- batch: 1\n".to_vec()),
        ("workers 0", stage("  - zarr.fetch:\n    workers: 0\n")),
        ("workers -1", stage("  - zarr.fetch:\n    workers: -1\n")),
        ("workers 1e9", stage("  - zarr.fetch:\n    workers: 1e9\n")),
        ("workers 1000000000", stage("  - zarr.fetch:\n    workers: 1000000000\n")),
        ("a huge number", stage(&format!("  - batch: {}\n", "9".repeat(100_000)))),
        ("a number that is none", stage("  - batch: .nan\n")),
        ("a time without end", stage("  - zarr.fetch:\n    timeout: 1e400s\n")),
        ("a batch of all", stage("  - batch: 18446744073709551615\n  - batch: 2\n  - zarr.fetch:\n")),
    ];
    for (what, bytes) in hostile {
        std::fs::write(&file, bytes).expect("written");
        let before = cpu();
        let catalog = Catalog::builtin();
        let told = Definition::load(&file, &catalog, &Set::new()).expect_err(what);
        assert!(!told.is_empty(), "{what}");
        let spent = cpu() - before;
        println!("{what}: {} problems in {spent:?}", told.len());
        // In a build for tests, a second is a tenth of one.
        assert!(spent < Duration::from_secs(4), "{what} took {spent:?}");
    }
    let missing = Definition::load(Path::new("/dev/zero"), &Catalog::builtin(), &Set::new());
    assert!(missing.expect_err("no definition").to_string().contains("more than 1 MiB"));
    let folder = Definition::load(folder.path(), &Catalog::builtin(), &Set::new());
    assert!(folder.expect_err("a folder").to_string().contains("it is a folder"));
}

#[test]
fn a_line_that_is_no_utf_8_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("latin.yaml");
    std::fs::write(&file, b"version: 1\nname: K\xf6ln\n").expect("written");
    let told = Definition::load(&file, &Catalog::builtin(), &Set::new()).expect_err("no UTF-8");
    assert!(told.to_string().contains("line 2, column 8 is no UTF-8"), "{told}");
}

/// Every text, changed anywhere in any way: an error or a definition, never a panic. A bounded number
/// of cases here; more with `FOREBAY_FUZZ_CASES`.
#[test]
fn a_pipeline_changed_at_random_never_panics() {
    let cases = std::env::var("FOREBAY_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let mut texts = Vec::new();
    for folder in ["pipelines", "pipelines/broken"] {
        for entry in Path::new(folder).read_dir().expect("a folder").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "yaml") {
                texts.push(std::fs::read_to_string(entry.path()).expect("readable"));
            }
        }
    }
    texts.sort();
    let tokens = [
        "- ", ": ", "{", "}", "[", "]", "\n", "  ", "$(", ")", "$$(", "&a ", "*a", "!!int ", "'", "\"", "#", "|\n",
        "0", "-1", "1e9", "99999999999999999999", ".inf", "~", "true", "when: gpu", "memory: 1B", "workers: 50%",
        "batch: 3", "\u{0}", "\t", "é", "🦀", "\u{feff}", "%", "? ", "<<: ", "---\n", "...\n", "stages:", "vars:",
    ];
    let catalog = Catalog::builtin();
    let mut rng = fastrand::Rng::with_seed(7);
    let started = Instant::now();
    for case in 0..cases {
        let mut text: Vec<char> = texts[rng.usize(..texts.len())].chars().collect();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..=text.len());
            let end = (at + rng.usize(..12)).min(text.len());
            match rng.u8(..4) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..at, tokens[rng.usize(..tokens.len())].chars())),
                2 => {
                    let other: Vec<_> = texts[rng.usize(..texts.len())].chars().collect();
                    let from = rng.usize(..=other.len());
                    let to = (from + rng.usize(..40)).min(other.len());
                    drop(text.splice(at..end, other[from..to].iter().copied()));
                }
                _ => {
                    if let Some(c) = text.get_mut(at) {
                        *c = char::from(rng.u8(1..127));
                    }
                }
            }
        }
        let text: String = text.into_iter().collect();
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            match Definition::parse("fuzz.yaml", &text, &catalog, &Set::new()) {
                Ok(definition) => {
                    // Offline, so that no store that the text makes up is asked for.
                    let surveyed = definition.survey(&catalog, false);
                    surveyed.map(|survey| survey.warnings).unwrap_or_else(|problems| problems)
                }
                Err(problems) => problems,
            }
            .render(false, 100)
        }));
        assert!(looked.is_ok(), "case {case}:\n{text}");
    }
    println!("{cases} cases in {:?}", started.elapsed());
}
