//! What each code of a problem means, at length: the sections of `explanations.md`.

const ALL: &str = include_str!("explanations.md");

/// What a code means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explanation {
    /// The code: `forebay::type::mismatch`.
    pub(crate) code: &'static str,
    /// What it means, what is wrong and what is right, in Markdown.
    pub(crate) text: &'static str,
}

impl Explanation {
    /// Its first sentence.
    pub(crate) fn summary(&self) -> String {
        first_sentence(self.text)
    }
}

/// The first sentence of a text, in one line. Three dots end none.
pub(crate) fn first_sentence(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let mut ends = paragraph.match_indices(". ").filter(|(at, _)| !paragraph[..*at].ends_with('.'));
    ends.next().map_or(paragraph.as_str(), |(at, _)| &paragraph[..=at]).to_owned()
}

/// All codes, in the order of their names.
pub(crate) fn explanations() -> impl Iterator<Item = Explanation> {
    let sections = ALL.split("## ").skip(1);
    sections.filter_map(|section| {
        let (code, text) = section.split_once('\n')?;
        Some(Explanation { code: code.trim(), text: text.trim() })
    })
}

/// What `code` means; `forebay::` may be left out.
pub(crate) fn explain(code: &str) -> Option<Explanation> {
    let bare = |code: &str| code.strip_prefix("forebay::").unwrap_or(code).to_owned();
    explanations().find(|explanation| bare(explanation.code) == bare(code))
}
