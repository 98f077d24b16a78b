//! `completions`: a script for a shell, which knows the commands, the operators and the codes.

use clap::CommandFactory as _;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::terminal::out;
use super::{Cli, Exit};
use crate::definition::{Catalog, Operator, explanations};

/// Prints a completion script for a shell
///
/// It completes commands and options, and the operators of this binary.
///
/// Example: forebay completions bash > ~/.local/share/bash-completion/completions/forebay
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &Args, catalog: &Catalog) -> Exit {
    // Completion wants names that live as long as the process, which ends right behind.
    let names: Vec<&'static str> =
        catalog.operators().map(Operator::name).map(|name| &*name.to_owned().leak()).collect();
    let codes: Vec<_> = explanations().map(|known| known.code).collect();
    let with = |arg: clap::Arg, values: &[&'static str]| {
        arg.value_parser(PossibleValuesParser::new(values))
    };
    // Only here: a name that is wrong has a message that says more than a list.
    let mut command = Cli::command()
        .mut_subcommand("ops", |ops| {
            let ops = ops.mut_arg("name", |arg| with(arg, &names));
            ops.mut_subcommand("show", |show| show.mut_arg("name", |arg| with(arg, &names)))
        })
        .mut_subcommand("explain", |explain| explain.mut_arg("code", |arg| with(arg, &codes)));
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    out(&String::from_utf8_lossy(&script));
    Exit::Done
}
