//! What controller and workers say to one another: JSON in frames of a 4-byte big-endian length.
//!
//! Trap: a worker's clock is comparable with the controller's only on the same machine; the start is therefore given as
//! a delay, and `clock` in the assignment says which workers share a clock.

use serde::{Deserialize, Serialize};

use crate::measure::WorkerSnapshot;
use crate::plan::LoadPlan;
use crate::sasl::ClientScramHash;

/// From the controller to a worker, once it has joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// What to do.
    pub plan: LoadPlan,
    /// Number of this worker.
    pub worker: u16,
    /// Which worker has user and arrival `i`: `owners[i % owners.len()]`. Never empty.
    pub owners: Vec<u16>,
    /// Clock domain of each worker: equal numbers share CLOCK_MONOTONIC.
    pub clocks: Vec<u16>,
    /// Stamp of this run, in every message id.
    pub run: u32,
    /// Source addresses for this worker, instead of the plan's.
    pub sources: Vec<std::net::IpAddr>,
    /// Salts of this worker's users that an earlier run has learned: their keys are derived before the start.
    #[serde(default)]
    pub salts: Vec<AccountSalt>,
    /// Salts are wanted in the last report.
    #[serde(default)]
    pub learn: bool,
}

/// What a server uses to salt the password of one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountSalt {
    /// The account's number in the plan.
    pub user: u32,
    /// The hash function of SCRAM.
    pub hash: ClientScramHash,
    /// The salt.
    pub salt: Vec<u8>,
    /// The iteration count.
    pub iterations: u32,
}

/// From the controller to a worker during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// The run begins so many microseconds after this was sent.
    Start {
        /// The delay.
        in_us: u64,
        /// The same moment on the controller's clock, valid where the clock domain is the controller's (0).
        at_us: u64,
    },
    /// Users of other workers that came online (`true`) or went offline.
    Online(Vec<(u32, bool)>),
    /// Ends the run in order: nothing new, drain, close, [`WorkerReport::FinalReport`].
    Stop,
    /// A worker died: its users are gone.
    Gone(u16),
    /// All workers have drained (or their time is up): close the streams and send [`WorkerReport::FinalReport`].
    Close,
}

/// From a worker to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerReport {
    /// Everything is checked; waiting for the start. Holds the resident memory without users.
    Ready {
        /// Bytes.
        rss: u64,
    },
    /// The run cannot be done: one sentence.
    Refused(String),
    /// Once a second.
    Snapshot(Box<WorkerSnapshot>),
    /// Plan and phases are over, or `Stop` came: this worker sends nothing more, messages may still arrive.
    Draining,
    /// The end.
    Final(Box<FinalReport>),
}

/// The account of messages at the end of the run, from which losses are computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinalReport {
    /// The rest since the last snapshot.
    pub snapshot: WorkerSnapshot,
    /// Numbered messages that this worker's users sent, by recipient; zeros left out.
    pub sent: Vec<(u32, u32)>,
    /// The part of `sent` whose recipient was not online.
    pub sent_offline: Vec<(u32, u32)>,
    /// The part of `arrived` that waited in the server.
    pub delayed: Vec<(u32, u32)>,
    /// Numbered messages that arrived at this worker's users, duplicates not counted, by recipient.
    pub arrived: Vec<(u32, u32)>,
    /// Numbered messages that came back to this worker's users as errors, by recipient.
    pub refused: Vec<(u32, u32)>,
    /// Users of this worker that were available once and stayed it to the end.
    pub steady: Vec<u32>,
    /// The part of `arrived` that came from users of workers that are gone, whose own account is lost.
    #[serde(default)]
    pub arrived_gone: Vec<(u32, u32)>,
    /// Pairs of users whose order could no longer be checked, since too many messages were under way.
    pub unchecked_order: u64,
    /// Salts that the server has used, where they are wanted.
    #[serde(default)]
    pub salts: Vec<AccountSalt>,
}
