//! Files that mean harm, or were changed at random: an error, soon, and never a crash.

use std::path::Path;
use std::time::Duration;

use forebay::definition::{Catalog, Definition, Set};

use super::WINDOWS;

/// The processor time of this thread, which does all of it.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn hostile_files_are_told_within_a_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hostile.yaml");
    let laughs: String = (b'b'..=b'z')
        .map(|c| {
            format!(
                "{0}: &{0} [*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1}]\n",
                c as char,
                (c - 1) as char
            )
        })
        .collect();
    let stage = |stages: &str| format!("version: 1\nstages:\n{WINDOWS}{stages}").into_bytes();
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        (
            "100 MB",
            b"version: 1\nname: "
                .iter()
                .copied()
                .chain(std::iter::repeat_n(b'x', 100 << 20))
                .collect(),
        ),
        ("laughs", format!("a: &a [x, x]\n{laughs}").into_bytes()),
        ("a deep list", b"[".repeat(1 << 19)),
        ("a deep mapping", b"a: {".repeat(1 << 17)),
        (
            "deep indentation",
            (0..1400).flat_map(|n| format!("{}a:\n", " ".repeat(n % 700)).into_bytes()).collect(),
        ),
        ("many keys", (0..60_000).flat_map(|n| format!("k{n}: 1\n").into_bytes()).collect()),
        ("many stages", stage(&"  - zarr.fetsh:\n".repeat(5_000))),
        ("many wrong stages", stage(&"  - zarr.fetsh:\n".repeat(990))),
        (
            "many names",
            format!(
                "version: 1\nvars: {{{}}}\nname: [{}]\n",
                (0..3_000).map(|n| format!("v{n}: {{}}, ")).collect::<String>(),
                "$(v), ".repeat(5_000)
            )
            .into_bytes(),
        ),
        (
            "many variables",
            format!(
                "version: 1\nvars:\n{}",
                (0..10_000).map(|n| format!("  v{n}: {{ default: $(v) }}\n")).collect::<String>()
            )
            .into_bytes(),
        ),
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
        (
            "a batch of all",
            stage("  - batch: 18446744073709551615\n  - batch: 2\n  - zarr.fetch:\n"),
        ),
    ];
    for (what, bytes) in hostile {
        std::fs::write(&file, bytes).expect("written");
        let before = cpu();
        let catalog = Catalog::builtin();
        let told = Definition::load(&file, &catalog, &Set::new()).expect_err(what);
        assert!(!told.is_empty(), "{what}");
        let spent = cpu() - before;
        // Unoptimized; a release build takes a tenth of it.
        assert!(spent < Duration::from_secs(2), "{what} took {spent:?}");
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
    let cases =
        std::env::var("FOREBAY_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
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
        "- ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "  ",
        "$(",
        ")",
        "$$(",
        "&a ",
        "*a",
        "!!int ",
        "'",
        "\"",
        "#",
        "|\n",
        "0",
        "-1",
        "1e9",
        "99999999999999999999",
        ".inf",
        "~",
        "true",
        "when: gpu",
        "memory: 1B",
        "workers: 50%",
        "batch: 3",
        "\u{0}",
        "\t",
        "é",
        "🦀",
        "\u{feff}",
        "%",
        "? ",
        "<<: ",
        "---\n",
        "...\n",
        "stages:",
        "vars:",
    ];
    let catalog = Catalog::builtin();
    let mut rng = fastrand::Rng::with_seed(7);
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
}
