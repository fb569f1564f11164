//! Requests of clients that another node must answer, because it has what they concern: octets whose meaning is that of the
//! handler. `outbound` is the sender's side, `inbound` the receiver's.
//!
//! ```text
//! request    8 its number, 4 seconds that the sender waits, 1 whether parts follow (0 or 1); the rest: a part
//! response   8 the number of the request, 1 status ([`ResponseStatus`]); the rest: a part
//! end        8 the number of the request, 1 whether the client has the response (0 or 1)
//! ```
//!
//! A request can wait for a minute. The receiver retains its response until the sender reports whether the client got it, so
//! a broken connection means the same as at the receiver itself. An end that does not fit into the queue is sent by a sweep.
//!
//! # Pitfalls
//!
//! Nodes of an earlier version refuse the envelopes, which means that they have nothing for the request.

mod inbound;
mod outbound;
#[cfg(test)]
mod tests;

use cluster::{Envelope, EnvelopeClass, EnvelopeKind, NodeId, RefusalReason};

use crate::ClusteredNode;

pub use inbound::{AcceptedRequest, ForwardedRequestHandler, HandleForwardedRequest};
pub use outbound::{OutboundRequest, end_all, forward, own_tag};

pub(super) use inbound::InboundRequests;
pub(super) use outbound::ForwardedRequests;

/// Maximum number of requests of this node that wait for other nodes.
const MAX_OPEN: usize = 65_536;
/// Maximum number of them that wait for one node, which holds no more than these for it.
const MAX_OPEN_PER_NODE: usize = 32_768;
/// Maximum octets of one request, and of one response: more than a stanza of the largest limit needs, with all that is added to
/// it.
const MAX_BYTES: usize = 24 << 20;
/// Maximum octets of responses of which a part is missing or that the client's connection has not taken, and of incomplete
/// requests of one node.
const MAX_RETAINED_BYTES: usize = 64 << 20;
/// Octets of one envelope: half of what it carries, so that stanzas behind it are not delayed for long.
const PART_BYTES: usize = 256 << 10;

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingFailure {
    /// There is no such node, it is gone, or it does not know forwarded requests.
    NoNode,
    /// Too much is under way, or there was no response in time.
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
    /// No response: too many requests are open.
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

/// The part that begins here. An empty content has one empty part.
fn next_part(content: &[u8], at: usize) -> Option<&[u8]> {
    if at > 0 && at >= content.len() {
        return None;
    }
    content.get(at..content.len().min(at + PART_BYTES))
}

impl ClusteredNode<'_> {
    fn send_part(
        &self,
        to: NodeId,
        kind: EnvelopeKind,
        head: &[u8],
        part: &[u8],
    ) -> Result<(), RefusalReason> {
        let own = self.cluster.node();
        let octets = [head, part].concat();
        let envelope = Envelope::new(kind, EnvelopeClass::Control, own, Vec::new(), octets);
        self.cluster.deliver(to, envelope).map(drop).map_err(|refused| refused.reason)
    }
}
