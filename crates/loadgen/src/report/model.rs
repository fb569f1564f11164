//! A run as it is kept: the JSON that `throng load` writes, the page shows and `throng load compare` reads.
//!
//! Times are microseconds unless a name says otherwise. Names of counters, gauges and timings are those of
//! [`crate::measure`]; transactions are `tr:<name>`. A reader of an older file finds missing fields empty.
//!
//! Trap: `seconds` has one entry for each second with anything in it, in order; a second in which a worker was late is
//! merged when it arrives, so figures of the last few seconds of a live run can still grow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::{SparseHistogram, TimingSummary};

/// Version of this form; a reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// See [`FORMAT`].
    pub format: u32,
    /// What was run, where.
    pub about: RunInfo,
    /// Phases with their beginnings.
    pub phases: Vec<PhaseRun>,
    /// What happened, second by second.
    pub seconds: Vec<SecondReport>,
    /// The whole run.
    pub totals: RunTotals,
    /// The steps of a run over BOSH or WebSocket, as the published test of BOSH has them.
    pub steps: Vec<super::bosh_steps::StepRow>,
    /// Processes of the server, by sample.
    pub server: Vec<ServerSample>,
    /// Series from `/metrics` that were charted: name with labels, and (second, value).
    pub scraped: Vec<(String, Vec<(u32, f64)>)>,
    /// The workers.
    pub workers: Vec<WorkerRun>,
    /// What a reader must know before believing the figures: lateness, limits, dead workers. Whole sentences.
    pub warnings: Vec<String>,
    /// What `fail_on` and `--fail-on` asked, and what came of it.
    pub thresholds: Vec<ThresholdRun>,
    /// Lines of the run's log.
    pub log: Vec<String>,
}

/// One condition on which a run fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThresholdRun {
    /// As it was written.
    pub expression: String,
    /// What was measured, for the reader.
    pub measured: String,
    /// The condition holds, so the run has failed.
    pub missed: bool,
}

/// What was run, where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Name of the workload or file.
    pub plan: String,
    /// One line about it.
    pub title: String,
    /// Address of the server.
    pub target: String,
    /// Name of the server for charts: `--label`, or what XEP-0092 answered, or the address.
    pub label: String,
    /// Beginning, seconds since 1970.
    pub started: i64,
    /// The same by the monotonic clock of the controller's machine, in microseconds: other programs of that machine align
    /// what they measure with the seconds of the run.
    pub started_monotonic: u64,
    /// Length of the run in seconds, the drain included.
    pub length: f64,
    /// Second in which all streams began to be closed.
    pub closing: Option<u32>,
    /// Connections asked for.
    pub connections: u32,
    /// Contacts of each account that the plan asks for; `None` where it does not say.
    pub roster: Option<u32>,
    /// Protection of the connections that was asked for: `auto`, `none`, `starttls` or `direct`.
    pub security: String,
    /// How many times faster than the plan says.
    pub time_scale: f64,
    /// Answers within this are acceptable, in milliseconds.
    pub acceptable_ms: u64,
    /// The command line.
    pub command: String,
    /// Version of the generator.
    pub version: String,
    /// Machine of the controller: cores and memory in bytes.
    pub cores: u32,
    /// See `cores`.
    pub memory: u64,
    /// How it ended: `finished`, `interrupted`, or a sentence.
    pub end: String,
}

/// A phase as it went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseRun {
    /// Its name.
    pub name: String,
    /// First second.
    pub from: u32,
}

/// One second of all workers together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondReport {
    /// Second of the run.
    pub at: u32,
    /// By name of the counter; zeros left out.
    pub counters: BTreeMap<String, u64>,
    /// By name of the gauge.
    pub gauges: BTreeMap<String, i64>,
    /// By name of the timing.
    pub timings: BTreeMap<String, TimingSummary>,
    /// By kind.
    pub errors: BTreeMap<String, u64>,
    /// CPU of all workers in this second, in cores.
    pub generator_cpu: f64,
    /// CPU of the busiest worker, in cores, without its threads for key derivation.
    pub busiest_cpu: f64,
    /// Resident memory of all workers in bytes.
    pub generator_rss: u64,
}

/// The whole run in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTotals {
    /// By name of the counter.
    pub counters: BTreeMap<String, CounterTotal>,
    /// By name of the gauge: the highest value.
    pub gauges: BTreeMap<String, i64>,
    /// By name of the timing.
    pub timings: BTreeMap<String, TimingTotal>,
    /// The same of the seconds in which all users had arrived: what a server does when nobody logs in.
    pub after_arrivals: BTreeMap<String, TimingSummary>,
    /// By kind.
    pub errors: BTreeMap<String, CounterTotal>,
    /// Logins by what protected the connection and the mechanism, such as `STARTTLS, TLSv1.3, SCRAM-SHA-256`.
    pub used: BTreeMap<String, u64>,
}

/// A counter over the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterTotal {
    /// In all.
    pub total: u64,
    /// Highest rate of one second.
    pub highest_rate: f64,
    /// Mean rate over the run.
    pub mean_rate: f64,
}

/// A timing over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimingTotal {
    /// Percentiles and means.
    pub summary: TimingSummary,
    /// Highest mean of 10 s (Tsung's column).
    pub highest_10s: f64,
    /// Lowest mean of 10 s.
    pub lowest_10s: f64,
    /// Highest rate of one second.
    pub highest_rate: f64,
    /// Mean rate over the run.
    pub mean_rate: f64,
    /// The histogram.
    pub histogram: SparseHistogram,
}

/// The server's side at one moment: sums over its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSample {
    /// Second of the run.
    pub at: u32,
    /// CPU in cores since the last sample.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Proportional memory in bytes; 0 where it cannot be read.
    pub pss: u64,
    /// Threads.
    pub threads: u32,
    /// Open files.
    pub files: u32,
    /// Memory of the machine's TCP sockets in bytes.
    pub sockets: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRun {
    /// Address or `local`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Users it had at most at one time.
    pub users: u32,
    /// CPU in seconds over the run.
    pub cpu: f64,
    /// Highest resident memory in bytes.
    pub rss: u64,
    /// Resident memory before the first user, in bytes.
    pub rss_empty: u64,
    /// When it died, if it did: second of the run, and users that were lost with it.
    pub died: Option<(u32, u32)>,
}
