//! `check`: everything that is wrong with definitions, what flows in them and how much memory they
//! can take, without reading any data.

mod github;
mod sarif;
mod shown;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;

use super::terminal::{has_color, note, out, out_json, say};
use super::{Exit, assignment, assignments, files, outputs, progress};
use crate::definition::{Catalog, Definition, Problems, Set, Survey, cases};

/// Fixes that bring up new problems are followed so many times.
const FIXES: usize = 8;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The definitions: files, or names in pipelines/; all of pipelines/ if none is named
    files: Vec<PathBuf>,
    /// Gives a variable, or the runtime key of a stage (decode.workers=8), a value
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Opens stores that are not on this machine, too, and makes the sample if it is not there
    #[arg(long)]
    online: bool,
    /// Writes what a program can do about the problems into the files
    #[arg(long)]
    fix: bool,
    /// Checks again whenever a file changes, until it is interrupted
    #[arg(long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON object
    Json,
    /// For code scanning: SARIF 2.1.0
    Sarif,
    /// For GitHub's actions: one command for each problem
    Github,
}

/// What was found in one file.
struct Found {
    file: String,
    result: Result<Looked, Problems>,
}

/// What a file is that nothing is wrong with.
enum Looked {
    Definition(Box<(Definition, Survey)>),
    /// So many cases for `forebay test`, such as `pipelines/*.yaml` also finds.
    Cases(usize, Problems),
}

impl Found {
    /// What is wrong, and what was hardly meant.
    fn problems(&self) -> &Problems {
        match &self.result {
            Ok(Looked::Definition(of)) => &of.1.warnings,
            Ok(Looked::Cases(_, none)) => none,
            Err(problems) => problems,
        }
    }
}

pub(super) fn check(args: &Args, catalog: &Catalog) -> Exit {
    if args.watch {
        return watch::watch(|| listed(args), || once(args, catalog));
    }
    once(args, catalog)
}

fn listed(args: &Args) -> Vec<PathBuf> {
    match args.files.is_empty() {
        true => files::all(),
        false => args.files.iter().map(|file| files::find(file)).collect(),
    }
}

fn once(args: &Args, catalog: &Catalog) -> Exit {
    let files = listed(args);
    if files.is_empty() {
        say("error: there is nothing to check: name a file, or put one into pipelines/\n");
        return Exit::Wrong;
    }
    let set = assignments(&args.set);
    let mut all = Vec::new();
    for file in &files {
        if args.fix
            && let Err(error) = fix(file, args, catalog, &set)
        {
            say(&format!("error: {} can't be written: {error}\n", file.display()));
            return Exit::Wrong;
        }
        all.push(look(file, args, catalog, &set));
    }
    tell(args, &all);
    match all.iter().all(|found| found.result.is_ok()) {
        true => Exit::Done,
        false => Exit::Wrong,
    }
}

fn look(file: &Path, args: &Args, catalog: &Catalog, set: &Set) -> Found {
    let shown = file.display().to_string();
    if files::is_cases(file) {
        let none = Problems::new(&shown, &Arc::from(""), Vec::new());
        let result = cases(file).map(|cases| Looked::Cases(cases.len(), none));
        return Found { file: shown, result };
    }
    let result = Definition::load(file, catalog, set).and_then(|definition| {
        if args.online {
            progress::make_sample_for(&definition, args.format != Format::Text);
        }
        let survey = definition.survey(catalog, args.online)?;
        Ok(Looked::Definition(Box::new((definition, survey))))
    });
    Found { file: shown, result }
}

/// Writes what can be done about the problems of a file into it.
fn fix(file: &Path, args: &Args, catalog: &Catalog, set: &Set) -> std::io::Result<()> {
    let mut all = 0;
    for _ in 0..FIXES {
        let found = look(file, args, catalog, set);
        let (text, fixes) = found.problems().fixed();
        if fixes == 0 {
            break;
        }
        outputs::write(file, text.as_bytes())?;
        all += fixes;
    }
    if all > 0 {
        say(&format!("fixed {} in {}\n", shown::problems(all), file.display()));
    }
    Ok(())
}

fn tell(args: &Args, all: &[Found]) {
    match args.format {
        Format::Json => {
            let files: Vec<_> = all.iter().map(shown::json).collect();
            out_json(&serde_json::json!({ "schema": 1, "files": files }));
        }
        Format::Sarif => out_json(&sarif::sarif(all.iter().map(Found::problems))),
        Format::Github => all.iter().for_each(|found| out(&github::commands(found.problems()))),
        Format::Text => {
            let mut fixable = 0;
            for found in all {
                match &found.result {
                    Ok(Looked::Definition(of)) => out(&shown::text(&found.file, &of.0, &of.1)),
                    Ok(Looked::Cases(n, _)) => out(&shown::cases(&found.file, *n)),
                    Err(_) => {}
                }
                let problems = found.problems();
                say(&problems.render(has_color(), 100));
                fixable += problems.fixed().1;
            }
            note(&shown::summary(all, fixable, args.online));
        }
    }
}
