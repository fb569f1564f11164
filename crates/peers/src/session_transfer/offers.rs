//! Sessions that a node offers to others, because it is drained: a client that has lost its connection, or is about to, resumes its
//! stream there or anywhere else. XEP-0198 1.6.3, section 5.
//!
//! An offer changes nothing. The other node requests the session with its token, as for a client, and the rest is the same.
//!
//! # Pitfalls
//!
//! A node of a release that does not know offers refuses them, and the session stays: the node that offers must end it some time.

use std::sync::Arc;

use cluster::{Envelope, NodeId, Recipient};
use jid::Jid;
use throng_core::Node;
use throng_core::session::stream_management::{TOKEN_BYTES, WantedStream};
use throng_core::session::{Session, flags};

use crate::envelope_kinds::SESSION_OFFER;
use crate::routing::ClusteredNode;

/// A session that another node offers.
pub struct OfferedSession {
    /// The bare address of its account.
    pub account: Jid,
    /// Its stream.
    pub stream: WantedStream,
}

/// What takes sessions that other nodes offer.
pub trait TakeOfferedSession: Send + Sync {
    /// Takes the session, in a task: the caller is the thread that receives everything from other nodes.
    fn take(&self, node: &Arc<Node>, offered: OfferedSession);
}

/// The handler of a node, among its extensions. Without one, offers are ignored.
pub struct OfferedSessionHandler(pub Arc<dyn TakeOfferedSession>);

/// Offers a session to another node. False if it cannot move, or that node cannot be asked.
pub fn offer_session(node: &Arc<Node>, session: &Session, to: NodeId) -> bool {
    ClusteredNode::of(node).is_some_and(|node| node.offer_session(session, to))
}

fn decode(octets: &[u8]) -> Option<([u8; TOKEN_BYTES], u32)> {
    let (token, h) = octets.split_first_chunk()?;
    Some((*token, u32::from_be_bytes(h.try_into().ok()?)))
}

impl ClusteredNode<'_> {
    fn offer_session(&self, session: &Session, to: NodeId) -> bool {
        let Some((token, h)) = session.outbox.resumption_point() else { return false };
        if session.flags.has(flags::EPHEMERAL) {
            return false;
        }
        let octets = [&token[..], &h.to_be_bytes()].concat();
        let recipients = vec![Recipient::Address(session.jid.clone())];
        self.send_about_session(to, SESSION_OFFER, recipients, octets).is_ok()
    }

    /// Another node offers a session. False if the octets are no offer.
    pub(crate) fn on_session_offer(&self, envelope: &Envelope) -> bool {
        let (Some((token, h)), [Recipient::Address(jid)]) =
            (decode(&envelope.bytes), &envelope.recipients[..])
        else {
            return false;
        };
        let Some(resource) = jid.as_ref().resource() else { return false };
        let stream = WantedStream { resource: resource.into(), token, h };
        // A node that drains itself would have to offer it again.
        let own = self.cluster.node();
        let drains = self.cluster.members().iter().any(|member| member.node == own && member.drains);
        if let Some(handler) = self.extensions.get::<OfferedSessionHandler>().filter(|_| !drains) {
            let account = jid.as_ref().bare().to_jid();
            handler.0.take(self.arc(), OfferedSession { account, stream });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_a_token_and_a_count() {
        let octets = [&[7; TOKEN_BYTES][..], &3_u32.to_be_bytes()].concat();
        assert_eq!(decode(&octets), Some(([7; TOKEN_BYTES], 3)));
        assert!((0..octets.len()).all(|length| decode(&octets[..length]).is_none()));
        assert_eq!(decode(&[octets, vec![0]].concat()), None);
    }
}
