//! `forebay fmt`: files are laid out, say what they said, and keep their comments.

use std::path::Path;
use std::process::{Command, Output};

use forebay::definition::{Catalog, Definition, Set};

fn fmt(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("fmt").args(args).output().expect("started")
}

fn path(file: &Path) -> &str {
    file.to_str().expect("UTF-8")
}

/// The files in `pipelines/` are laid out, and come out so whatever the spaces were.
#[test]
fn every_pipeline_is_laid_out_and_says_the_same_after_it() {
    let done = fmt(&["--check"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let folder = tempfile::tempdir().expect("a folder");
    for entry in Path::new("pipelines").read_dir().expect("a folder").flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).expect("text");
        // What stands in a comment is left alone.
        let untidy = text.lines().map(|line| match line.split_once(" #") {
            Some((line, comment)) => format!("{line}     #{comment}\n"),
            None if line.starts_with('#') => format!("{line}\n"),
            None => format!("{}  \n", line.replace("{ ", "{").replace(": ", ":   ")),
        });
        let untidy = untidy.collect::<String>() + "\n\n\n";
        let file = folder.path().join(entry.file_name());
        std::fs::write(&file, &untidy).expect("written");
        let done = fmt(&[path(&file)]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{}\n", file.display()));
        let got = std::fs::read_to_string(&file).expect("text");
        assert_eq!(got, text);
        assert_eq!(fmt(&["--check", path(&file)]).status.code(), Some(0), "{got}");
        if !path(&file).ends_with(".test.yaml") {
            let stages = |text: &str| {
                let definition = Definition::parse("x", text, &Catalog::builtin(), &Set::new());
                let definition = definition.unwrap_or_else(|problems| panic!("{problems}"));
                format!("{} {:?}", definition.name(), definition.outline(&Catalog::builtin()))
            };
            assert_eq!(stages(&got), stages(&text));
        }
    }
}

#[test]
fn what_would_change_is_listed_and_what_is_no_yaml_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (untidy, broken) = (folder.path().join("untidy.yaml"), folder.path().join("broken.yaml"));
    std::fs::write(&untidy, "version:  1\n").expect("written");
    std::fs::write(&broken, "a:  [1\n").expect("written");
    let done = fmt(&["--check", path(&untidy)]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{}\n", untidy.display()));
    assert_eq!(std::fs::read_to_string(&untidy).expect("text"), "version:  1\n");

    let done = fmt(&[path(&broken), path(&untidy)]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("forebay::yaml"), "{done:?}");
    assert_eq!(std::fs::read_to_string(&broken).expect("text"), "a:  [1\n");
    assert_eq!(std::fs::read_to_string(&untidy).expect("text"), "version: 1\n");
    assert_eq!(fmt(&["no-such-pipeline"]).status.code(), Some(2));
}
