//! `cargo xtask`: development tool of the project. This file dispatches; each subcommand has its own file.

mod attacks;
mod bench;
mod cluster;
mod codegen;
mod compliance;
mod new_feature;
mod scenarios;
mod simulate;
mod test_run;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "xtask",
    about = "Development tool of Throng: checks, generated files, benchmarks, scenarios"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the project's rules: layers, file sizes, words, names, licences, generated files.
    Tidy(tidy::TidyArgs),
    /// Run all tests, two test executables at a time.
    Test(test_run::TestRunArgs),
    /// Write the generated files, or compare them with `--check`.
    Codegen(codegen::CodegenArgs),
    /// Write what a feature needs: its file, registry line, module line, namespace and scenario.
    NewFeature(new_feature::NewFeatureArgs),
    /// Measure a server against its budgets.
    Bench(bench::BenchArgs),
    /// Run the scenarios against a server.
    Scenarios(scenarios::ScenariosArgs),
    /// Run seeds of the simulation of several nodes, and print those that violate an invariant.
    Simulate(simulate::SimulateArgs),
    /// Start ejabberd, Prosody or Throng with accounts and rosters, to measure by hand.
    Peers(bench::peers::command::PeersArgs),
    /// Run the published workloads against Throng, ejabberd and Prosody, and store the reports.
    Reports(bench::peers::reports::ReportsArgs),
    /// Start several nodes with NATS and PostgreSQL on this machine, and keep them until Ctrl-C.
    Cluster(cluster::ClusterArgs),
    /// Baseline of the benchmarks: a relay that parses nothing.
    #[command(hide = true)]
    Relay(bench::relay::RelayArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Tidy(args) => tidy::run(&args),
        Command::Test(args) => test_run::run(&args),
        Command::Codegen(args) => codegen::run(&args),
        Command::NewFeature(args) => new_feature::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Scenarios(args) => scenarios::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Peers(args) => bench::peers::command::run(&args),
        Command::Reports(args) => bench::peers::reports::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Relay(args) => bench::relay::run(&args),
    }
}
