//! The TOML form of a plan.

use std::net::{IpAddr, SocketAddr};

use super::{Arguments, Mistake, Plan};

/// What the server must hold before the run: `throng account bulk` makes it on Throng.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// What the names begin with.
    pub prefix: String,
    /// Number of the first account.
    pub first: u64,
    /// How many accounts.
    pub accounts: u64,
    /// The one password of all.
    pub password: String,
    /// Domain of the accounts.
    pub domain: String,
    /// Mutual contacts of each account: the nearest neighbours in a ring. 0: empty rosters.
    pub roster: u32,
}

/// Reads a plan. All mistakes at once, in the order of their lines.
pub fn read_toml(text: &str, name: &str, arguments: &Arguments) -> Result<Plan, Vec<Mistake>> {
    read_toml_with_preparation(text, name, arguments).map(|(plan, _)| plan)
}

/// Reads a plan together with what it needs on the server (`[prepare]`; without it, the accounts with empty rosters).
/// `None` where the accounts are no pattern.
pub fn read_toml_with_preparation(
    _text: &str,
    _name: &str,
    _arguments: &Arguments,
) -> Result<(Plan, Option<Preparation>), Vec<Mistake>> {
    Err(vec![Mistake::of_plan("not there")])
}

/// Addresses from `HOST:PORT` (5222 without a port), resolved; an error is one sentence.
pub fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    Err(format!("{text}: not there"))
}

/// Local addresses from `127.0.0.2`, `127.0.0.2-127.0.0.60` or `10.1.0.0/28`; several are separated by commas.
pub fn sources(text: &str) -> Result<Vec<IpAddr>, String> {
    Err(format!("{text}: not there"))
}
