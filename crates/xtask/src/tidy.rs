//! `cargo xtask tidy`: checks the floors of the crates, the size of files and the words that must not be used. Not written yet.

use std::process::ExitCode;

/// The flags of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Refuses with exit code 2.
pub(crate) fn run(_args: &Args) -> ExitCode {
    #[allow(clippy::print_stderr, reason = "a program's refusal")]
    {
        eprintln!("xtask tidy is not written yet.");
    }
    ExitCode::from(2)
}
