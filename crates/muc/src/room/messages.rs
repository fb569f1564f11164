//! Messages to all occupants: XEP-0045 1.35.5, section 7.4; ids: XEP-0359 0.7.0, XEP-0421 1.0.1; retraction by the sender:
//! XEP-0424 0.4.2; activity: XEP-0502 0.1.0; hints: XEP-0334 0.4.0.

use jid::Jid;
use stanza::payload::datetime;
use stanza::{MessageType, NewAddresses, PayloadNs, PayloadSet, StanzaCondition, StanzaError, StanzaKind};
use throng_core::SharedStanza;
use xml::{Ns, TreeNode, Writer};

use super::history::{HistoryItem, write_occupant_id};
use super::occupants::Occupant;
use super::{Room, RoomCtx, subject};
use crate::privileges::{Affiliation, RoomRole};

/// Longest id of a client that the room repeats in a tombstone, in bytes.
pub(super) const MAX_ID_BYTES: usize = 1024;

/// What a retraction by an occupant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetractionOutcome {
    /// The message is a tombstone.
    Retracted,
    /// The message is not in memory. Clients and archives may have it (XEP-0424, section 5).
    NotInMemory,
    /// The message is of another occupant, or was retracted before.
    NoEffect,
}

impl Room {
    /// A message to the room itself.
    pub(super) fn room_message(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        if self.is_locked() {
            // Section 17.2: a room that is not unlocked does not exist yet.
            return Err(
                StanzaError::new(StanzaCondition::ItemNotFound).text("the room is locked; configure it")
            );
        }
        let tree = stanza.tree().map_err(|_| StanzaCondition::BadRequest)?;
        let message = tree.root();
        if stanza.kind() == StanzaKind::Message(MessageType::Groupchat) {
            if subject::is_subject_change(message) {
                return self.change_subject(ctx, message, stanza, from);
            }
            return self.groupchat(ctx, message, stanza, from);
        }
        if let Some(x) = message.child("x", Ns::MucUser) {
            if x.child("invite", Ns::MucUser).is_some() {
                return self.invite(ctx, x, from);
            }
            if let Some(decline) = x.child("decline", Ns::MucUser) {
                return self.decline(ctx, decline, from);
            }
        }
        if let Some(form) = message.child("x", Ns::DataForms) {
            return self.submitted_form(ctx, form, from);
        }
        self.occupant(from)?;
        // Section 17.2: other messages to the room must have the type groupchat.
        Err(StanzaError::new(StanzaCondition::BadRequest).text("messages to a room have the type groupchat"))
    }

    fn groupchat(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        message: TreeNode<'_>,
        stanza: &SharedStanza,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        let occupant = self.occupant(from)?;
        if occupant.role < RoomRole::Participant {
            let text = "visitors cannot send messages to this room";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        let (address, id) = (occupant.jid.clone(), (ctx.new_id)());
        let occupant_id = occupant.occupant_id;
        // Section 7.9: the owner sends the history of a conversation to the room, with the times of its messages.
        let keeps_times = self.affiliation_of(occupant) == Affiliation::Owner;
        let reflected = self.reflected(stanza, occupant, &id, keeps_times)?;
        // Only messages with a body count (XEP-0500, section 6).
        let has_body = message.child("body", Ns::Client).is_some();
        if has_body {
            self.count_for_slow_mode(ctx, from.bare())?;
        }
        if is_activity(message) {
            self.activity.note(ctx.now);
        }
        let recipients = self.occupants.all_sessions();
        ctx.multicast(Some(reflected.clone()), &address, recipients);
        let target = message.child("retract", Ns::Retract).and_then(|retract| retract.attr("id"));
        let retraction = target.map(|target| self.retract_own(ctx, &target, stanza, &occupant_id));
        let is_stored = match retraction {
            Some(RetractionOutcome::Retracted) => true,
            Some(RetractionOutcome::NotInMemory) => has_body || self.try_count_bodiless(ctx, from.bare()),
            Some(RetractionOutcome::NoEffect) => false,
            None => is_stored(message) && (has_body || self.try_count_bodiless(ctx, from.bare())),
        };
        if is_stored {
            self.add_to_history(ctx.now, &reflected, address, id, &occupant_id);
        }
        Ok(())
    }

    /// Adds a message of an occupant or, without an occupant id, of the room.
    pub(super) fn add_to_history(
        &mut self,
        millis: u64,
        stanza: &SharedStanza,
        from: Jid,
        id: String,
        occupant_id: &str,
    ) {
        let stanza = self.with_delay(stanza, millis);
        let item = HistoryItem { stanza, from, id: id.into(), occupant_id: occupant_id.into(), millis };
        let limits = *self.limits();
        if self.is_persistent() {
            self.unsaved.push(item.entry());
        }
        self.history.push(item, &limits);
    }

    /// XEP-0424: the sender retracts a message, so its content is not sent to newcomers any more.
    fn retract_own(
        &mut self,
        ctx: &RoomCtx<'_>,
        target: &str,
        stanza: &SharedStanza,
        occupant_id: &str,
    ) -> RetractionOutcome {
        if self.subject_id().is_some_and(|(id, author)| *id == *target && author == occupant_id) {
            self.clear_subject();
        }
        let Some(item) = self.history.get(target) else { return RetractionOutcome::NotInMemory };
        if *item.occupant_id != *occupant_id || item.is_tombstone() {
            return RetractionOutcome::NoEffect;
        }
        let mut retracted = Vec::new();
        let mut w = xml::Writer::new(&mut retracted);
        w.start_ns("retracted", Ns::Retract).attr("stamp", &datetime::format_utc(ctx.now, false));
        let id = stanza.head().id(stanza.bytes()).filter(|id| id.len() <= MAX_ID_BYTES);
        w.attr_opt("id", id.as_deref()).end();
        self.retract_from_history(target, &retracted);
        RetractionOutcome::Retracted
    }

    /// The message as occupants receive it: from the occupant JID, without `to`, with ids.
    pub(super) fn reflected(
        &self,
        stanza: &SharedStanza,
        occupant: &Occupant,
        id: &str,
        keeps_times: bool,
    ) -> Result<SharedStanza, StanzaError> {
        let stanza = without_claims(stanza, keeps_times.then_some(self.jid.domain()))?;
        let mut out = Vec::with_capacity(stanza.bytes().len() + 256);
        let new = NewAddresses { from: Some(occupant.jid.as_str()), to: None };
        let too_long = |_| StanzaError::new(StanzaCondition::NotAcceptable).text("the message is too long");
        let head =
            stanza::rewrite_addresses(stanza.bytes(), stanza.head(), new, &mut out).map_err(too_long)?;
        let mut reflected = SharedStanza::new(head, &out);
        // The head does not list the namespace of the room's own id: handlers of recipients are selected by it to remove claims of
        // clients, of which there are none, and each recipient would get a copy of its own for them.
        append(&mut reflected, Ns::Muc, |w| stanza::payload::stanza_id::write(w, id, self.jid.as_str()))?;
        append(&mut reflected, Ns::OccupantId, |w| write_occupant_id(w, &occupant.occupant_id))?;
        Ok(reflected)
    }
}

/// Appends one element.
pub(super) fn append(
    stanza: &mut SharedStanza,
    ns: Ns,
    write: impl FnOnce(&mut Writer<'_>),
) -> Result<(), StanzaError> {
    let mut child = Vec::with_capacity(128);
    write(&mut Writer::new(&mut child));
    stanza
        .append_child(&child, ns, &mut Vec::new())
        .map_err(|_| StanzaError::new(StanzaCondition::NotAcceptable).text("the message is too long"))
}

/// The message without what only rooms may write: ids, elements of `muc#user`, and times of delivery. With `service`, times that
/// are not those of rooms of this service stay.
pub(super) fn without_claims(
    stanza: &SharedStanza,
    service: Option<&str>,
) -> Result<SharedStanza, StanzaError> {
    const CLAIMS: PayloadSet = PayloadSet::of(&[
        PayloadNs::StanzaId,
        PayloadNs::OccupantId,
        PayloadNs::MucUser,
        PayloadNs::Delay,
        PayloadNs::DelayLegacy,
    ]);
    if !stanza.head().payloads().intersects(CLAIMS) {
        return Ok(stanza.clone());
    }
    let without = stanza.without(|child, gone| {
        let is_claim = match child.ns() {
            Some(Ns::StanzaId) => child.name() == "stanza-id",
            Some(Ns::OccupantId | Ns::MucUser | Ns::DelayLegacy) => true,
            Some(Ns::Delay) => service.is_none_or(|service| !is_of_others(*child, service)),
            _ => false,
        };
        if is_claim {
            gone.push(child.range());
        }
    });
    let without = without.map_err(|_| StanzaError::new(StanzaCondition::BadRequest))?;
    Ok(without.unwrap_or_else(|| stanza.clone()))
}

/// Whether a `<delay/>` (XEP-0203) has a time, and is that of an entity of another domain.
fn is_of_others(delay: TreeNode<'_>, service: &str) -> bool {
    let from = delay.attr("from").and_then(|from| Jid::parse(&from).ok());
    let stamp = delay.attr("stamp").and_then(|stamp| datetime::parse_datetime(&stamp));
    stamp.is_some() && from.is_some_and(|from| from.domain() != service)
}

/// Whether a message counts as activity (XEP-0502, section 4): it has a body and corrects no other.
pub(super) fn is_activity(message: TreeNode<'_>) -> bool {
    message.child("body", Ns::Client).is_some() && message.child("replace", Ns::Correct).is_none()
}

/// Whether a message that retracts no other belongs to the history: it has a body or the hint to store it, and no hint against it
/// (XEP-0334).
fn is_stored(message: TreeNode<'_>) -> bool {
    let hint = |name| message.child(name, Ns::Hints).is_some();
    if hint("no-store") || hint("no-permanent-store") {
        return false;
    }
    message.child("body", Ns::Client).is_some() || hint("store")
}
