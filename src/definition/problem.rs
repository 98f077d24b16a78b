//! What is wrong with a definition: where, what was found, and what to write instead.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use super::absent::instead;
use super::fix::{self, Fix};
use super::text::starred;
use super::tree::Place;
use crate::nearest::nearest;

/// So many problems of a file are told.
const SHOWN: usize = 200;

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Places in the text and what is to be said of them; the first is the main one.
    pub(crate) labels: Vec<(Place, String)>,
    pub(crate) help: Option<String>,
    /// What a program can do about it.
    pub(crate) fix: Option<Fix>,
    /// It runs all the same.
    pub(crate) is_warning: bool,
}

impl Problem {
    pub(crate) fn new(
        code: &'static str,
        message: impl Into<String>,
        place: &Place,
        label: impl Into<String>,
    ) -> Self {
        let labels = vec![(place.clone(), label.into())];
        Problem { code, message: message.into(), labels, help: None, fix: None, is_warning: false }
    }

    /// A file that can't be read.
    pub(crate) fn unreadable(file: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("can't read `{file}`: {why}");
        let mut problem = Problem::new("forebay::file", message, &(0..0), "");
        problem.labels.clear();
        problem
    }

    /// A definition that can't be read, and if it is not there, what is there instead.
    pub(crate) fn absent(file: &Path, why: impl std::fmt::Display) -> Self {
        let problem = Problem::unreadable(&file.display().to_string(), why);
        match instead(file) {
            Some(help) => problem.help(help),
            None => problem,
        }
    }

    /// The same as something that runs, but was hardly meant.
    pub(crate) fn warning(mut self) -> Self {
        self.is_warning = true;
        self
    }

    pub(crate) fn and(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.labels.push((place.clone(), label.into()));
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// `name`, which stands at its first place, was probably meant as one of `known`.
    pub(crate) fn meant<'a>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<_> = known.into_iter().collect();
        if let (Some(other), Some((place, _))) = (nearest(name, &known), self.labels.first()) {
            let (find, text) = (name.to_owned(), other.to_owned());
            self.fix = Some(Fix::Replace { place: place.clone(), find, text });
        }
        self.help(suggest(name, known))
    }

    pub(crate) fn fix(mut self, fix: Fix) -> Self {
        self.fix = Some(fix);
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
        if list.len() > SHOWN {
            let more = format!("there are {} more problems", list.len() - SHOWN);
            let mut more = Problem::new("forebay::more", more, &(0..0), "");
            more.labels.clear();
            list.truncate(SHOWN);
            list.push(more);
        }
        Problems { file: file.to_owned(), text: Arc::clone(text), list }
    }

    /// The same with those of `others`, which are of the same file.
    pub(crate) fn and(self, others: Problems) -> Self {
        let list = self.list.into_iter().chain(others.list).collect();
        Problems::new(&self.file, &self.text, list)
    }

    /// The file, as it is called in messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Each of them, for whoever shows them.
    pub(crate) fn told(&self) -> impl Iterator<Item = Told<'_>> {
        self.list.iter().map(|problem| Told {
            code: problem.code,
            message: &problem.message,
            help: problem.help.as_deref(),
            is_warning: problem.is_warning,
            problem,
            all: self,
        })
    }

    /// The text without what a program can do something about.
    pub(crate) fn fixed(&self) -> (String, usize) {
        fix::apply(&self.text, self.list.iter().filter_map(|problem| problem.fix.as_ref()))
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
        let (mut out, text) = (String::new(), starred(&self.text));
        for problem in &self.list {
            let shown = Shown {
                problem,
                source: NamedSource::new(&self.file, text.clone()),
                len: text.len(),
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
                "severity": if problem.is_warning { "warning" } else { "error" },
                "message": problem.message,
                "file": self.file,
                "line": line,
                "column": column,
                "help": problem.help,
            })
        };
        self.list.iter().map(one).collect()
    }

    /// The line and the column of a byte of the text, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        (line, column)
    }
}

/// Where something begins and ends: lines and columns from 1, the end behind the last character.
pub(crate) type Region = ((usize, usize), (usize, usize));

/// One problem of a file.
pub(crate) struct Told<'a> {
    pub(crate) code: &'static str,
    pub(crate) message: &'a str,
    pub(crate) help: Option<&'a str>,
    pub(crate) is_warning: bool,
    problem: &'a Problem,
    all: &'a Problems,
}

impl Told<'_> {
    /// Where it is.
    pub(crate) fn region(&self) -> Option<Region> {
        self.labels().next().map(|(region, _)| region)
    }

    /// The places that it names, and what is to be said of them.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (Region, &str)> {
        self.problem.labels.iter().map(|(place, text)| (self.at(place), text.as_str()))
    }

    /// What a program can write where.
    pub(crate) fn edit(&self) -> Option<(Region, String)> {
        let (place, text) = self.problem.fix.as_ref()?.edit(&self.all.text)?;
        Some((self.at(&place), text))
    }

    fn at(&self, place: &Place) -> Region {
        (self.all.position(place.start), self.all.position(place.end.max(place.start)))
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

    fn severity(&self) -> Option<miette::Severity> {
        self.problem.is_warning.then_some(miette::Severity::Warning)
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
