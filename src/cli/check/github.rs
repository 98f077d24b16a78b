//! Problems as commands that GitHub's actions show beside the lines of a change.

use crate::definition::Problems;

/// One line for each problem.
pub(super) fn commands(problems: &Problems) -> String {
    let command = |told: crate::definition::Told<'_>| {
        let level = if told.is_warning { "warning" } else { "error" };
        let mut place = format!("file={}", property(problems.file()));
        if let Some(region) = told.region() {
            let ((line, column), (end_line, end_column)) = region;
            place += &format!(",line={line},col={column},endLine={end_line}");
            // They take columns only within one line.
            if line == end_line {
                place += &format!(",endColumn={end_column}");
            }
        }
        let help = told.help.map(|help| format!("\nhelp: {help}")).unwrap_or_default();
        let text = message(&format!("{}{help}", told.message));
        format!("::{level} {place},title={}::{text}\n", property(told.code))
    };
    problems.told().map(command).collect()
}

fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}
