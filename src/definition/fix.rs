//! What a program can do about a problem: changes of a definition's text that keep all else of it.

use super::tree::Place;

/// A change of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Writes `text` for the first `find` at a place.
    Replace { place: Place, find: String, text: String },
    /// Writes list items before the one whose first key is at a place.
    Insert { before: Place, items: Vec<String> },
}

impl Fix {
    /// Which bytes become what; none if the text is not as it must be.
    pub(crate) fn edit(&self, text: &str) -> Option<(Place, String)> {
        match self {
            Fix::Replace { place, find, text: with } => {
                let at = place.start + text.get(place.clone())?.find(find.as_str())?;
                Some((at..at + find.len(), with.clone()))
            }
            Fix::Insert { before, items } => {
                let line = text.get(..before.start)?.rfind('\n').map_or(0, |end| end + 1);
                let margin = text[line..before.start].strip_suffix("- ")?;
                if !margin.chars().all(|c| c == ' ') {
                    return None;
                }
                let lines = items.iter().map(|item| format!("{margin}- {item}\n"));
                Some((line..line, lines.collect()))
            }
        }
    }
}

/// The text with all `fixes` that can be made, and how many these are.
pub(super) fn apply<'a>(text: &str, fixes: impl Iterator<Item = &'a Fix>) -> (String, usize) {
    let mut edits: Vec<_> = fixes.filter_map(|fix| fix.edit(text)).collect();
    edits.sort_by_key(|(place, _)| (place.start, place.end));
    // Two that change the same bytes: the second comes with the next check.
    edits.dedup_by(|next, first| next.0.start < first.0.end || next.0 == first.0);
    let mut out = text.to_owned();
    for (place, with) in edits.iter().rev() {
        out.replace_range(place.clone(), with);
    }
    (out, edits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_change_what_they_name_and_nothing_else() {
        let text = "stages:\n  - bacth: $(n) # four\n  - zarr.decode:\n";
        let replace = |place, find: &str, text: &str| {
            let (find, text) = (find.to_owned(), text.to_owned());
            Fix::Replace { place, find, text }
        };
        let fixes = [
            replace(12..17, "bacth", "batch"),
            replace(12..17, "bacth", "latch"),
            replace(19..23, "n", "size"),
            Fix::Insert { before: 35..46, items: vec!["zarr.fetch:".to_owned()] },
        ];
        let (fixed, n) = apply(text, fixes.iter());
        let want = "stages:\n  - batch: $(size) # four\n  - zarr.fetch:\n  - zarr.decode:\n";
        assert_eq!((fixed.as_str(), n), (want, 3));
        // A list in one line is left alone.
        let fix = Fix::Insert { before: 11..14, items: vec!["b:".to_owned()] };
        assert_eq!(fix.edit("stages: [{ a: 1 }]"), None);
    }
}
