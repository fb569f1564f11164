//! [`NatsCluster`]: a node's connection to the cluster over NATS.
//!
//! One task receives, sends and calls the inbox ([`crate::transport`]). Calls from other threads change the state and wake it.
//!
//! # Pitfalls
//!
//! Without [`Cluster::leave`] the task never ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::clock::Clock;
use base::spawn::{BoxFuture, Spawner};
use cluster::{
    AddressLocation, AddressNumber, BroadcastResult, Claim, Cluster, Envelope, HandoverResult, Inbox, Member,
    NodeId, RefusedEnvelope, Ticket,
};
use tokio::sync::{Notify, watch};

use crate::protocol::core::Core;
use crate::protocol::directory::DirectoryLimits;
use crate::protocol::state::MembershipPhase;
use crate::protocol::statistics::Statistics;
use crate::settings::{NatsError, NatsSettings};
use crate::transport;
use crate::transport::log_limit::LogLimit;

/// What [`Cluster::leave`] has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveProgress {
    Member,
    Requested,
    Done,
}

/// The connection as its tasks and the interface share it.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) settings: NatsSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wake: Notify,
    pub(crate) connected: AtomicBool,
    /// NATS refused the credentials at the last attempt to connect.
    pub(crate) refused: AtomicBool,
    /// Rises with each connection.
    pub(crate) connections: watch::Sender<u64>,
    /// When the record was written, in milliseconds of the clock; 0 before.
    pub(crate) record_written_at: AtomicU64,
    /// The record was written.
    pub(crate) announced: Notify,
    /// The record must be written again now.
    pub(crate) record_changed: Notify,
    /// Messages of this node to itself that arrived.
    pub(crate) echoes: watch::Sender<u64>,
    /// When the last one arrived, in milliseconds of the clock; 0 before.
    pub(crate) echoed_at: AtomicU64,
    pub(crate) announcements: AtomicU64,
    pub(crate) failed_announcements: AtomicU64,
    /// Errors that the server has reported: it answers.
    pub(crate) server_errors: AtomicU64,
    /// Lines about such errors.
    pub(crate) error_lines: LogLimit,
    /// Lines about records that are not valid.
    pub(crate) record_lines: LogLimit,
    pub(crate) leave: watch::Sender<LeaveProgress>,
}

impl Shared {
    /// Whether the record was written since the start.
    pub(crate) fn has_record(&self) -> bool {
        self.record_written_at.load(Ordering::Acquire) != 0
    }

    /// Whether something that happens every three seconds happened lately. One failure may be an election of the servers.
    fn is_recent(&self, at: &AtomicU64) -> bool {
        let at = at.load(Ordering::Acquire);
        at != 0 && self.clock.now().0.saturating_sub(at) < ANNOUNCED_MILLIS
    }
}

/// Time for which a record that was written counts, and a message that arrived.
const ANNOUNCED_MILLIS: u64 = 12_000;

/// A node's connection to the cluster over NATS.
pub struct NatsCluster(Arc<Shared>);

/// State of the connection, for metrics and readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatsStatus {
    /// Connected to a NATS server.
    pub connected: bool,
    /// NATS refuses the credentials of this node, or they have expired.
    pub refused: bool,
    /// Another process has joined with the name of this node, so this one is no member until it is started again.
    pub superseded: bool,
    /// The record of this node is in the bucket of the members.
    pub announced: bool,
    /// Messages to this node arrive.
    pub reachable: bool,
    /// Times that the record was written, read, and a message to this node arrived.
    pub announcements: u64,
    /// Times that this failed.
    pub failed_announcements: u64,
    /// Connections made, the first one included.
    pub connections: u64,
    /// Members, this node included.
    pub members: usize,
    /// Octets of envelopes without a receipt.
    pub kept_bytes: usize,
    /// Addresses with sessions here.
    pub own_claims: usize,
    /// Addresses with sessions on other nodes.
    pub peer_claims: usize,
    /// Counters.
    pub statistics: Statistics,
}

impl NatsStatus {
    /// Why the node must get no new clients; none if it may.
    pub fn problem(&self) -> Option<&'static str> {
        match () {
            () if self.superseded => Some("another process has the name of this node in the cluster"),
            () if self.refused => Some("NATS refuses the credentials of this node"),
            () if !self.connected => Some("no connection to NATS"),
            () if !self.announced => Some("not announced in the cluster"),
            () if !self.reachable => Some("messages of NATS to this node do not arrive"),
            () => None,
        }
    }
}

impl NatsCluster {
    /// Starts the connection. It need not succeed: the node is alone until it does.
    ///
    /// # Errors
    /// If a setting is not valid.
    pub fn start(
        settings: NatsSettings,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Result<Arc<NatsCluster>, NatsError> {
        settings.check()?;
        let core = Core::new(settings.node, settings.key.clone(), DirectoryLimits::default());
        core.start(clock.unix_millis());
        let shared = Arc::new(Shared {
            core,
            settings,
            clock,
            wake: Notify::new(),
            connected: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            connections: watch::Sender::new(0),
            record_written_at: AtomicU64::new(0),
            announced: Notify::new(),
            record_changed: Notify::new(),
            echoes: watch::Sender::new(0),
            echoed_at: AtomicU64::new(0),
            announcements: AtomicU64::new(0),
            failed_announcements: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            error_lines: LogLimit::default(),
            record_lines: LogLimit::default(),
            leave: watch::Sender::new(LeaveProgress::Member),
        });
        let task = transport::run(shared.clone(), spawner.clone());
        spawner.spawn("cluster", Box::pin(task));
        Ok(Arc::new(NatsCluster(shared)))
    }

    /// The state of the connection.
    pub fn status(&self) -> NatsStatus {
        let core = self.0.core.status();
        NatsStatus {
            connected: self.0.connected.load(Ordering::Acquire),
            refused: self.0.refused.load(Ordering::Acquire),
            superseded: self.0.core.phase() == MembershipPhase::Superseded,
            announced: self.0.is_recent(&self.0.record_written_at),
            reachable: self.0.is_recent(&self.0.echoed_at),
            announcements: self.0.announcements.load(Ordering::Acquire),
            failed_announcements: self.0.failed_announcements.load(Ordering::Acquire),
            connections: *self.0.connections.borrow(),
            members: core.members,
            kept_bytes: core.kept_bytes,
            own_claims: core.own_claims,
            peer_claims: core.peer_claims,
            statistics: core.statistics,
        }
    }

    /// Whether nothing is queued or unacknowledged.
    #[doc(hidden)]
    pub fn is_quiet(&self) -> bool {
        self.0.core.is_quiet()
    }

    fn wake_if(&self, wakes: bool) {
        if wakes {
            self.0.wake.notify_one();
        }
    }
}

impl Cluster for NatsCluster {
    fn node(&self) -> NodeId {
        self.0.core.node()
    }

    fn attach(&self, inbox: Arc<dyn Inbox>) {
        self.0.core.attach(inbox);
        self.0.wake.notify_one();
    }

    fn members(&self) -> Vec<Member> {
        self.0.core.members()
    }

    fn locate(&self, address: u64, number: Option<AddressNumber>) -> AddressLocation {
        self.0.core.locate(address, number)
    }

    fn claim(&self, claim: Claim) {
        self.wake_if(self.0.core.claim(claim));
    }

    fn set_takes_messages(&self, address: u64, number: Option<AddressNumber>, takes_messages: bool) {
        self.wake_if(self.0.core.set_takes_messages(address, number, takes_messages));
    }

    fn release(&self, address: u64, number: Option<AddressNumber>) {
        self.wake_if(self.0.core.release(address, number));
    }

    fn deliver(&self, node: NodeId, envelope: Envelope) -> Result<Ticket, Box<RefusedEnvelope>> {
        let (ticket, wakes) = self.0.core.deliver(node, envelope)?;
        self.wake_if(wakes);
        Ok(ticket)
    }

    fn broadcast(&self, envelope: Envelope) -> BroadcastResult {
        let (result, wakes) = self.0.core.broadcast(envelope);
        self.wake_if(wakes);
        result
    }

    fn settle(&self, from: NodeId, ticket: Ticket, result: HandoverResult) -> bool {
        let settled = self.0.core.settle(from, ticket, result);
        self.wake_if(settled == Some(true));
        settled.is_some()
    }

    fn begin_drain(&self) {
        self.0.core.begin_drain();
        self.0.record_changed.notify_one();
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.0.leave.send_if_modified(|progress| {
            let first = *progress == LeaveProgress::Member;
            if first {
                *progress = LeaveProgress::Requested;
            }
            first
        });
        let mut progress = self.0.leave.subscribe();
        Box::pin(async move {
            let _ = progress.wait_for(|progress| *progress == LeaveProgress::Done).await;
        })
    }
}
