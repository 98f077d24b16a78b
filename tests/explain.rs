//! `forebay explain`: every code has its page, whose examples are what they say.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use forebay::definition::{Catalog, Definition, Problems, Set};
use serde_json::Value;

fn explain(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("explain").args(args).output().expect("started")
}

/// The codes and their pages.
fn pages() -> Vec<(String, String)> {
    let done = explain(&["--format", "json"]);
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let text = |page: &Value, key: &str| page[key].as_str().expect("text").to_owned();
    let pages = json["codes"].as_array().expect("a list").iter();
    pages.map(|page| (text(page, "code"), text(page, "text"))).collect()
}

/// What stands in the sources between quotes and looks like a code.
fn codes_in(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in folder.read_dir().expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            codes_in(&path, codes);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            let quoted =
                text.split('"').filter(|part| part.len() > 9 && part.starts_with("forebay::"));
            let is_code = |c: char| c.is_ascii_lowercase() || c == ':' || c == '_';
            codes.extend(quoted.filter(|part| part.chars().all(is_code)).map(str::to_owned));
        }
    }
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let mut used = BTreeSet::new();
    codes_in(Path::new("src/definition"), &mut used);
    assert!(used.len() > 20, "{used:?}");
    let known: Vec<_> = pages().into_iter().map(|(code, _)| code).collect();
    assert!(known.is_sorted());
    assert_eq!(known.into_iter().collect::<BTreeSet<_>>(), used);
}

/// The text between a fence and its end.
fn example<'a>(page: &'a str, fence: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("```{fence}\n"))?;
    Some(rest.split_once("```").expect("it ends").0)
}

/// The problems with a definition as soon as they are found; of a code that warns, the warnings.
fn tried(text: &str, code: &str) -> Option<Problems> {
    let catalog = Catalog::builtin();
    let definition = Definition::parse("example.yaml", text, &catalog, &Set::new());
    if code.starts_with("forebay::lint::") {
        let definition = definition.unwrap_or_else(|problems| panic!("{code} {problems}"));
        let survey = definition.survey(&catalog, false);
        let warnings = survey.unwrap_or_else(|problems| panic!("{code} {problems}")).warnings;
        return Some(warnings).filter(|warnings| warnings.codes().next().is_some());
    }
    let tried = definition.and_then(|definition| match code {
        "forebay::plan" => definition.plan(&catalog).map(drop),
        _ => definition.build(&catalog).map(drop),
    });
    tried.err()
}

/// A command that is right, or wrong in the way that `code` names.
fn tried_by(args: &[&str], code: &str, is_right: bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let done = command.args(args).output().expect("started");
    let told = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.success(), is_right, "{code} {done:?}");
    assert_eq!(told.contains(&format!("forebay explain {code}")), !is_right, "{code} {told}");
}

#[test]
fn every_wrong_example_is_wrong_in_its_own_way_and_every_right_one_is_right() {
    for (code, page) in pages() {
        match (example(&page, "yaml wrong"), example(&page, "yaml right")) {
            (Some(wrong), Some(right)) => {
                let problems = tried(wrong, &code).unwrap_or_else(|| panic!("{code} is right"));
                let found: BTreeSet<_> = problems.codes().collect();
                assert_eq!(found.into_iter().collect::<Vec<_>>(), [&*code], "{problems}");
                let right = tried(right, &code);
                assert!(right.is_none(), "{code} {right:?}");
            }
            // It takes hundreds of mistakes.
            _ if code == "forebay::more" => {}
            _ if code == "forebay::case" => {
                for (fence, is_right) in [("cases wrong", false), ("cases right", true)] {
                    let folder = tempfile::tempdir().expect("a folder");
                    let file = folder.path().join("quickstart.yaml");
                    std::fs::copy("pipelines/quickstart.yaml", &file).expect("copied");
                    let cases = example(&page, fence).expect("cases");
                    std::fs::write(file.with_extension("test.yaml"), cases).expect("written");
                    tried_by(&["test", file.to_str().expect("UTF-8")], &code, is_right);
                }
            }
            _ => {
                for (fence, is_right) in [("sh wrong", false), ("sh right", true)] {
                    let line = example(&page, fence).unwrap_or_else(|| panic!("{code} {fence}"));
                    let args = line.split_whitespace().skip(1).chain(["--limit", "1"]);
                    tried_by(&args.collect::<Vec<_>>(), &code, is_right);
                }
            }
        }
    }
}

#[test]
fn a_page_is_found_by_its_code_with_the_first_part_or_without() {
    let text = |args: &[&str]| String::from_utf8(explain(args).stdout).expect("UTF-8");
    let page = text(&["forebay::type::mismatch"]);
    assert!(page.starts_with("forebay::type::mismatch\n\nA stage can't take"), "{page}");
    assert!(page.contains("wrong:\n\n    version: 1\n") && !page.contains("```"), "{page}");
    assert_eq!(page, text(&["type::mismatch"]));
    let all = text(&[]);
    assert!(all.contains("forebay::op::two         A stage has two operators.\n"), "{all}");
    let done = explain(&["type::mismach"]);
    assert_eq!(done.status.code(), Some(2));
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(told.contains("did you mean `forebay::type::mismatch`?"), "{told}");
}
