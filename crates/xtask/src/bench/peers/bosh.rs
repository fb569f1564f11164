//! `cargo xtask bench bosh`: Throng beside ejabberd and Prosody in the published test of BOSH, by `throng load`.
//!
//! Each server alone and fresh, with 24 contacts per account (`--contacts`), the usual modules, plain HTTP on loopback
//! and the generator on the same machine:
//!
//! * **Memory** of an idle session, with its held request: users log in, fetch their rosters and send presence. The
//!   slope of the resident memory of all processes of the server between a quarter of the users and all.
//! * **The load** of the workload `openfire-bosh` with faster arrivals (`--rate`): whole logins over all of the run;
//!   delivery of messages and CPU from the moment when all are online to the end of the sending. CPU is that of all
//!   processes of the server for each message delivered, with all requests and all presence that belong to it. Lost
//!   sessions and messages are counts.
//!
//! A user has two sockets at most; with `--sockets` the users share fewer, since a server may have 20 000 files only.
//!
//! Not measured: TLS, WebSocket.
//!
//! # Pitfalls
//!
//! Generator and server share the cores, and a virtual machine shares them with others. The generator's lateness is in
//! the table; a server that saturates worsens its own results, not the generator's.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::process::ChildGuard;
use super::super::report::{BenchReport, print_progress, print_result};
use super::{
    PeerOptions, PeerServer, RunningPeer, command, empty_folder, log_tail, peer_folder, start_peer, throng,
};

/// Contacts of each account, as published.
const CONTACTS: usize = 24;
/// Budgets of Throng: bytes of an idle session, microseconds of CPU a message, and milliseconds.
const MEMORY_BUDGET_BYTES: f64 = 6_500.0;
const CPU_BUDGET_US: f64 = 150.0;
const DELIVERY_P99_BUDGET_MS: f64 = 3.0;
const DELIVERY_MAX_BUDGET_MS: f64 = 100.0;
const LOGIN_P99_BUDGET_MS: f64 = 20.0;

/// Flags of `cargo xtask bench bosh`.
#[derive(clap::Args)]
pub(crate) struct BoshBenchArgs {
    /// Users. Default: 10 000, or 1 000 with --quick.
    #[arg(long)]
    users: Option<usize>,
    /// Arrivals a second, ten at a time; published: 5.
    #[arg(long, default_value_t = 50)]
    rate: usize,
    /// Seconds with all users. Default: 180, or 60 with --quick.
    #[arg(long)]
    hold: Option<usize>,
    /// Sockets of all users together. Default: 19 000 or two each, whichever is less.
    #[arg(long)]
    sockets: Option<usize>,
    /// Generator processes. Default: one for each 5 000 users.
    #[arg(long)]
    workers: Option<usize>,
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Contacts of each account; published: 24.
    #[arg(long, default_value_t = CONTACTS)]
    contacts: usize,
    /// These servers only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<PeerServer>,
    /// 1 000 users for a minute: to see that it works, and to compare servers that are not at their limit.
    #[arg(long)]
    quick: bool,
}

/// Results of one server.
struct ServerResults {
    peer: PeerServer,
    /// Bytes.
    memory: f64,
    /// Microseconds.
    cpu: f64,
    /// Cores of the server in that time.
    cores: f64,
    messages: f64,
    presence: f64,
    requests: f64,
    /// Milliseconds: delivery p50, p99, max; login mean, p99.
    delivery: [f64; 3],
    login: [f64; 2],
    online: f64,
    lost_sessions: f64,
    failed_logins: f64,
    lost_messages: f64,
    /// Milliseconds, 99th percentile.
    scheduling_lag_p99_ms: f64,
    /// Per cent of the machine's time that its host gave to others (steal), from start to end of the run.
    stolen: f64,
}

/// Measures, prints the table and checks Throng's budgets.
pub(crate) fn run(args: &BoshBenchArgs, report: &mut BenchReport) -> Result<()> {
    let wants = |peer| args.only.is_empty() || args.only.contains(&peer);
    let peers: Vec<PeerServer> = [PeerServer::Throng, PeerServer::Ejabberd, PeerServer::Prosody]
        .into_iter()
        .filter(|it| wants(*it))
        .collect();
    let packages: Vec<&str> =
        peers.iter().filter(|it| **it != PeerServer::Throng).map(|it| it.name()).collect();
    if !packages.is_empty() {
        command::setup(&packages).context("ejabberd and Prosody are needed from Debian's packages")?;
    }
    let users = args.users.unwrap_or(if args.quick { 1_000 } else { 10_000 });
    ensure!(users >= 100, "--users {users} are too few");
    let bench = BoshBench {
        program: throng::program(args.server.as_deref())?,
        users,
        contacts: args.contacts,
        rate: args.rate,
        hold: args.hold.unwrap_or(if args.quick { 60 } else { 180 }),
        sockets: args.sockets.unwrap_or((2 * users).min(19_000)),
        workers: args.workers.unwrap_or(users.div_ceil(5_000)),
    };
    let (mut columns, mut failed) = (Vec::new(), Vec::new());
    for peer in peers {
        // One that cannot be measured must not lose the results of the others.
        match bench.measure(peer) {
            Ok(column) => columns.push(column),
            Err(error) => {
                print_progress(&format!("{}: {error:#}", peer.name()));
                failed.push(format!("{}: {error:#}", peer.name()));
            }
        }
    }
    print_result(bench.table(&columns).trim_end());
    if let Some(ours) = columns.iter().find(|column| column.peer == PeerServer::Throng) {
        report.check("bosh: memory, idle", ours.memory, "B/session", MEMORY_BUDGET_BYTES);
        report.check("bosh: CPU a message", ours.cpu, "us", CPU_BUDGET_US);
        report.check("bosh: delivery p99", ours.delivery[1], "ms", DELIVERY_P99_BUDGET_MS);
        report.check("bosh: delivery, longest", ours.delivery[2], "ms", DELIVERY_MAX_BUDGET_MS);
        report.check("bosh: login p99", ours.login[1], "ms", LOGIN_P99_BUDGET_MS);
        report.check("bosh: sessions lost", ours.lost_sessions + ours.failed_logins, "", 0.0);
        report.check("bosh: messages lost", ours.lost_messages, "", 0.0);
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

struct BoshBench {
    program: PathBuf,
    users: usize,
    contacts: usize,
    rate: usize,
    hold: usize,
    sockets: usize,
    workers: usize,
}

impl BoshBench {
    fn start(&self, peer: PeerServer) -> Result<RunningPeer> {
        let wanted = PeerOptions {
            web: true,
            server: Some(self.program.clone()),
            ..PeerOptions::new(self.users, self.contacts)
        };
        start_peer(peer, &wanted)
    }

    fn measure(&self, peer: PeerServer) -> Result<ServerResults> {
        let server = self.start(peer)?;
        let memory = self.memory(peer, &server).with_context(|| format!("memory of {}", peer.name()));
        server.kill();
        let memory = memory?;
        print_progress(&format!("{}: {memory:.0} bytes an idle session", peer.name()));
        let server = self.start(peer)?;
        let before = machine_ticks();
        let run = self.load(peer, &server, "openfire-bosh", &self.traffic());
        let (all, stolen) = (machine_ticks().0 - before.0, machine_ticks().1 - before.1);
        server.kill();
        let column =
            ServerResults { stolen: 100.0 * stolen / all.max(1.0), ..column_of(peer, memory, &run?)? };
        print_progress(&format!(
            "{}: {:.0} us a message, delivery p99 {:.2} ms",
            peer.name(),
            column.cpu,
            column.delivery[1]
        ));
        Ok(column)
    }

    fn traffic(&self) -> Vec<String> {
        ["--rate", &self.rate.to_string(), "--hold", &format!("{}s", self.hold)].map(str::to_owned).to_vec()
    }

    /// Bytes per idle session.
    fn memory(&self, peer: PeerServer, server: &RunningPeer) -> Result<f64> {
        let few = self.users / 4;
        let plan = peer_folder("bosh")?.join("idle.toml");
        let rate = self.rate;
        let rest = self.users - few;
        let text = format!(
            "title = \"idle users of BOSH\"\nconnections = {}\n[options]\nhold = \"12s\"\n\
             [[phase]]\nname = \"few\"\nrate = {rate}\nusers = {few}\nduration = \"{}s\"\n\
             [[phase]]\nname = \"rest\"\nrate = {rate}\nusers = {rest}\n\
             [[session]]\nsteps = [\"login\", \"roster\", \"presence\", {{ think = \"24h\" }}]\n",
            self.users,
            few.div_ceil(rate) + 10
        );
        std::fs::write(&plan, text)?;
        let run = self.load(peer, server, &plan.display().to_string(), &[])?;
        let second_phase = run["phases"][1]["from"].as_u64().context("the run has no second phase")?;
        let samples = run["server"].as_array().context("the server was not watched")?;
        let at = |second: u64| {
            samples.iter().rev().find(|sample| sample["at"].as_u64().is_some_and(|at| at <= second))
        };
        let rss = |sample: Option<&Value>| sample.and_then(|sample| sample["rss"].as_f64());
        // Users leave after the last second with all of them.
        let online = run["totals"]["gauges"]["online"].as_f64().unwrap_or_default();
        ensure!(online >= self.users as f64 * 0.99, "{online} of {} users were online", self.users);
        let full = |second: &&Value| second["gauges"]["online"].as_f64() >= Some(online);
        let last = run["seconds"].as_array().into_iter().flatten().rev().find(full);
        let last = last.and_then(|second| second["at"].as_u64()).context("no user was online")?;
        let (less, more) = (rss(at(second_phase.saturating_sub(1))), rss(at(last)));
        let (less, more) = less.zip(more).context("memory was not sampled")?;
        Ok((more - less) / rest as f64)
    }

    /// One run; returns its JSON.
    fn load(&self, peer: PeerServer, server: &RunningPeer, plan: &str, flags: &[String]) -> Result<Value> {
        let folder = peer_folder("bosh")?.join(peer.name());
        empty_folder(&folder)?;
        let log = folder.join("load.log");
        let mut load = Command::new(&self.program);
        load.args(["load", plan, "--target", &format!("http://{}/http-bind", server.web())])
            .args(["--connections", &self.users.to_string(), "--sockets", &self.sockets.to_string()])
            .args(["--workers", &self.workers.to_string(), "--pid", &server.id().to_string(), "--children"])
            .args(["--source", "127.0.0.2-127.0.0.9", "--keep-going", "--plain", "--quiet", "--out"])
            .arg(folder.join("run"))
            .args(flags);
        // Lost sessions change its exit status; its report has the details.
        let status = ChildGuard::start(&load, &log)?.wait()?;
        let file = folder.join("run/run.json");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("`throng load` ended with {status}: {}", log_tail(&log)))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn table(&self, columns: &[ServerResults]) -> String {
        let names: Vec<&str> = columns.iter().map(|column| column.peer.name()).collect();
        let mut text = format!(
            "{} users over BOSH, {} arrivals a second, {} contacts, {} s with all; {} sockets at most\n\n| | {} | goal |\n| --- |{} --- |\n",
            self.users,
            self.rate,
            self.contacts,
            self.hold,
            self.sockets,
            names.join(" | "),
            " ---: |".repeat(names.len())
        );
        let mut row = |what: &str, digits: usize, goal: &str, value: &dyn Fn(&ServerResults) -> f64| {
            let cells: Vec<String> =
                columns.iter().map(|column| format!("{:.digits$}", value(column))).collect();
            text.push_str(&format!("| {what} | {} | {goal} |\n", cells.join(" | ")));
        };
        row("memory of an idle session, kB", 1, "8", &|column| column.memory / 1e3);
        row("CPU of the server for a message, all included, us", 0, "150", &|column| column.cpu);
        row("the server's cores meanwhile", 2, "–", &|column| column.cores);
        row("messages delivered a second", 0, "–", &|column| column.messages);
        row("presence delivered a second", 0, "–", &|column| column.presence);
        row("requests a second", 0, "–", &|column| column.requests);
        row("delivery p50, ms", 2, "–", &|column| column.delivery[0]);
        row("delivery p99, ms", 2, "3", &|column| column.delivery[1]);
        row("delivery, longest, ms", 1, "100", &|column| column.delivery[2]);
        row("whole login, mean, ms", 1, "–", &|column| column.login[0]);
        row("whole login p99, ms", 1, "20", &|column| column.login[1]);
        row("online", 0, "–", &|column| column.online);
        row("logins failed", 0, "0", &|column| column.failed_logins);
        row("sessions lost", 0, "0", &|column| column.lost_sessions);
        row("messages lost", 0, "0", &|column| column.lost_messages);
        row("the generator late by, p99, ms", 2, "–", &|column| column.scheduling_lag_p99_ms);
        row("stolen from the machine, %", 1, "–", &|column| column.stolen);
        text
    }
}

/// Results of the time with all users online.
fn column_of(peer: PeerServer, memory: f64, run: &Value) -> Result<ServerResults> {
    let total = |name: &str| run["totals"]["counters"][name]["total"].as_f64().unwrap_or_default();
    let seconds = run["seconds"].as_array().context("the run has no seconds")?;
    let of = |second: &Value, name: &str| second["counters"][name].as_f64().unwrap_or_default();
    let at = |second: &Value| second["at"].as_f64().unwrap_or_default();
    let newest = |name: &str| seconds.iter().filter(|it| of(it, name) > 0.0).map(at).fold(0.0, f64::max);
    // Two seconds after the last arrival to the last message: the whole of each second counts.
    let (from, to) = (newest("users_started") + 2.0, newest("messages_sent") - 1.0);
    ensure!(to > from, "nothing was sent after the last arrival");
    let span = to - from + 1.0;
    let inside = |value: f64| (from..=to).contains(&value);
    let rate =
        |name: &str| seconds.iter().filter(|it| inside(at(it))).map(|it| of(it, name)).sum::<f64>() / span;
    let samples: Vec<f64> = run["server"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|sample| inside(at(sample)))
        .filter_map(|sample| sample["cpu"].as_f64())
        .collect();
    ensure!(!samples.is_empty(), "the server was not watched");
    let cores = samples.iter().sum::<f64>() / samples.len() as f64;
    let after =
        |name: &str| run["totals"]["after_arrivals"]["message"][name].as_f64().unwrap_or(f64::NAN) / 1e3;
    let timing = |timing: &str, name: &str| {
        run["totals"]["timings"][timing]["summary"][name].as_f64().unwrap_or(f64::NAN) / 1e3
    };
    let messages = rate("messages_delivered");
    Ok(ServerResults {
        peer,
        memory,
        cpu: cores * 1e6 / messages,
        cores,
        messages,
        presence: rate("presence_received"),
        requests: rate("http_requests"),
        delivery: ["p50", "p99", "max"].map(after),
        login: ["mean", "p99"].map(|name| timing("login", name)),
        online: run["totals"]["gauges"]["online"].as_f64().unwrap_or_default(),
        lost_sessions: total("sessions_lost"),
        failed_logins: total("login_errors"),
        lost_messages: total("messages_lost"),
        scheduling_lag_p99_ms: timing("lateness", "p99"),
        stolen: 0.0,
    })
}

/// Time of all cores since the start of the machine, and the part of it that was stolen from a virtual machine, in
/// clock ticks.
fn machine_ticks() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    (fields.iter().sum(), fields.get(7).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::PeerServer;
    use super::column_of;
    use serde_json::json;

    #[test]
    fn only_the_time_with_all_users_online_is_counted() {
        let second = |at: u32, started: u32, sent: u32| {
            json!({ "at": at, "counters": {
                "users_started": started, "messages_sent": sent, "messages_delivered": sent, "presence_received": 2 * sent,
            } })
        };
        let run = json!({
            "seconds": [second(0, 9, 1), second(1, 1, 1), second(2, 0, 1), second(3, 0, 100), second(4, 0, 100),
                second(5, 0, 30), second(6, 0, 0)],
            "server": [{ "at": 1, "cpu": 1.9 }, { "at": 3, "cpu": 0.1 }, { "at": 4, "cpu": 0.3 }, { "at": 5, "cpu": 1.9 }],
            "totals": {
                "counters": { "sessions_lost": { "total": 2 } },
                "after_arrivals": { "message": { "p50": 500.0, "p99": 2_000.0, "max": 9_000.0 } },
                "timings": { "login": { "summary": { "mean": 1_000.0, "p99": 4_000.0 } } },
            },
        });
        let column = column_of(PeerServer::Throng, 5_000.0, &run).unwrap();
        assert!((column.messages - 100.0).abs() < 1e-9 && (column.presence - 200.0).abs() < 1e-9);
        assert!((column.cores - 0.2).abs() < 1e-9 && (column.cpu - 2_000.0).abs() < 1e-6);
        assert_eq!((column.delivery, column.login), ([0.5, 2.0, 9.0], [1.0, 4.0]));
        assert!((column.lost_sessions - 2.0).abs() < 1e-9);
    }
}
