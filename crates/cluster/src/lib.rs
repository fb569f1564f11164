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
//! 2. **Claims are counted.** Two addresses can share a hash, so a location ends when every claim on it was
//!    released.
//! 3. **Reliable classes arrive or are returned.** An envelope of [`EnvelopeClass::Control`] or
//!    [`EnvelopeClass::Message`] that `deliver` accepted reaches the other node's [`Inbox::on_envelope`] exactly
//!    once while both stay members, or else returns to the sender through [`Inbox::on_undelivered`]. Both can
//!    happen when a node is cut off after it received the envelope and before the acknowledgement: the
//!    receiver's stanza ids decide then, as after any broken stream.
//! 4. **Order.** Envelopes of reliable classes from one node to another arrive in the order in which they were
//!    accepted. Presence may be lost, but an earlier one never follows a later one.
//! 5. **Nothing waits for the network.** Every call except `leave` returns immediately; queues are bounded, and
//!    a full one refuses and returns the envelope.
//! 6. **An inbox may call its cluster.** It is never called under a lock, nor from within `deliver`.
//!
//! Not implemented: leases for owned entities (rooms), which need the key-value bucket of the NATS
//! implementation.
//!
//! # Pitfalls
//!
//! `deliver` to the own node is refused. The engine must search its routing table first; a loop through here
//! would hide an outdated hint.

mod address_hash;
pub mod conformance;
mod envelope;
pub mod memory;
mod node;
mod single;

use std::sync::Arc;

use base::spawn::BoxFuture;

pub use address_hash::AddressHasher;
pub use envelope::{Envelope, EnvelopeClass, EnvelopeError, EnvelopeHeader};
pub use node::{AddressLocation, Member, NodeId};
pub use single::SingleNode;

/// A node's connection to the cluster. See the invariants of the crate.
pub trait Cluster: Send + Sync {
    /// The name of this node.
    fn node(&self) -> NodeId;

    /// Whether there are never other nodes, so that callers can skip hashing and locating. Constant.
    fn is_single(&self) -> bool {
        false
    }

    /// Sets the inbox: once, at the start. Present members are reported as if they joined now. Envelopes that
    /// arrive before are lost.
    fn attach(&self, inbox: Arc<dyn Inbox>);

    /// The nodes that are alive as far as this one knows, including itself, sorted by name.
    fn members(&self) -> Vec<Member>;

    /// Location of the sessions of a bare address ([`AddressHasher`]).
    fn locate(&self, address: u64) -> AddressLocation;

    /// Announces that a bare address has a session here. Counted.
    fn claim(&self, address: u64);

    /// Releases one claim. Without a claim it has no effect.
    fn release(&self, address: u64);

    /// Sends an envelope to another node; sets origin, epoch and sequence.
    ///
    /// # Errors
    /// The envelope, immediately, if it cannot be queued.
    fn deliver(&self, node: NodeId, envelope: Envelope) -> Result<(), Box<RefusedEnvelope>>;

    /// Sends an envelope to every other member (invalidation). Returns those for which it could not be queued.
    fn broadcast(&self, envelope: Envelope) -> Vec<RefusedEnvelope>;

    /// Leaves the cluster in an orderly way: hands over queued envelopes as far as possible, then the others
    /// remove this node immediately. Afterwards every envelope is refused.
    fn leave(&self) -> BoxFuture<'_, ()>;
}

/// Receiver of envelopes and membership changes.
pub trait Inbox: Send + Sync {
    /// An envelope arrived. Must not block: it is called from the task that reads the network.
    fn on_envelope(&self, from: NodeId, envelope: Envelope);

    /// An envelope of a reliable class that was accepted for `to` will not be acknowledged: `to` is gone.
    fn on_undelivered(&self, to: NodeId, envelope: Envelope);

    /// A node joined or left.
    fn on_membership_change(&self, change: MembershipChange);
}

/// A change of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// The node is reachable. Its claims follow.
    Joined(Member),
    /// The node left, crashed or was cut off: its claims have been removed.
    Left(NodeId),
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
}
