//! `cargo xtask reports`: the published workloads against Throng, ejabberd and Prosody, and what is kept of each run.
//!
//! Each run starts its server anew with the accounts and rosters that the workload wants, and runs `throng load` with
//! the workload's own shape. The whole run stays under `target/peers/reports`; in its folder `summary` are a JSON with
//! one second of five and without histograms, and a picture of the page by headless Chromium.
//!
//! Not included: repetition. One run per server and workload; docs/performance.md has the noise to expect.
//!
//! # Pitfalls
//!
//! Ports of closed connections stay in TIME_WAIT for a minute, so runs use different loopback addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::super::process::ChildGuard;
use super::super::report::print_progress;
use super::{PeerOptions, PeerServer, command, log_tail, peer_folder, start_peer, throng};

/// The workloads, the contacts that they need per account, and their flags.
const WORKLOADS: [(&str, usize, &[&str]); 9] = [
    ("tigase-roster-0", 0, &[]),
    ("tigase-roster-10", 10, &[]),
    ("tigase-roster-20", 20, &[]),
    ("tigase-roster-30", 30, &[]),
    ("tigase-roster-40", 40, &[]),
    ("tigase-roster-50", 50, &[]),
    // How fast its users arrived is not published; the six waves of messages afterwards were measured.
    ("tigase-30k", 4, &["--rate", "400", "--hold", "75s"]),
    ("tigase-500k", 0, &[]),
    ("tigase-300k-roster50", 50, &[]),
];
const PEERS: [PeerServer; 3] = [PeerServer::Throng, PeerServer::Ejabberd, PeerServer::Prosody];
/// One second of this many is kept.
const KEEP_EVERY_NTH_SECOND: u64 = 5;

/// Flags of `cargo xtask reports`.
#[derive(clap::Args)]
pub(crate) struct ReportsArgs {
    /// Connections of each run: the limit of open files of one server process is 20 000.
    #[arg(long, default_value_t = 19_000)]
    connections: usize,
    /// How many times faster than published.
    #[arg(long, default_value_t = 5.0)]
    time_scale: f64,
    /// Hold time after all users have arrived.
    #[arg(long, default_value = "8s")]
    hold: String,
    /// One workload only; may be given several times.
    #[arg(long)]
    workload: Vec<String>,
    /// One server only; may be given several times.
    #[arg(long, value_enum)]
    peer: Vec<PeerServer>,
    /// Skip runs whose report exists.
    #[arg(long)]
    missing: bool,
    /// The servers use this port and the next two; by default each has its own.
    #[arg(long)]
    port: Option<u16>,
    /// Throng's program; without it `cargo build --profile dist` makes it.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

/// Runs all. Exit code 2 when one fails.
pub(crate) fn run(args: &ReportsArgs) -> ExitCode {
    match run_all(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_progress(&format!("xtask reports: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn run_all(args: &ReportsArgs) -> Result<()> {
    command::setup(&[])?;
    let program = throng::program(args.server.as_deref())?;
    let reports_folder = peer_folder("reports")?.join("summary");
    fs::create_dir_all(&reports_folder)?;
    for name in &args.workload {
        ensure!(WORKLOADS.iter().any(|(known, ..)| known == name), "{name} is not among the workloads");
    }
    let mut turn = 0;
    for (workload, roster, flags) in WORKLOADS {
        if !args.workload.is_empty() && !args.workload.iter().any(|name| name == workload) {
            continue;
        }
        for peer in PEERS {
            let file = reports_folder.join(format!("{workload}-{}.json", peer.name()));
            if (!args.peer.is_empty() && !args.peer.contains(&peer)) || (args.missing && file.exists()) {
                continue;
            }
            turn += 1;
            let dir = run_one(args, &program, (workload, roster, flags), peer, turn)
                .with_context(|| format!("{workload} against {}", peer.name()))?;
            reduce_report(&dir.join("run.json"), &file)?;
            picture(&dir.join("report.html"), &file.with_extension("png"))?;
        }
    }
    rosters(&program, &reports_folder)
}

/// The picture of the cost of a contact on each server, from the kept reports.
fn rosters(program: &Path, reports_folder: &Path) -> Result<()> {
    let runs: Vec<PathBuf> = WORKLOADS
        .iter()
        .filter(|(workload, ..)| workload.starts_with("tigase-roster-"))
        .flat_map(|(workload, ..)| {
            PEERS.map(|peer| reports_folder.join(format!("{workload}-{}.json", peer.name())))
        })
        .filter(|file| file.exists())
        .collect();
    if runs.len() < 2 {
        return Ok(());
    }
    let page = peer_folder("reports")?.join("rosters.html");
    let mut compare = Command::new(program);
    compare.args(["load", "compare"]).args(&runs).arg("--html").arg(&page);
    let log = peer_folder("reports")?.join("rosters.log");
    let status = ChildGuard::start(&compare, &log)?.wait()?;
    ensure!(status.success(), "throng load compare ended with {status}: {}", log_tail(&log));
    picture(&page, &reports_folder.join("rosters.png"))
}

/// One run; returns its folder.
fn run_one(
    args: &ReportsArgs,
    program: &Path,
    (workload, roster, flags): (&str, usize, &[&str]),
    peer: PeerServer,
    turn: u32,
) -> Result<PathBuf> {
    let port = args.port.map(|port| port + peer as u16);
    let wanted = PeerOptions {
        port,
        server: Some(program.to_path_buf()),
        ..PeerOptions::new(args.connections + 1, roster)
    };
    let mut server = start_peer(peer, &wanted)?;
    let dir = peer_folder("reports")?.join(format!("{workload}-{}", peer.name()));
    let _ = fs::remove_dir_all(&dir);
    let first = 2 + turn * 4 % 240;
    let mut load = Command::new(program);
    load.args(["load", workload, "--target", &server.address().to_string()])
        .args(["--connections", &args.connections.to_string()])
        .args(["--time-scale", &args.time_scale.to_string()])
        .args(if flags.contains(&"--hold") { Vec::new() } else { vec!["--hold", &args.hold] })
        .args(flags)
        .args(["--source", &format!("127.0.0.{first}-127.0.0.{}", first + 3)])
        .args(["--label", peer.name(), "--keep-going", "--plain", "--out"])
        .arg(&dir);
    for pid in server.pids() {
        load.args(["--pid", &pid.to_string()]);
    }
    let log = peer_folder("reports")?.join(format!("{workload}-{}.log", peer.name()));
    print_progress(&format!("{workload} against {}", peer.name()));
    let mut child = ChildGuard::start(&load, &log)?;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        server.check()?;
        if let Err(error) = child.check_running() {
            // It has ended; its report shows whether it succeeded.
            if dir.join("run.json").exists() {
                break;
            }
            bail!("throng load: {error}; its log ends:\n{}", log_tail(&log));
        }
    }
    print_progress(&log_tail(&log));
    Ok(dir)
}

/// Keeps one second of five, and no histograms.
fn reduce_report(from: &Path, to: &Path) -> Result<()> {
    let mut run: Value = serde_json::from_str(&fs::read_to_string(from)?)?;
    let keep = |entry: &Value| entry["at"].as_u64().is_none_or(|at| at.is_multiple_of(KEEP_EVERY_NTH_SECOND));
    for series in ["seconds", "server"] {
        if let Some(entries) = run[series].as_array_mut() {
            entries.retain(keep);
        }
    }
    if let Some(timings) = run["totals"]["timings"].as_object_mut() {
        for timing in timings.values_mut() {
            timing["histogram"]["buckets"] = Value::Array(Vec::new());
        }
    }
    round_numbers(&mut run);
    // Paths of this machine mean nothing elsewhere.
    run["about"]["command"] = Value::from("");
    let mut text = String::from("{\n");
    let fields = run.as_object().context("the run is not an object")?;
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index + 1 < fields.len() { "," } else { "" };
        text.push_str(&format!("\"{name}\": {value}{comma}\n"));
    }
    text.push_str("}\n");
    Ok(fs::write(to, text)?)
}

/// Three decimals are more than was measured.
fn round_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = (number.as_f64().unwrap_or(0.0) * 1_000.0).round() / 1_000.0;
            *value = Value::from(rounded);
        }
        Value::Array(entries) => entries.iter_mut().for_each(round_numbers),
        Value::Object(fields) => fields.values_mut().for_each(round_numbers),
        _ => {}
    }
}

/// The upper part of a page, with its key metrics and first charts.
pub(super) fn picture(page: &Path, to: &Path) -> Result<()> {
    let profile = peer_folder("chromium")?;
    let mut chromium = Command::new("chromium");
    chromium
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1000,1500",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--screenshot={}", to.display()))
        .arg(format!("file://{}", page.canonicalize()?.display()));
    let log = peer_folder("reports")?.join("chromium.log");
    let status = ChildGuard::start(&chromium, &log)?.wait()?;
    ensure!(status.success() && to.exists(), "chromium wrote no picture: {}", log_tail(&log));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::reduce_report;
    use serde_json::{Value, json};

    #[test]
    fn a_reduced_report_is_small_and_still_readable() {
        let dir = std::env::temp_dir().join(format!("throng-reports-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (from, to) = (dir.join("run.json"), dir.join("kept.json"));
        let run = json!({
            "format": 1,
            "about": { "command": "/somewhere/throng load" },
            "seconds": (0..12).map(|at| json!({ "at": at, "generator_cpu": 0.123_456 })).collect::<Vec<_>>(),
            "totals": { "timings": { "login": { "summary": { "p99": 7 }, "histogram": { "buckets": [[1, 2]] } } } },
        });
        std::fs::write(&from, run.to_string()).unwrap();
        reduce_report(&from, &to).unwrap();
        let reports_folder: Value = serde_json::from_str(&std::fs::read_to_string(&to).unwrap()).unwrap();
        let seconds: Vec<_> =
            reports_folder["seconds"].as_array().unwrap().iter().map(|s| s["at"].as_u64().unwrap()).collect();
        assert_eq!(seconds, [0, 5, 10]);
        assert_eq!(reports_folder["seconds"][0]["generator_cpu"], json!(0.123));
        assert_eq!(reports_folder["totals"]["timings"]["login"]["summary"]["p99"], json!(7));
        assert_eq!(reports_folder["totals"]["timings"]["login"]["histogram"]["buckets"], json!([]));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
