//! Requests of clients that another node must answer, because it has what they concern: octets whose meaning is that of the
//! handler. `open_requests` is the sender's table and `outbound` its work; `inbound` and `answering` are those of the receiver.
//!
//! ```text
//! request    8 its number, 4 seconds that the sender waits, 4 octets before this part, 1 whether parts follow (0 or 1);
//!            the rest: a part
//! response   8 the number of the request, 1 status ([`ResponseStatus`]); the rest: a part
//! end        8 the number of the request, 1 whether the client has the response (0 or 1)
//! ```
//!
//! A request can wait for a minute. The receiver retains its response until the sender reports whether the client got it, so
//! a broken connection means the same as at the receiver itself. An end that does not fit into the queue is sent by a sweep.
//!
//! Clients choose when they send requests, and how long these and their responses are. So all of them have a bound of their own
//! in the queue between two nodes (`handovers.rs`): above it a request must be repeated, and responses wait in line.
//!
//! # Pitfalls
//!
//! Nodes of an earlier version refuse the envelopes, which means that they have nothing for the request.

mod answering;
mod inbound;
mod open_requests;
mod outbound;
#[cfg(test)]
mod tests;

use cluster::{Envelope, EnvelopeClass, EnvelopeKind, NodeId, RefusalReason};

use crate::ClusteredNode;
use crate::handovers::{BoundedEnvelopes, MAX_FORWARDED_OCTETS};

pub use answering::{
    AcceptedRequest, ForwardedRequestHandler, HandleForwardedRequest, HeldResponse, RequestGroup,
};
pub use outbound::{OutboundRequest, end_all, forward, own_tag};

pub(super) use inbound::InboundRequests;
pub(super) use open_requests::ForwardedRequests;

/// Maximum number of requests of this node that wait for other nodes.
const MAX_OPEN: usize = 65_536;
/// Maximum number of them that wait for one node, which holds no more than these for it.
const MAX_OPEN_PER_NODE: usize = 32_768;
/// Maximum number of requests of one client that are open or whose response it has not taken, so that few clients cannot use
/// all; of a client behind a proxy that hides it, all clients there.
const MAX_OPEN_PER_CLIENT: usize = 4096;
/// Maximum octets of a request: with one that is as long, the queue has room for as much of everything else.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// Maximum octets of a response: more than a stanza of the largest limit needs, with all that is added to it.
pub const MAX_RESPONSE_BYTES: usize = 24 << 20;
/// Maximum octets of responses of which a part is missing or that the client's connection has not taken. At the receiver: of
/// requests of one node that are not handled, and of their responses that wait for the queue.
const MAX_RETAINED_BYTES: usize = 64 << 20;
/// Maximum octets of them for one client at the sender, and for one group of requests at the receiver. A single response may
/// be larger.
const MAX_RETAINED_PER_CLIENT: usize = 8 << 20;
/// Octets of one envelope: half of what it carries, so that stanzas behind it are not delayed for long.
const PART_BYTES: usize = 256 << 10;
/// What an envelope counts for besides its content: the queue also has a number of envelopes.
const ENVELOPE_OVERHEAD: usize = 192;
/// Octets above the bound that are left for what ends requests.
const RESERVED_OCTETS: usize = 256 << 10;

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingFailure {
    /// There is no such node, it is gone, or it does not know forwarded requests.
    NoNode,
    /// Too much is under way, there was no response in time, or the connection with the node broke.
    Retry,
}

/// Status of a response, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ResponseStatus {
    /// Further parts follow.
    Part = 0,
    /// The last part.
    Complete = 1,
    /// The last part; the receiver must learn whether the client has the response.
    AwaitsEnd = 2,
    /// No response: too many requests are open, or the client has repeated the request.
    Busy = 3,
    /// No response: the node has no handler.
    NoHandler = 4,
}

impl ResponseStatus {
    fn from_byte(byte: u8) -> Option<ResponseStatus> {
        use ResponseStatus::{AwaitsEnd, Busy, Complete, NoHandler, Part};
        [Part, Complete, AwaitsEnd, Busy, NoHandler].into_iter().find(|status| *status as u8 == byte)
    }
}

/// What an envelope with this many octets counts for.
const fn octets_of(content: usize) -> usize {
    content + ENVELOPE_OVERHEAD
}

impl ClusteredNode<'_> {
    /// Sends an envelope unless more than `most` octets would be open. It is not built before.
    fn send_forwarded(
        &self,
        to: NodeId,
        kind: EnvelopeKind,
        content: &[&[u8]],
        most: usize,
    ) -> Result<(), RefusalReason> {
        let octets = octets_of(content.iter().map(|piece| piece.len()).sum());
        if !self.state.handovers.begin_bounded(to, BoundedEnvelopes::Forwarded, 1, octets, most) {
            return Err(RefusalReason::QueueFull);
        }
        self.send_begun(to, kind, content)
    }

    /// Sends an envelope that has been counted.
    fn send_begun(&self, to: NodeId, kind: EnvelopeKind, content: &[&[u8]]) -> Result<(), RefusalReason> {
        let content = content.concat();
        let octets = octets_of(content.len());
        let own = self.cluster.node();
        let envelope = Envelope::new(kind, EnvelopeClass::Control, own, Vec::new(), content);
        self.hand_over_begun(to, BoundedEnvelopes::Forwarded, envelope, octets)
    }

    /// Sends the end of a request, or that it has no response.
    fn send_ending(&self, to: NodeId, kind: EnvelopeKind, content: &[&[u8]]) -> Result<(), RefusalReason> {
        self.send_forwarded(to, kind, content, MAX_FORWARDED_OCTETS + RESERVED_OCTETS)
    }
}
