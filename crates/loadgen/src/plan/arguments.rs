//! Plan overrides from the command line, which take precedence over the file or the named workload.
//!
//! Times given here are wall-clock times: [`PlanOverrides::time_scale`] does not affect them.
//! Not implemented: options that are not part of the plan (report path, workers, monitoring).
//!
//! # Pitfalls
//!
//! A value that the plan refers to by word (`users = "connections"`) is applied while the plan is read, before the time
//! scale; changing the plan's fields afterwards would leave phases and accounts inconsistent.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{PlanTls, TargetUrl, Threshold, TimeSpan, TransportSecurity};

/// Values from the command line. `None` and empty values keep the plan's own.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOverrides {
    /// Connections (`--connections`): meaning of the word `connections` in a plan. At least 1.
    pub connections: Option<u32>,
    /// Speed-up of the whole plan (`--time-scale`): times are divided by it and rates multiplied; timeouts (answer,
    /// connect, acceptable) are unchanged. Above 0.
    pub time_scale: f64,
    /// End of the run after this many milliseconds (`--duration`), arrivals included.
    pub duration_ms: Option<u64>,
    /// Time to stay once all phases have passed, in milliseconds (`--hold`).
    pub hold_ms: Option<u64>,
    /// Arrivals per second (`--rate`), in every phase that has arrivals.
    pub arrival_rate: Option<f64>,
    /// Interval between the messages of one user (`--every`), in every message activity of `meanwhile`.
    pub message_every: Option<TimeSpan>,
    /// Size of a message body in bytes (`--size`), in every message that has a size in the plan.
    pub message_size: Option<u32>,
    /// Messages in flight in each direction of a `bounce` (`--in-flight`).
    pub in_flight: Option<u32>,
    /// Addresses of the server (`--target`), resolved; see [`super::addresses`].
    pub addresses: Vec<SocketAddr>,
    /// Parameters of a `--target` with a scheme (`http://…`, `ws://…`); its address is in `addresses` too.
    pub endpoint: Option<TargetUrl>,
    /// Maximum number of sockets of all BOSH users together (`--sockets`).
    pub sockets: Option<u32>,
    /// The XMPP domain (`--domain`).
    pub domain: Option<String>,
    /// Transport security (`--security`).
    pub security: Option<TransportSecurity>,
    /// Contents of certificate files (`--ca`, `--cert`, `--key`) and other TLS settings.
    pub tls: Option<PlanTls>,
    /// Source addresses (`--source`); see [`super::sources`].
    pub sources: Vec<IpAddr>,
    /// Accounts that log in.
    pub accounts: AccountOverrides,
    /// Allowed SASL mechanisms (`--mechanism`), in every login.
    pub mechanisms: Vec<String>,
    /// Random seed (`--seed`).
    pub seed: Option<u64>,
    /// Response time up to which a response is acceptable, in milliseconds (`--acceptable`).
    pub acceptable_ms: Option<u64>,
    /// Continue when the first login fails (`--keep-going`).
    pub keep_going: bool,
    /// Users return after a failure (`--failover`), with stream management in every login.
    pub failover: bool,
    /// Failure conditions of the run (`--fail-on`), in addition to those of the plan.
    pub fail_on: Vec<Threshold>,
    /// Create each account before its first login (`--register`, XEP-0077).
    pub register: bool,
    /// Base directory of relative file names in the plan; `None` is the working directory.
    pub directory: Option<PathBuf>,
}

/// Account overrides from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountOverrides {
    /// Name prefix before the number (`--user-prefix`).
    pub prefix: Option<String>,
    /// Number of the first user (`--first`).
    pub first: Option<u64>,
    /// Number of accounts (`--count`).
    pub count: Option<u32>,
    /// Interval between the numbers of two users (`--stride`).
    pub stride: Option<u32>,
    /// Password (`--password`); `{n}` stands for the number.
    pub password: Option<String>,
    /// Content of a CSV file with a name and a password per line (`--users`). Takes precedence over the pattern.
    pub csv: Option<String>,
}

impl Default for PlanOverrides {
    fn default() -> Self {
        Self {
            connections: None,
            time_scale: 1.0,
            duration_ms: None,
            hold_ms: None,
            arrival_rate: None,
            message_every: None,
            message_size: None,
            in_flight: None,
            addresses: Vec::new(),
            endpoint: None,
            sockets: None,
            domain: None,
            security: None,
            tls: None,
            sources: Vec::new(),
            accounts: AccountOverrides::default(),
            mechanisms: Vec::new(),
            seed: None,
            acceptable_ms: None,
            keep_going: false,
            failover: false,
            fail_on: Vec::new(),
            register: false,
            directory: None,
        }
    }
}
