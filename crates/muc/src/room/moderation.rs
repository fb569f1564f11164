//! Moderated message retraction: XEP-0425 0.3.0.
//!
//! The message leaves a tombstone in the history; an older one is announced to the occupants all the same, since their
//! clients and archives may have it.

use stanza::payload::datetime;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use throng_core::iq::IqAnswer;
use xml::{Ns, Writer};

use super::history::write_occupant_id;
use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::RoomRole;

/// Longest id of a message, in bytes.
const MAX_ID_BYTES: usize = 256;
/// Longest reason, in bytes.
const MAX_REASON_BYTES: usize = 1024;

impl Room {
    /// Replaces a message of the history by a tombstone.
    pub(super) fn retract_from_history(&mut self, id: &str, retracted: &[u8]) {
        let limits = *self.limits();
        if self.history.retract(id, self.jid.as_str(), retracted, &limits)
            && self.is_persistent()
            && let Some(item) = self.history.get(id)
        {
            self.unsaved.push(item.entry());
        }
    }

    /// A moderator retracts the message of an occupant.
    pub(super) fn moderate(&mut self, ctx: &mut RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        let moderator = self.occupants.of_session(request.from).filter(|one| one.role == RoomRole::Moderator);
        let Some(moderator) = moderator else {
            let text = "Only moderators are allowed to moderate other participants' messages";
            return Err(StanzaError::new(StanzaCondition::Forbidden).kind(ErrorType::Modify).text(text));
        };
        let id = request.payload.attr("id").filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
        let id = id.ok_or(StanzaCondition::BadRequest)?;
        if request.payload.child("retract", Ns::Retract).is_none() {
            return Err(StanzaCondition::FeatureNotImplemented.into());
        }
        let reason = request.payload.child("reason", Ns::Moderate).map(|reason| reason.text());
        let reason = reason.filter(|reason| !reason.is_empty() && reason.len() <= MAX_REASON_BYTES);
        let write_moderated = |w: &mut Writer<'_>| {
            w.start_ns("moderated", Ns::Moderate).attr("by", moderator.jid.as_str());
            write_occupant_id(w, &moderator.occupant_id);
            w.end();
            if let Some(reason) = &reason {
                w.text_element("reason", reason);
            }
        };
        let message_id = (ctx.new_id)();
        let announcement = SharedStanza::build(|w| {
            w.start("message").attr("type", "groupchat").attr("from", self.jid.as_str());
            w.attr("id", &message_id);
            w.start_ns("retract", Ns::Retract).attr("id", &id);
            write_moderated(w);
            w.end();
            stanza::payload::stanza_id::write(w, &message_id, self.jid.as_str());
            w.end();
        });
        let mut retracted = Vec::with_capacity(256);
        let mut w = Writer::new(&mut retracted);
        w.start_ns("retracted", Ns::Retract).attr("stamp", &datetime::format_utc(ctx.now, false));
        // Clients match the tombstone with the retraction by it (XEP-0424, section 5).
        w.attr("id", &message_id);
        write_moderated(&mut w);
        w.end();
        self.retract_from_history(&id, &retracted);
        if self.subject_id().is_some_and(|(subject, _)| *subject == *id) {
            self.clear_subject();
        }
        let recipients = self.occupants.all_sessions();
        ctx.multicast(announcement.clone(), &self.jid.clone(), recipients);
        // Newcomers who have the message learn that it is retracted (XEP-0424, section 5).
        if let Some(announcement) = announcement {
            self.add_to_history(ctx.now, &announcement, self.jid.clone(), message_id, "");
        }
        Ok(Vec::new())
    }
}
