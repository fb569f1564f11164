//! Limits and options of a run.
//!
//! # Pitfalls
//!
//! Timeouts apply to the server, so the time scale leaves them unchanged ([`super::scale`]).

use serde::{Deserialize, Serialize};

use super::Threshold;

/// Limits and options of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Maximum number of simultaneous connections in total; arrivals beyond it are counted as `no-free-user`.
    pub connections: u32,
    /// Maximum duration; the phases may end the run earlier.
    pub duration_ms: Option<u64>,
    /// Time to stay once all phases have passed, then everything is closed. `None`: until sessions end.
    pub hold_ms: Option<u64>,
    /// Time for in-flight messages to arrive at the end of the run, while nothing new is sent.
    pub drain_ms: u64,
    /// Connect timeout.
    pub connect_timeout_ms: u64,
    /// Response timeout, counted as an error; the session ends (during login) or continues (later).
    pub answer_timeout_ms: u64,
    /// Response time up to which a response is acceptable.
    pub acceptable_ms: u64,
    /// Continue when the first login fails.
    pub keep_going: bool,
    /// Reconnection attempts after a failed connection. `retry_ms` is the pause between them.
    pub retries: u32,
    /// See `retries`.
    pub retry_ms: u64,
    /// Users return after a failure: they resume or log in again at another target.
    #[serde(default)]
    pub failover: bool,
    /// Address of the MUC service; `None`: `conference.` and the domain.
    #[serde(default)]
    pub muc_service: Option<String>,
    /// Address of the PubSub service; `None`: `pubsub.` and the domain.
    #[serde(default)]
    pub pubsub_service: Option<String>,
    /// Random seed.
    pub seed: u64,
    /// Socket receive buffer in bytes; `None` keeps the system's default.
    pub receive_buffer: Option<u32>,
    /// Socket send buffer, like `receive_buffer`.
    pub send_buffer: Option<u32>,
    /// Write ids that measure presence and messages; off if the server must see nothing of ours in `id`.
    pub stamps: bool,
    /// Failure conditions of the run.
    #[serde(default)]
    pub fail_on: Vec<Threshold>,
    /// Tables that variables read from.
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
            failover: false,
            muc_service: None,
            pubsub_service: None,
            seed: 1,
            receive_buffer: None,
            send_buffer: None,
            stamps: true,
            fail_on: Vec::new(),
            tables: Vec::new(),
        }
    }
}

/// Lines of a file, split into columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataTable {
    /// Name for messages.
    pub name: String,
    /// Rows of columns.
    pub rows: Vec<Vec<String>>,
}
