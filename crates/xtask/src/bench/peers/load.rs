//! `cargo xtask bench load`: cost of a load generator. Tsung 1.7 and `throng load` run the same scenario file against
//! the same ejabberd.
//!
//! ejabberd belongs to neither. It is started again for each generator, with readable passwords: a key derivation for
//! each PLAIN login would make the server the limit. CPU is that of all processes of the generator from start to end,
//! its report included; memory is read twice a second. That both did the same work shows in their own counts and,
//! independently, in the server's CPU and the bytes on the loopback interface (those of other programs are in it, too).
//!
//! Budgets: a fifth of Tsung's CPU, a twentieth of its memory.
//!
//! # Pitfalls
//!
//! CPU is counted in steps of 10 ms for each process, so short runs are imprecise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::super::clock::now;
use super::super::process::ChildGuard;
use super::super::report::{BenchReport, print_progress, print_result};
use super::process_tree::{ProcessTree, TreeUsage};
use super::{
    PasswordStorage, PeerOptions, PeerServer, command, empty_folder, log_tail, peer_folder, peers_file,
    start_peer, throng, tsung,
};

/// Time between two readings of CPU and memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `cargo xtask bench load`.
#[derive(clap::Args)]
pub(crate) struct LoadBenchArgs {
    /// Users, each of whom logs in once. With few of them memory is that of the programs without users.
    #[arg(long, default_value_t = 8000)]
    users: usize,
    /// Arrivals a second.
    #[arg(long, default_value_t = 100)]
    rate: usize,
    /// Messages that each user sends.
    #[arg(long, default_value_t = 30)]
    messages: usize,
    /// Seconds between two messages of a user.
    #[arg(long, default_value_t = 4)]
    think: usize,
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Run one generator only.
    #[arg(long, value_enum)]
    only: Option<Generator>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Generator {
    Tsung,
    Throng,
}

impl Generator {
    fn name(self) -> &'static str {
        match self {
            Self::Tsung => "tsung",
            Self::Throng => "throng load",
        }
    }
}

/// Cost of a run.
struct RunCost {
    seconds: f64,
    /// CPU of the generator.
    cpu: f64,
    /// CPU of the server in that time.
    server_cpu: f64,
    /// The generator's memory: highest, and before the first user.
    peak: TreeUsage,
    idle: TreeUsage,
    /// Bytes over the loopback interface.
    bytes: f64,
    work: WorkDone,
}

/// Work as reported by a generator.
#[derive(Default)]
struct WorkDone {
    users: f64,
    logins: f64,
    messages: f64,
    errors: f64,
}

/// Runs both generators and checks the ratios.
pub(crate) fn run(args: &LoadBenchArgs, report: &mut BenchReport) -> Result<()> {
    command::setup(&["ejabberd", "tsung"])?;
    ensure!(
        args.users > 0 && args.rate > 0 && args.messages > 0,
        "users, rate and messages must be positive"
    );
    let mut costs = Vec::new();
    for generator in [Generator::Tsung, Generator::Throng] {
        if args.only.is_none_or(|only| only == generator) {
            costs.push((generator, measure(args, generator)?));
        }
    }
    print_result(&table(args, &costs));
    if let [(_, theirs), (_, ours)] = &costs[..] {
        report.check("load: CPU, part of Tsung's", ours.cpu / theirs.cpu, "", 1.0 / 5.0);
        let part = ours.peak.pss as f64 / theirs.peak.pss as f64;
        report.check("load: memory, part of Tsung's", part, "", 1.0 / 20.0);
    }
    Ok(())
}

fn measure(args: &LoadBenchArgs, generator: Generator) -> Result<RunCost> {
    // Tsung counts from 1.
    let wanted = PeerOptions { passwords: PasswordStorage::Numbered, ..PeerOptions::new(args.users + 1, 0) };
    let mut server = start_peer(PeerServer::Ejabberd, &wanted)?;
    let folder = peer_folder("load")?.join(generator.name().replace(' ', "-"));
    empty_folder(&folder)?;
    let scenario = folder.join("scenario.xml");
    fs::write(&scenario, fill_scenario(args, server.address().port())?)?;
    let command = match generator {
        Generator::Tsung => tsung::command(&scenario, &folder)?,
        Generator::Throng => {
            let mut load = Command::new(throng::program(args.server.as_deref())?);
            load.arg("load").arg(&scenario);
            load.args(["--target", &server.address().to_string(), "--out"]).arg(folder.join("run"));
            load
        }
    };
    let log = folder.join("generator.log");
    let mut servers = ProcessTree::new(server.id());
    let (server_before, bytes_before) = (servers.sample().cpu, loopback_bytes());
    let started = now();
    let mut child = ChildGuard::start(&command, &log)?;
    let mut tree = ProcessTree::new(child.id());
    let mut peak = TreeUsage::default();
    let mut idle = None;
    let mut last = TreeUsage::default();
    loop {
        std::thread::sleep(SAMPLE_INTERVAL);
        server.check()?;
        let usage = tree.sample();
        if usage.processes == 0 {
            break;
        }
        last = usage;
        if usage.pss > peak.pss {
            peak = usage;
        }
        // Tsung's first users arrive after a second; ours arrive immediately, so its first reading includes some.
        if started.elapsed() < Duration::from_secs(1) {
            idle = Some(usage);
        }
        if child.check_running().is_err() {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}: {}", generator.name(), log_tail(&log));
    let work = match generator {
        Generator::Tsung => tsung_work(&folder)?,
        Generator::Throng => throng_work(&folder)?,
    };
    ensure!(
        work.users >= args.users as f64 * 0.99,
        "{} launched {} users of {}: it was overloaded, try a lower --rate",
        generator.name(),
        work.users,
        args.users
    );
    Ok(RunCost {
        work,
        seconds,
        cpu: last.cpu.as_secs_f64(),
        server_cpu: servers.sample().cpu.saturating_sub(server_before).as_secs_f64(),
        peak,
        idle: idle.unwrap_or_default(),
        bytes: loopback_bytes() - bytes_before,
    })
}

/// Work from Tsung's log. It names errors and does not count messages: they are the requests without a response, less
/// the two stream headers, the presence and the end of each user.
fn tsung_work(folder: &Path) -> Result<WorkDone> {
    let totals = tsung::totals(folder)?;
    let get = |name: &str| totals.get(name).copied().unwrap_or_default();
    let errors = totals.iter().filter(|(name, _)| name.starts_with("error"));
    for (name, count) in errors.clone() {
        print_progress(&format!("tsung: {name} {count}"));
    }
    Ok(WorkDone {
        users: get("users_count"),
        logins: get("tr_bind"),
        messages: get("request_noack") - 4.0 * get("users_count"),
        errors: errors.map(|(_, count)| count).fold(0.0, |sum, count| sum + count),
    })
}

/// Work from our report.
fn throng_work(folder: &Path) -> Result<WorkDone> {
    let text = fs::read_to_string(folder.join("run/run.json")).context("`throng load` left no report")?;
    let report: serde_json::Value = serde_json::from_str(&text)?;
    let total = |value: &serde_json::Value| value["total"].as_f64().unwrap_or_default();
    let counter = |name: &str| total(&report["totals"]["counters"][name]);
    let errors = report["totals"]["errors"].as_object();
    for (name, count) in errors.into_iter().flatten() {
        print_progress(&format!("throng load: {name} {}", total(count)));
    }
    Ok(WorkDone {
        users: counter("users_started"),
        logins: counter("logins"),
        messages: counter("messages_sent"),
        errors: errors.into_iter().flatten().fold(0.0, |sum, (_, count)| sum + total(count)),
    })
}

/// The scenario with the numbers of this run.
fn fill_scenario(args: &LoadBenchArgs, port: u16) -> Result<String> {
    let text = fs::read_to_string(peers_file("tsung-chat.xml"))?;
    // Arrivals are random in Tsung: the phase is longer than necessary, and the number of users ends it.
    let arrival = args.users.div_ceil(args.rate) * 6 / 5 + 2;
    let values = [
        ("@PORT@", usize::from(port)),
        ("@USERS@", args.users),
        ("@RATE@", args.rate),
        ("@ARRIVAL@", arrival),
        ("@MESSAGES@", args.messages),
        ("@THINK@", args.think),
    ];
    Ok(values.iter().fold(text, |text, (name, value)| text.replace(name, &value.to_string())))
}

/// Bytes that went over `lo` (each is sent once and received once there; sent ones are counted).
fn loopback_bytes() -> f64 {
    let text = fs::read_to_string("/sys/class/net/lo/statistics/tx_bytes").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn table(args: &LoadBenchArgs, costs: &[(Generator, RunCost)]) -> String {
    let users = args.users as f64;
    let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut row = |name, value: &dyn Fn(&RunCost) -> f64| {
        rows.push((name, costs.iter().map(|(_, cost)| value(cost)).collect()));
    };
    row("users", &|cost| cost.work.users);
    row("logins", &|cost| cost.work.logins);
    row("messages sent", &|cost| cost.work.messages);
    row("errors", &|cost| cost.work.errors);
    row("run, s", &|cost| cost.seconds);
    row("CPU of the generator, s", &|cost| cost.cpu);
    row("CPU a user (login, messages both ways), ms", &|cost| cost.cpu * 1000.0 / users);
    row("highest memory (PSS), MB", &|cost| cost.peak.pss as f64 / 1e6);
    row("highest memory (RSS), MB", &|cost| cost.peak.rss as f64 / 1e6);
    row("highest memory a user, kB", &|cost| cost.peak.pss as f64 / 1e3 / users);
    row("memory above the start a user, kB", &|cost| {
        cost.peak.pss.saturating_sub(cost.idle.pss) as f64 / 1e3 / users
    });
    row("processes", &|cost| cost.peak.processes as f64);
    row("CPU of ejabberd meanwhile, s", &|cost| cost.server_cpu);
    row("loopback, MB", &|cost| cost.bytes / 1e6);
    let names: Vec<&str> = costs.iter().map(|(generator, _)| generator.name()).collect();
    let both = costs.len() == 2;
    let mut text = format!(
        "{} users at {} a second, {} messages each, one every {} s\n\n| | {} |{}\n| --- |{}{}\n",
        args.users,
        args.rate,
        args.messages,
        args.think,
        names.join(" | "),
        if both { " ratio |" } else { "" },
        " ---: |".repeat(names.len()),
        if both { " ---: |" } else { "" },
    );
    for (name, values) in rows {
        let cells: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
        text.push_str(&format!("| {name} | {} |", cells.join(" | ")));
        if let [theirs, ours] = values[..] {
            let ratio = if ours > 0.0 { format!("{:.1}", theirs / ours) } else { "-".to_owned() };
            text.push_str(&format!(" {ratio} |"));
        }
        text.push('\n');
    }
    text
}
