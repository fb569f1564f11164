//! `cargo xtask bench generator`: memory and CPU of the load generator itself, against Throng on this machine.
//!
//! Memory is the slope of the workers' resident memory between two runs of the workload `idle`, read while the users
//! are idle. CPU of a login is that of the whole worker over `login-storm` (connect, SCRAM-SHA-1, bind, roster, first
//! presence), CPU of a message that of the seconds of `flood` in which all users bounce messages, sent and received.
//!
//! Not measured: memory of the kernel for sockets, the controller (one process a run, whatever the number of users).
//!
//! # Pitfalls
//!
//! Generator and server share the cores; CPU time is counted separately, but caches are shared.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::process::ChildGuard;
use super::super::report::{BenchReport, print_progress};
use super::{PeerOptions, PeerServer, RunningPeer, log_tail, peer_folder, start_peer, throng};

/// Resident bytes per connection, at most.
const PLAIN_BYTES_BUDGET: f64 = 1_000.0;
const TLS_BYTES_BUDGET: f64 = 4_500.0;
/// Milliseconds of CPU per login and microseconds per message, at most.
const LOGIN_CPU_BUDGET_MS: f64 = 0.15;
const MESSAGE_CPU_BUDGET_US: f64 = 10.0;

/// Flags of `cargo xtask bench generator`.
#[derive(clap::Args)]
pub(crate) struct GeneratorBenchArgs {
    /// Connections of the larger run; the smaller has a third.
    #[arg(long, default_value_t = 15_000)]
    connections: usize,
    /// Connections of one process at most, opened in a separate run.
    #[arg(long, default_value_t = 19_000)]
    most: usize,
    /// The server takes this port.
    #[arg(long)]
    port: Option<u16>,
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

struct GeneratorBench {
    program: PathBuf,
    server: RunningPeer,
    turn: u32,
}

/// Measures and judges.
pub(crate) fn run(args: &GeneratorBenchArgs, report: &mut BenchReport) -> Result<()> {
    let program = throng::program(args.server.as_deref())?;
    let wanted = PeerOptions {
        port: args.port,
        server: Some(program.clone()),
        offer_tls: true,
        ..PeerOptions::new(args.most.max(args.connections) + 1, 0)
    };
    let mut bench = GeneratorBench { server: start_peer(PeerServer::Throng, &wanted)?, program, turn: 0 };
    for (what, tls, budget) in
        [("plain", "none", PLAIN_BYTES_BUDGET), ("TLS 1.3", "starttls", TLS_BYTES_BUDGET)]
    {
        let slope = bench.slope(args.connections, tls)?;
        report.check(format!("generator: memory, {what}"), slope, "B/connection", budget);
    }
    let all = bench.load("idle", args.most, &["--rate", "1000", "--hold", "3s"])?;
    let workers = all["workers"].as_array().map_or(0, Vec::len);
    let online = all["totals"]["gauges"]["online"].as_f64().unwrap_or(0.0);
    ensure!(
        online >= args.most as f64 && workers == 1,
        "{online} of {} connections in {workers} workers",
        args.most
    );
    report.info("generator: online in one process", online, "users");
    // As fast as the server takes them; at 1 000 a second each step is a separate wake-up, which is the kernel's cost.
    for (rate, budget) in [("6000", Some(LOGIN_CPU_BUDGET_MS)), ("1000", None)] {
        let storm = bench.load("login-storm", 12_000, &["--mechanism", "SCRAM-SHA-1", "--rate", rate])?;
        let logins = counter_total(&storm, "logins");
        ensure!(logins >= 12_000.0, "only {logins} of 12 000 logins");
        let (name, cost) =
            (format!("generator: SCRAM-SHA-1 login, {rate}/s"), cpu_seconds(&storm) * 1e3 / logins);
        match budget {
            Some(budget) => report.check(name, cost, "ms CPU", budget),
            None => report.info(name, cost, "ms CPU"),
        }
    }
    for in_flight in ["1", "8"] {
        let flood = bench.load("flood", 200, &["--in-flight", in_flight, "--hold", "10s"])?;
        let (cost, rate) = cpu_per_message(&flood)?;
        report.check(
            format!("generator: message, {in_flight} in flight"),
            cost,
            "µs CPU",
            MESSAGE_CPU_BUDGET_US,
        );
        report.info(format!("generator: messages, {in_flight} in flight"), rate, "a second");
    }
    Ok(())
}

impl GeneratorBench {
    /// Bytes of the worker per connection.
    fn slope(&mut self, connections: usize, tls: &str) -> Result<f64> {
        let mut at = Vec::new();
        for count in [connections / 3, connections] {
            let flags = ["--security", tls, "--rate", "1000", "--hold", "6s"];
            let run = self.load("idle", count, &flags)?;
            at.push((count as f64, idle_memory(&run, count as f64)?));
        }
        let [(few, less), (many, more)] = at[..] else { return Ok(f64::NAN) };
        Ok((more - less) / (many - few))
    }

    /// One run; returns its JSON.
    fn load(&mut self, workload: &str, connections: usize, flags: &[&str]) -> Result<Value> {
        self.server.check()?;
        self.turn += 1;
        let dir = peer_folder("generator")?.join(format!("{workload}-{}", self.turn));
        let _ = std::fs::remove_dir_all(&dir);
        let log = peer_folder("generator")?.join("load.log");
        let mut load = Command::new(&self.program);
        let first = 2 + self.turn * 8 % 200;
        load.args(["load", workload, "--target", &self.server.address().to_string()])
            .args(["--connections", &connections.to_string(), "--plain", "--out"])
            .arg(&dir)
            .args(["--source", &format!("127.0.0.{first}-127.0.0.{}", first + 7)])
            .args(flags);
        print_progress(&format!("{workload} with {connections} connections {}", flags.join(" ")));
        let status = ChildGuard::start(&load, &log)?.wait()?;
        ensure!(status.success(), "throng load {workload} ended with {status}: {}", log_tail(&log));
        let text = std::fs::read_to_string(dir.join("run.json"))?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn counter_total(run: &Value, counter: &str) -> f64 {
    run["totals"]["counters"][counter]["total"].as_f64().unwrap_or(0.0)
}

/// Seconds of CPU of all workers.
fn cpu_seconds(run: &Value) -> f64 {
    run["workers"].as_array().into_iter().flatten().filter_map(|worker| worker["cpu"].as_f64()).sum()
}

fn seconds(run: &Value) -> impl Iterator<Item = &Value> {
    run["seconds"].as_array().into_iter().flatten()
}

/// Median of the workers' resident memory in the seconds in which all users are online and idle.
fn idle_memory(run: &Value, online: f64) -> Result<f64> {
    let idle = |second: &&Value| {
        second["gauges"]["online"].as_f64() == Some(online) && second["counters"]["stanzas_sent"].is_null()
    };
    let mut memory: Vec<f64> =
        seconds(run).filter(idle).filter_map(|second| second["generator_rss"].as_f64()).collect();
    memory.sort_by(f64::total_cmp);
    memory.get(memory.len() / 2).copied().context("there was no second in which all were online and idle")
}

/// Microseconds of CPU per message in the seconds of the flood, and messages per second.
fn cpu_per_message(run: &Value) -> Result<(f64, f64)> {
    let delivered = |second: &Value| second["counters"]["messages_delivered"].as_f64().unwrap_or(0.0);
    let highest = seconds(run).map(delivered).fold(0.0, f64::max);
    // The first and the last second of the flood are not whole ones.
    let whole: Vec<&Value> = seconds(run).filter(|second| delivered(second) > highest / 2.0).collect();
    ensure!(whole.len() > 2, "the flood lasted only {} seconds", whole.len());
    let messages: f64 = whole.iter().map(|second| delivered(second)).sum();
    let cpu: f64 = whole.iter().filter_map(|second| second["generator_cpu"].as_f64()).sum();
    Ok((cpu * 1e6 / messages, messages / whole.len() as f64))
}
