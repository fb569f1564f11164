//! Multicast: one stanza for many recipients, such as the occupants of a room.
//!
//! All recipients share the bytes, and the list of recipients is shared with the sender. The `to` is written when the
//! queue of a session is written, so no copy is made for a recipient. Recipients on one other node share one envelope.
//!
//! A recipient gets a copy of its own, routed through its lane (`router/lanes.rs`), if a handler of its account must run,
//! if its message must be stored, or if it is not an account of this server.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::StanzaCondition;

use crate::effect::Effects;
use crate::node::Node;
use crate::receipt::ReceiptIssuer;
use crate::shared_stanza::SharedStanza;

/// A message or presence for many recipients.
pub struct Multicast {
    pub(crate) stanza: SharedStanza,
    pub(crate) from: Jid,
    pub(crate) recipients: RecipientList,
    pub(crate) on_undelivered: Option<Box<dyn UndeliveredHandler>>,
    pub(crate) receipt: Option<ReceiptIssuer>,
}

/// A list of recipients. Clones are the same list: multicasts to it that are performed together reach each recipient together.
#[derive(Clone)]
pub struct RecipientList(SharedAddresses);

#[derive(Clone)]
enum SharedAddresses {
    List(Arc<[Jid]>),
    Packed(Arc<PackedAddresses>),
}

/// Addresses one after the other: made without an allocation for each, and read in one go.
#[derive(Default)]
struct PackedAddresses {
    text: String,
    ends: Vec<usize>,
}

impl RecipientList {
    /// Number of recipients.
    pub fn len(&self) -> usize {
        match &self.0 {
            SharedAddresses::List(list) => list.len(),
            SharedAddresses::Packed(packed) => packed.ends.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A recipient by its position.
    pub fn get(&self, position: usize) -> Option<JidRef<'_>> {
        match &self.0 {
            SharedAddresses::List(list) => list.get(position).map(Jid::as_ref),
            SharedAddresses::Packed(packed) => {
                let end = *packed.ends.get(position)?;
                let start = position.checked_sub(1).and_then(|before| packed.ends.get(before));
                JidRef::from_normalised(packed.text.get(start.copied().unwrap_or(0)..end)?)
            }
        }
    }

    /// All recipients, in order.
    pub fn iter(&self) -> impl Iterator<Item = JidRef<'_>> {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    /// Whether both are the same list, and not only equal.
    pub fn is_same(&self, other: &RecipientList) -> bool {
        match (&self.0, &other.0) {
            (SharedAddresses::List(one), SharedAddresses::List(other)) => Arc::ptr_eq(one, other),
            (SharedAddresses::Packed(one), SharedAddresses::Packed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl std::fmt::Debug for RecipientList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecipientList({})", self.len())
    }
}

impl Default for RecipientList {
    fn default() -> RecipientList {
        RecipientList(SharedAddresses::Packed(Arc::default()))
    }
}

impl From<Arc<[Jid]>> for RecipientList {
    fn from(list: Arc<[Jid]>) -> RecipientList {
        RecipientList(SharedAddresses::List(list))
    }
}

impl<'a> FromIterator<JidRef<'a>> for RecipientList {
    fn from_iter<T: IntoIterator<Item = JidRef<'a>>>(addresses: T) -> RecipientList {
        let mut packed = PackedAddresses::default();
        for address in addresses {
            packed.text.push_str(address.as_str());
            packed.ends.push(packed.text.len());
        }
        RecipientList(SharedAddresses::Packed(Arc::new(packed)))
    }
}

impl<'a> FromIterator<&'a Jid> for RecipientList {
    fn from_iter<T: IntoIterator<Item = &'a Jid>>(addresses: T) -> RecipientList {
        addresses.into_iter().map(Jid::as_ref).collect()
    }
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
    pub fn new(stanza: SharedStanza, from: Jid, recipients: impl Into<RecipientList>) -> Multicast {
        let addressed = stanza.head().to(stanza.bytes()).is_some();
        let stanza = if addressed { stanza.with_to(None).unwrap_or(stanza) } else { stanza };
        Multicast { stanza, from, recipients: recipients.into(), on_undelivered: None, receipt: None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_list_has_the_same_addresses_as_one_of_jids() {
        let jids: Vec<Jid> =
            ["a@b/c", "domain", "x@y", "room@z/with / and @"].map(|text| Jid::parse(text).unwrap()).into();
        let (packed, list): (RecipientList, RecipientList) =
            (jids.iter().collect(), Arc::<[Jid]>::from(jids.clone()).into());
        for one in [&packed, &list] {
            assert_eq!((one.len(), one.is_empty()), (4, false));
            assert!(one.iter().eq(jids.iter().map(Jid::as_ref)) && one.get(4).is_none());
            assert!(one.is_same(&one.clone()));
            assert_eq!(one.get(3).and_then(|jid| jid.resource()), Some("with / and @"));
        }
        assert!(!packed.is_same(&list) && RecipientList::default().is_empty());
    }
}
