//! Errors of delivery: XEP-0045 1.35.5, sections 11.1 and 18.1.2 (sessions that are gone), 7.8.2 (invitations) and 7.5 (private
//! messages).
//!
//! # Pitfalls
//!
//! Servers answer `service-unavailable` for a session that is gone or takes nothing more (RFC 6121, section 8.5.3.2.1), and clients
//! answer the same for a private message that they refuse. An error reply need not contain what it answers.

use std::collections::VecDeque;

use jid::Jid;
use stanza::{ErrorType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::SharedStanza;
use xml::Ns;

use super::{Room, RoomCtx};

/// Private messages whose errors are passed on; a further one replaces the oldest.
const MAX_SENT: usize = 128;
/// Longest id of a private message whose error is passed on, in bytes.
const MAX_ID_BYTES: usize = 1024;

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

/// A private message that was sent.
#[derive(Debug)]
struct SentPrivateMessage {
    id: Box<str>,
    sender: Jid,
    /// Its occupant JID.
    sender_address: Jid,
    /// The bare address of the user.
    recipient: Jid,
    recipient_address: Jid,
}

/// The latest private messages, so that their senders learn that they were refused.
#[derive(Debug, Default)]
pub(super) struct SentPrivateMessages(VecDeque<SentPrivateMessage>);

impl SentPrivateMessages {
    fn take(&mut self, id: &str, from: &Jid, to: &Jid) -> Option<SentPrivateMessage> {
        let is_meant = |one: &SentPrivateMessage| {
            *one.id == *id && one.sender_address == *to && one.recipient.as_ref() == from.bare()
        };
        let at = self.0.iter().rposition(is_meant)?;
        self.0.remove(at)
    }
}

impl Room {
    /// A private message is sent.
    pub(super) fn note_private_message(&mut self, stanza: &SharedStanza, sender: &Jid, nick: &str) {
        let id = stanza.head().id(stanza.bytes()).unwrap_or_default();
        let addresses = self.occupants.of_session(sender).zip(self.occupants.get(nick));
        let Some((from, to)) = addresses.filter(|_| id.len() <= MAX_ID_BYTES) else { return };
        let sent = SentPrivateMessage {
            id: id.into(),
            sender: sender.clone(),
            sender_address: from.jid.clone(),
            recipient: to.user().to_jid(),
            recipient_address: to.jid.clone(),
        };
        if self.private_messages.0.len() == MAX_SENT {
            self.private_messages.0.pop_front();
        }
        self.private_messages.0.push_back(sent);
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
        let sent = is_message.then(|| self.private_messages.take(&id, from, to)).flatten();
        if self.occupants.of_session(from).is_none() {
            if is_message {
                self.invitation_failed(ctx, from);
            }
            return;
        }
        if let Some(sent) = &sent {
            return_private_message(ctx, sent, condition, error.attr("type").as_deref());
        }
        let is_private = sent.is_some() || root.child("x", Ns::MucUser).is_some();
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
