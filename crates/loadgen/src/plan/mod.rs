//! Plan of a run, as data: the result of a TOML file, a named workload or a Tsung scenario, and the input of workers.
//!
//! Times are milliseconds, rates are per second, sizes are bytes, unless a name says otherwise. Steps are nested here;
//! the engine compiles them ([`crate::engine`]).
//!
//! Not implemented: settings that only one of the three sources has and no worker needs, such as the machines requested
//! by a scenario.
//!
//! # Pitfalls
//!
//! Every worker reads the same plan; data that differs between workers (their users) belongs in the assignment.

mod accounts;
mod answer;
mod arguments;
mod check;
pub(crate) mod csv;
mod error;
mod options;
pub(crate) mod overrides;
pub(crate) mod pubsub;
pub(crate) mod room;
pub(crate) mod scale;
mod step;
mod text;
mod threshold;
mod toml;
mod web;
mod workloads;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use accounts::{AccountSource, TestAccounts};
pub use answer::{
    ComparisonOperator, MatchAction, ResponseChecks, ResponseMatch, StanzaPattern, VariableCondition,
};
pub use arguments::{AccountOverrides, PlanOverrides};
pub use check::{MECHANISMS, MachineCapacity, WorkerEstimate, check, workers_needed};
pub use error::PlanError;
pub(crate) use error::nearest;
pub use options::{DataTable, PlanOptions};
pub use pubsub::{PubSubNodeSelection, PubSubStep};
pub use room::{RoomSelection, RoomStep};
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

/// A complete plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Name of the workload or file, for the report.
    pub name: String,
    /// One-line title of the report.
    pub title: String,
    /// Server under test and how to connect to it.
    pub target: PlanTarget,
    /// Accounts that log in.
    pub accounts: TestAccounts,
    /// Arrival phases, one after the other.
    pub phases: Vec<ArrivalPhase>,
    /// Single users that start at a given time (Tsung's `<user>`).
    pub starts: Vec<UserStart>,
    /// Behaviour of users.
    pub sessions: Vec<UserSession>,
    /// Names of transactions, by number.
    pub transactions: Vec<String>,
    /// Limits and options.
    pub options: PlanOptions,
}

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTarget {
    /// Addresses. Each gets the same number of users.
    pub addresses: Vec<SocketAddr>,
    /// XMPP domain: `to` of the stream, and domain of every account without its own.
    pub domain: String,
    /// Transport security.
    pub security: TransportSecurity,
    /// TLS settings.
    pub tls: PlanTls,
    /// Source addresses, used in turn; if empty, the system chooses.
    pub sources: Vec<std::net::IpAddr>,
    /// Transport of the stream, and parameters of BOSH and WebSocket.
    #[serde(default)]
    pub web: HttpBinding,
}

/// Transport security.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportSecurity {
    /// STARTTLS where the server offers it, no TLS where it does not.
    #[default]
    Auto,
    /// No TLS.
    None,
    /// STARTTLS (RFC 6120, section 5).
    Starttls,
    /// TLS from the first byte (XEP-0368).
    Direct,
}

impl TransportSecurity {
    /// Its word in plans and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Starttls => "starttls",
            Self::Direct => "direct",
        }
    }
}

/// TLS settings. File contents, not paths: workers on other machines do not have the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanTls {
    /// PEM of the authorities that must have signed the server's certificate; `None` accepts any certificate.
    pub ca_pem: Option<String>,
    /// PEM of the client's certificate chain, for EXTERNAL.
    pub certificate_pem: Option<String>,
    /// PEM of the client's private key.
    pub key_pem: Option<String>,
    /// Resume TLS sessions with tickets.
    pub resume: bool,
    /// Refuse TLS 1.3, to measure 1.2.
    pub only_tls12: bool,
}

/// A period in which users arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalPhase {
    /// Name for display.
    pub name: String,
    /// Duration of arrivals; `None`: until `max_users` have arrived.
    pub duration_ms: Option<u64>,
    /// Users per second; 0 makes the phase a pause.
    pub rate: f64,
    /// Users per simultaneous batch, as in `openfire-bosh` (10 every 2 s is rate 5, batch 10).
    pub batch: u32,
    /// Exponentially distributed intervals between arrivals instead of even ones.
    pub poisson: bool,
    /// Maximum number of arrivals of this phase.
    pub max_users: Option<u32>,
    /// Weights of the sessions in this phase, if they differ; same order as [`LoadPlan::sessions`].
    pub weights: Option<Vec<f64>>,
    /// Start the next phase only when all users of this one have ended.
    pub wait_all_end: bool,
    /// Closed-loop arrivals instead of a rate: at most this many users between their arrival and their first pause.
    #[serde(default)]
    pub concurrency: Option<u32>,
}

impl ArrivalPhase {
    /// Whether users arrive; otherwise the phase is a pause.
    pub fn arrives(&self) -> bool {
        self.rate > 0.0 || self.concurrency.is_some()
    }
}

/// One user that starts at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserStart {
    /// Start in milliseconds after that of the run.
    pub at_ms: u64,
    /// Index of the session.
    pub session: u16,
}

/// Behaviour of a user from arrival to departure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserSession {
    /// Name for the report.
    pub name: String,
    /// Share of the arrivals, relative to the other sessions.
    pub weight: f64,
    /// Accept subscription requests automatically (Tsung's `bidi`).
    pub accept_subscriptions: bool,
    /// Steps in order. The stream is closed at the end.
    pub steps: Vec<PlanStep>,
}
