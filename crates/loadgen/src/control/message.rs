//! Messages between controller and workers: JSON in frames with a 4-byte big-endian length.
//!
//! # Pitfalls
//!
//! A worker's clock is comparable with the controller's only on the same machine. The start is therefore a delay, and
//! `clocks` in the assignment identifies workers that share a clock.

use sasl::ScramHash;
use serde::{Deserialize, Serialize};

use super::room_report::RoomReport;
use crate::measure::WorkerSnapshot;
use crate::plan::LoadPlan;

/// Names of hash functions in messages and in files of salts.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ScramHash")]
pub(crate) enum ScramHashName {
    Sha1,
    Sha256,
    Sha512,
}

/// Task of a worker, sent by the controller once the worker has joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Plan to run.
    pub plan: LoadPlan,
    /// Index of this worker.
    pub worker: u16,
    /// Owner of user and arrival `i`: `owners[i % owners.len()]`. Never empty.
    pub owners: Vec<u16>,
    /// Clock domain of each worker: equal numbers share CLOCK_MONOTONIC.
    pub clocks: Vec<u16>,
    /// Id of this run, in every message id.
    pub run: u32,
    /// Source addresses of this worker; replace the plan's.
    pub sources: Vec<std::net::IpAddr>,
    /// Salts of this worker's users learned by an earlier run: their keys are derived before the start.
    #[serde(default)]
    pub salts: Vec<AccountSalt>,
    /// Include salts in the last report.
    #[serde(default)]
    pub learn: bool,
}

/// SCRAM salt of one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountSalt {
    /// Index of the account in the plan.
    pub user: u32,
    /// SCRAM hash function.
    #[serde(with = "ScramHashName")]
    pub hash: ScramHash,
    /// The salt.
    pub salt: Vec<u8>,
    /// The iteration count.
    pub iterations: u32,
}

/// Command from the controller to a worker during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// The run begins this many microseconds after the command was sent.
    Start {
        /// Delay.
        in_us: u64,
        /// The same time on the controller's clock, valid in the controller's clock domain (0).
        at_us: u64,
    },
    /// Users of other workers that came online (`true`) or went offline.
    Online(Vec<(u32, bool)>),
    /// Ends the run gracefully: nothing new, drain, close, [`WorkerReport::Final`].
    Stop,
    /// A worker died, and its users with it.
    Gone(u16),
    /// All workers have drained (or timed out): close the streams and send [`WorkerReport::Final`].
    Close,
}

/// Report from a worker to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerReport {
    /// Ready to start. Holds the resident memory without users.
    Ready {
        /// Bytes.
        rss: u64,
    },
    /// The run cannot be performed: one sentence.
    Refused(String),
    /// Sent once a second.
    Snapshot(Box<WorkerSnapshot>),
    /// The plan is over, or `Stop` was received: this worker sends nothing more, messages may still arrive.
    Draining,
    /// A part of the rooms of the last report, which follows.
    Rooms(Vec<RoomReport>),
    /// Last report.
    Final(Box<FinalReport>),
}

/// Message accounting at the end of the run, from which losses are computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinalReport {
    /// Data since the last snapshot.
    pub snapshot: WorkerSnapshot,
    /// Numbered messages sent by this worker's users, by recipient; zeros omitted.
    pub sent: Vec<(u32, u32)>,
    /// Part of `sent` whose recipient was not online.
    pub sent_offline: Vec<(u32, u32)>,
    /// Part of `arrived` that the server had stored.
    pub delayed: Vec<(u32, u32)>,
    /// Numbered messages that arrived at this worker's users, without duplicates, by recipient.
    pub arrived: Vec<(u32, u32)>,
    /// Numbered messages that bounced to this worker's users, by recipient.
    pub refused: Vec<(u32, u32)>,
    /// Users of this worker that became available once and stayed so to the end.
    pub steady: Vec<u32>,
    /// Part of `arrived` sent by users of dead workers, whose own accounting is lost.
    #[serde(default)]
    pub arrived_gone: Vec<(u32, u32)>,
    /// User pairs whose order could not be checked, since too many messages were in flight.
    pub unchecked_order: u64,
    /// Salts that the server used, if wanted.
    #[serde(default)]
    pub salts: Vec<AccountSalt>,
    /// Messages numbered by this worker, by the recipient's worker.
    #[serde(default)]
    pub numbered: Vec<u32>,
    /// Numbers that have not arrived here, by the sender's worker: ranges without their ends, the last one open. Only in
    /// a run with failures, as are the next three.
    #[serde(default)]
    pub missing: Vec<Vec<(u32, u32)>>,
    /// Messages that the server did not acknowledge: the recipient's worker and the number.
    #[serde(default)]
    pub unacknowledged: Vec<(u16, u32)>,
    /// Messages that the server returned, likewise.
    #[serde(default)]
    pub refused_numbers: Vec<(u16, u32)>,
    /// Users without a session at the end.
    #[serde(default)]
    pub away: u32,
    /// Rooms in which messages were sent or received.
    #[serde(default)]
    pub rooms: Vec<RoomReport>,
    /// Deviations in rooms were too many to be listed.
    #[serde(default)]
    pub rooms_incomplete: bool,
    /// A list was too long to be complete.
    #[serde(default)]
    pub incomplete: bool,
}
