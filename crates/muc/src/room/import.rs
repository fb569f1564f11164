//! A room of another server.

use std::sync::Arc;

use stanza::payload::data_form::DataForm;
use store::RoomUpdate;
use throng_core::SharedStanza;
use xml::{NamespaceContext, Tree};

use super::Room;
use super::admin::MAX_REASON_BYTES;
use super::avatar::RoomAvatar;
use crate::options::ServiceOptions;
use crate::privileges::Affiliation;
use crate::room_import::ImportedRoom;

impl Room {
    /// The stored form of a room of another server with this configuration.
    pub(crate) fn import(
        options: Arc<ServiceOptions>,
        imported: &ImportedRoom<'_>,
        config: &DataForm,
    ) -> Result<RoomUpdate, String> {
        let limits = options.limits;
        let owner = imported.affiliations.iter().find(|(_, affiliation, ..)| *affiliation == "owner");
        // Without an owner, only administrators of the server can configure it.
        let creator = owner.map_or(imported.jid, |(user, ..)| *user);
        let mut room = Room::create(imported.jid.clone(), options, creator.clone());
        room.affiliations = Default::default();
        room.config.apply(config, &limits).map_err(|error| error.as_str().to_owned())?;
        for (user, affiliation, nick, reason) in &imported.affiliations {
            let Some(affiliation) = Affiliation::from_name(affiliation) else { continue };
            if super::admin::check_domain(user, affiliation).is_err() {
                continue;
            }
            let is_text = |text: &&&str| !text.is_empty() && text.chars().all(xml::is_char);
            let address = room.jid.with_resource(nick).ok();
            let nick = address.as_ref().and_then(|address| address.resource());
            let nick = nick.filter(|nick| nick.len() <= limits.nick_bytes);
            let nick = nick.filter(|nick| !room.affiliations.is_reserved_by_another(nick, user));
            let reason = Some(reason).filter(is_text).filter(|reason| reason.len() <= MAX_REASON_BYTES);
            room.affiliations.set(user, affiliation, nick, reason.copied());
        }
        room.import_subject(imported);
        let scope = NamespaceContext::empty();
        let card = imported.vcard.filter(|card| card.len() <= limits.avatar_bytes);
        let card = card.and_then(|card| Tree::parse(card, &scope, &xml::Limits::DEFAULT).ok());
        room.avatar = card.and_then(|card| RoomAvatar::read(card.root()));
        let affiliations = room.affiliations.take_unsaved(true);
        Ok(RoomUpdate { record: Some(room.record()), affiliations, ..RoomUpdate::default() })
    }

    fn import_subject(&mut self, imported: &ImportedRoom<'_>) {
        let text = imported.subject;
        if text.is_empty() || text.len() > self.limits().subject_bytes || !text.chars().all(xml::is_char) {
            return;
        }
        let author = self.jid.with_resource(imported.subject_author).unwrap_or_else(|_| self.jid.clone());
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", author.as_str()).attr("type", "groupchat");
            w.text_element("subject", text).end();
        });
        let Some(stanza) = stanza else { return };
        let stanza = match imported.subject_at {
            Some(at) => self.with_delay(&stanza, at),
            None => stanza,
        };
        self.subject.stanza = Some((stanza, author));
        self.subject.text = text.to_owned();
    }
}
