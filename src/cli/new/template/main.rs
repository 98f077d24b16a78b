//! The `forebay` command with our operators in it.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay::cli::main(operators::catalog())
}
