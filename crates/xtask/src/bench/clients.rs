//! Clients of the benches: runs of `throng load` with a generated plan, and the CPU of the server during the run.
//!
//! A run writes `run.json`, which has the counters of each second. The CPU of the server is sampled meanwhile by the
//! same clock, so that it can be read off between any two moments of the run.
//!
//! # Pitfalls
//!
//! A window that begins or ends in the middle of a change is wrong by up to the distance of the samples (100 ms); plans
//! leave an idle second before and after what is measured, or drop its first and its last second.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cpu_timeline::{CpuSamples, CpuTimeline};
use super::process::{BenchFolder, ChildGuard, log_tail};

/// Security of the clients' connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ClientSecurity {
    /// Plain TCP.
    None,
    /// STARTTLS.
    Starttls,
    /// TLS from the first byte (XEP-0368).
    Direct,
}

impl ClientSecurity {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Starttls => "starttls",
            Self::Direct => "direct",
        }
    }
}

/// Options of the clients of a server.
#[derive(Clone)]
pub(crate) struct ClientOptions {
    /// The program whose `throng load` runs.
    pub(crate) generator: PathBuf,
    /// Address of the server.
    pub(crate) address: SocketAddr,
    /// Process of the server.
    pub(crate) pid: u32,
    /// Process of the server's database, whose CPU is measured beside.
    pub(crate) database_pid: Option<u32>,
    /// The domain of the accounts.
    pub(crate) domain: String,
    /// Account names are this and a number.
    pub(crate) prefix: String,
    /// The password of all accounts.
    pub(crate) password: String,
    /// Plain TCP or TLS.
    pub(crate) security: ClientSecurity,
    /// The server is the relay, which knows PLAIN only.
    pub(crate) relay: bool,
}

/// A plan for `throng load`.
pub(crate) struct BenchPlan {
    /// Connections, and accounts.
    pub(crate) connections: usize,
    /// Number of the first account.
    pub(crate) first: usize,
    /// How long to stay after the last arrival.
    pub(crate) hold: String,
    /// `[[phase]]` and `[[session]]`, as `docs/load-plans.md` has them.
    pub(crate) body: String,
}

impl ClientOptions {
    /// The mechanism of logins that are not measured.
    pub(crate) fn usual_mechanism(&self) -> &'static str {
        if self.relay { "PLAIN" } else { "SCRAM-SHA-1" }
    }

    /// The step of a login with `mechanism`, and the resource to which others send.
    pub(crate) fn login(&self, mechanism: &str) -> String {
        let mechanism = if self.relay { "PLAIN" } else { mechanism };
        format!("{{ login = {{ mechanisms = [\"{mechanism}\"], resource = \"bench\" }} }}")
    }

    /// Starts a run of `plan`.
    pub(crate) fn start(&self, plan: &BenchPlan) -> Result<LoadRun> {
        self.start_with(plan, &[])
    }

    /// Starts a run of `plan` whose report has the memory of the server as well.
    pub(crate) fn start_monitored(&self, plan: &BenchPlan) -> Result<LoadRun> {
        self.start_with(plan, &["--pid", &self.pid.to_string(), "--children"])
    }

    fn start_with(&self, plan: &BenchPlan, flags: &[&str]) -> Result<LoadRun> {
        let folder = BenchFolder::new(false)?;
        let file = folder.path().join("bench.toml");
        fs::write(&file, self.text(plan))?;
        let mut load = Command::new(&self.generator);
        load.arg("load").arg(&file).args(["--target", &self.address.to_string(), "--workers", "1"]);
        load.args(["--quiet", "--plain", "--out"]).arg(folder.path().join("out")).args(flags);
        load.arg("--salts").arg(folder.path().join("salts.json"));
        load.env("THRONG_LOAD_PASSWORD", &self.password);
        if self.address.ip().is_loopback() && self.address.is_ipv4() {
            // Ports of closed connections rest for a minute; several source addresses have enough of them.
            load.args(["--source", "127.0.0.2-127.0.0.17"]);
        }
        let timeline = CpuTimeline::start(self.pid)?;
        let database_timeline = self.database_pid.map(CpuTimeline::start).transpose()?;
        let child = ChildGuard::start(&load, &folder.path().join("load.log"))?;
        Ok(LoadRun { child, folder, timeline, database_timeline })
    }

    /// Runs `plan` to its end.
    pub(crate) fn run(&self, plan: &BenchPlan) -> Result<MeasuredRun> {
        self.start(plan)?.finish()
    }

    fn text(&self, plan: &BenchPlan) -> String {
        format!(
            "connections = {connections}\n\n\
             [target]\ndomain = \"{domain}\"\nsecurity = \"{security}\"\n\n\
             [accounts]\nprefix = \"{prefix}\"\nfirst = {first}\n\n\
             [options]\nhold = \"{hold}\"\ndrain = \"10s\"\n\n{body}",
            connections = plan.connections,
            domain = self.domain,
            security = self.security.name(),
            prefix = self.prefix,
            first = plan.first,
            hold = plan.hold,
            body = plan.body,
        )
    }
}

/// A running load run; ended on drop.
pub(crate) struct LoadRun {
    child: ChildGuard,
    folder: BenchFolder,
    timeline: CpuTimeline,
    database_timeline: Option<CpuTimeline>,
}

impl LoadRun {
    /// Fails when the run has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        let log = self.folder.path().join("load.log");
        self.child.check_running().with_context(|| format!("throng load; its log ends:\n{}", log_tail(&log)))
    }

    /// Ends the run in order, before its time, and reads what it measured.
    pub(crate) fn stop(self) -> Result<MeasuredRun> {
        self.child.interrupt();
        self.finish()
    }

    /// Waits for the end of the run and reads what it measured.
    pub(crate) fn finish(self) -> Result<MeasuredRun> {
        let (status, log, run) = self.end()?;
        ensure!(status.success(), "throng load ended with {status}: {log}");
        run.check()?;
        Ok(run)
    }

    /// The same with faults of the server, which are results of the run.
    pub(crate) fn finish_with_faults(self) -> Result<MeasuredRun> {
        Ok(self.end()?.2)
    }

    fn end(mut self) -> Result<(ExitStatus, String, MeasuredRun)> {
        let log = self.folder.path().join("load.log");
        let status = self.child.wait()?;
        // Work of the server after the last close counts as part of it.
        std::thread::sleep(Duration::from_millis(100));
        let cpu = self.timeline.finish()?;
        let database_cpu = self.database_timeline.map(CpuTimeline::finish).transpose()?;
        let log = log_tail(&log);
        let text = fs::read_to_string(self.folder.path().join("out/run.json"))
            .with_context(|| format!("throng load ended with {status} and wrote no report: {log}"))?;
        let salts = fs::read_to_string(self.folder.path().join("salts.json")).unwrap_or_default();
        let run = MeasuredRun {
            report: serde_json::from_str(&text)?,
            salts: serde_json::from_str(&salts).unwrap_or_default(),
            cpu,
            database_cpu,
        };
        ensure!(
            run.started() > 0,
            "the generator does not report when it began; give a newer one with --generator"
        );
        Ok((status, log, run))
    }
}

/// A run that has ended.
pub(crate) struct MeasuredRun {
    report: Value,
    salts: Value,
    cpu: CpuSamples,
    database_cpu: Option<CpuSamples>,
}

impl MeasuredRun {
    /// Results of a run with errors are not used.
    fn check(&self) -> Result<()> {
        for counter in
            ["login_errors", "sessions_lost", "messages_lost", "messages_refused", "timeouts", "skipped"]
        {
            let count = self.total(counter);
            ensure!(count == 0, "{counter}: {count}; {}", self.report["totals"]["errors"]);
        }
        Ok(())
    }

    /// A counter over the whole run.
    pub(crate) fn total(&self, counter: &str) -> u64 {
        self.report["totals"]["counters"][counter]["total"].as_u64().unwrap_or(0)
    }

    /// The highest value of a gauge.
    pub(crate) fn highest(&self, gauge: &str) -> u64 {
        self.report["totals"]["gauges"][gauge].as_u64().unwrap_or(0)
    }

    /// Milliseconds of a percentile (`p50`, `p99`, `max`, `mean`) of a timing after all users had arrived.
    pub(crate) fn after_arrivals_ms(&self, timing: &str, statistic: &str) -> f64 {
        self.report["totals"]["after_arrivals"][timing][statistic].as_f64().unwrap_or(0.0) / 1e3
    }

    /// Milliseconds of a statistic of a timing over the whole run.
    pub(crate) fn total_ms(&self, timing: &str, statistic: &str) -> f64 {
        self.report["totals"]["timings"][timing]["summary"][statistic].as_f64().unwrap_or(0.0) / 1e3
    }

    /// Iteration count of the SCRAM challenges.
    pub(crate) fn scram_iterations(&self) -> Option<u32> {
        let salts = self.salts["salts"].as_object()?;
        u32::try_from(salts.values().next()?["iterations"].as_u64()?).ok()
    }

    /// Beginning of the run by the monotonic clock, microseconds.
    fn started(&self) -> u64 {
        self.report["about"]["started_monotonic"].as_u64().unwrap_or(0)
    }

    /// Highest value of a statistic of a timing among the seconds of another run, in milliseconds.
    pub(crate) fn highest_ms_during(
        &self,
        timing: &str,
        statistic: &str,
        other: &MeasuredRun,
        seconds: &Range<usize>,
    ) -> f64 {
        let at = |second: usize| other.started() + second as u64 * 1_000_000;
        let (from, to) = (at(seconds.start), at(seconds.end));
        let is_during = |second: &&Value| {
            let begin = self.started() + second["at"].as_u64().unwrap_or(0) * 1_000_000;
            begin + 1_000_000 > from && begin < to
        };
        let seconds = self.report["seconds"].as_array().into_iter().flatten().filter(is_during);
        seconds.filter_map(|it| it["timings"][timing][statistic].as_f64()).fold(0.0, f64::max) / 1e3
    }

    /// Resident memory of the server in the last sample up to a second, in bytes. Only of a monitored run.
    pub(crate) fn resident_at(&self, second: usize) -> Option<f64> {
        let samples = self.report["server"].as_array()?;
        let is_before = |sample: &&Value| sample["at"].as_u64().is_some_and(|at| at <= second as u64);
        samples.iter().rev().find(is_before)?["rss"].as_f64()
    }

    /// All errors by kind, as JSON.
    pub(crate) fn errors(&self) -> String {
        self.report["totals"]["errors"].to_string()
    }

    /// Count in each second, from the first.
    fn by_second(&self, count: impl Fn(&Value) -> u64) -> Vec<u64> {
        let mut counts = Vec::new();
        for second in self.report["seconds"].as_array().into_iter().flatten() {
            let at = second["at"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
            counts.resize(counts.len().max(at + 1), 0);
            counts[at] = count(second);
        }
        counts
    }

    /// Seconds of steady work: all whole seconds with more than half of the highest count, without the first and the
    /// last. `count` is a counter, or `timing:NAME` for the number of its values.
    pub(crate) fn steady(&self, count: &str) -> Result<Window> {
        let counts = self.by_second(|second| count_of(second, count));
        let range = busiest(&counts).with_context(|| {
            format!("{count} in each second: {counts:?}; too few whole seconds, use longer ones (--seconds)")
        })?;
        Ok(Window { count: counts[range.clone()].iter().sum(), seconds: range })
    }

    /// Bursts of a counter: runs of seconds with a count, with silence before and after.
    pub(crate) fn bursts(&self, counter: &str) -> Vec<Window> {
        let counts = self.by_second(|second| count_of(second, counter));
        bursts(&counts)
    }

    /// Nanoseconds of the server's CPU in whole seconds of the run.
    pub(crate) fn cpu_ns(&self, seconds: &Range<usize>) -> Result<f64> {
        self.cpu_between(&self.cpu, seconds)
    }

    /// The same of its database; 0 if it is in the server's process.
    pub(crate) fn database_cpu_ns(&self, seconds: &Range<usize>) -> Result<f64> {
        self.database_cpu.as_ref().map_or(Ok(0.0), |samples| self.cpu_between(samples, seconds))
    }

    fn cpu_between(&self, samples: &CpuSamples, seconds: &Range<usize>) -> Result<f64> {
        let at = |second: usize| self.started() + second as u64 * 1_000_000;
        Ok(samples.used_at(at(seconds.end))? - samples.used_at(at(seconds.start))?)
    }

    /// The second in which the streams began to be closed.
    pub(crate) fn closing(&self) -> Result<usize> {
        let closing = self.report["about"]["closing"].as_u64().context("the run has no end")?;
        Ok(usize::try_from(closing)?)
    }

    /// Nanoseconds of the server's CPU from a second of the run to its end.
    pub(crate) fn cpu_ns_from(&self, second: usize) -> Result<f64> {
        Ok(self.cpu.used_at_end()? - self.cpu.used_at(self.started() + second as u64 * 1_000_000)?)
    }
}

/// Whole seconds of a run and what was counted in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) seconds: Range<usize>,
    pub(crate) count: u64,
}

impl Window {
    /// Counts in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds.len().max(1) as f64
    }
}

fn count_of(second: &Value, name: &str) -> u64 {
    let value = match name.strip_prefix("timing:") {
        Some(timing) => &second["timings"][timing]["count"],
        None => &second["counters"][name],
    };
    value.as_u64().unwrap_or(0)
}

fn busiest(counts: &[u64]) -> Option<Range<usize>> {
    let highest = counts.iter().max()?;
    let is_busy = |count: &u64| *count * 2 > *highest;
    let first = counts.iter().position(is_busy)?;
    let last = counts.iter().rposition(is_busy)?;
    (last >= first + 2).then(|| first + 1..last)
}

fn bursts(counts: &[u64]) -> Vec<Window> {
    let mut found: Vec<Window> = Vec::new();
    for (second, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        match found.last_mut() {
            Some(window) if window.seconds.end == second => {
                window.seconds.end += 1;
                window.count += count;
            }
            _ => found.push(Window { seconds: second..second + 1, count: *count }),
        }
    }
    found
}

/// Established TCP connections whose local end is `address`, of this machine.
pub(crate) fn established(address: SocketAddr) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(Path::new(path)));
    tables.into_iter().flatten().map(|table| established_in(&table, address.port())).sum()
}

fn established_in(table: &str, port: u16) -> usize {
    let local = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        // Local address, remote address, state; 01 is ESTABLISHED.
        fields.next().is_some_and(|field| field.ends_with(&local)) && fields.nth(1) == Some("01")
    };
    table.lines().filter(is_open).count()
}

#[cfg(test)]
mod tests {
    use super::{Window, bursts, busiest, established_in};

    #[test]
    fn steady_seconds_are_the_busy_ones_without_the_first_and_the_last() {
        assert_eq!(busiest(&[0, 0, 40, 100, 98, 99, 60, 3]), Some(4..6));
        assert_eq!(busiest(&[0, 100, 100]), None, "no whole second is left");
        assert_eq!(busiest(&[]), None);
    }

    #[test]
    fn bursts_are_separated_by_silence() {
        let windows = bursts(&[3, 4, 0, 0, 5, 0]);
        assert_eq!(windows, [Window { seconds: 0..2, count: 7 }, Window { seconds: 4..5, count: 5 }]);
    }

    #[test]
    fn only_established_connections_of_the_port_count() {
        let table = "  sl  local_address rem_address   st\n\
            0: 0100007F:1466 00000000:0000 0A 0\n\
            1: 0100007F:1466 0200007F:9C40 01 0\n\
            2: 0200007F:9C40 0100007F:1466 01 0\n\
            3: 0100007F:1466 0300007F:9C41 06 0\n";
        assert_eq!(established_in(table, 0x1466), 1);
    }
}
