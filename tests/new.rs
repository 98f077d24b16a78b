//! `forebay new` and `forebay init`: what they write compiles, runs and passes its own tests.
//!
//! The crate's files are compiled against the library that this test was built with, as cargo would do,
//! because building all that it depends on once more takes minutes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn forebay(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").current_dir(folder).output().expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The builds of a library beside this test, the newest first.
fn builds(name: &str) -> Vec<PathBuf> {
    let tests = std::env::current_exe().expect("this test's path");
    let deps = tests.parent().expect("a folder");
    let begin = format!("lib{name}-");
    let builds = std::fs::read_dir(deps).expect("a folder").filter_map(|entry| {
        let path = entry.ok()?.path();
        let file = path.file_name()?.to_str()?;
        let ours = file.starts_with(&begin) && file.ends_with(".rlib");
        Some((path.metadata().ok()?.modified().ok()?, path)).filter(|_| ours)
    });
    let mut builds: Vec<_> = builds.collect();
    builds.sort();
    builds.into_iter().rev().map(|(_, path)| path).collect()
}

/// Compiles `file` of a crate into its folder `built`; `None` if the compiler refuses.
fn compiled(
    folder: &Path,
    file: &str,
    args: &[&str],
    externs: &[(&str, &Path)],
) -> Result<(), String> {
    let deps = builds("forebay")[0].parent().expect("a folder").to_owned();
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.current_dir(folder).args(["--edition", "2024", "-D", "warnings", "--out-dir", "built"]);
    command.arg("-L").arg(format!("dependency={}", deps.display())).args(args).arg(file);
    for (name, path) in externs {
        command.arg("--extern").arg(format!("{name}={}", path.display()));
    }
    let output = command.output().expect("the compiler runs");
    if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
}

/// A folder with a new crate, and what was said of it.
fn acme() -> (tempfile::TempDir, Output) {
    let folder = tempfile::tempdir().expect("a folder");
    let checkout = env!("CARGO_MANIFEST_DIR");
    let done = forebay(&["new", "acme", "--forebay", checkout], folder.path());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    (folder, done)
}

#[test]
fn a_new_crate_compiles_runs_and_passes_its_tests() {
    let (folder, done) = acme();
    assert!(text(&done.stdout).contains("acme/src/lib.rs\n"), "{done:?}");
    let root = folder.path().join("acme");

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata = cargo.current_dir(&root).output().expect("cargo runs");
    let metadata: Value =
        serde_json::from_slice(&metadata.stdout).expect("a manifest that cargo reads");
    let package = &metadata["packages"][0];
    let forebay_is = |dependency: &&Value| dependency["name"] == "forebay";
    let dependencies = package["dependencies"].as_array().expect("a list");
    let forebay_at = &dependencies.iter().find(forebay_is).expect("Forebay")["path"];
    assert_eq!(
        (&package["name"], forebay_at),
        (&"acme".into(), &env!("CARGO_MANIFEST_DIR").into())
    );

    // Which build of serde and schemars the library has is not to be seen from outside.
    let library = &builds("forebay")[0];
    let (serdes, schemars) = (builds("serde"), builds("schemars"));
    let pairs =
        serdes.iter().flat_map(|serde| schemars.iter().map(move |schemars| (serde, schemars)));
    let lib = ["--crate-type", "rlib", "--crate-name", "operators"];
    let refused: Vec<_> = pairs
        .map(|(serde, schemars)| {
            let externs = [("forebay", &**library), ("serde", serde), ("schemars", schemars)];
            compiled(&root, "src/lib.rs", &lib, &externs).err()
        })
        .take_while(Option::is_some)
        .flatten()
        .collect();
    assert!(refused.len() < serdes.len() * schemars.len(), "{}", refused.join("\n"));
    let operators = root.join("built/liboperators.rlib");
    let externs = [("forebay", &**library), ("operators", &*operators)];
    compiled(&root, "src/main.rs", &["--crate-name", "acme"], &externs).expect("it compiles");
    compiled(&root, "tests/pipelines.rs", &["--test"], &externs).expect("its tests compile");

    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(root.join("built").join(program));
        let done = command.args(args).current_dir(&root).output().expect("it starts");
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        text(&done.stdout)
    };
    assert!(run("pipelines", &[]).contains("test result: ok. 2 passed"));
    assert!(run("acme", &["run", "first", "--limit", "2"]).contains("8 items, 2 batches"));
    assert!(run("acme", &["ops", "own.celsius"]).contains("from kelvin into degrees Celsius"));
}

#[test]
fn a_crate_is_never_made_over_another_thing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("there"), "mine").expect("written");
    for (args, told) in [
        (&["new", "there"][..], "it is there: choose another name"),
        (&["new", "9lives"], "is no name for a crate"),
        (&["new", "a b"], "is no name for a crate"),
        (&["new", ".."], "is no name for a crate"),
        (&["new", "serde"], "can't be called `serde`"),
        (&["new", "acme", "--forebay", "."], "is no checkout of Forebay"),
        (&["init", "there"], "write `pipelines/there.yaml`"),
        (&["init", "there/x.yaml"], "can't be made"),
    ] {
        let done = forebay(args, folder.path());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(text(&done.stderr).contains(told) && done.stdout.is_empty(), "{done:?}");
    }
    let left: Vec<_> = folder.path().read_dir().expect("a folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read(folder.path().join("there")).expect("there"), b"mine");
}

#[test]
fn a_pipeline_to_begin_with_runs_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    for (args, file, name) in [
        (&["init"][..], "pipelines/first.yaml", "first"),
        (&["init", "a: \"b\".yaml"], "a: \"b\".yaml", "a: \"b\""),
    ] {
        let done = forebay(args, folder.path());
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let schema = Path::new(file).with_file_name("forebay.schema.json");
        assert_eq!(text(&done.stdout), format!("{file}\n{}\n", schema.display()));
        let schema = std::fs::read(folder.path().join(schema)).expect("written");
        let schema: Value = serde_json::from_slice(&schema).expect("JSON");
        let expected = forebay(&["schema"], folder.path());
        assert_eq!(schema, serde_json::from_slice::<Value>(&expected.stdout).expect("JSON"));
        let written = std::fs::read_to_string(folder.path().join(file)).expect("written");
        assert!(written.contains("\n# yaml-language-server: $schema=forebay.schema.json\nversion"));
        let run = ["run", file, "--limit", "1", "--format", "json"];
        let run = forebay(&run, folder.path());
        let json: Value = serde_json::from_slice(&run.stdout).expect("JSON");
        assert_eq!((&json["pipeline"], &json["batches"]), (&name.into(), &1.into()));

        let again = forebay(args, folder.path());
        assert_eq!(again.status.code(), Some(2), "{again:?}");
        assert!(text(&again.stderr).contains("it is there"), "{again:?}");
        let left = std::fs::read_to_string(folder.path().join(file)).expect("there");
        assert_eq!(left, written);
    }
}

/// It may be that of a binary that knows more operators.
#[test]
fn a_schema_that_is_there_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = folder.path().join("forebay.schema.json");
    std::fs::write(&schema, "mine").expect("written");
    let done = forebay(&["init", "a.yaml"], folder.path());
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(0), "a.yaml\n".to_owned()));
    assert_eq!(std::fs::read(&schema).expect("there"), b"mine");
}

/// What a file names, its editor looks for.
#[test]
fn no_pipeline_of_a_new_crate_names_a_schema_that_is_not_there() {
    let (folder, _) = acme();
    let pipelines = folder.path().join("acme/pipelines");
    let first = std::fs::read_to_string(pipelines.join("first.yaml")).expect("written");
    let names = first.lines().any(|line| line.starts_with("# yaml-language-server:"));
    assert_eq!(names, pipelines.join("forebay.schema.json").exists(), "{first}");
}

#[test]
fn a_name_that_is_not_there_comes_with_those_that_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |args: &[&str]| {
        let done = forebay(args, folder.path());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        text(&done.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(told(&["run", "first"]).contains("there is no folder `pipelines` here"));
    for file in ["first.yaml", "second.yml", "first.test.yaml", "notes.txt"] {
        std::fs::create_dir_all(folder.path().join("pipelines")).expect("made");
        std::fs::write(folder.path().join("pipelines").join(file), "").expect("written");
    }
    for command in ["run", "check", "graph", "plan", "fmt"] {
        let said = told(&[command, "frist"]);
        let expected = "did you mean `first`? `pipelines` has `first`, `second`";
        assert!(said.contains("can't read `frist`") && said.contains(expected), "{command} {said}");
    }
    let said = told(&["test", "frist"]);
    assert!(said.contains("did you mean `first`?"), "{said}");
    let said = told(&["test", "second"]);
    assert!(said.contains("write cases there"), "{said}");
    let said = told(&["check", "pipelines/secnd.yaml"]);
    assert!(said.contains("did you mean `pipelines/second.yml`?"), "{said}");
    let said = told(&["run", "quickstart"]);
    assert!(said.contains("help: `pipelines` has `first`, `second`"), "{said}");
}
