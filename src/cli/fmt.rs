//! `fmt`: the layout of definitions.

use std::path::PathBuf;

use super::terminal::{note, out, say, say_problems};
use super::{Exit, files, outputs};
use crate::definition::laid_out;

/// Lays definitions out: indentation, spaces, quotes and line breaks
///
/// Comments are kept, and what a file says never changes. A file that is not YAML is left as it is.
///
/// Example: forebay fmt pipelines/*.yaml
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The definitions: files, or names in pipelines/; all of pipelines/ if none is named
    files: Vec<PathBuf>,
    /// Changes nothing: lists the files that would change, and ends with 1 if there are any
    #[arg(long)]
    check: bool,
}

pub(super) fn fmt(args: &Args) -> Exit {
    let files: Vec<_> = match args.files.is_empty() {
        true => files::all_yaml(),
        false => args.files.iter().map(|file| files::find(file)).collect(),
    };
    if files.is_empty() {
        say("error: there is nothing to lay out: name a file, or put one into pipelines/\n");
        return Exit::Wrong;
    }
    let mut exit = Exit::Done;
    for file in files {
        match laid_out(&file) {
            Ok((before, after)) if before == after => {}
            Ok(_) if args.check => {
                out(&format!("{}\n", file.display()));
                exit = if exit == Exit::Wrong { exit } else { Exit::Failed };
            }
            Ok((_, after)) => match outputs::write(&file, after.as_bytes()) {
                Ok(()) => out(&format!("{}\n", file.display())),
                Err(error) => {
                    say(&format!("error: {} can't be written: {error}\n", file.display()));
                    exit = Exit::Wrong;
                }
            },
            Err(problems) => {
                say_problems(&problems);
                exit = Exit::Wrong;
            }
        }
    }
    if args.check && exit == Exit::Failed {
        note("these files would change: forebay fmt\n");
    }
    exit
}
