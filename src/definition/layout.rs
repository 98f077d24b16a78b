//! The layout of a definition: indentation, spaces, quotes and line breaks. What it says never changes,
//! nor its comments.

use std::path::Path;
use std::sync::Arc;

use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions};

use super::problem::{Problem, Problems};
use super::{text, tree};

/// Longer lines of brackets are broken.
const WIDTH: usize = 100;

/// A layout that is laid out again may change once more; after so many times it is given up.
const TIMES: usize = 4;

/// What the file holds, and the same as it should be laid out.
///
/// # Errors
/// The file can't be read, it is not YAML, or it can't be laid out.
pub(crate) fn laid_out(file: &Path) -> Result<(String, String), Problems> {
    let shown = file.display().to_string();
    let text = text::read(file)
        .map_err(|why| Problems::new(&shown, &Arc::from(""), vec![Problem::absent(file, why)]))?;
    match layout(&text) {
        Ok(laid_out) => Ok((text, laid_out)),
        Err(problem) => Err(Problems::new(&shown, &Arc::from(text), vec![*problem])),
    }
}

fn layout(text: &str) -> Result<String, Box<Problem>> {
    let said = tree::parse(text)?;
    let layout = LayoutOptions { print_width: WIDTH, ..LayoutOptions::default() };
    let language = LanguageOptions { trailing_comma: false, ..LanguageOptions::default() };
    let options = FormatOptions { layout, language };
    let refused = |why: &str| {
        let whole = 0..text.lines().next().map_or(0, str::len);
        let message = format!("the file can't be laid out: {why}");
        let help = "it is left as it is; `forebay check` says whether it is right";
        Box::new(Problem::new("forebay::yaml", message, &whole, "").help(help))
    };
    let mut before = text.to_owned();
    for _ in 0..TIMES {
        let after = pretty_yaml::format_text(&before, &options)
            .map_err(|error| refused(&error.to_string().replace('\n', " ")))?;
        // Whatever the library makes of it: what it says is compared, not trusted.
        if tree::parse(&after).ok().as_ref() != Some(&said) {
            return Err(refused("it would say something else"));
        }
        if after == before {
            return Ok(after);
        }
        before = after;
    }
    Err(refused("its layout never settles"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn layout_is_settled_and_comments_are_kept() {
        let text = "# first\n\nversion:   1   # one\nstages:\n- a.b: {x: 1,y: [1,2]}   # two\n\n\n\n  \
                    # three\n-   batch:   4\n    \n# four\n    workers: 'auto'\n";
        let expected = "# first\n\nversion: 1 # one\nstages:\n  - a.b: { x: 1, y: [1, 2] } # two\n\n  # \
                        three\n  - batch: 4\n\n    # four\n    workers: \"auto\"\n";
        let got = layout(text).expect("YAML");
        assert_eq!(got, expected);
        assert_eq!(layout(&got).expect("YAML"), got);
    }

    #[test]
    fn what_is_no_yaml_is_refused() {
        for text in ["a: [1", "a: 1\na: 2\n", &"[".repeat(50_000), "a: 'x"] {
            assert!(layout(text).is_err(), "{text:.20}");
        }
    }

    /// A scalar as people write it, with what is easily mistaken.
    fn scalar() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,6}",
            "[0-9]{1,4}",
            "[0-9]{1,2}(s|MiB|%)",
            Just("'it''s # no comment'".to_owned()),
            Just("\"say \\\"no\\\": # x\"".to_owned()),
            Just("$(name)".to_owned()),
            Just("[1, 'two',   three ]".to_owned()),
            Just("{a: 1,   b: [x,y]}".to_owned()),
            Just("s3://bucket/a#b".to_owned()),
            Just("''".to_owned()),
            Just("-1..2".to_owned()),
        ]
    }

    /// A stage with comments and blank lines where people put them.
    fn stage() -> impl Strategy<Value = (String, usize)> {
        let gap = prop_oneof![Just(""), Just("\n"), Just("\n\n\n")];
        let keys = prop::collection::vec((scalar(), any::<bool>(), any::<bool>(), gap), 0..4);
        (keys, any::<bool>(), 1..4_usize).prop_map(|(keys, is_behind, spaces)| {
            let mut comments = 0;
            let mut text = String::from("  - zarr.fetch:");
            if is_behind {
                text += "   # behind";
                comments += 1;
            }
            text.push('\n');
            for (n, (value, above, behind, gap)) in keys.into_iter().enumerate() {
                if above {
                    text += &format!("{gap}    #above {n}\n");
                    comments += 1;
                }
                text += &format!("    key{n}:{}{value}", " ".repeat(spaces));
                if behind {
                    text += &format!("{}# behind {n}", " ".repeat(spaces));
                    comments += 1;
                }
                text.push('\n');
            }
            (text, comments)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn nothing_that_is_said_changes(stages in prop::collection::vec(stage(), 1..4)) {
            let comments: usize = stages.iter().map(|(_, comments)| comments).sum();
            let text: String = stages.into_iter().map(|(text, _)| text).collect();
            let text = format!("version: 1\nstages:\n{text}");
            let got = layout(&text).map_err(|problem| TestCaseError::fail(format!("{problem:?}\n{text}")))?;
            prop_assert_eq!(tree::parse(&got).ok(), tree::parse(&text).ok());
            prop_assert_eq!(layout(&got).ok(), Some(got.clone()));
            let kept = got.matches("# behind").count() + got.matches("#above").count();
            prop_assert_eq!(kept, comments, "{}", got);
        }
    }
}
