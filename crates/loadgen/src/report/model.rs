//! Data model of a finished run: the JSON that `throng load` writes, the page shows and `throng load compare` reads.
//!
//! Times are in microseconds unless a name says otherwise. Names of counters, gauges and timings are those of
//! [`crate::measure`]; transactions are `tr:<name>`. Fields missing in an older file are read as empty.
//!
//! # Pitfalls
//!
//! `seconds` has one entry, in order, for each second in which anything happened. A late report of a worker is merged
//! when it arrives, so the values of the last few seconds of a live run can still grow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::{SparseHistogram, TimingSummary};

/// Version of the format; a reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// See [`FORMAT`].
    pub format: u32,
    /// Plan, target and machine of the run.
    pub about: RunInfo,
    /// Phases with their starts.
    pub phases: Vec<PhaseRun>,
    /// Events per second.
    pub seconds: Vec<SecondReport>,
    /// Totals over the whole run.
    pub totals: RunTotals,
    /// Steps of a run over BOSH or WebSocket, as in the published BOSH benchmark.
    pub steps: Vec<super::bosh_steps::StepRow>,
    /// Samples of the server's processes.
    pub server: Vec<ServerSample>,
    /// Charted series from `/metrics`: name with labels, and (second, value).
    pub scraped: Vec<(String, Vec<(u32, f64)>)>,
    /// Worker processes.
    pub workers: Vec<WorkerRun>,
    /// Reservations about the metrics: lateness, limits, dead workers. Whole sentences.
    pub warnings: Vec<String>,
    /// Conditions of `fail_on` and `--fail-on` with their results.
    pub thresholds: Vec<ThresholdRun>,
    /// Failures that the run caused.
    pub chaos: Vec<ChaosEvent>,
    /// Log lines of the run.
    pub log: Vec<String>,
}

/// A failure that the run caused, or the end of a command that it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChaosEvent {
    /// Seconds after the start of the run.
    pub at: f64,
    /// What was done.
    pub action: String,
    /// `done`, an error, or the exit status of a command.
    pub result: String,
}

/// One condition that fails a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThresholdRun {
    /// Expression as written.
    pub expression: String,
    /// Measured value, formatted.
    pub measured: String,
    /// Whether the condition held, so that the run failed.
    pub missed: bool,
}

/// Plan, target and machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Name of the workload or file.
    pub plan: String,
    /// One-line description.
    pub title: String,
    /// Address of the server.
    pub target: String,
    /// Name of the server for charts: `--label`, its response to XEP-0092, or the address.
    pub label: String,
    /// Start, in seconds since 1970.
    pub started: i64,
    /// Start by the monotonic clock of the controller's machine, in microseconds, so that other programs there can
    /// align their measurements with the seconds of the run.
    pub started_monotonic: u64,
    /// Length of the run in seconds, the drain included.
    pub length: f64,
    /// Second in which all streams began to be closed.
    pub closing: Option<u32>,
    /// Connections requested.
    pub connections: u32,
    /// Contacts per account that the plan requires; `None` if unspecified.
    pub roster: Option<u32>,
    /// Requested protection of the connections: `auto`, `none`, `starttls` or `direct`.
    pub security: String,
    /// Users returned after failures, so acknowledgements are accounted for.
    pub failover: bool,
    /// Speed-up factor relative to the plan.
    pub time_scale: f64,
    /// Largest acceptable response time, in milliseconds.
    pub acceptable_ms: u64,
    /// Command line.
    pub command: String,
    /// Version of the generator.
    pub version: String,
    /// Processor cores of the controller's machine.
    pub cores: u32,
    /// Memory of that machine in bytes.
    pub memory: u64,
    /// End of the run: `finished`, `interrupted`, or a sentence.
    pub end: String,
}

/// A phase that was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseRun {
    /// Name of the phase.
    pub name: String,
    /// First second.
    pub from: u32,
}

/// One second, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondReport {
    /// Second of the run.
    pub at: u32,
    /// By name of the counter; zeros are omitted.
    pub counters: BTreeMap<String, u64>,
    /// By name of the gauge.
    pub gauges: BTreeMap<String, i64>,
    /// By name of the timing.
    pub timings: BTreeMap<String, TimingSummary>,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// CPU of all workers in this second, in cores.
    pub generator_cpu: f64,
    /// CPU of the busiest worker, in cores, without its threads for key derivation.
    pub busiest_cpu: f64,
    /// Resident memory of all workers in bytes.
    pub generator_rss: u64,
}

/// Totals of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTotals {
    /// By name of the counter.
    pub counters: BTreeMap<String, CounterTotal>,
    /// Maximum, by name of the gauge.
    pub gauges: BTreeMap<String, i64>,
    /// By name of the timing.
    pub timings: BTreeMap<String, TimingTotal>,
    /// Timings of the seconds after all users had arrived: the behaviour of a server without logins.
    pub after_arrivals: BTreeMap<String, TimingSummary>,
    /// Errors by kind.
    pub errors: BTreeMap<String, CounterTotal>,
    /// Logins by protection of the connection and mechanism, such as `STARTTLS, TLSv1.3, SCRAM-SHA-256`.
    pub used: BTreeMap<String, u64>,
}

/// A counter over the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterTotal {
    /// Total.
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
    /// Highest mean over 10 s (Tsung's column).
    pub highest_10s: f64,
    /// Lowest mean over 10 s.
    pub lowest_10s: f64,
    /// Highest rate of one second.
    pub highest_rate: f64,
    /// Mean rate over the run.
    pub mean_rate: f64,
    /// The histogram.
    pub histogram: SparseHistogram,
}

/// Sample of the server: sums over its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSample {
    /// Second of the run.
    pub at: u32,
    /// CPU in cores since the last sample.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Proportional memory (PSS) in bytes; 0 if it cannot be read.
    pub pss: u64,
    /// Threads.
    pub threads: u32,
    /// Open file descriptors.
    pub files: u32,
    /// Memory of all TCP sockets of the machine in bytes.
    pub sockets: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRun {
    /// Address or `local`.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Peak number of users.
    pub users: u32,
    /// CPU in seconds over the run.
    pub cpu: f64,
    /// Peak resident memory in bytes.
    pub rss: u64,
    /// Resident memory before the first user, in bytes.
    pub rss_empty: u64,
    /// Second of the run in which it died, if it did, and the number of users lost with it.
    pub died: Option<(u32, u32)>,
}
