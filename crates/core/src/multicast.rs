//! Multicast: one stanza for many recipients, such as the occupants of a room.
//!
//! All recipients share the bytes, and the list of recipients is shared with the sender. The `to` is written when the
//! queue of a session is written, so no copy is made for a recipient. Recipients on one other node share one envelope.
//!
//! A recipient gets a copy of its own, routed through its lane (`router/lanes.rs`), if a handler of its account must run,
//! if its message must be stored, or if it is not an account of this server.

use std::sync::Arc;

use jid::Jid;
use stanza::StanzaCondition;

use crate::effect::Effects;
use crate::node::Node;
use crate::receipt::ReceiptIssuer;
use crate::shared_stanza::SharedStanza;

/// A message or presence for many recipients.
pub struct Multicast {
    pub(crate) stanza: SharedStanza,
    pub(crate) from: Jid,
    pub(crate) recipients: Arc<[Jid]>,
    pub(crate) on_undelivered: Option<Box<dyn UndeliveredHandler>>,
    pub(crate) receipt: Option<ReceiptIssuer>,
}

/// A recipient that could not receive a multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndeliveredRecipient {
    /// Its address, as in the list.
    pub to: Jid,
    /// Why.
    pub condition: StanzaCondition,
}

/// Receives the recipients that could not receive a multicast; implemented by closures of the same signature.
pub trait UndeliveredHandler: Send {
    /// Called once, after all recipients, unless all received it. Must not block.
    fn handle(self: Box<Self>, node: &Arc<Node>, recipients: Vec<UndeliveredRecipient>) -> Effects;
}

impl<F> UndeliveredHandler for F
where
    F: FnOnce(&Arc<Node>, Vec<UndeliveredRecipient>) -> Effects + Send,
{
    fn handle(self: Box<Self>, node: &Arc<Node>, recipients: Vec<UndeliveredRecipient>) -> Effects {
        self(node, recipients)
    }
}

impl Multicast {
    /// A multicast of a stanza whose `from` is this address. A `to` in the stanza is removed. A recipient that could not
    /// receive it is reported to `from` by an error stanza (RFC 6120, section 8.3).
    pub fn new(stanza: SharedStanza, from: Jid, recipients: Arc<[Jid]>) -> Multicast {
        let addressed = stanza.head().to(stanza.bytes()).is_some();
        let stanza = if addressed { stanza.with_to(None).unwrap_or(stanza) } else { stanza };
        Multicast { stanza, from, recipients, on_undelivered: None, receipt: None }
    }

    /// Reports recipients that could not receive it to this handler, instead of by error stanzas. Failures that are
    /// known only later, for example from another server, are always reported by error stanzas.
    #[must_use]
    pub fn on_undelivered(mut self, handler: impl UndeliveredHandler + 'static) -> Multicast {
        self.on_undelivered = Some(Box::new(handler));
        self
    }

    /// Fulfils this receipt when each recipient on this node has it, and each other node concerned has acknowledged it. A recipient
    /// that could not receive it does not fail the receipt.
    #[must_use]
    pub fn with_receipt(mut self, receipt: ReceiptIssuer) -> Multicast {
        self.receipt = Some(receipt);
        self
    }
}

impl std::fmt::Debug for Multicast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Multicast({:?} from {} to {})", self.stanza, self.from, self.recipients.len())
    }
}
