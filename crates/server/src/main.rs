//! The `throng` program: command line, configuration and assembly of a node.
//!
//! It contains no domain logic: it reads its input, assembles the crates and translates errors into one sentence.
//! Wrong usage exits with 2, every other failure with 1.

mod account_providers;
mod account_transfer;
mod accounts;
mod admin;
mod api_process;
mod assemble;
mod check;
mod cli;
mod cluster_metrics;
mod command_hint;
mod commands;
mod compliance;
mod config;
mod config_warnings;
mod disk;
mod drain;
mod draining;
mod files;
mod foreign_table;
mod logs;
mod metrics;
mod output;
mod overview_history;
mod passwords;
mod proc_self;
mod prompt;
mod pubsub_bulk;
mod reload;
mod runtime;
mod serve;
mod service_listeners;
mod service_manager;
mod status;
mod store_metrics;
mod tokens;
mod top;
mod units;
mod web;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = <cli::Cli as clap::Parser>::parse();
    let result = match cli.command {
        cli::CliCommand::Serve { config } => serve::serve(config.as_deref()),
        cli::CliCommand::Check { config, compliance } => check::command(config.as_deref(), compliance),
        cli::CliCommand::Reload { config } => reload::command(config.as_deref()),
        cli::CliCommand::Top { config, once } => top::command(config.as_deref(), once),
        cli::CliCommand::Account { command } => accounts::command(command),
        cli::CliCommand::PubSub { command } => pubsub_bulk::command(command),
        cli::CliCommand::Token { command } => tokens::command(command),
        cli::CliCommand::Drain(args) => drain::command(args),
        cli::CliCommand::AdHoc(line) => commands::command(line),
        cli::CliCommand::Import(args) => account_transfer::import(args),
        cli::CliCommand::Export(args) => account_transfer::export(args),
        cli::CliCommand::Backup(args) => account_transfer::backup(args),
        cli::CliCommand::Load(load) => return loadgen::cli::command(*load),
        cli::CliCommand::Status { config, json } => status::command(config.as_deref(), json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format!("throng: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
