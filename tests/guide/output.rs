//! What a command printed against what the guide shows, apart from what was measured.
//!
//! Times, rates, sizes and shares differ from run to run, and which stage is the slowest from machine
//! to machine; counts, names, codes, shapes and the order fingerprint do not.

/// What may follow a measured figure.
const UNITS: &[&str] = &[
    "ns",
    "µs",
    "ms",
    "s",
    "min",
    "h",
    "%",
    "B",
    "kB",
    "MB",
    "GB",
    "B/s",
    "kB/s",
    "MB/s",
    "GB/s",
    "items/s",
    "batches/s",
];

/// Asserts that the lines of `shown` come one after the other in `printed`. A line `...` stands for any
/// number of lines.
pub(super) fn assert_shows(place: &str, shown: &str, printed: &str) {
    let (shown_lines, printed_lines) = (lines(shown), lines(printed));
    let begins = (0..=printed_lines.len()).any(|at| fits(&shown_lines, &printed_lines[at..]));
    let (shown_lines, printed_lines) = (shown_lines.join("\n"), printed_lines.join("\n"));
    assert!(
        begins,
        "{place}: printed\n{printed}\n-- compared as\n{printed_lines}\n-- but the guide shows\n\
         {shown_lines}"
    );
}

fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => true,
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed.first() == Some(line) && fits(rest, &printed[1..]),
    }
}

/// The lines that are compared, without what was measured.
fn lines(text: &str) -> Vec<String> {
    let (mut in_table, mut in_list, mut in_advice) = (false, false, false);
    let mut lines = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        in_advice = in_advice && line.starts_with("  ");
        match words.first() {
            // The verdict and its advice depend on the machine; so do the slowest items.
            _ if in_advice || line.starts_with("slowest ") => continue,
            Some(&"You") if words.get(1) == Some(&"waited") => {
                in_advice = true;
                lines.push("You waited".to_owned());
                continue;
            }
            Some(&"stage") => in_table = true,
            Some(&"items/s") => in_list = true,
            None => (in_table, in_list) = (false, false),
            // Of a row about a setting all columns are measured, and so is which one is the best.
            Some(&first) if in_list || first == "recommended:" => {
                lines.push(first.to_owned());
                continue;
            }
            _ => {}
        }
        let line = if in_table { line.split("  (").next().unwrap_or(line) } else { line };
        lines.push(masked(line, in_table));
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// One line, its words apart by one space, with `#` for each measured figure and its unit.
fn masked(line: &str, in_table: bool) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let bare = word.trim_matches(|c| "()[],;:x+-±".contains(c));
        let unit = words.get(at).map(|unit| unit.trim_matches(|c| ",;:.)]".contains(c)));
        let is_measured = unit.is_some_and(|unit| UNITS.contains(&unit));
        let has_unit = bare.trim_end_matches(|c: char| !c.is_ascii_digit()) != bare
            && UNITS.iter().any(|unit| bare.strip_suffix(unit).is_some_and(is_figure))
            || bare.strip_suffix("/s").is_some_and(is_figure);
        if is_figure(bare) && is_measured {
            at += 1;
            out.push("#".to_owned());
        } else if has_unit || (in_table && (is_figure(bare) || *word == "–")) {
            out.push("#".to_owned());
        } else if is_run(bare) {
            out.push("RUN".to_owned());
        } else {
            out.push((*word).to_owned());
        }
    }
    out.join(" ")
}

fn is_figure(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// The name of a run that was kept, such as `2026-12-02T231158-first`.
fn is_run(word: &str) -> bool {
    word.len() > 11 && word.as_bytes()[10] == b'T' && word[..10].split('-').all(is_figure)
}

#[test]
fn what_was_measured_is_not_compared_and_all_else_is() {
    let shown =
        "a  done in 498 ms   64 items, 797 MB\n\nstage  p50\nfetch  21 ms  (9 % on a core)\n";
    let same = "a  done in 1.2 s   64 items, 1.1 GB\n\nstage    p50\nfetch  1.30 s\n";
    assert_shows("here", shown, same);
    assert_shows("here", "a  done in 1 ms   64 items, 1 B\n...\nfetch  1 s", same);
    let is_told =
        |other: &str| std::panic::catch_unwind(|| assert_shows("here", shown, other)).is_err();
    assert!(is_told(&same.replace("64 items", "63 items")));
    assert!(is_told(&same.replace("fetch", "decode")));
    assert!(is_told(&same.replace("done", "failed")));
}
