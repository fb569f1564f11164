//! Private messages: XEP-0045 1.35.5, section 7.5.

use std::sync::Arc;

use jid::Jid;
use stanza::{MessageType, NewAddresses, StanzaCondition, StanzaError, StanzaKind};
use throng_core::SharedStanza;
use throng_core::multicast::Multicast;
use xml::Ns;

use super::delivery_errors::private_message_id;
use super::history::write_occupant_id;
use super::messages::{append, without_claims};
use super::{Room, RoomCtx};

impl Room {
    /// A message to an occupant.
    pub(super) fn private_message(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
        nick: &str,
    ) -> Result<(), StanzaError> {
        let sender = self.occupant(from)?;
        if stanza.kind() == StanzaKind::Message(MessageType::Groupchat) {
            let text = "a private message does not have the type groupchat";
            return Err(StanzaError::new(StanzaCondition::BadRequest).text(text));
        }
        let recipient = self.occupants.get(nick).ok_or(StanzaCondition::ItemNotFound)?;
        if !self.config.allow_pm.permits(sender.role) {
            let text = "private messages are not allowed in this room";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        let id = private_message_id(stanza)?;
        let stanza = without_claims(stanza, None)?;
        let mut out = Vec::with_capacity(stanza.bytes().len() + 256);
        let new = NewAddresses { from: Some(sender.jid.as_str()), to: None };
        let too_long = |_| StanzaError::new(StanzaCondition::NotAcceptable).text("the message is too long");
        let head =
            stanza::rewrite_addresses(stanza.bytes(), stanza.head(), new, &mut out).map_err(too_long)?;
        let mut private = SharedStanza::new(head, &out);
        append(&mut private, Ns::MucUser, |w| {
            w.empty_element("x", Ns::MucUser);
        })?;
        append(&mut private, Ns::OccupantId, |w| write_occupant_id(w, &sender.occupant_id))?;
        let sessions: Arc<[Jid]> = recipient.sessions.iter().map(|session| session.jid.clone()).collect();
        // Nobody leaves because a private message is not delivered: the error comes back as a stanza.
        ctx.effects.multicast(Multicast::new(private, sender.jid.clone(), sessions));
        self.note_private_message(id, from, nick, ctx.now);
        Ok(())
    }
}
