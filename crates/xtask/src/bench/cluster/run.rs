//! One run of the load of `bench cluster` and what it measured.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::cpu_timeline::{CpuSamples, CpuTimeline};
use super::super::process::{ChildGuard, log_tail};
use super::nodes::{BenchCluster, BenchServers, DOMAIN, PASSWORD, serve};
use super::samples::{ClusterCounts, ClusterTimeline};

/// Seconds after the last login that are not measured, and as many before the end.
const SETTLE_SECONDS: u32 = 2;
/// Seconds after the restart of a node until the next one is killed.
const AFTER_RESTART_SECONDS: u32 = 30;
/// Seconds between the kill and the restart: more than the nodes need to notice that one is gone.
const DOWN_SECONDS: u32 = 20;

/// The load of all runs.
#[derive(Clone)]
pub(super) struct ClusterLoad {
    /// The program whose `throng load` runs.
    pub(super) generator: PathBuf,
    pub(super) users: u32,
    /// Time scale of the plan.
    pub(super) factor: f64,
    /// Logins per second.
    pub(super) rate: u32,
    /// Measured seconds.
    pub(super) seconds: u32,
    /// Failures instead of measurements.
    pub(super) chaos: bool,
}

/// CPU of the processes in the measured seconds, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuUse {
    nodes: f64,
    nats: f64,
    database: f64,
    generator: f64,
}

/// The processes that a run measures.
pub(super) struct MeasuredCluster<'a> {
    /// Addresses for clients, one for each node.
    pub(super) clients: Vec<SocketAddr>,
    pub(super) nodes: Vec<u32>,
    /// NATS, if the nodes need it.
    pub(super) nats: Option<u32>,
    pub(super) database: u32,
    /// Where the load writes its report.
    pub(super) folder: &'a Path,
}

/// What a run measured, in its measured seconds.
pub(super) struct ClusterRun {
    seconds: f64,
    /// Messages and presence that clients received.
    pub(super) delivered: f64,
    /// Bytes that clients received.
    pub(super) client_bytes: f64,
    pub(super) cluster: ClusterCounts,
    cpu: CpuUse,
    report: Value,
}

impl ClusterLoad {
    fn ramp_seconds(&self) -> u32 {
        self.users.div_ceil(self.rate.max(1))
    }

    /// Seconds of the run that are measured.
    fn window(&self) -> Range<u32> {
        let from = self.ramp_seconds() + SETTLE_SECONDS;
        from..from + self.seconds
    }

    fn command(&self, cluster: &MeasuredCluster<'_>, hold: u32) -> (Command, PathBuf) {
        let nodes = cluster.clients.len();
        let out = cluster.folder.join(format!("load-{nodes}"));
        let mut load = Command::new(&self.generator);
        load.arg("load").arg(format!("atom-cluster-{nodes}"));
        load.args(["--connections", &self.users.to_string(), "--time-scale", &self.factor.to_string()]);
        load.args(["--rate", &self.rate.to_string(), "--hold", &format!("{hold}s")]);
        load.args(["--domain", DOMAIN, "--security", "none", "--mechanism", "SCRAM-SHA-1", "--workers", "1"]);
        // Ports of closed connections rest for a minute; several source addresses have enough of them.
        load.args(["--source", "127.0.0.2-127.0.0.17", "--quiet", "--plain"]);
        for address in &cluster.clients {
            load.args(["--target", &address.to_string()]);
        }
        load.arg("--out").arg(&out).arg("--salts").arg(cluster.folder.join("salts.json"));
        load.env("THRONG_LOAD_PASSWORD", PASSWORD);
        (load, out)
    }

    /// Runs the load and measures, with the counters of nodes and NATS.
    pub(super) fn measure(&self, servers: &BenchServers, cluster: &BenchCluster) -> Result<ClusterRun> {
        let http = if cluster.nodes.len() > 1 {
            cluster.nodes.iter().map(|node| node.http).collect()
        } else {
            vec![]
        };
        let counters = ClusterTimeline::start(http, servers.nats_monitor)?;
        let mut run = self.measure_cpu(&cluster.measured(servers))?;
        let faults = run.faults();
        ensure!(faults.is_empty(), "{}; {}", faults.join(", "), run.report["totals"]["errors"]);
        let (from, to) = self.measured_time(&run.report)?;
        run.cluster = counters.finish()?.between(from, to)?;
        Ok(run)
    }

    /// The measured seconds, in microseconds of the monotonic clock.
    fn measured_time(&self, report: &Value) -> Result<(u64, u64)> {
        let started = report["about"]["started_monotonic"].as_u64().context("the run has no beginning")?;
        let at = |second: u32| started + u64::from(second) * 1_000_000;
        let window = self.window();
        Ok((at(window.start), at(window.end)))
    }

    /// Runs the load and measures the CPU of all processes.
    pub(super) fn measure_cpu(&self, cluster: &MeasuredCluster<'_>) -> Result<ClusterRun> {
        let (load, out) = self.command(cluster, self.seconds + 2 * SETTLE_SECONDS);
        let start = |pid: &u32| CpuTimeline::start(*pid);
        let nodes = cluster.nodes.iter().map(start).collect::<Result<Vec<_>>>()?;
        let nats = cluster.nats.iter().map(start).collect::<Result<Vec<_>>>()?;
        let database = start(&cluster.database)?;
        let report = run_load(&load, &out)?;
        let finish =
            |all: Vec<CpuTimeline>| all.into_iter().map(CpuTimeline::finish).collect::<Result<Vec<_>>>();
        let (nodes, nats, database) = (finish(nodes)?, finish(nats)?, database.finish()?);

        let window = self.window();
        let (from, to) = self.measured_time(&report)?;
        let used = |samples: &CpuSamples| {
            Ok::<_, anyhow::Error>((samples.used_at(to)? - samples.used_at(from)?) / 1e3)
        };
        let of_seconds = |count: &dyn Fn(&Value) -> f64| sum_of_seconds(&report, &window, count);
        let counter = |name: &str| of_seconds(&|second| second["counters"][name].as_f64().unwrap_or(0.0));
        let cpu = CpuUse {
            nodes: nodes.iter().map(used).sum::<Result<f64>>()?,
            nats: nats.iter().map(used).sum::<Result<f64>>()?,
            database: used(&database)?,
            generator: of_seconds(&|second| second["generator_cpu"].as_f64().unwrap_or(0.0)) * 1e6,
        };
        let run = ClusterRun {
            seconds: f64::from(self.seconds),
            delivered: counter("messages_delivered") + counter("presence_received"),
            client_bytes: counter("bytes_received"),
            cluster: ClusterCounts::default(),
            cpu,
            report,
        };
        run.check(self.users)?;
        Ok(run)
    }

    /// Kills each node in turn under load, starts it again, and returns the account of all messages as text and as a report.
    pub(super) fn account_for_messages(
        &self,
        servers: &BenchServers,
        cluster: &BenchCluster,
    ) -> Result<(String, Value)> {
        ensure!(self.chaos, "only with --chaos");
        let first = self.ramp_seconds() + SETTLE_SECONDS + self.seconds;
        let turn = DOWN_SECONDS + AFTER_RESTART_SECONDS;
        let turns = u32::try_from(cluster.nodes.len())?;
        let hold = SETTLE_SECONDS + self.seconds + turns * turn;
        let (mut load, out) = self.command(&cluster.measured(servers), hold);
        // The number of the process that a later turn kills is that of the start: each node dies once.
        for (number, victim) in (0..turns).zip(&cluster.nodes) {
            let killed = first + number * turn;
            let pid = victim.process.as_ref().context("the node does not run")?.id();
            let command = shell_line(&serve(servers, victim), &victim.log);
            load.args(["--chaos", &format!("kill={pid}@{killed}s")]);
            load.args(["--chaos", &format!("run={command}@{}s", killed + DOWN_SECONDS)]);
        }
        let log = out.with_extension("log");
        // A run that failed has an account too.
        ChildGuard::start(&load, &log)?.wait()?;
        let read = |name: &str| {
            fs::read_to_string(out.join(name))
                .with_context(|| format!("throng load wrote no report: {}", log_tail(&log)))
        };
        Ok((read("summary.txt")?, serde_json::from_str(&read("run.json")?)?))
    }
}

/// A line for `sh` that starts a node, which ends with the process that started it.
fn shell_line(command: &Command, log: &Path) -> String {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', "'\\''"));
    let words: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    format!("exec setpriv --pdeathsig TERM -- {} >>{} 2>&1", words.join(" "), quoted(log.as_os_str()))
}

fn run_load(load: &Command, out: &Path) -> Result<Value> {
    let log = out.with_extension("log");
    let status = ChildGuard::start(load, &log)?.wait()?;
    // Work of the nodes after the last close counts as part of the run.
    std::thread::sleep(Duration::from_millis(200));
    ensure!(status.success(), "throng load ended with {status}: {}", log_tail(&log));
    let text = fs::read_to_string(out.join("run.json")).context("throng load wrote no report")?;
    Ok(serde_json::from_str(&text)?)
}

/// Sum over the seconds of a run in `window`.
fn sum_of_seconds(report: &Value, window: &Range<u32>, of: &dyn Fn(&Value) -> f64) -> f64 {
    let seconds = report["seconds"].as_array().into_iter().flatten();
    let is_inside = |second: &&Value| {
        let at = second["at"].as_u64().and_then(|at| u32::try_from(at).ok());
        at.is_some_and(|at| window.contains(&at))
    };
    seconds.filter(is_inside).map(of).sum()
}

impl ClusterRun {
    /// What must not happen in a run, with its number. Results of such a run of Throng are not used.
    pub(super) fn faults(&self) -> Vec<String> {
        let totals = &self.report["totals"];
        let counters = [
            "login_errors",
            "sessions_lost",
            "messages_lost",
            "messages_refused",
            "messages_duplicate",
            "timeouts",
        ];
        let count = |counter: &str| totals["counters"][counter]["total"].as_u64().unwrap_or(0);
        counters
            .into_iter()
            .filter(|counter| count(counter) > 0)
            .map(|counter| format!("{counter}: {}", count(counter)))
            .collect()
    }

    fn check(&self, users: u32) -> Result<()> {
        let totals = &self.report["totals"];
        let online = totals["gauges"]["online"].as_u64().unwrap_or(0);
        ensure!(online == u64::from(users), "{online} of {users} users were online");
        ensure!(self.delivered > 0.0, "nothing was delivered in the measured seconds");
        Ok(())
    }

    /// CPU of all nodes for a delivered stanza, in microseconds.
    pub(super) fn node_us(&self) -> f64 {
        self.cpu.nodes / self.delivered
    }

    /// CPU of NATS for a delivered stanza, in microseconds.
    pub(super) fn nats_us(&self) -> f64 {
        self.cpu.nats / self.delivered
    }

    /// A count of the measured seconds, per second.
    pub(super) fn per_second(&self, count: f64) -> f64 {
        count / self.seconds
    }

    /// Milliseconds of a percentile of a timing after all users had arrived.
    pub(super) fn latency_ms(&self, timing: &str, percentile: &str) -> f64 {
        self.report["totals"]["after_arrivals"][timing][percentile].as_f64().unwrap_or(0.0) / 1e3
    }

    /// The generator's own lateness at p99, in milliseconds.
    pub(super) fn lateness_ms(&self) -> f64 {
        self.latency_ms("lateness", "p99")
    }

    /// Cores in use by nodes, NATS, database and generator.
    pub(super) fn cores(&self) -> f64 {
        let CpuUse { nodes, nats, database, generator } = self.cpu;
        (nodes + nats + database + generator) / 1e6 / self.seconds
    }
}

impl fmt::Display for ClusterRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = |us: f64| us / 1e6 / self.seconds;
        write!(
            f,
            "{:.0} stanzas/s, {:.2} us in nodes and {:.2} us in NATS for each; cores: nodes {:.2}, NATS {:.2}, \
             database {:.2}, generator {:.2}",
            self.per_second(self.delivered),
            self.node_us(),
            self.nats_us(),
            cores(self.cpu.nodes),
            cores(self.cpu.nats),
            cores(self.cpu.database),
            cores(self.cpu.generator)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterLoad, shell_line, sum_of_seconds};
    use serde_json::json;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    #[test]
    fn the_measured_seconds_follow_the_last_login() {
        let generator = PathBuf::from("throng");
        let load =
            ClusterLoad { generator, users: 1_001, factor: 100.0, rate: 100, seconds: 15, chaos: false };
        assert_eq!(load.window(), 13..28);
        let seconds = [12, 13, 27, 28].map(|at| json!({ "at": at, "counters": { "a": at } }));
        let report = json!({ "seconds": seconds });
        let sum = sum_of_seconds(&report, &load.window(), &|second| {
            second["counters"]["a"].as_f64().unwrap_or(0.0)
        });
        assert!((sum - 40.0).abs() < 1e-9);
    }

    #[test]
    fn the_line_that_starts_a_node_is_quoted() {
        let mut serve = Command::new("/a b/throng");
        serve.args(["serve", "--config", "it's"]);
        assert_eq!(
            shell_line(&serve, Path::new("/l")),
            r"exec setpriv --pdeathsig TERM -- '/a b/throng' 'serve' '--config' 'it'\''s' >>'/l' 2>&1"
        );
    }
}
