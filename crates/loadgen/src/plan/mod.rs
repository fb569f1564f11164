//! The plan of a run, as data: what a TOML file, a named workload or a Tsung scenario becomes, and what workers are sent.
//!
//! Times are milliseconds, rates are per second, sizes are bytes, unless a name says otherwise. Steps nest here; the
//! engine flattens them ([`crate::engine`]). Left out: everything that only one of the three sources has and no worker
//! needs, such as the scenario's wishes for other machines.
//!
//! Trap: a plan is read by every worker and must say the same to each; what differs between workers (which users are
//! theirs) is in the assignment, not here.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

mod accounts;
mod answer;
mod arguments;
mod check;
pub(crate) mod csv;
mod error;
mod options;
pub(crate) mod overrides;
pub(crate) mod scale;
mod step;
mod text;
mod threshold;
mod toml;
mod web;
mod workloads;

pub use accounts::{AccountSource, TestAccounts};
pub use answer::{
    ComparisonOperator, MatchAction, ResponseChecks, ResponseMatch, StanzaPattern, VariableCondition,
};
pub use arguments::{AccountOverrides, PlanOverrides};
pub use check::{MECHANISMS, MachineCapacity, WorkerEstimate, check, workers_needed};
pub use error::PlanError;
pub(crate) use error::nearest;
pub use options::{DataTable, PlanOptions};
pub use step::{
    AckMode, Activity, Destination, MessageBody, MessageKind, PlanStep, PresenceKind, RosterChange,
};
pub use text::{TemplatePart, TextTemplate, TimeSpan, VariableValue};
pub(crate) use threshold::PARTS;
pub use threshold::{Statistic, Threshold, ThresholdOperator, ThresholdSubject};
pub(crate) use toml::SECURITIES;
pub use toml::{Preparation, addresses, read_toml, read_toml_with_preparation, sources};
pub use web::{HttpBinding, StreamTransport, TargetUrl, endpoint};
pub use workloads::{Workload, named, workload_text, workloads};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Name of the workload or of the file, for the report.
    pub name: String,
    /// One line for the reader of the report.
    pub title: String,
    /// Where the server is and how to speak to it.
    pub target: PlanTarget,
    /// Who logs in.
    pub accounts: TestAccounts,
    /// When users arrive, one phase after the other.
    pub phases: Vec<ArrivalPhase>,
    /// Single users that start at a given time (Tsung's `<user>`).
    pub starts: Vec<UserStart>,
    /// What users do.
    pub sessions: Vec<UserSession>,
    /// Names of transactions, in the order of their numbers.
    pub transactions: Vec<String>,
    /// Limits and habits.
    pub options: PlanOptions,
}

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTarget {
    /// Addresses, used in turn by arriving users.
    pub addresses: Vec<SocketAddr>,
    /// The XMPP domain: `to` of the stream, and of every account without its own.
    pub domain: String,
    /// How connections are protected.
    pub security: TransportSecurity,
    /// What TLS needs to know.
    pub tls: PlanTls,
    /// Local addresses to connect from, used in turn; empty: the system's choice.
    pub sources: Vec<std::net::IpAddr>,
    /// What carries the stream, and what BOSH and WebSocket need to know.
    #[serde(default)]
    pub web: HttpBinding,
}

/// How connections are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportSecurity {
    /// STARTTLS where the server offers it, no TLS where it does not.
    #[default]
    Auto,
    /// No TLS.
    None,
    /// STARTTLS (RFC 6120 section 5).
    Starttls,
    /// TLS from the first byte (XEP-0368).
    Direct,
}

impl TransportSecurity {
    /// The word for it in plans and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Starttls => "starttls",
            Self::Direct => "direct",
        }
    }
}

/// What TLS needs to know. File contents, not paths: workers on other machines have no such files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanTls {
    /// PEM of the authorities that must have signed the server's certificate; `None`: any certificate is taken.
    pub ca_pem: Option<String>,
    /// PEM of the client's certificate chain, for EXTERNAL.
    pub certificate_pem: Option<String>,
    /// PEM of the client's key.
    pub key_pem: Option<String>,
    /// Resume TLS sessions with tickets.
    pub resume: bool,
    /// Refuse TLS 1.3, to measure 1.2.
    pub only_tls12: bool,
}

/// A stretch of time in which users arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalPhase {
    /// For the reader.
    pub name: String,
    /// How long arrivals go on; `None`: until `max_users` arrived.
    pub duration_ms: Option<u64>,
    /// Users a second; 0 is a phase of waiting.
    pub rate: f64,
    /// Users in several at the same moment, as `openfire-bosh` has it (10 every 2 s is rate 5, batch 10).
    pub batch: u32,
    /// Arrivals at even or at exponentially distributed distances.
    pub poisson: bool,
    /// Arrivals of this phase at most.
    pub max_users: Option<u32>,
    /// Weights of the sessions in this phase, if they differ; same order as [`LoadPlan::sessions`].
    pub weights: Option<Vec<f64>>,
    /// The next phase begins when all users of this one have ended.
    pub wait_all_end: bool,
    /// Closed-loop arrivals in place of a rate: at most this many users between their arrival and their first pause.
    #[serde(default)]
    pub concurrency: Option<u32>,
}

impl ArrivalPhase {
    /// Users arrive in it; otherwise it is a pause.
    pub fn arrives(&self) -> bool {
        self.rate > 0.0 || self.concurrency.is_some()
    }
}

/// One user that starts at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserStart {
    /// After the beginning of the run.
    pub at_ms: u64,
    /// Index of the session.
    pub session: u16,
}

/// What a user does from arrival to departure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserSession {
    /// For the report.
    pub name: String,
    /// Share of the arrivals, relative to the other sessions.
    pub weight: f64,
    /// Accept subscription requests by themselves (Tsung's `bidi`).
    pub accept_subscriptions: bool,
    /// In order. At the end the stream is closed.
    pub steps: Vec<PlanStep>,
}
