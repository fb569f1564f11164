//! Messages of an account that is connected to several nodes: which ones its sessions here have, so that none is delivered twice
//! when a session on another node ends.
//!
//! The home sends a message to each node with sessions that receive it. One of these nodes answers for the message: if its
//! sessions end before a client has it, that node delivers it again. The others have *copies*, and drop what their sessions
//! leave. Delivered again, the message reaches nodes that have it already: they recognise the stanza-id, and the first of
//! them answers for it from then on.
//!
//! What is read from the store is recorded, too: a message whose home crashes after it has stored a backup runs again elsewhere, and a
//! session that has read the backup must not receive it twice. Only the store delivers it again.
//!
//! A session that moves takes along what the sessions of its old node have taken: they would be delivered to it again when a session
//! elsewhere ends.
//!
//! A server without other nodes records nothing. Messages of an account whose sessions are all on one node are recorded only if they
//! are read from the store.
//!
//! Not implemented: messages without a stanza-id (`assign_ids` of `[modules.stanza_id]` is off); accounts whose last session
//! here has ended: the next session receives again what was stored for a session on another node.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use base::TimeOrderedId;
use jid::JidRef;
use throng_core::account::Account;
use throng_core::receipt::{AttachedReceipt, Receipt};
use throng_core::session::{Extension, Session};
use throng_core::shared_stanza::{QueueClass, SharedStanza};
use xml::Ns;

use super::ClusteredNode;
use super::home::PeerState;

/// Messages of one account that are remembered. An older one may be delivered twice.
const MAX_MESSAGES: usize = 64;

/// Text of an id that this server assigns.
pub(super) type StanzaIdText = [u8; TimeOrderedId::CHARS];

/// What delivers a message again if the sessions here end before a client has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedeliveredBy {
    /// This node.
    ThisNode,
    /// Another node.
    OtherNode,
    /// The store, from which the message with this number was read.
    Store(u64),
}

impl RedeliveredBy {
    fn new(this_node: bool) -> RedeliveredBy {
        if this_node { RedeliveredBy::ThisNode } else { RedeliveredBy::OtherNode }
    }
}

struct MessageCopy {
    id: StanzaIdText,
    redelivered_by: RedeliveredBy,
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

    fn record(&mut self, id: StanzaIdText, redelivered_by: RedeliveredBy) {
        match self.position(&id) {
            Some(at) if redelivered_by == RedeliveredBy::ThisNode => {
                self.0[at].redelivered_by = redelivered_by
            }
            Some(_) => {}
            None => self.0.push_back(MessageCopy { id, redelivered_by }),
        }
        while self.0.len() > MAX_MESSAGES {
            self.0.pop_front();
        }
    }
}

/// The id that this account has assigned to a message (XEP-0359).
pub(super) fn stanza_id(stanza: &SharedStanza, account: JidRef<'_>) -> Option<StanzaIdText> {
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

/// Whether the text of a stanza has one of these ids between quotes. Most messages of a queue are not among those that are looked
/// for, and need not be read.
fn contains_any(stanza: &SharedStanza, ids: &HashSet<StanzaIdText>) -> bool {
    let is_quote = |octet: Option<&u8>| matches!(octet, Some(b'\'' | b'"'));
    let mut windows = stanza.bytes().windows(TimeOrderedId::CHARS + 2);
    windows.any(|window| {
        is_quote(window.first())
            && is_quote(window.last())
            && window[1..].first_chunk().is_some_and(|id: &StanzaIdText| ids.contains(id))
    })
}

fn contains(stanza: &SharedStanza, id: &StanzaIdText) -> bool {
    stanza.bytes().windows(id.len()).any(|window| window == id)
}

/// See [`throng_core::router::PeerRouting::record_copy`].
pub(super) fn record_copy(account: &Account, stanza: &SharedStanza, responsible: bool) {
    record(account, stanza, RedeliveredBy::new(responsible));
}

/// See [`throng_core::router::PeerRouting::record_read_from_store`].
pub(super) fn record_read_from_store(account: &Account, stanza: &SharedStanza, number: u64) {
    record(account, stanza, RedeliveredBy::Store(number));
}

fn record(account: &Account, stanza: &SharedStanza, redelivered_by: RedeliveredBy) {
    if let Some(id) = stanza_id(stanza, account.jid.as_ref()) {
        record_ids(account, &[id], redelivered_by);
    }
}

fn record_ids(account: &Account, ids: &[StanzaIdText], redelivered_by: RedeliveredBy) {
    account.with(|state| {
        let mut new = None;
        let copies = match state.extension::<MessageCopies>() {
            Some(copies) => copies,
            None => new.insert(MessageCopies::default()),
        };
        ids.iter().for_each(|id| copies.record(*id, redelivered_by));
        if let Some(new) = new {
            state.insert_extension(new);
        }
    });
}

/// See [`throng_core::router::PeerRouting::forget_copy`].
pub(super) fn forget_copy(account: &Account, stanza: &SharedStanza) -> bool {
    if !has_copies(account) {
        return true;
    }
    let Some(id) = stanza_id(stanza, account.jid.as_ref()) else { return true };
    account.with(|state| {
        let Some(copies) = state.extension::<MessageCopies>() else { return true };
        let forgotten = copies.position(&id).and_then(|at| copies.0.remove(at));
        if copies.0.is_empty() {
            state.remove_extension::<MessageCopies>();
        }
        forgotten.is_none_or(|copy| copy.redelivered_by != RedeliveredBy::OtherNode)
    })
}

/// Ids of these messages.
pub(super) fn stanza_ids<'a>(
    stanzas: impl Iterator<Item = &'a SharedStanza>,
    owner: JidRef<'_>,
) -> HashSet<StanzaIdText> {
    stanzas.filter_map(|stanza| stanza_id(stanza, owner)).collect()
}

/// Messages with these ids that a session holds, each with its id. The queue is passed over once for all ids, because others decide
/// how many there are.
pub(super) fn find_held(session: &Session, ids: &HashSet<StanzaIdText>) -> Vec<(StanzaIdText, SharedStanza)> {
    if ids.is_empty() {
        return Vec::new();
    }
    let candidates = RefCell::new(Vec::new());
    session.outbox.find_held(|held| {
        if contains_any(held, ids) {
            candidates.borrow_mut().push(held.clone());
        }
        false
    });
    // They are read without the lock of the queue. A carbon copy contains the id of its original, too.
    let with_id = |held: SharedStanza| {
        let id = stanza_id(&held, session.bare()).filter(|id| ids.contains(id))?;
        Some((id, held))
    };
    candidates.into_inner().into_iter().filter_map(with_id).collect()
}

/// Whether this node answers for a message that a session here has.
pub(super) fn answers_for(account: &Account, stanza: &SharedStanza) -> bool {
    if !has_copies(account) {
        return true;
    }
    let Some(id) = stanza_id(stanza, account.jid.as_ref()) else { return true };
    account.with(|state| {
        let Some(copies) = state.extension::<MessageCopies>() else { return true };
        copies.position(&id).is_none_or(|at| copies.0[at].redelivered_by != RedeliveredBy::OtherNode)
    })
}

/// The number of this message in the store, if it was read from there.
pub(super) fn stored_number(account: &Account, stanza: &SharedStanza) -> Option<u64> {
    if !has_copies(account) {
        return None;
    }
    let id = stanza_id(stanza, account.jid.as_ref())?;
    account.with(|state| {
        let copies = state.extension::<MessageCopies>()?;
        match copies.0.get(copies.position(&id)?)?.redelivered_by {
            RedeliveredBy::Store(number) => Some(number),
            RedeliveredBy::ThisNode | RedeliveredBy::OtherNode => None,
        }
    })
}

/// Ids of the messages that sessions of an account here have taken, as octets. Those in `held`, and in the queues of other sessions here,
/// are not among them: if these sessions end, the session that moves must receive such a message.
pub(super) fn taken_messages<'a>(account: &Account, held: impl Iterator<Item = &'a SharedStanza>) -> Vec<u8> {
    let mut ids: Vec<StanzaIdText> = account.with(|state| {
        let copies = state.extension::<MessageCopies>();
        let mut ids = Vec::new();
        // What was read from the store may have been left unread, and is still there then.
        for copy in copies.iter().flat_map(|copies| &copies.0) {
            ids.extend((!matches!(copy.redelivered_by, RedeliveredBy::Store(_))).then_some(copy.id));
        }
        ids
    });
    if ids.is_empty() {
        return Vec::new();
    }
    let known: HashSet<StanzaIdText> = ids.iter().copied().collect();
    let mut left_out = stanza_ids(held.filter(|stanza| contains_any(stanza, &known)), account.jid.as_ref());
    for session in account.sessions() {
        left_out.extend(find_held(&session, &known).into_iter().map(|(id, _)| id));
    }
    ids.retain(|id| !left_out.contains(id));
    ids.concat()
}

/// Whether a session of the account here has taken a message that is in no queue here.
pub(super) fn was_taken(account: &Account, stanza: &SharedStanza) -> bool {
    let id = stanza_id(stanza, account.jid.as_ref()).filter(|_| has_copies(account));
    let Some(id) = id else { return false };
    account.with(|state| {
        let copies = state.extension::<MessageCopies>();
        let copy = copies.and_then(|copies| copies.0.get(copies.position(&id)?));
        // What was read from the store may have been left unread, and is still there then.
        copy.is_some_and(|copy| !matches!(copy.redelivered_by, RedeliveredBy::Store(_)))
    })
}

fn has_copies(account: &Account) -> bool {
    account.with(|state| state.extension::<MessageCopies>().is_some())
}

impl PeerState {
    /// See [`throng_core::router::PeerRouting::note_delivered`].
    pub(super) fn note_delivered(&self, account: &Account, stanza: &SharedStanza) {
        if let Some(id) = stanza_id(stanza, account.jid.as_ref()) {
            self.delivered.record((account.hash, id));
        }
    }
}

impl ClusteredNode<'_> {
    /// See [`throng_core::router::PeerRouting::recognise_copy`].
    pub(super) fn recognise_copy(
        &self,
        account: &Account,
        stanza: &SharedStanza,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>) {
        if !has_copies(account) {
            return (false, None);
        }
        match stanza_id(stanza, account.jid.as_ref()) {
            Some(id) => self.recognise_copy_by_text(account, &id, responsible),
            None => (false, None),
        }
    }

    /// See [`throng_core::router::PeerRouting::recognise_copy_with_id`].
    pub(super) fn recognise_copy_with_id(
        &self,
        account: &Account,
        id: TimeOrderedId,
    ) -> (bool, Option<AttachedReceipt>) {
        let id = id.to_text();
        if self.state.delivered.contains((account.hash, id)) {
            return (true, None);
        }
        self.recognise_copy_by_text(account, &id, true)
    }

    /// A session has moved here whose node has sent these ids of messages that its sessions have taken. False if the octets are none.
    pub(super) fn on_messages_taken(&self, account: &Arc<Account>, octets: &[u8]) -> bool {
        let (ids, rest) = octets.as_chunks::<{ TimeOrderedId::CHARS }>();
        if !rest.is_empty() || ids.is_empty() || ids.len() > MAX_MESSAGES {
            return false;
        }
        let taken: HashSet<StanzaIdText> = ids.iter().copied().collect();
        for session in account.sessions() {
            let held = find_held(&session, &taken);
            held.iter().for_each(|(_, held)| self.share_with_taker(account, held));
        }
        record_ids(account, ids, RedeliveredBy::OtherNode);
        true
    }

    /// Another session of the account has taken a message that a session here holds: it is delivered, and is dropped if this session
    /// ends.
    pub(super) fn share_with_taker(&self, account: &Arc<Account>, held: &SharedStanza) {
        if !held.is_shared() {
            held.add_recipients(2);
        }
        held.mark_delivered();
        if held.confirm_delivery()
            && let Some(backup) = &account.host().message_backup
        {
            backup.remove_backups(self, account, vec![held.clone()]);
        }
    }

    fn was_delivered(&self, account: &Account, stanza: &SharedStanza) -> bool {
        let id = stanza_id(stanza, account.jid.as_ref());
        id.is_some_and(|id| self.state.delivered.contains((account.hash, id)))
    }

    fn recognise_copy_by_text(
        &self,
        account: &Account,
        id: &StanzaIdText,
        responsible: bool,
    ) -> (bool, Option<AttachedReceipt>) {
        let recorded = account.with(|state| {
            let copies = state.extension::<MessageCopies>()?;
            let copy = copies.position(id).and_then(|at| copies.0.get_mut(at))?;
            if responsible && copy.redelivered_by == RedeliveredBy::OtherNode {
                copy.redelivered_by = RedeliveredBy::ThisNode;
            }
            Some(copy.redelivered_by)
        });
        // What was read from the store is safe there until a client has it.
        let receipt = match recorded {
            Some(RedeliveredBy::ThisNode) if responsible => self.track_held(account, id),
            _ => None,
        };
        (recorded.is_some(), receipt)
    }

    /// See [`throng_core::router::PeerRouting::take_over_copy`].
    pub(super) fn take_over_copy(
        &self,
        account: &Account,
        stanza: &SharedStanza,
        number: u64,
    ) -> (bool, Option<AttachedReceipt>) {
        match stored_number(account, stanza) {
            // A session that has ended had read it: it must be read again.
            Some(earlier) if earlier == number => (false, None),
            // It was stored twice.
            Some(_) => (true, None),
            // The node that has stored it did not learn that it was delivered here.
            None if self.was_delivered(account, stanza) => (true, None),
            None => self.recognise_copy(account, stanza, true),
        }
    }

    /// Tracks the delivery of a message that may be in the queues of sessions, so that it gets a backup.
    fn track_held(&self, account: &Account, id: &StanzaIdText) -> Option<AttachedReceipt> {
        account.host().message_backup.as_ref()?;
        let sessions = account.sessions();
        for session in &sessions {
            let owner = account.jid.as_ref();
            // A carbon copy contains the id of its original, too.
            let is_held =
                |held: &SharedStanza| contains(held, id) && stanza_id(held, owner).as_ref() == Some(id);
            let Some(held) = session.outbox.find_held(is_held) else { continue };
            if !held.track_delivery(self.clock.now()) {
                continue;
            }
            let holds =
                |session: &&Arc<Session>| session.outbox.find_held(|stanza| stanza.is_same(&held)).is_some();
            let mut holders = sessions.iter().filter(holds).peekable();
            if holders.peek().is_none() {
                // It was written before its delivery was tracked.
                held.settle_delivery();
                continue;
            }
            // Any of them may be the last one that holds it.
            holders.for_each(|session| self.watch_delivery(session));
            let receipt = Receipt::of_delivery(&held);
            return Some(AttachedReceipt { stanza: held, receipt });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> StanzaIdText {
        let mut id = [b'0'; TimeOrderedId::CHARS];
        id[..8].copy_from_slice(&number.to_be_bytes());
        id
    }

    #[test]
    fn this_node_answers_for_what_it_ever_answered_for() {
        use RedeliveredBy::{OtherNode, Store, ThisNode};
        for (first, second, expected) in [
            (ThisNode, OtherNode, ThisNode),
            (ThisNode, Store(1), ThisNode),
            (OtherNode, ThisNode, ThisNode),
            (OtherNode, Store(1), OtherNode),
            (Store(1), ThisNode, ThisNode),
            (Store(1), OtherNode, Store(1)),
            (Store(1), Store(2), Store(1)),
        ] {
            let mut copies = MessageCopies::default();
            copies.record(id(1), first);
            copies.record(id(1), second);
            let recorded: Vec<_> = copies.0.iter().map(|copy| copy.redelivered_by).collect();
            assert_eq!(recorded, [expected], "{first:?}, then {second:?}");
        }
    }

    #[test]
    fn a_stanza_with_one_of_many_ids_is_found_by_its_text() {
        let ids = HashSet::from([id(1), id(2)].map(|mut id| {
            id.iter_mut().for_each(|octet| *octet = b'a' + *octet % 26);
            id
        }));
        let one = ids.iter().next().unwrap();
        let text = std::str::from_utf8(one).unwrap();
        let other = "0".repeat(TimeOrderedId::CHARS);
        for (message, expected) in [
            (format!("<message><stanza-id xmlns='urn:xmpp:sid:0' id='{text}' by='a@b'/></message>"), true),
            (format!("<message a='{other}' b=\"{text}\"/>"), true),
            (format!("<message a='{other}'>{text}</message>"), false),
            (format!("<message a='x{text}'/>"), false),
            ("<message/>".to_owned(), false),
        ] {
            let stanza = SharedStanza::parse(message.as_bytes()).unwrap();
            assert_eq!(contains_any(&stanza, &ids), expected, "{message}");
        }
    }

    #[test]
    fn the_latest_messages_are_remembered() {
        let mut copies = MessageCopies::default();
        (0..100).for_each(|number| copies.record(id(number), RedeliveredBy::Store(number)));
        assert_eq!(copies.0.len(), MAX_MESSAGES);
        assert_eq!(copies.position(&id(35)), None);
        assert_eq!(copies.position(&id(36)), Some(0));
    }
}
