//! F15: what the compiler says to the mistakes that people make with closures and stages. Compiled
//! against the library that this test was built with; what is pinned are the words that help, not
//! the layout, which changes with the compiler.

use std::path::PathBuf;
use std::process::Command;

/// The newest build of the library beside this test.
fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this test's path");
    let deps = tests.parent().expect("a folder");
    let builds = std::fs::read_dir(deps).expect("a folder").filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        let ours = name.starts_with("libforebay-") && name.ends_with(".rlib");
        Some((path.metadata().ok()?.modified().ok()?, path)).filter(|_| ours)
    });
    builds.max().expect("the library beside the test").1
}

/// What the compiler says to `body`, a pipeline of numbers from `numbers()` on.
fn compiled(body: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("user.rs");
    let text = format!(
        "use forebay::prelude::*;\n\
         fn numbers() -> Pipeline<u64> {{ Pipeline::from(source::iter(\"numbers\", 0..3)) }}\n\
         fn main() {{\n{body}\n}}\n"
    );
    std::fs::write(&file, text).expect("written");
    let library = library();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "--emit", "metadata", "--color", "never", "--out-dir"])
        .arg(folder.path())
        .arg("-L")
        .arg(format!("dependency={}", library.parent().expect("a folder").display()))
        .arg("--extern")
        .arg(format!("forebay={}", library.display()))
        .arg(&file)
        .output()
        .expect("the compiler runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.success(), !said.contains("error"), "{said}");
    said
}

#[test]
fn what_is_right_compiles() {
    let said = compiled(
        "let table = vec![1_u64, 2, 3];
        _ = numbers().then(cpu::map(\"look\", move |i: u64| Ok::<_, Never>(table[i as usize])));",
    );
    assert_eq!(said, "");
}

/// Each mistake with what the message must contain.
#[test]
fn mistakes_get_a_message_that_helps() {
    let mistakes: [(&str, &[&str]); 8] = [
        (
            "let table = vec![1_u64, 2, 3];
            _ = numbers().then(cpu::map(\"look\", |i: u64| Ok::<_, Never>(table[i as usize])));",
            &["closure may outlive", "use the `move` keyword"],
        ),
        (
            "let table = vec![1_u64, 2, 3];
            _ = numbers().then(io::map(\"look\", async |i: u64| {
                Ok::<_, Never>(table[i as usize])
            }));",
            &["`table` does not live long enough", "'static"],
        ),
        (
            "_ = numbers().then(cpu::map(\"read\", |text: String| Ok::<_, Never>(text)));",
            &["expected `u64`, found `String`", "Pipeline::<T>::then"],
        ),
        (
            "_ = numbers().then(cpu::map(\"add\", |x: u64| x + 1));",
            &["expected `Result<_, _>`, found `u64`", "Ok("],
        ),
        (
            "_ = numbers().then(io::map(\"count\", async |x: u64| {
                let shared = std::rc::Rc::new(x);
                std::future::ready(()).await;
                Ok::<_, Never>(*shared)
            }));",
            &["future cannot be sent between threads safely", "`Rc<u64>` which is not `Send`"],
        ),
        (
            "struct Once(u64);
            let stage = cpu::map(\"open\", |x: Once| Ok::<_, Never>(x.0)).retry(Retry::times(3));
            _ = numbers().then(cpu::map(\"once\", |x: u64| Ok::<_, Never>(Once(x)))).then(stage);",
            &["Once: Clone` is not satisfied", "#[derive(Clone)]"],
        ),
        (
            "_ = numbers().then(|x: u64| x + 1);",
            &["is not a stage", "`cpu::map(\"name\", …)` if it computes"],
        ),
        (
            "_ = Pipeline::from(0..3_u64);",
            &["is not a source", "`source::iter(\"name\", …)` of an iterator"],
        ),
    ];
    for (body, words) in mistakes {
        let said = compiled(body);
        for word in words {
            assert!(said.contains(word), "the message lacks {word:?}:\n{said}");
        }
        assert_eq!(said.matches("\nerror").count() + 1, 2, "one error each:\n{said}");
        assert!(!said.contains("general enough"), "{said}");
    }
}
