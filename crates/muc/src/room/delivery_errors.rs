//! Errors of delivery: XEP-0045 1.35.5, sections 11.1 and 18.1.2 (sessions that are gone), 7.8.2 (invitations) and 7.5 (private
//! messages).
//!
//! # Pitfalls
//!
//! Servers answer `service-unavailable` for a session that is gone or takes nothing more (RFC 6121, section 8.5.3.2.1), and clients
//! answer the same for a private message that they refuse. An error reply need not contain what it answers. Private messages keep their
//! ids, which receipts and corrections name, so an id does not show that a message was private.

use std::collections::{BTreeMap, VecDeque};

use jid::{Jid, JidRef};
use stanza::{ErrorType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::SharedStanza;
use xml::Ns;

use super::{Room, RoomCtx};

/// Private messages whose errors are known; a further one replaces the oldest.
const MAX_SENT: usize = 128;
/// Users to whom replaced messages were sent.
const MAX_REPLACED: usize = 256;
/// Longest id of a private message, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Time in which a private message comes back if it is refused, in milliseconds.
const MAX_ERROR_DELAY_MILLIS: u64 = 300_000;

/// Conditions of section 18.1.2.
const GONE: [StanzaCondition; 6] = [
    StanzaCondition::Gone,
    StanzaCondition::ItemNotFound,
    StanzaCondition::RecipientUnavailable,
    StanzaCondition::Redirect,
    StanzaCondition::RemoteServerNotFound,
    StanzaCondition::RemoteServerTimeout,
];
/// Conditions that have this meaning if a message to all or a presence has caused them.
const UNAVAILABLE: [StanzaCondition; 2] =
    [StanzaCondition::ServiceUnavailable, StanzaCondition::ResourceConstraint];

/// A private message that was sent, to all sessions of its recipient.
#[derive(Debug)]
struct SentPrivateMessage {
    id: Box<str>,
    millis: u64,
    /// The sender has learned that it was refused.
    is_returned: bool,
    sender: Jid,
    /// Its occupant JID.
    sender_address: Jid,
    /// The bare address of the user.
    recipient: Jid,
    recipient_address: Jid,
}

/// The latest private messages, so that their senders learn that they were refused, and nobody leaves for that.
#[derive(Debug, Default)]
pub(super) struct SentPrivateMessages {
    latest: VecDeque<SentPrivateMessage>,
    /// Users to whom messages were sent that were replaced, and until when these may come back.
    replaced: BTreeMap<Jid, u64>,
}

impl SentPrivateMessages {
    fn add(&mut self, sent: SentPrivateMessage) {
        let until = |one: &SentPrivateMessage| one.millis.saturating_add(MAX_ERROR_DELAY_MILLIS);
        while self.latest.front().is_some_and(|one| until(one) <= sent.millis) {
            self.latest.pop_front();
        }
        if self.latest.len() == MAX_SENT
            && let Some(replaced) = self.latest.pop_front()
        {
            self.replaced.retain(|_, until| *until > sent.millis);
            if self.replaced.len() == MAX_REPLACED
                && let Some(first) = self.replaced.iter().min_by_key(|(_, until)| **until)
            {
                let first = first.0.clone();
                self.replaced.remove(&first);
            }
            let until = until(&replaced);
            self.replaced.insert(replaced.recipient, until);
        }
        self.latest.push_back(sent);
    }

    /// Whether a message to this user that was replaced may come back.
    fn may_be_replaced(&self, recipient: JidRef<'_>, now: u64) -> bool {
        self.replaced.get(recipient.bare().as_str()).is_some_and(|until| now < *until)
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |one: &SentPrivateMessage| {
            let addresses = [&one.sender, &one.sender_address, &one.recipient, &one.recipient_address];
            let addresses: usize = addresses.into_iter().map(|address| address.as_str().len()).sum();
            size_of::<SentPrivateMessage>() + one.id.len() + addresses
        };
        let replaced = self.replaced.keys().map(|user| user.as_str().len() + 64);
        self.latest.iter().map(bytes).chain(replaced).sum()
    }

    /// The message that an error answers. Each session of the recipient may answer it.
    fn find(&mut self, id: &str, from: &Jid, to: &Jid) -> Option<&mut SentPrivateMessage> {
        let is_meant = |one: &&mut SentPrivateMessage| {
            *one.id == *id && one.sender_address == *to && one.recipient.as_ref() == from.bare()
        };
        self.latest.iter_mut().rev().find(is_meant)
    }
}

/// The id of a private message.
///
/// # Errors
/// `not-acceptable` if it is so long that its errors could not be recognised.
pub(super) fn private_message_id(stanza: &SharedStanza) -> Result<Box<str>, StanzaError> {
    let id = stanza.head().id(stanza.bytes()).unwrap_or_default();
    if id.len() > MAX_ID_BYTES {
        return Err(
            StanzaError::new(StanzaCondition::NotAcceptable).text("the id of the message is too long")
        );
    }
    Ok(id.into())
}

impl Room {
    /// A private message is sent.
    pub(super) fn note_private_message(&mut self, id: Box<str>, sender: &Jid, nick: &str, now: u64) {
        let addresses = self.occupants.of_session(sender).zip(self.occupants.get(nick));
        let Some((from, to)) = addresses else { return };
        self.private_messages.add(SentPrivateMessage {
            id,
            millis: now,
            is_returned: false,
            sender: sender.clone(),
            sender_address: from.jid.clone(),
            recipient: to.user().to_jid(),
            recipient_address: to.jid.clone(),
        });
    }

    /// A stanza of the room comes back from a session, or from the server of the user.
    pub(super) fn delivery_error(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
        to: &Jid,
    ) {
        let Ok(tree) = stanza.tree() else { return };
        let root = tree.root();
        let Some(error) = root.child("error", Ns::Client) else { return };
        let mut conditions = error.child_elements().filter(|one| one.ns() == Some(Ns::Stanzas));
        let condition = conditions.find_map(|one| StanzaCondition::from_name(one.name()));
        let condition = condition.unwrap_or(StanzaCondition::UndefinedCondition);
        let is_message = matches!(stanza.kind(), StanzaKind::Message(_));
        let id = stanza.head().id(stanza.bytes()).unwrap_or_default();
        if self.occupants.of_session(from).is_none() {
            if is_message {
                self.invitation_failed(ctx, from);
            }
            return;
        }
        let is_other = self.private_messages.may_be_replaced(from.bare(), ctx.now)
            || root.child("x", Ns::MucUser).is_some();
        let sent = self.private_messages.find(&id, from, to).filter(|_| is_message);
        let is_private = is_message && (sent.is_some() || is_other);
        if let Some(sent) = sent
            && !std::mem::replace(&mut sent.is_returned, true)
        {
            return_private_message(ctx, sent, condition, error.attr("type").as_deref());
        }
        if GONE.contains(&condition) || UNAVAILABLE.contains(&condition) && !is_private {
            self.remove_lost_sessions(ctx, std::slice::from_ref(from));
        }
    }
}

/// The sender of a private message learns that it was refused. Only the condition is passed on: the rest may have real JIDs.
fn return_private_message(
    ctx: &mut RoomCtx<'_>,
    sent: &SentPrivateMessage,
    condition: StanzaCondition,
    kind: Option<&str>,
) {
    const KINDS: [ErrorType; 5] =
        [ErrorType::Auth, ErrorType::Cancel, ErrorType::Continue, ErrorType::Modify, ErrorType::Wait];
    let kind = KINDS.into_iter().find(|one| Some(one.as_str()) == kind);
    let error = StanzaError::new(condition).kind(kind.unwrap_or_else(|| condition.default_type()));
    let stanza = SharedStanza::build(|w| {
        w.start("message").attr("from", sent.recipient_address.as_str()).attr("to", sent.sender.as_str());
        w.attr("id", &sent.id).attr("type", "error");
        error.write(w);
        w.end();
    });
    ctx.send(stanza, sent.recipient_address.clone(), sent.sender.clone());
}
