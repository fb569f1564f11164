//! The `throng` program: the commands, the configuration and the wiring of a node.
//!
//! It has no logic of its own worth a unit test: it reads what was asked for, puts the crates together and
//! translates errors into one sentence. Wrong usage exits with 2, everything else that fails with 1.

mod accounts;
mod admin;
mod check;
mod cli;
mod commands;
mod compliance;
mod config;
mod disk;
mod hint;
mod history;
mod logs;
mod machine;
mod metrics;
mod out;
mod passwords;
mod process;
mod prompt;
mod reload;
mod run;
mod runtime;
mod status;
mod tokens;
mod top;
mod units;
mod web;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = <cli::Cli as clap::Parser>::parse();
    let result = match cli.command {
        cli::Command::Serve { config } => run::serve(config.as_deref()),
        cli::Command::Check { config, compliance } => check::command(config.as_deref(), compliance),
        cli::Command::Reload { config } => reload::command(config.as_deref()),
        cli::Command::Top { config, once } => top::command(config.as_deref(), once),
        cli::Command::Account { command } => accounts::command(command),
        cli::Command::Token { command } => tokens::command(command),
        cli::Command::Order(line) => commands::command(line),
        cli::Command::Load(load) => return loadgen::cli::command(*load),
        cli::Command::Status { config, json } => status::command(config.as_deref(), json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::error(&format!("throng: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
