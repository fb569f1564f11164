//! `bench half-million`: as many connections as this machine holds, in one cluster.
//!
//! A NATS server, a PostgreSQL server, and nodes of at most [`CONNECTIONS_PER_NODE`] connections, because a process may open
//! 20 000 files where this was written; as many processes of the generator. The load is `tigase-500k`: arrivals at a
//! constant rate, empty rosters or `--contacts`, then a message of each user to a user that is online each 100 s, on any node, and
//! a change of presence each 600 s. Reported are the connections, the time of all arrivals, delivery times once they are over, CPU
//! and memory of nodes, generator, NATS and database, and what the machine has left.
//!
//! Runs in a network namespace of its own if it is root.
//!
//! Not measured: TLS, nodes on several machines, connections whose path has a delay.
//!
//! # Pitfalls
//!
//! Sockets of the kernel need more memory than the sessions: the memory that the machine has less of than at the start is the sum of all.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::cpu_timeline::CpuTimeline;
use super::super::peers::process_tree::pids;
use super::super::process::{ChildGuard, log_tail};
use super::super::report::{BenchReport, print_progress, print_result};
use super::nodes::{BenchAccounts, BenchCluster, BenchServers, DOMAIN, PASSWORD};

/// Connections of a node, and of a process of the generator: its other files fit beside them.
pub(super) const CONNECTIONS_PER_NODE: u32 = 19_500;

/// Storage of a node: many nodes share the database and its machine.
pub(super) const STORAGE: &str = "pool_size = 4\nmin_connections = 0\nwriters = 2\n";

/// 99th percentile of the delivery of a message once arrivals are over.
const DELIVERY_BUDGET_MS: f64 = 100.0;

/// Interval between CPU samples: dozens of database processes would otherwise be read ten times a second.
const CPU_SAMPLES: Duration = Duration::from_secs(10);

/// Distance of the looks at the memory of the machine.
const LOOK: Duration = Duration::from_secs(1);

/// The flags of `bench half-million`.
#[derive(clap::Args, Clone)]
pub(crate) struct HalfMillionArgs {
    /// The program of the nodes; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The program whose `throng load` makes the load. Default: that of the nodes.
    #[arg(long, value_name = "PATH")]
    generator: Option<PathBuf>,
    /// Connections.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(100..=2_000_000))]
    connections: u32,
    /// Contacts of each account.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=150))]
    contacts: u32,
    /// Arrivals per second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Seconds of traffic after the last arrival.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(10..))]
    hold: u32,
    /// Keep the folder with configurations, logs and reports.
    #[arg(long)]
    keep: bool,
}

/// Every port above the privileged ones: the kernel first tries those of one parity one by one, and with 28 232 ports by default half of
/// them are taken at 14 000 connections to a node.
const WIDE_PORT_RANGE: &str = "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range";

/// Set for the command that runs in a network namespace of its own.
const IN_OWN_NETWORK: &str = "THRONG_BENCH_IN_OWN_NETWORK";

/// Starts the same command again in a network namespace of its own, unless it is in one.
///
/// In the initial namespace the kernel may track connections (`nf_conntrack`), and its table has room for 262 144.
pub(super) fn enter_own_network() -> Result<()> {
    if std::env::var_os(IN_OWN_NETWORK).is_some() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut again = Command::new("unshare");
    again.env(IN_OWN_NETWORK, "1").args([
        "--net",
        "--",
        "sh",
        "-c",
        &format!("ip link set lo up && {WIDE_PORT_RANGE} && exec \"$@\""),
        "sh",
    ]);
    again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    // Returns only when it cannot be started.
    Err(again.exec()).context("cannot start unshare; to run without a network namespace, do not run as root")
}

/// Measures and reports.
pub(crate) fn run(args: &HalfMillionArgs, report: &mut BenchReport) -> Result<()> {
    let (program, generator) = super::programs(args.server.as_ref(), args.generator.as_ref())?;
    // After what may have to be installed.
    enter_own_network()?;
    let nodes = u16::try_from(args.connections.div_ceil(CONNECTIONS_PER_NODE))?.max(2);
    let accounts = BenchAccounts { count: args.connections, contacts: args.contacts };
    let servers = BenchServers::start(&program, accounts, STORAGE, args.keep)?;
    let available = available_memory()?;
    let cluster = BenchCluster::start(&servers, nodes)?;
    print_progress(&format!("{nodes} nodes; {} connections at {} a second", args.connections, args.rate));
    let memory = MemoryWatch::start(cluster.pids(), servers.nats.process(), servers.database.process())?;
    let start = |pid| CpuTimeline::start_with(pid, CPU_SAMPLES);
    let of_nodes = cluster.pids().into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let (nats, database) = (start(servers.nats.process())?, start(servers.database.process())?);
    let load = LoadOfConnections {
        connections: args.connections,
        rate: args.rate,
        hold: args.hold,
        processes: nodes,
    };
    let run = run_load(&load.command(&generator, &servers, &cluster), servers.folder.path())?;
    let seconds = |timeline: CpuTimeline| Ok::<_, anyhow::Error>(timeline.finish()?.used_at_end()? / 1e9);
    let of_nodes = of_nodes.into_iter().map(seconds).sum::<Result<f64>>()?;
    let (nats, database) = (seconds(nats)?, seconds(database)?);
    let least = memory.finish();

    let totals = &run["totals"];
    let counter = |name: &str| totals["counters"][name]["total"].as_f64().unwrap_or(0.0);
    let percentile =
        |timing: &str, which: &str| totals["after_arrivals"][timing][which].as_f64().unwrap_or(0.0) / 1e3;
    let online = totals["gauges"]["online"].as_f64().unwrap_or(0.0);
    let arrivals = f64::from(args.connections) / f64::from(args.rate);
    report.info("half-million.connections", online, "connections");
    report.info("half-million.nodes", f64::from(nodes), "nodes");
    report.info("half-million.arrivals", arrivals, "s");
    for name in ["login_errors", "sessions_lost", "messages_lost", "messages_duplicate", "timeouts"] {
        report.check(format!("half-million.{name}"), counter(name), "events", 0.0);
    }
    report.info("half-million.messages", counter("messages_delivered"), "messages");
    for timing in ["message_same_node", "message_cross_node"] {
        report.info(format!("half-million.{timing}.p50"), percentile(timing, "p50"), "ms");
        report.check(
            format!("half-million.{timing}.p99"),
            percentile(timing, "p99"),
            "ms",
            DELIVERY_BUDGET_MS,
        );
    }
    report.info("half-million.late.p99", percentile("lateness", "p99"), "ms");
    report.info("half-million.nodes.cpu", of_nodes, "s");
    report.info("half-million.nats.cpu", nats, "s");
    report.info("half-million.database.cpu", database, "s");
    let each = |bytes: u64| bytes as f64 / online.max(1.0);
    report.info("half-million.nodes.memory", each(least.nodes), "B/connection");
    report.info("half-million.nats.memory", least.nats as f64 / 1e6, "MB");
    report.info(
        "half-million.machine.memory",
        each(available.saturating_sub(least.available)),
        "B/connection",
    );
    report.info("half-million.machine.left", least.available as f64 / 1e6, "MB");
    print_result(&format!("{} of {} connections at the end", online, args.connections));
    Ok(())
}

/// A load of connections without contacts, of which each node gets the same number.
pub(super) struct LoadOfConnections {
    pub(super) connections: u32,
    /// Arrivals per second.
    pub(super) rate: u32,
    /// Seconds of traffic after the last arrival.
    pub(super) hold: u32,
    /// Processes of the generator.
    pub(super) processes: u16,
}

impl LoadOfConnections {
    /// Its command.
    pub(super) fn command(
        &self,
        generator: &Path,
        servers: &BenchServers,
        cluster: &BenchCluster,
    ) -> Command {
        let mut load = Command::new(generator);
        load.args(["load", "tigase-500k", "--connections", &self.connections.to_string()]);
        load.args(["--count", &self.connections.to_string(), "--rate", &self.rate.to_string()]);
        load.args(["--hold", &format!("{}s", self.hold), "--workers", &self.processes.to_string()]);
        load.args(["--domain", DOMAIN, "--security", "none", "--mechanism", "SCRAM-SHA-1", "--keep-going"]);
        // Without --source: the kernel takes a port for each target that no other connection to it has, in constant time. With bind()
        // it searches all sockets of a port, which at 300 000 connections took 60 % of the CPU.
        load.args(["--quiet", "--plain"]);
        for node in &cluster.nodes {
            load.args(["--target", &format!("127.0.0.1:{}", node.clients)]);
        }
        load.arg("--out").arg(servers.folder.path().join("load"));
        load.arg("--salts").arg(servers.folder.path().join("salts.json"));
        load.env("THRONG_LOAD_PASSWORD", PASSWORD);
        load
    }
}

/// Runs the load and returns its report. A run with errors has one, too.
pub(super) fn run_load(load: &Command, folder: &Path) -> Result<Value> {
    let (out, log) = (folder.join("load"), folder.join("load.log"));
    ChildGuard::start(load, &log)?.wait()?;
    let text = fs::read_to_string(out.join("run.json"));
    let text = text.with_context(|| format!("throng load wrote no report: {}", log_tail(&log)))?;
    Ok(serde_json::from_str(&text)?)
}

/// Memory in bytes at the moment at which the machine had least.
#[derive(Clone, Copy, Debug, Default)]
struct LeastMemory {
    available: u64,
    nodes: u64,
    nats: u64,
}

/// Looks at the memory until the end.
struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<LeastMemory>,
}

impl MemoryWatch {
    fn start(nodes: Vec<u32>, nats: u32, database: u32) -> Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("memory".into()).spawn(move || {
            let mut least = LeastMemory { available: u64::MAX, ..LeastMemory::default() };
            let mut looks = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                let available = available_memory().unwrap_or(u64::MAX);
                if available < least.available {
                    let nodes = nodes.iter().map(|pid| resident(*pid)).sum();
                    least = LeastMemory { available, nodes, nats: resident_tree(nats) };
                }
                looks += 1;
                if looks % 30 == 1 {
                    print_progress(&format!(
                        "memory: {} MB available, nodes {} MB, database {} MB",
                        available / 1_000_000,
                        nodes.iter().map(|pid| resident(*pid)).sum::<u64>() / 1_000_000,
                        resident_tree(database) / 1_000_000
                    ));
                }
                std::thread::sleep(LOOK);
            }
            least
        })?;
        Ok(Self { stop, thread })
    }

    fn finish(self) -> LeastMemory {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Bytes that the machine can still give to programs.
fn available_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let bytes = kilobytes(&text, "MemAvailable:");
    ensure!(bytes.is_some(), "/proc/meminfo has no MemAvailable");
    Ok(bytes.unwrap_or_default())
}

/// Resident bytes of a process; 0 if it has ended.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kilobytes(&text, "VmRSS:").unwrap_or_default()
}

/// Resident bytes of a process and its descendants.
fn resident_tree(pid: u32) -> u64 {
    pids(pid).into_iter().map(resident).sum()
}

/// Value of a line in kilobytes, as bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::kilobytes;

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:  24 kB\nMemAvailable:       12 kB\n";
        assert_eq!((kilobytes(text, "MemAvailable:"), kilobytes(text, "VmRSS:")), (Some(12 * 1024), None));
    }
}
