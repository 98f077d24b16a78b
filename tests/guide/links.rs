//! Links between pages, and to their headings.

use std::path::Path;

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new("docs/src").join(page)).expect("a page")
}

/// Where the links of a page lead, outside its blocks.
pub(super) fn of(page: &str) -> Vec<String> {
    let text = read(page);
    let prose: String = text.split("```").step_by(2).collect();
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(link, _)| link.to_owned()).collect()
}

/// The names that links know the headings of a page by.
fn headings(page: &str) -> Vec<String> {
    let text = read(page);
    let prose: String = text.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

pub(super) fn resolve(page: &str) {
    for link in of(page).iter().filter(|link| !link.starts_with("https://")) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let file = if file.is_empty() { page } else { file };
        assert!(Path::new("docs/src").join(file).is_file(), "{page}: `{link}` leads nowhere");
        let found = heading.is_empty() || headings(file).iter().any(|known| known == heading);
        assert!(found, "{page}: `{link}` has no such heading");
    }
}
