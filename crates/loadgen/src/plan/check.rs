//! What can be known to go wrong before the first connection.

use super::{Mistake, Plan};

/// What the machines of a run have.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Files that one process may have open (the hard limit, which workers raise theirs to).
    pub files: u64,
    /// Hardware threads.
    pub cores: u32,
    /// Memory that may still be used, in bytes (`MemAvailable`).
    pub memory: u64,
    /// First and last local port (`net.ipv4.ip_local_port_range`).
    pub ports: (u16, u16),
    /// The server is on this machine and needs its share of cores and memory.
    pub server_here: bool,
}

/// How many worker processes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// At least 1.
    pub count: u16,
    /// One sentence for the reader.
    pub reason: String,
}

/// Everything that is known to go wrong; empty if the run may begin.
pub fn check(_plan: &Plan, _facts: &Facts) -> Vec<Mistake> {
    Vec::new()
}

/// How many workers this machine needs for the plan.
pub fn workers_needed(plan: &Plan, facts: &Facts) -> Workers {
    let each = facts.files.saturating_sub(100).clamp(1, 19_000);
    let count = u64::from(plan.options.connections).div_ceil(each).max(1);
    let reason = format!("{} connections at {each} in each process", plan.options.connections);
    Workers { count: u16::try_from(count).unwrap_or(u16::MAX), reason }
}
