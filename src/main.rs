//! The `forebay` command.

use std::process::ExitCode;

use forebay::definition::Catalog;

fn main() -> ExitCode {
    forebay::cli::main(Catalog::builtin())
}
