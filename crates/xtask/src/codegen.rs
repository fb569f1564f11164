//! `cargo xtask codegen`: writes the generated files, or compares them with `--check`. Not written yet.

use std::process::ExitCode;

/// The flags of `cargo xtask codegen`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare instead of writing; exit 1 when a file is stale.
    #[arg(long)]
    check: bool,
}

/// Refuses with exit code 2.
pub(crate) fn run(_args: &Args) -> ExitCode {
    #[allow(clippy::print_stderr, reason = "a program's refusal")]
    {
        eprintln!("xtask codegen is not written yet.");
    }
    ExitCode::from(2)
}
