//! Notices of features to all other nodes ([`throng_core::feature_notice`]).
//!
//! ```text
//! recipient  the domain
//! 1 + n      length and text of the name; the rest is the content
//! ```
//!
//! A notice that does not fit into the queue of a node is logged, and the node is notified that it has missed one when there is
//! room: it reads the store.

use std::sync::Arc;

use cluster::{Envelope, EnvelopeClass, NodeId, Recipient, RefusalReason};
use throng_core::Node;
use throng_core::feature_notice::{NoticeCtx, NoticeHandlers};
use throng_core::host::Host;

use super::ClusteredNode;
use crate::envelope_kinds::NOTICE;

/// Maximum length of the content in bytes: text of 32 KiB, each byte of which is escaped.
pub const MAX_CONTENT_BYTES: usize = 256 << 10;

/// Writes a text for another node: 2 octets with its length, and the text. One of 64 KiB or more is written as an empty text; addresses and
/// their parts are shorter.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or_default();
    out.extend(length.to_be_bytes());
    out.extend(&text.as_bytes()[..length.into()]);
}

/// Reads what [`write_text`] has written, and removes it from `rest`. None if it is too short or no UTF-8.
pub fn read_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

/// Sends a notice to one node. False if it is not a member, or its queue is full; that node is not notified then.
pub fn send_notice_to(node: &Arc<Node>, to: NodeId, host: &Host, name: &'static str, content: &[u8]) -> bool {
    let envelope = notice_envelope(node, host, name, content);
    envelope.is_some_and(|envelope| node.cluster.deliver(to, envelope).is_ok())
}

/// The envelope of a notice; none if it is too large.
fn notice_envelope(node: &Node, host: &Host, name: &'static str, content: &[u8]) -> Option<Envelope> {
    let length = u8::try_from(name.len()).ok().filter(|_| content.len() <= MAX_CONTENT_BYTES);
    let Some(length) = length else {
        tracing::error!(name, bytes = content.len(), "a notice to other nodes is too large");
        return None;
    };
    let octets = [&[length], name.as_bytes(), content].concat();
    let recipients = vec![Recipient::Address(host.jid.clone())];
    Some(Envelope::new(NOTICE, EnvelopeClass::Control, node.cluster.node(), recipients, octets))
}

impl ClusteredNode<'_> {
    /// Sends a notice to all other nodes.
    pub(super) fn send_notice(&self, host: &Host, name: &'static str, content: &[u8]) {
        let Some(envelope) = notice_envelope(self, host, name, content) else { return };
        for refused in self.cluster.broadcast(envelope).refused {
            tracing::warn!(name, %refused, "a notice was not sent to a node");
            if refused.reason == RefusalReason::QueueFull {
                self.notices_are_due(refused.node);
            }
        }
    }

    /// Another node has sent a notice. False if it is none. A domain that this node does not serve is ignored: a reload may
    /// be in progress.
    pub(super) fn on_notice(&self, from: NodeId, envelope: &Envelope) -> bool {
        let [Recipient::Address(domain)] = &envelope.recipients[..] else { return false };
        let Some((length, rest)) = envelope.bytes.split_first() else { return false };
        let Some((name, content)) = rest.split_at_checked(usize::from(*length)) else { return false };
        let Ok(name) = std::str::from_utf8(name) else { return false };
        if !domain.as_ref().is_domain() || content.len() > MAX_CONTENT_BYTES {
            return false;
        }
        if let Some(host) = self.host(domain.as_ref().domain()) {
            // Unknown names are ignored: the other node may have other features.
            let handlers = host.extensions.get::<NoticeHandlers>();
            if let Some(handler) = handlers.and_then(|handlers| handlers.get(name)) {
                let (from, content) = (Some(from), Some(content));
                handler.handle(&NoticeCtx { node: self, host: &host, from, content });
            }
        }
        true
    }

    /// Notices of a node may have been missed.
    pub(super) fn handle_missed_notices(&self, from: NodeId) {
        for host in &self.hosts() {
            let handlers = host.extensions.get::<NoticeHandlers>();
            for handler in handlers.iter().flat_map(|handlers| handlers.iter()) {
                handler.handle(&NoticeCtx { node: self, host, from: Some(from), content: None });
            }
        }
    }
}
