//! What is wrong with a definition: where, what was found, and what to write instead.

use std::fmt;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use super::tree::Place;
use crate::nearest::nearest;

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Places in the text and what is to be said of them; the first is the main one.
    pub(crate) labels: Vec<(Place, String)>,
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn new(
        code: &'static str,
        message: impl Into<String>,
        place: &Place,
        label: impl Into<String>,
    ) -> Self {
        let labels = vec![(place.clone(), label.into())];
        Problem { code, message: message.into(), labels, help: None }
    }

    pub(crate) fn and(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.labels.push((place.clone(), label.into()));
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// ``did you mean `x`?``, or what there is.
pub(crate) fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(name, &known) {
        Some(other) => format!("did you mean `{other}`?"),
        None => {
            let all: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("there are {}", all.join(", "))
        }
    }
}

/// Everything that is wrong with one file.
#[derive(Clone)]
pub struct Problems {
    file: String,
    text: Arc<str>,
    list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(file: &str, text: &Arc<str>, mut list: Vec<Problem>) -> Self {
        // In the order of the file, however they were found.
        list.sort_by_key(|problem| problem.labels.first().map_or(0, |(place, _)| place.start));
        Problems { file: file.to_owned(), text: Arc::clone(text), list }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Their codes, in the order of the file; `forebay explain CODE` says more about each.
    pub fn codes(&self) -> impl Iterator<Item = &'static str> {
        self.list.iter().map(|problem| problem.code)
    }

    /// What each says, with its help.
    pub(crate) fn messages(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|problem| match &problem.help {
            Some(help) => format!("{} ({help})", problem.message),
            None => problem.message.clone(),
        })
    }

    /// As people read them, with the lines of the file, in `width` columns.
    pub fn render(&self, color: bool, width: usize) -> String {
        let theme = match color {
            true => GraphicalTheme::unicode(),
            false => GraphicalTheme::unicode_nocolor(),
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false);
        let mut out = String::new();
        for problem in &self.list {
            let shown = Shown {
                problem,
                source: NamedSource::new(&self.file, self.text.to_string()),
                len: self.text.len(),
            };
            if handler.render_report(&mut out, &shown).is_err() {
                out.push_str(&problem.message);
            }
            out.push('\n');
        }
        out
    }

    /// As programs read them.
    pub fn to_json(&self) -> serde_json::Value {
        let one = |problem: &Problem| {
            let start = problem.labels.first().map_or(0, |(place, _)| place.start);
            let (line, column) = self.position(start);
            serde_json::json!({
                "code": problem.code,
                "message": problem.message,
                "file": self.file,
                "line": line,
                "column": column,
                "help": problem.help,
            })
        };
        self.list.iter().map(one).collect()
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        (line, column)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false, 100))
    }
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Problems {}

/// A problem as the renderer takes it.
struct Shown<'a> {
    problem: &'a Problem,
    source: NamedSource<String>,
    len: usize,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.problem.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.problem.labels.is_empty()).then_some(&self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = |(place, text): &(Place, String)| {
            let start = place.start.min(self.len);
            let len = place.end.clamp(start, self.len) - start;
            LabeledSpan::new(Some(text.clone()).filter(|text| !text.is_empty()), start, len)
        };
        Some(Box::new(self.problem.labels.iter().map(label)))
    }
}
