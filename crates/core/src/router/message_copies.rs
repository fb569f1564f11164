//! Messages of an account that is connected to several nodes: which ones its sessions here have, so that none is delivered twice
//! when a session on another node ends.
//!
//! The home sends a message to each node with sessions that receive it. One of these nodes answers for the message: if its
//! sessions end before a client has it, that node delivers it again. The others have *copies*, and drop what their sessions
//! leave. Delivered again, the message reaches nodes that have it already: they recognise the stanza-id, and the first of
//! them answers for it from then on.
//!
//! On one node nothing is recorded, nor for accounts with sessions on one node.
//!
//! Not implemented: messages without a stanza-id, because the option of `stanza_id` is off; an account whose last session here
//! has ended, so that its next session receives again what was stored for a session on another node.

use std::collections::VecDeque;
use std::sync::Arc;

use base::TimeOrderedId;
use jid::JidRef;
use xml::Ns;

use super::RoutingWork;
use crate::account::Account;
use crate::node::Node;
use crate::receipt::{AttachedReceipt, Receipt};
use crate::session::Extension;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// Messages of one account that are remembered. An older one may be delivered twice.
const MAX_MESSAGES: usize = 64;

/// Text of an id that this server assigns.
type StanzaIdText = [u8; TimeOrderedId::CHARS];

struct MessageCopy {
    id: StanzaIdText,
    /// This node answers for the message.
    responsible: bool,
}

/// What the sessions of an account have, here and on other nodes.
#[derive(Default)]
struct MessageCopies(VecDeque<MessageCopy>);

impl Extension for MessageCopies {}

impl MessageCopies {
    fn position(&self, id: &StanzaIdText) -> Option<usize> {
        // The one that is looked for is often recent.
        self.0.iter().rposition(|copy| copy.id == *id)
    }
}

/// The id that this account has assigned to a message (XEP-0359).
fn stanza_id(stanza: &SharedStanza, account: JidRef<'_>) -> Option<StanzaIdText> {
    if stanza.class() != QueueClass::Message {
        return None;
    }
    let tree = stanza.tree().ok()?;
    let of_account = |child: &xml::TreeNode<'_>| {
        child.is("stanza-id", Ns::StanzaId) && child.attr("by").is_some_and(|by| by == account.as_str())
    };
    let id = tree.root().child_elements().find(of_account)?.attr("id")?;
    id.as_bytes().try_into().ok()
}

fn contains(stanza: &SharedStanza, id: &StanzaIdText) -> bool {
    stanza.bytes().windows(id.len()).any(|window| window == id)
}

impl Node {
    /// Sessions here are about to receive a message that sessions on other nodes receive, too.
    pub(super) fn record_copy(&self, account: &Account, stanza: &SharedStanza, responsible: bool) {
        let Some(id) = stanza_id(stanza, account.jid.as_ref()) else { return };
        account.with(|state| {
            let mut new = None;
            let copies = match state.extension::<MessageCopies>() {
                Some(copies) => copies,
                None => new.insert(MessageCopies::default()),
            };
            match copies.position(&id) {
                Some(at) => copies.0[at].responsible |= responsible,
                None => copies.0.push_back(MessageCopy { id, responsible }),
            }
            while copies.0.len() > MAX_MESSAGES {
                copies.0.pop_front();
            }
            if let Some(new) = new {
                state.insert_extension(new);
            }
        });
    }

    /// No session here has the message. True if this node answers for it, so that it must be delivered otherwise.
    pub(super) fn forget_copy(&self, account: &Account, stanza: &SharedStanza) -> bool {
        if self.is_single() || !account.with(|state| state.extension::<MessageCopies>().is_some()) {
            return true;
        }
        let Some(id) = stanza_id(stanza, account.jid.as_ref()) else { return true };
        account.with(|state| {
            let Some(copies) = state.extension::<MessageCopies>() else { return true };
            let forgotten = copies.position(&id).and_then(|at| copies.0.remove(at));
            if copies.0.is_empty() {
                state.remove_extension::<MessageCopies>();
            }
            forgotten.is_none_or(|copy| copy.responsible)
        })
    }

    /// Whether sessions here have, or have had, this message. If so, this node answers for it: a stanza that replaces it must
    /// not be delivered.
    pub fn takes_over_copy(self: &Arc<Self>, account: &Account, stanza: &SharedStanza) -> bool {
        let (recorded, receipt) = self.find_copy_of(account, stanza, true);
        if let Some(AttachedReceipt { stanza, receipt }) = receipt {
            // Its backup is written in time whether or not somebody waits.
            drop((stanza, receipt));
        }
        recorded
    }

    /// As [`Node::takes_over_copy`], if `responsible`. The sender waits until the message is safe.
    pub(super) fn has_copy(
        self: &Arc<Self>,
        account: &Account,
        stanza: &SharedStanza,
        responsible: bool,
        work: &mut RoutingWork,
    ) -> bool {
        let (recorded, receipt) = self.find_copy_of(account, stanza, responsible);
        work.receipts.0.extend(receipt);
        recorded
    }

    /// As [`Node::has_copy`], for a message whose chain another node may have run with this id.
    pub(super) fn has_copy_with_id(
        self: &Arc<Self>,
        account: &Account,
        id: TimeOrderedId,
        work: &mut RoutingWork,
    ) -> bool {
        let (recorded, receipt) = self.find_copy(account, &id.to_text(), true);
        work.receipts.0.extend(receipt);
        recorded
    }

    fn find_copy_of(
        self: &Arc<Self>,
        account: &Account,
        stanza: &SharedStanza,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>) {
        if self.is_single() || !account.with(|state| state.extension::<MessageCopies>().is_some()) {
            return (false, None);
        }
        match stanza_id(stanza, account.jid.as_ref()) {
            Some(id) => self.find_copy(account, &id, responsible),
            None => (false, None),
        }
    }

    fn find_copy(
        self: &Arc<Self>,
        account: &Account,
        id: &StanzaIdText,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>) {
        let recorded = account.with(|state| {
            let Some(copies) = state.extension::<MessageCopies>() else { return false };
            let Some(at) = copies.position(id) else { return false };
            copies.0[at].responsible |= responsible;
            true
        });
        let receipt = if recorded && responsible { self.track_held(account, id) } else { None };
        (recorded, receipt)
    }

    /// Tracks the delivery of a message that may be in the queue of a session, so that it gets a backup.
    fn track_held(self: &Arc<Self>, account: &Account, id: &StanzaIdText) -> Option<AttachedReceipt> {
        account.host().message_backup.as_ref()?;
        for session in account.sessions() {
            let Some(held) = session.outbox.find_held(|stanza| contains(stanza, id)) else { continue };
            if !held.track_delivery(self.clock.now()) {
                continue;
            }
            if session.outbox.find_held(|stanza| stanza.is_same(&held)).is_none() {
                // It was written before its delivery was tracked.
                held.settle_delivery();
                continue;
            }
            self.watch_delivery(&session);
            let receipt = Receipt::of_delivery(&held);
            return Some(AttachedReceipt { stanza: held, receipt });
        }
        None
    }
}
