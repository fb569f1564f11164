//! What the command line says about a plan: values that win over those of the file or the named workload.
//!
//! Times given here are those of the clock on the wall: [`PlanOverrides::time_scale`] does not touch them.
//! Left out: everything that is not part of the plan (where the report goes, which workers join, what is watched).
//!
//! Trap: a value that the plan refers to by word (`users = "connections"`) is put in while the plan is read, before
//! the time scale; changing the plan's fields afterwards would leave phases and accounts behind.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{PlanTls, TargetUrl, Threshold, TimeSpan, TransportSecurity};

/// Values from the command line. `None` and empty: the plan's own value holds.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOverrides {
    /// Connections (`--connections`): what the word `connections` in a plan stands for. At least 1.
    pub connections: Option<u32>,
    /// How many times faster than the plan everything goes (`--time-scale`): times are divided by it and rates
    /// multiplied, limits of patience (answer, connect, acceptable) stay. Above 0.
    pub time_scale: f64,
    /// End of the run after so many milliseconds (`--duration`), arrivals included.
    pub duration_ms: Option<u64>,
    /// How long to stay once all phases have passed, in milliseconds (`--hold`).
    pub hold_ms: Option<u64>,
    /// Arrivals a second (`--rate`), in every phase that has arrivals.
    pub arrival_rate: Option<f64>,
    /// Distance between the messages of one user (`--every`), in every message activity of `meanwhile`.
    pub message_every: Option<TimeSpan>,
    /// Bytes of a message's body (`--size`), in every message that the plan gives a size.
    pub message_size: Option<u32>,
    /// Messages under way in each direction of a `bounce` (`--in-flight`).
    pub in_flight: Option<u32>,
    /// Addresses of the server (`--target`), resolved; see [`super::addresses`].
    pub addresses: Vec<SocketAddr>,
    /// What a `--target` with a scheme says (`http://…`, `ws://…`); its address is in `addresses` too.
    pub endpoint: Option<TargetUrl>,
    /// Sockets of all users of BOSH together (`--sockets`).
    pub sockets: Option<u32>,
    /// The XMPP domain (`--domain`).
    pub domain: Option<String>,
    /// How connections are protected (`--security`).
    pub security: Option<TransportSecurity>,
    /// Contents of certificate files (`--ca`, `--cert`, `--key`) and what else TLS is told.
    pub tls: Option<PlanTls>,
    /// Local addresses (`--source`); see [`super::sources`].
    pub sources: Vec<IpAddr>,
    /// Who logs in.
    pub accounts: AccountOverrides,
    /// SASL mechanisms to choose from (`--mechanism`), in every login.
    pub mechanisms: Vec<String>,
    /// Seed of everything random (`--seed`).
    pub seed: Option<u64>,
    /// An answer within so many milliseconds is acceptable (`--acceptable`).
    pub acceptable_ms: Option<u64>,
    /// Go on when the first login fails (`--keep-going`).
    pub keep_going: bool,
    /// Conditions on which the run fails (`--fail-on`), beside those of the plan.
    pub fail_on: Vec<Threshold>,
    /// Create each account before its first login (`--register`, XEP-0077).
    pub register: bool,
    /// Directory that file names in the plan are relative to; `None`: the working directory.
    pub directory: Option<PathBuf>,
}

/// The accounts as the command line gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountOverrides {
    /// Before the number (`--user-prefix`).
    pub prefix: Option<String>,
    /// Number of the first user (`--first`).
    pub first: Option<u64>,
    /// How many (`--count`).
    pub count: Option<u32>,
    /// Distance between the numbers of two users (`--stride`).
    pub stride: Option<u32>,
    /// The password (`--password`); `{n}` stands for the number.
    pub password: Option<String>,
    /// Content of a CSV file with a name and a password in each line (`--users`). Wins over the pattern.
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
            fail_on: Vec::new(),
            register: false,
            directory: None,
        }
    }
}
