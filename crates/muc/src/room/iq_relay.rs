//! Requests between occupants: XEP-0045 1.35.5, sections 6.6 and 17.4; a client's ping to itself: XEP-0410 1.1.0.
//!
//! # Pitfalls
//!
//! The id that the recipient sees is the room's: an occupant could otherwise answer a request of somebody else, or guess
//! which of several sessions has sent it.

use std::collections::VecDeque;

use jid::Jid;
use stanza::payload::stanza_content;
use stanza::{ErrorType, IqType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::SharedStanza;
use xml::Ns;

use super::occupants::Occupant;
use super::{Room, RoomCtx, send_error};

/// Requests without an answer; a further one replaces the oldest.
const MAX_PENDING: usize = 256;
/// Those of one session.
const MAX_PENDING_OF_SESSION: usize = 32;
/// Longest id of a request, in bytes.
const MAX_ID_BYTES: usize = 1_024;
/// Time in which a request is answered, in milliseconds.
const MAX_ANSWER_MILLIS: u64 = 300_000;
/// Longest content of a request or an answer, in bytes.
const MAX_CONTENT_BYTES: usize = 262_144;

/// A request that waits for its answer.
#[derive(Debug)]
struct RelayedRequest {
    /// Id that the recipient sees.
    id: String,
    requester: Jid,
    /// Id of the requester.
    requester_id: String,
    recipient: Jid,
    /// Address of the recipient in the room.
    occupant: Jid,
    millis: u64,
}

/// The requests of a room that wait for answers.
#[derive(Debug, Default)]
pub(super) struct RelayedRequests(VecDeque<RelayedRequest>);

impl RelayedRequests {
    /// Forgets requests that are not answered any more, then the oldest of a session that has too many, otherwise the oldest of too
    /// many.
    fn make_room(&mut self, requester: &Jid, now: u64) {
        while self.0.front().is_some_and(|one| one.millis.saturating_add(MAX_ANSWER_MILLIS) <= now) {
            self.0.pop_front();
        }
        let is_own = |one: &&RelayedRequest| one.requester == *requester;
        if self.0.iter().filter(is_own).count() >= MAX_PENDING_OF_SESSION {
            let oldest = self.0.iter().position(|one| one.requester == *requester);
            oldest.and_then(|at| self.0.remove(at));
        } else if self.0.len() >= MAX_PENDING {
            self.0.pop_front();
        }
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |one: &RelayedRequest| {
            let addresses = [&one.requester, &one.recipient, &one.occupant];
            let addresses: usize = addresses.into_iter().map(|address| address.as_str().len()).sum();
            size_of::<RelayedRequest>() + one.id.len() + one.requester_id.len() + addresses
        };
        self.0.iter().map(bytes).sum()
    }

    /// Forgets requests to and of an occupant who has left.
    pub(super) fn remove_session_of(&mut self, occupant: &Occupant) {
        self.0.retain(|one| {
            occupant
                .sessions
                .iter()
                .all(|session| session.jid != one.requester && session.jid != one.recipient)
        });
    }
}

impl Room {
    /// A request to an occupant, or an answer of one.
    pub(crate) fn relayed_iq(&mut self, ctx: &mut RoomCtx<'_>, stanza: &SharedStanza, from: &Jid, to: &Jid) {
        if !stanza.kind().is_request() {
            return self.relay_answer(ctx, stanza, from);
        }
        if let Err(error) = self.relay_request(ctx, stanza, from, to) {
            send_error(ctx, stanza, from, to, &error);
        }
    }

    fn relay_request(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
        to: &Jid,
    ) -> Result<(), StanzaError> {
        let Some(nick) = to.resource() else { return Err(StanzaCondition::ServiceUnavailable.into()) };
        let payload = stanza.head().first_child.ok_or(StanzaCondition::BadRequest)?;
        let Some(sender) = self.occupants.of_session(from) else {
            // Section 6.6 demands another error than XEP-0410.
            return Err(match payload.ns {
                Some(Ns::DiscoInfo | Ns::DiscoItems) => StanzaCondition::BadRequest.into(),
                _ => not_in_room(),
            });
        };
        let raw_id = stanza.head().id(stanza.bytes()).unwrap_or_default().into_owned();
        if raw_id.len() > MAX_ID_BYTES {
            let text = "the id of the request is too long";
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
        }
        if sender.nick() == nick && payload.ns == Some(Ns::Ping) {
            let result = SharedStanza::build(|w| {
                w.start("iq").attr("type", "result").attr("id", &raw_id);
                w.attr("from", to.as_str()).attr("to", from.as_str()).end();
            });
            if let Some(result) = &result {
                result.mark_server_answer();
            }
            ctx.send(result, to.clone(), from.clone());
            return Ok(());
        }
        let recipient = self.occupants.get(nick).ok_or(StanzaCondition::ItemNotFound)?;
        let session = recipient.sessions.last().ok_or(StanzaCondition::ItemNotFound)?;
        // The server answers for the vCard of a user.
        let target = match payload.ns {
            Some(Ns::VCardTemp) => recipient.user().to_jid(),
            _ => session.jid.clone(),
        };
        let id = (ctx.new_id)();
        let kind = if stanza.kind() == StanzaKind::Iq(IqType::Set) { "set" } else { "get" };
        if kind == "set" && !self.config.allow_pm.permits(sender.role) {
            let text = "private messages are not allowed in this room";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        let addresses = (sender.jid.clone(), target.clone());
        let relayed = relay(stanza, kind, &id, &addresses)?;
        let occupant = recipient.jid.clone();
        self.relayed.make_room(from, ctx.now);
        self.relayed.0.push_back(RelayedRequest {
            id,
            requester: from.clone(),
            requester_id: raw_id,
            recipient: target,
            occupant,
            millis: ctx.now,
        });
        ctx.send(Some(relayed), addresses.0, addresses.1);
        Ok(())
    }

    fn relay_answer(&mut self, ctx: &mut RoomCtx<'_>, stanza: &SharedStanza, from: &Jid) {
        let Some(id) = stanza.head().id(stanza.bytes()) else { return };
        let waits = |one: &RelayedRequest| one.id == id && one.recipient == *from;
        let Some(at) = self.relayed.0.iter().position(waits) else { return };
        let Some(request) = self.relayed.0.remove(at) else { return };
        let kind = if stanza.kind().is_error() { "error" } else { "result" };
        let addresses = (request.occupant, request.requester);
        if let Ok(answer) = relay(stanza, kind, &request.requester_id, &addresses) {
            answer.mark_requested();
            ctx.send(Some(answer), addresses.0, addresses.1);
        }
    }
}

/// The error of a request of somebody who is not in the room (XEP-0410, section 3.2).
pub(crate) fn not_in_room() -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Cancel).text("you are not in the room")
}

/// The same content with other addresses and another id.
fn relay(
    stanza: &SharedStanza,
    kind: &str,
    id: &str,
    (from, to): &(Jid, Jid),
) -> Result<SharedStanza, StanzaError> {
    let mut fits = true;
    let relayed = SharedStanza::build(|w| {
        w.start("iq").attr("type", kind).attr("id", id);
        w.attr("from", from.as_str()).attr("to", to.as_str());
        w.attr_opt("xml:lang", stanza.head().lang(stanza.bytes()).as_deref());
        fits = stanza_content::write(w, stanza.head(), stanza.bytes(), MAX_CONTENT_BYTES);
        w.end();
    });
    relayed.filter(|_| fits).ok_or_else(|| StanzaCondition::NotAcceptable.into())
}
