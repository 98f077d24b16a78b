//! `graph`: the stages with the types between them, in branches where several sources flow together;
//! with a run, coloured by where its time went.

mod ascii;
mod dot;
mod html;
mod mermaid;
mod state;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use self::state::{Ran, State};
use super::terminal::{out, out_has_color, say, say_problems};
use super::{Exit, assignment, assignments, files, runs};
use crate::definition::{Catalog, Definition, FlowType, StageOutline};
use crate::trace::{RunRecord, RunReport};

/// Prints the chain of a pipeline's stages, with the types between them and their runtime keys
///
/// With a run, each stage has the colour of what its workers did most of the time, and the one that
/// limits the run is marked.
///
/// Example: forebay graph quickstart --format html --with last > quickstart.html
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The definition: a file, or a name in pipelines/
    file: PathBuf,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// How it is drawn
    #[arg(long, value_enum, default_value_t)]
    format: Drawing,
    /// A run that went through it: what `run --format json` printed, or the name of a run that was
    /// kept, or `last`
    #[arg(long, value_name = "RUN")]
    with: Option<String>,
}

/// How a graph is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Drawing {
    /// For terminals
    #[default]
    Ascii,
    /// For Markdown that knows Mermaid
    Mermaid,
    /// For Graphviz
    Dot,
    /// One page that needs nothing else
    Html,
}

/// What is drawn.
struct Graph {
    name: String,
    stages: Vec<Stage>,
    /// The verdict on the run, as a sentence.
    verdict: Option<String>,
    /// The share of the time that the consumer waited.
    waited: Option<f64>,
}

/// A stage of it.
struct Stage {
    outline: StageOutline,
    ran: Option<Ran>,
}

impl Stage {
    /// `batch: 4`, or the operator alone.
    fn operation(&self) -> String {
        match &self.outline.argument {
            Some(argument) => format!("{}: {argument}", self.outline.operator),
            None => self.outline.operator.clone(),
        }
    }

    fn state(&self) -> Option<State> {
        self.ran.as_ref().map(Ran::state)
    }

    fn yields(&self) -> FlowType {
        self.outline.yields
    }

    /// What is said below its name, a line each.
    fn lines(&self) -> Vec<String> {
        let keys = (!self.outline.keys.is_empty()).then(|| self.outline.keys.clone());
        keys.into_iter().chain(self.ran.as_ref().map(Ran::shares)).collect()
    }
}

pub(super) fn graph(args: &Args, catalog: &Catalog) -> Exit {
    let definition = Definition::load(&files::find(&args.file), catalog, &assignments(&args.set));
    let definition = match definition {
        Ok(definition) => definition,
        Err(problems) => {
            say_problems(&problems);
            return Exit::Wrong;
        }
    };
    let report = match args.with.as_deref().map(read).transpose() {
        Ok(report) => report,
        Err(error) => {
            say(&format!("error: {error}\n"));
            return Exit::Wrong;
        }
    };
    if let Some(run) = report.as_ref().map(|report| &report.pipeline)
        && run != definition.name()
    {
        let name = definition.name();
        say(&format!("error: this is a run of `{run}`, not of `{name}`: give one with `--with`\n"));
        return Exit::Wrong;
    }
    let graph = Graph::new(&definition, catalog, report.as_ref());
    out(&match args.format {
        Drawing::Ascii => ascii::draw(&graph, out_has_color()),
        Drawing::Mermaid => mermaid::draw(&graph),
        Drawing::Dot => dot::draw(&graph),
        Drawing::Html => html::draw(&graph),
    });
    Exit::Done
}

/// The figures of the run that `given` means.
fn read(given: &str) -> Result<RunReport, String> {
    let file = Path::new(given);
    let Some(text) = file.is_file().then(|| std::fs::read(file).ok()).flatten() else {
        return runs::find(Some(given)).map(|record| record.report);
    };
    if let Ok(report) = serde_json::from_slice::<RunReport>(&text) {
        return Ok(report);
    }
    RunRecord::read(file).map(|record| record.report).map_err(|error| {
        format!("{given} is neither what `run --format json` prints nor a run: {error}")
    })
}

impl Graph {
    fn new(definition: &Definition, catalog: &Catalog, report: Option<&RunReport>) -> Self {
        let stage = |outline: StageOutline| {
            let ran = report.and_then(|report| Ran::of(&outline.id, report));
            Stage { outline, ran }
        };
        Graph {
            name: definition.name().to_owned(),
            stages: definition.outline(catalog).into_iter().map(stage).collect(),
            verdict: report.map(|report| report.verdict.sentence.clone()),
            waited: report.map(|report| report.waited_share),
        }
    }

    /// The stage that takes what stage `n` yields; of the last one that is the consumer.
    fn next(&self, n: usize) -> Option<usize> {
        self.stages.iter().position(|stage| stage.outline.after.contains(&n))
    }

    /// The box that stage `n` points to.
    fn target(&self, n: usize) -> String {
        self.next(n).map_or_else(|| "you".to_owned(), |next| format!("s{next}"))
    }

    /// What is said of the consumer.
    fn you(&self) -> String {
        match self.waited {
            Some(waited) => format!("you wait {}", crate::trace::percent(waited)),
            None => "you".to_owned(),
        }
    }
}
