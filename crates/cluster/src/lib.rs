//! The nodes of a cluster to one another: who is there, where an address is, and how a stanza gets to it.
//!
//! [`Cluster`] is the trait. [`SingleNode`] is a server alone; [`memory`] is a bus inside one process whose faults are
//! seeded, for tests; the NATS implementation lives in a crate of its own. [`conformance`] is the suite that each of
//! them passes. Nothing here knows XMPP beyond addresses.
//!
//! Invariants, which every implementation keeps and every caller may lean on:
//!
//! 1. **Hints.** [`Cluster::locate`] is a local look-up that never waits. What it says may be late; a wrong answer
//!    costs a hop, never a stanza. A claim is seen by every node that stays reachable, in the end.
//! 2. **Claims are counted.** Two addresses can share a hash, so a place ends when every claim on it was released.
//! 3. **Kept classes arrive or come back.** A parcel of [`EnvelopeClass::Control`] or [`EnvelopeClass::Message`] that `deliver`
//!    accepted reaches the other node's [`Inbox::on_envelope`] exactly once while both stay members, or else returns to
//!    the sender through [`Inbox::on_undelivered`]. Both can happen when a node is cut off after it received the parcel
//!    and before that was acknowledged: the receiver's stanza ids decide then, as they do after any broken stream.
//! 4. **Order.** Parcels of kept classes from one node to another arrive in the order in which they were accepted.
//!    Presence may be lost, but a later one is never followed by an earlier one.
//! 5. **Nothing waits for the network.** Every call but `leave` returns at once; queues are bounded and a full one
//!    refuses and gives the parcel back.
//! 6. **An inbox may call its cluster.** It is never called under a lock, nor from within `deliver`.
//!
//! Left out: leases for owned things (rooms), which need the bucket of the NATS implementation.
//!
//! Trap: `deliver` to the own node is refused. The engine must look at its session table first; a loop through here
//! would hide a stale hint.

mod address_hash;
pub mod conformance;
mod envelope;
pub mod memory;
mod node;
mod single;

pub use address_hash::AddressHasher;
pub use envelope::{Envelope, EnvelopeClass, EnvelopeError, EnvelopeHeader};
pub use node::{AddressLocation, Member, NodeId};
pub use single::SingleNode;

use std::sync::Arc;

use base::spawn::BoxFuture;

/// What a node asks of the other nodes. See the invariants of the crate.
pub trait Cluster: Send + Sync {
    /// The name of this node.
    fn node(&self) -> NodeId;

    /// Whether this node is alone for good, so that callers can skip hashing and locating. Constant.
    fn is_single(&self) -> bool {
        false
    }

    /// Says who takes what arrives: once, at the start. It hears of the members that are there already as if they
    /// joined now. What arrives before is lost.
    fn attach(&self, inbox: Arc<dyn Inbox>);

    /// The nodes that are alive as far as this one knows, itself among them, in order of their names.
    fn members(&self) -> Vec<Member>;

    /// Where the sessions of a bare address are ([`AddressHasher`]).
    fn locate(&self, address: u64) -> AddressLocation;

    /// Tells the others that a bare address has a session here. Counted.
    fn claim(&self, address: u64);

    /// Takes one claim back. Without a claim it does nothing.
    fn release(&self, address: u64);

    /// Hands a parcel over to another node; origin, epoch and sequence are written here.
    ///
    /// # Errors
    /// The parcel comes back at once when it cannot even be queued.
    fn deliver(&self, node: NodeId, parcel: Envelope) -> Result<(), Box<RefusedEnvelope>>;

    /// Hands a parcel over to every other member (invalidation). Returns those for whom it could not be queued.
    fn broadcast(&self, parcel: Envelope) -> Vec<RefusedEnvelope>;

    /// Leaves politely: what is queued is handed over as far as that goes, then the others forget this node at once.
    /// Afterwards every parcel is refused.
    fn leave(&self) -> BoxFuture<'_, ()>;
}

/// What a node takes from the others.
pub trait Inbox: Send + Sync {
    /// A parcel arrived. Must not block: it is called from the task that reads the network.
    fn on_envelope(&self, from: NodeId, parcel: Envelope);

    /// A parcel of a kept class that was accepted for `to` will not be acknowledged any more: `to` is gone.
    fn on_undelivered(&self, to: NodeId, parcel: Envelope);

    /// A node joined or left.
    fn on_membership_change(&self, change: MembershipChange);
}

/// A change of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// It can be reached now. Its claims follow.
    Joined(Member),
    /// It left, died or was cut off: its claims are forgotten already.
    Left(NodeId),
}

/// A parcel that was not accepted.
#[derive(Debug, thiserror::Error)]
#[error("no envelope to {node}: {reason}")]
pub struct RefusedEnvelope {
    /// Whom it was for.
    pub node: NodeId,
    /// The reason.
    pub reason: RefusalReason,
    /// The parcel.
    pub envelope: Envelope,
}

/// Why a parcel was not accepted.
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
    /// Over the limits of [`Envelope`].
    #[error("the parcel is too large")]
    TooLarge,
}
