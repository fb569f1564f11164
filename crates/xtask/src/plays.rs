//! `cargo xtask plays`: runs the plays of `e2e/plays` against a server. Not written yet.

use std::process::ExitCode;

/// The flags of `cargo xtask plays`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server to run against, HOST:PORT.
    #[arg(long)]
    against: Option<String>,
}

/// Refuses with exit code 2.
pub(crate) fn run(_args: &Args) -> ExitCode {
    #[allow(clippy::print_stderr, reason = "a program's refusal")]
    {
        eprintln!("xtask plays is not written yet.");
    }
    ExitCode::from(2)
}
