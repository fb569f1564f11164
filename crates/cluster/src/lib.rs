//! Cluster interface of a node: membership, the address directory, and delivery of stanzas to other nodes.
//!
//! [`Cluster`] is the trait. [`SingleNode`] is a server without other nodes; [`memory`] is a bus inside one
//! process with seeded faults, for tests; the NATS implementation is in a separate crate. [`conformance`] is
//! the suite that each of them passes. Of XMPP, this crate knows only addresses.
//!
//! Invariants of every implementation:
//!
//! 1. **Hints.** [`Cluster::locate`] is a local look-up that never waits. Its result may be outdated; a wrong
//!    result costs a hop, never a stanza. Every node that stays reachable eventually sees a claim.
//! 2. **A hash decides nothing.** Addresses are found by a keyed hash and distinguished by their number or text. A claim
//!    carries the number; the receiver of an envelope compares the number of each recipient with its own table, and
//!    refuses the recipients that it does not have.
//! 3. **Claims are counted**: a location ends when every claim on it was released. They carry the time of the oldest one,
//!    and all nodes that know the same claims name the same **home**: the node with the oldest claim, by time, then by
//!    name. Each node's inbox learns of the first claim on an address ([`Inbox::on_claim`]).
//! 4. **Reliable classes arrive or are returned.** An envelope of [`EnvelopeClass::Control`] or
//!    [`EnvelopeClass::Message`] that `deliver` accepted reaches the other node's [`Inbox::on_envelope`] exactly
//!    once while both stay members, or else returns to the sender through [`Inbox::on_undelivered`]. Both can
//!    happen when a node is cut off after it received the envelope and before the receipt: the stanza keeps the id that
//!    it was given ([`EnvelopeHeader::stanza_id`]), so that the copies are recognised, as after any broken stream.
//! 5. **Every ticket ends.** The receiver settles each envelope of a reliable class once ([`Cluster::settle`]), in any
//!    order. The sender's inbox receives what was refused ([`Inbox::on_refused`]) before a receipt that covers its ticket
//!    ([`Inbox::on_receipts`]). A receipt covers every ticket up to its own, and names further ones that ended although an
//!    earlier one has not: those that were neither refused nor returned are safe at the other node. So an envelope that is
//!    settled late delays no other. Before [`MembershipChange::Left`] every ticket of that node has ended. Until then an
//!    implementation keeps the envelope.
//! 6. **Order.** Envelopes of reliable classes from one node to another arrive in the order in which they were
//!    accepted. Envelopes of the class `BestEffort` may be lost, but an earlier one never follows a later one. Tickets of a
//!    pair increase, also across a partition and a restart.
//! 7. **Nothing waits for the network.** Every call except `leave` returns immediately; queues are bounded in octets until
//!    the envelopes are settled, and a full one refuses and returns the envelope.
//! 8. **An inbox may call its cluster.** It is never called under a lock, nor from within `deliver`.
//! 9. **Nodes are not trusted with memory.** Octets that are no envelope, numbers that repeat or skip, receipts for what
//!    was never sent and floods of claims are ignored or refused, cost bounded memory, and are reported
//!    ([`Inbox::on_violation`]).
//! 10. **No detour is endless.** A stanza travels in at most [`Envelope::MAX_HOPS`] envelopes.
//!
//! A single node pays for none of this: [`Cluster::is_single`] lets the engine skip hashing, claims and look-ups, and
//! no call of [`SingleNode`] allocates except a refusal.
//!
//! Not implemented: leases for owned items (rooms), which are in the store that all nodes share.
//!
//! # Pitfalls
//!
//! `deliver` to the own node is refused. The engine must search its routing table first; a loop through here
//! would hide an outdated hint.
//!
//! An envelope that is never settled occupies the sender's queue until one of the nodes leaves.

mod address_hash;
mod claim;
pub mod conformance;
mod envelope;
mod handover;
mod inbox_call;
mod kind;
mod location;
pub mod memory;
mod node;
mod owner;
mod recipient;
mod single;
mod usage_reports;

use std::sync::Arc;

use base::spawn::BoxFuture;

pub use address_hash::AddressHasher;
pub use claim::{AddressNumber, AddressReference, Claim, ClaimChange, MAX_CLAIMS_PER_NODE, MAX_PEER_CLAIMS};
pub use envelope::{Envelope, EnvelopeClass, EnvelopeError, EnvelopeHeader};
pub use handover::{BroadcastResult, HandoverResult, PeerViolation, Ticket};
pub use inbox_call::InboxCall;
pub use kind::{EnvelopeKind, InvalidationSubject};
pub use location::{AddressLocation, NodeClaim};
pub use node::{Member, NodeId};
pub use owner::{SLICES, SliceNodes, slice_of};
pub use recipient::Recipient;
pub use single::SingleNode;
pub use usage_reports::{UsageKind, UsageReport, UsageReporter, UsageReports};

/// A node's connection to the cluster. See the invariants of the crate.
pub trait Cluster: Send + Sync {
    /// The name of this node.
    fn node(&self) -> NodeId;

    /// Whether there are never other nodes, so that callers can skip hashing and locating. Constant.
    fn is_single(&self) -> bool {
        false
    }

    /// Sets the inbox: once, at the start. Present members are reported as if they joined now. Envelopes that
    /// arrive before are refused.
    fn attach(&self, inbox: Arc<dyn Inbox>);

    /// The nodes that are alive as far as this one knows, including itself, sorted by name.
    fn members(&self) -> Vec<Member>;

    /// Nodes with sessions of a bare address, by its hash ([`AddressHasher`]); with a number, only of the address with
    /// that number.
    fn locate(&self, address: u64, number: Option<AddressNumber>) -> AddressLocation;

    /// Announces that a bare address has a session here. Counted by address and number.
    fn claim(&self, claim: Claim);

    /// Announces whether the sessions of a claimed address take messages. Without a claim it has no effect.
    fn set_takes_messages(&self, address: u64, number: Option<AddressNumber>, takes_messages: bool);

    /// Releases one claim. Without a claim it has no effect.
    fn release(&self, address: u64, number: Option<AddressNumber>);

    /// Sends an envelope to another node; sets origin, epoch and sequence. Returns its ticket.
    ///
    /// # Errors
    /// The envelope, immediately, if it cannot be queued.
    fn deliver(&self, node: NodeId, envelope: Envelope) -> Result<Ticket, Box<RefusedEnvelope>>;

    /// Sends an envelope to every other member (invalidation).
    fn broadcast(&self, envelope: Envelope) -> BroadcastResult;

    /// Reports the result of an envelope of a reliable class that `from` sent here: once for each.
    ///
    /// False if the sender cannot learn it, because it is gone or the ticket has ended: recipients that were refused are
    /// this node's to handle.
    fn settle(&self, from: NodeId, ticket: Ticket, result: HandoverResult) -> bool;

    /// The node that owns something that one node at a time takes care of, such as a periodic job: the same on all nodes
    /// that see the same members, and this one if there are no others. `key` is a hash of its name with the key of the
    /// deployment ([`AddressHasher::hash_name`]).
    fn owner(&self, key: u64) -> NodeId {
        if self.is_single() {
            return self.node();
        }
        owner::owner_among(&self.members(), key).unwrap_or_else(|| self.node())
    }

    /// Announces that this node is about to leave: from then on it owns nothing ([`Cluster::owner`]) while another member can, and
    /// is a member otherwise. Constant until the node joins again.
    fn begin_drain(&self) {}

    /// The nodes of a slice of addresses ([`slice_of`]), as far as this node sees the members. Which node acts as the owner is
    /// decided by a lease in the store.
    fn slice_nodes(&self, slice: u8) -> SliceNodes {
        let alone = SliceNodes { owner: self.node(), backup: None };
        if self.is_single() {
            return alone;
        }
        SliceNodes::among(&self.members(), slice).unwrap_or(alone)
    }

    /// Leaves the cluster in an orderly way: hands over queued envelopes as far as possible, then the others
    /// remove this node immediately. Afterwards every envelope is refused.
    fn leave(&self) -> BoxFuture<'_, ()>;
}

/// Receiver of envelopes and membership changes. No call may block: they come from the task that reads the network.
pub trait Inbox: Send + Sync {
    /// An envelope arrived. If its class is reliable, it must be settled ([`Cluster::settle`]), now or later.
    fn on_envelope(&self, from: NodeId, envelope: Envelope);

    /// Everything up to this ticket has ended at `from`, and so have the `later` ones, in order; what was not refused before
    /// is safe there.
    fn on_receipts(&self, from: NodeId, up_to: Ticket, later: &[Ticket]);

    /// `from` refused recipients of an envelope: the envelope with only these. Its ticket is [`Envelope::ticket`].
    fn on_refused(&self, from: NodeId, envelope: Envelope);

    /// An envelope of a reliable class that was accepted for `to` will not be acknowledged: `to` is gone.
    fn on_undelivered(&self, to: NodeId, envelope: Envelope);

    /// `from` has claimed an address on which this node knew no claim of it: two nodes that claim an address at the same
    /// time learn by this that they share it.
    fn on_claim(&self, from: NodeId, claim: Claim) {
        let _ = (from, claim);
    }

    /// `from` has joined with these claims: a node that starts has none, one that was cut off may have many. Once after
    /// each [`MembershipChange::Joined`].
    fn on_claims_of_joined(&self, from: NodeId, claims: Vec<Claim>) {
        claims.into_iter().for_each(|claim| self.on_claim(from, claim));
    }

    /// A node joined or left.
    fn on_membership_change(&self, change: MembershipChange);

    /// Another node sent what no correct node sends.
    fn on_violation(&self, from: NodeId, violation: PeerViolation);
}

/// A change of membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// The node is reachable. Its claims follow.
    Joined(Member),
    /// The node left, crashed or was cut off.
    Left {
        /// The node.
        node: NodeId,
        /// The claims that it had: its sessions are gone, and contacts of these addresses must be notified.
        claims: Vec<Claim>,
        /// It left in an orderly way: everything that it sent before has arrived.
        orderly: bool,
    },
}

/// An envelope that was not accepted.
#[derive(Debug, thiserror::Error)]
#[error("no envelope to {node}: {reason}")]
pub struct RefusedEnvelope {
    /// The intended receiver.
    pub node: NodeId,
    /// The reason.
    pub reason: RefusalReason,
    /// The envelope.
    pub envelope: Envelope,
}

/// Why an envelope was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// No such member, or this node has left.
    #[error("the node is not a member")]
    UnknownNode,
    /// The receiver is this node.
    #[error("it is this node itself")]
    OwnNode,
    /// The queue towards that node is full.
    #[error("the queue is full")]
    QueueFull,
    /// It exceeds the limits of [`Envelope`].
    #[error("the envelope is too large")]
    TooLarge,
    /// It has a kind or a number of hops that does not exist.
    #[error("the envelope has an undefined field")]
    Undefined,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [RefusalReason; 5] = [
        RefusalReason::UnknownNode,
        RefusalReason::OwnNode,
        RefusalReason::QueueFull,
        RefusalReason::TooLarge,
        RefusalReason::Undefined,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalReason::UnknownNode => "unknown-node",
            RefusalReason::OwnNode => "own-node",
            RefusalReason::QueueFull => "queue-full",
            RefusalReason::TooLarge => "too-large",
            RefusalReason::Undefined => "undefined",
        }
    }
}
