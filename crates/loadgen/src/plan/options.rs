//! Limits and habits of a run.
//!
//! Trap: limits of patience are about the server, so the time scale leaves them alone ([`super::scale`]).

use serde::{Deserialize, Serialize};

use super::Threshold;

/// Limits and habits of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Connections that may be open at one time in all; arrivals beyond it are counted as `no-free-user`.
    pub connections: u32,
    /// The run ends after this, if its phases have not ended it before.
    pub duration_ms: Option<u64>,
    /// What happens when all phases have passed: stay so long, then close everything. `None`: until sessions end.
    pub hold_ms: Option<u64>,
    /// When the run ends, nothing new is sent, and so long messages under way may still arrive.
    pub drain_ms: u64,
    /// Longest wait for a connection.
    pub connect_timeout_ms: u64,
    /// Longest wait for an answer; then it is an error and the session ends (login) or goes on (later).
    pub answer_timeout_ms: u64,
    /// An answer within this is acceptable.
    pub acceptable_ms: u64,
    /// Go on when the first login fails.
    pub keep_going: bool,
    /// Attempts to connect again after a failed connection, and the pause between them.
    pub retries: u32,
    /// See `retries`.
    pub retry_ms: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Kernel buffers of each socket in bytes; `None`: the system's.
    pub receive_buffer: Option<u32>,
    /// See `receive_buffer`.
    pub send_buffer: Option<u32>,
    /// Write presence and message stamps; off when the server must see nothing of ours in `id`.
    pub stamps: bool,
    /// Conditions on which the run fails.
    #[serde(default)]
    pub fail_on: Vec<Threshold>,
    /// Lines of files that variables read from.
    pub tables: Vec<DataTable>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            connections: 1_000,
            duration_ms: None,
            hold_ms: None,
            drain_ms: 5_000,
            connect_timeout_ms: 30_000,
            answer_timeout_ms: 60_000,
            acceptable_ms: 1_000,
            keep_going: false,
            retries: 0,
            retry_ms: 1_000,
            seed: 1,
            receive_buffer: None,
            send_buffer: None,
            stamps: true,
            fail_on: Vec::new(),
            tables: Vec::new(),
        }
    }
}

/// The lines of a file, split into columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataTable {
    /// For messages.
    pub name: String,
    /// Lines of columns.
    pub rows: Vec<Vec<String>>,
}
