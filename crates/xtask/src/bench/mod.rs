//! `cargo xtask bench`: a server against its budgets, beside a relay that parses nothing, in the same run.
//!
//! The server is a separate process; only its CPU and memory count. The clients are runs of `throng load`, each with a
//! plan of the bench. Each bench's file says what it measures and what it does not. `--target` and `--pid` point the
//! same benches at any XMPP server.
//!
//! # Pitfalls
//!
//! Relay and clients must be optimised, or the clients are the limit. Started unoptimised (as `cargo xtask` does), the
//! program starts itself again, built with the profile `dist`.

mod broadcast;
mod clients;
pub(crate) mod clock;
mod cluster;
mod cpu_timeline;
mod databases;
mod directory;
mod figures;
mod gathering_relay;
mod logins;
mod memory;
mod million_sessions;
mod nodes;
mod offline;
pub(crate) mod peers;
mod presence;
pub(crate) mod process;
pub(crate) mod relay;
mod relay_nodes;
mod relay_rooms;
pub(crate) mod report;
mod resume;
mod rooms;
mod route;
mod server_under_test;
mod subscriptions;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use report::{BenchReport, print_progress, print_result};

/// The flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    bench: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// CPU and latency of a routed message.
    Route(route::RouteBenchArgs),
    /// CPU of a login.
    Login(logins::LoginBenchArgs),
    /// CPU of a storm of resumed streams.
    Resume(resume::ResumeBenchArgs),
    /// Messages to offline users that are acknowledged in a second, and the time to an acknowledgement.
    Offline(offline::OfflineBenchArgs),
    /// Throng on SQLite, PostgreSQL and MariaDB, and beside ejabberd on PostgreSQL: logins and writes.
    Databases(databases::DatabaseBenchArgs),
    /// Memory of an idle session.
    Memory(memory::MemoryBenchArgs),
    /// CPU of a presence delivered.
    Presence(presence::PresenceBenchArgs),
    /// CPU of a delivered stanza and delivery times in clusters of 1, 2 and 5 nodes.
    Cluster(cluster::ClusterBenchArgs),
    /// Half a million connections in one cluster: delivery times, CPU and memory.
    HalfMillion(cluster::half_million::HalfMillionArgs),
    /// Deliveries to others while the clients of a node that died connect to them.
    Storm(cluster::storm::StormArgs),
    /// Memory, look-ups, snapshots and changes of the cluster's directory with ten million claims.
    Directory(directory::DirectoryBenchArgs),
    /// Plain subscriptions of PubSub nodes: octets on the disk, pages, changes a second.
    Subscriptions(subscriptions::SubscriptionBenchArgs),
    /// Memory of a million sessions in one process, and the cost of presence, messages and a broadcast.
    MillionSessions(million_sessions::MillionSessionsArgs),
    /// CPU of a broadcast to all sessions, and what it costs others.
    Broadcast(broadcast::BroadcastBenchArgs),
    /// Rooms: joins and copies of messages, beside a loop that writes the same bytes, ejabberd and Prosody.
    Muc(rooms::RoomBenchArgs),
    /// PubSub nodes: events, beside a loop that writes the same bytes, ejabberd and Prosody.
    #[command(name = "pubsub")]
    PubSub(nodes::NodeBenchArgs),
    /// Throng beside ejabberd and Prosody: memory, logins, messages, presence.
    Peers(peers::compare::ComparisonArgs),
    /// The load generator beside Tsung 1.7, with the same scenario against ejabberd.
    Load(peers::load::LoadBenchArgs),
    /// Throng beside ejabberd and Prosody over BOSH, in the published test of it.
    Bosh(peers::bosh::BoshBenchArgs),
    /// Memory and CPU of the load generator itself.
    Generator(peers::generator::GeneratorBenchArgs),
    /// Everything with shorter intervals; prints a Markdown table.
    All(server_under_test::BenchOptions),
}

/// Runs a bench. Exit code 1 when a budget is missed, 2 when the bench could not be run.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    // These bring no code of this program.
    let foreign = matches!(
        args.bench,
        BenchCommand::Load(_)
            | BenchCommand::Generator(_)
            | BenchCommand::Bosh(_)
            | BenchCommand::Databases(_)
            | BenchCommand::Cluster(_)
            | BenchCommand::HalfMillion(_)
            | BenchCommand::Storm(_)
            | BenchCommand::Directory(_)
            | BenchCommand::Subscriptions(_)
            | BenchCommand::MillionSessions(_)
    );
    let result = if is_dist() || foreign { run_bench(&args.bench) } else { rerun_optimised() };
    match result {
        Ok(code) => code,
        Err(error) => {
            print_progress(&format!("the bench failed: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Profile of the benches, and name of its folder.
const PROFILE: &str = "dist";

/// Whether this program was built with that profile: relay and server are compared, so both must have the same.
fn is_dist() -> bool {
    let own = std::env::current_exe().ok();
    own.is_some_and(|own| own.parent().is_some_and(|folder| folder.ends_with(PROFILE)))
}

/// Builds the server and returns its path: this program is in the same folder, or in one beside it.
fn build_server() -> Result<PathBuf> {
    print_progress("building the server (profile dist)");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--profile", PROFILE, "--quiet", "--package", "throng-server"];
    let status = Command::new(cargo).args(build).current_dir(crate::tidy::root()).status()?;
    ensure!(status.success(), "the server could not be built; --server PATH takes an existing one");
    let own = std::env::current_exe()?;
    let path = own.ancestors().nth(2).context("this program has no folder")?.join(PROFILE).join("throng");
    ensure!(path.exists(), "{} does not exist; --server PATH takes another", path.display());
    Ok(path)
}

/// Starts the same command again, optimised.
fn rerun_optimised() -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    print_progress(&format!(
        "this program is not in a folder named {PROFILE}, so cargo builds it with the profile {PROFILE} and runs that; a first \
         build takes minutes"
    ));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--profile", PROFILE, "--quiet", "--package", "throng-xtask", "--"]);
    command.args(std::env::args_os().skip(1));
    // Returns only when it cannot be started.
    Err(command.exec()).context("cargo cannot be started")
}

fn run_bench(bench: &BenchCommand) -> Result<ExitCode> {
    process::end_children_on_signals()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = load.split_whitespace().next().unwrap_or("?");
    print_progress(&format!(
        "{cores} cores, load {load} before the run; metrics of a busy machine are worth less"
    ));
    let mut report = BenchReport::new(matches!(bench, BenchCommand::All(_)));
    match bench {
        BenchCommand::Route(args) => route::run(args, &mut report)?,
        BenchCommand::Login(args) => logins::run(args, &mut report)?,
        BenchCommand::Resume(args) => resume::run(args, &mut report)?,
        BenchCommand::Offline(args) => offline::run(args, &mut report)?,
        BenchCommand::Databases(args) => databases::run(args, &mut report)?,
        BenchCommand::Memory(args) => memory::run(args, &mut report)?,
        BenchCommand::Presence(args) => presence::run(args, &mut report)?,
        BenchCommand::Broadcast(args) => broadcast::run(args, &mut report)?,
        BenchCommand::Cluster(args) => cluster::run(args, &mut report)?,
        BenchCommand::HalfMillion(args) => cluster::half_million::run(args, &mut report)?,
        BenchCommand::Storm(args) => cluster::storm::run(args, &mut report)?,
        BenchCommand::Directory(args) => directory::run(args, &mut report)?,
        BenchCommand::Subscriptions(args) => subscriptions::run(args, &mut report)?,
        BenchCommand::MillionSessions(args) => million_sessions::run(args, &mut report)?,
        BenchCommand::Muc(args) => rooms::run(args, &mut report)?,
        BenchCommand::PubSub(args) => nodes::run(args, &mut report)?,
        BenchCommand::Peers(args) => return peers::compare::run(args),
        BenchCommand::Bosh(args) => peers::bosh::run(args, &mut report)?,
        BenchCommand::Load(args) => peers::load::run(args, &mut report)?,
        BenchCommand::Generator(args) => peers::generator::run(args, &mut report)?,
        BenchCommand::All(options) => {
            let mut options = options.clone();
            options.rounds = Some(options.rounds(3));
            options.seconds = options.seconds.or((!options.quick).then_some(2));
            // A part that cannot be measured must not lose the results of the others.
            let parts = [
                ("route", route::run(&route::RouteBenchArgs::usual(&options), &mut report)),
                ("login", logins::run(&logins::LoginBenchArgs::usual(&options), &mut report)),
                ("presence", presence::run(&presence::PresenceBenchArgs::usual(&options), &mut report)),
                ("memory", memory::run(&memory::MemoryBenchArgs::usual(&options), &mut report)),
            ];
            print_result(report.markdown().trim_end());
            let failed = parts.into_iter().filter_map(|(part, result)| Some((part, result.err()?)));
            let failed: Vec<String> = failed.map(|(part, error)| format!("{part}: {error:#}")).collect();
            ensure!(failed.is_empty(), "{}", failed.join("; "));
        }
    }
    let misses = report.misses();
    if misses > 0 {
        print_progress(&format!("{misses} metrics miss their budget"));
    }
    Ok(if misses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
