//! Information about a room and its occupants: XEP-0045 1.35.5, sections 6.4 and 6.5; reserved nickname: section 7.12;
//! slow mode: XEP-0500 0.1.0; activity: XEP-0502 0.1.0; avatar: XEP-0486 0.1.0.

use stanza::StanzaCondition;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use throng_core::iq::IqAnswer;
use xml::{Ns, Writer};

use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::Affiliation;

/// Node of the reserved nickname.
const ROOM_USER_ITEM: &str = "x-roomuser-item";
/// The room answers a client's ping to itself (XEP-0410, section 4).
const SELF_PING: &str = "http://jabber.org/protocol/muc#self-ping-optimization";
/// Messages keep their id (XEP-0045, section 6.4).
const STABLE_ID: &str = "http://jabber.org/protocol/muc#stable_id";

impl Room {
    /// Section 6.4.
    pub(super) fn disco_info(&self, ctx: &RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        let node = request.payload.attr("node").filter(|node| !node.is_empty());
        let mut out = Vec::with_capacity(2048);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoInfo).attr_opt("node", node.as_deref());
        match node.as_deref() {
            None => self.write_info(ctx, &mut w),
            Some(ROOM_USER_ITEM) => {
                if let Some(nick) = self.affiliations.nick_of(request.from.as_ref()) {
                    write_identity(&mut w, nick);
                }
            }
            Some(node) => return self.hat_command_info(node),
        }
        w.end();
        Ok(out)
    }

    fn write_info(&self, ctx: &RoomCtx<'_>, w: &mut Writer<'_>) {
        let config = &self.config;
        let name = if config.name.is_empty() { self.jid.local().unwrap_or_default() } else { &config.name };
        write_identity(w, name);
        let choose = |on: bool, yes, no| if on { yes } else { no };
        for var in [
            Ns::Muc.as_str(),
            Ns::DiscoInfo.as_str(),
            Ns::DiscoItems.as_str(),
            Ns::Commands.as_str(),
            Ns::Hats.as_str(),
            Ns::Register.as_str(),
            Ns::VCardTemp.as_str(),
            Ns::Rsm.as_str(),
            Ns::StanzaId.as_str(),
            Ns::OccupantId.as_str(),
            Ns::Retract.as_str(),
            "urn:xmpp:message-retract:1#tombstone",
            Ns::Moderate.as_str(),
            Ns::Ping.as_str(),
            SELF_PING,
            STABLE_ID,
            "http://jabber.org/protocol/muc#register",
            "http://jabber.org/protocol/muc#request",
            "http://jabber.org/protocol/muc#roomconfig",
            "http://jabber.org/protocol/muc#roominfo",
            choose(config.public, "muc_public", "muc_hidden"),
            choose(config.persistent, "muc_persistent", "muc_temporary"),
            choose(config.members_only, "muc_membersonly", "muc_open"),
            choose(config.moderated, "muc_moderated", "muc_unmoderated"),
            choose(config.non_anonymous, "muc_nonanonymous", "muc_semianonymous"),
            choose(config.password.is_some(), "muc_passwordprotected", "muc_unsecured"),
        ] {
            w.start("feature").attr("var", var).end();
        }
        let text = |var: &str, value: &str| FormField::new(FormFieldType::TextSingle, var).value(value);
        let owners = self.affiliations.with(Affiliation::Owner).map(|(user, _)| user.as_str());
        let mut form = DataForm::typed(FormKind::Result, "http://jabber.org/protocol/muc#roominfo")
            .field(text("muc#maxhistoryfetch", &config.history_messages.to_string()))
            .field(text("muc#roominfo_description", &config.description))
            .field(text("muc#roominfo_occupants", &self.occupants.len().to_string()))
            .field(FormField::boolean("muc#roominfo_subjectmod", config.change_subject))
            .field(text("muc#roominfo_slow_mode_duration", &config.slow_mode_seconds.to_string()));
        // XEP-0502, sections 3.1 and 8.
        if let Some(per_hour) =
            self.activity.per_hour(ctx.now).filter(|_| config.persistent && self.is_open())
        {
            form = form.field(text("{urn:xmpp:muc-activity}message-activity", &per_hour));
        }
        if config.non_anonymous {
            let contacts = FormField::new(FormFieldType::JidMulti, "muc#roominfo_contactjid");
            form = form.field(contacts.values(owners));
        }
        for (var, value) in [
            ("muc#roominfo_lang", &config.language),
            ("muc#roominfo_subject", &self.subject.text),
            ("muc#roomconfig_pubsub", &config.pubsub),
        ] {
            // A members-only room or one with a password keeps its subject from others.
            let is_secret =
                var == "muc#roominfo_subject" && (config.members_only || config.password.is_some());
            if !value.is_empty() && !is_secret {
                form = form.field(text(var, value));
            }
        }
        if let Some(avatar) = self.avatar.as_ref().filter(|avatar| !avatar.photo_hashes.is_empty()) {
            let hashes = FormField::new(FormFieldType::TextMulti, "muc#roominfo_avatarhash");
            form = form.field(hashes.values(avatar.photo_hashes.iter().cloned()));
        }
        if let Some(hash) = self.hats.hash() {
            form = form.field(text("hats#hash", &hash));
        }
        form.write(w);
    }

    /// Whether everybody may find and enter the room.
    pub(super) fn is_open(&self) -> bool {
        self.is_public() && !self.config.members_only && self.config.password.is_none()
    }

    /// Section 6.5: the occupants, for occupants and in rooms that everybody may enter and find.
    pub(super) fn disco_items(&self, ctx: &RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        let node = request.payload.attr("node").filter(|node| !node.is_empty());
        if let Some(node) = node {
            return match &*node == Ns::Commands.as_str() {
                true => Ok(self.hat_command_items()),
                false => Err(StanzaCondition::FeatureNotImplemented.into()),
            };
        }
        let is_banned = self.affiliation(ctx, request.from.bare()) == Affiliation::Outcast;
        let is_open = self.is_open() && !is_banned;
        let is_occupant = self.occupants.of_session(request.from).is_some();
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoItems);
        if is_open || is_occupant {
            // Not more than those whose presence everybody receives.
            for one in self.occupants.iter().take(self.limits().presence_occupants) {
                w.start("item").attr("jid", one.jid.as_str()).end();
            }
        }
        w.end();
        Ok(out)
    }
}

fn write_identity(w: &mut Writer<'_>, name: &str) {
    w.start("identity").attr("category", "conference").attr("name", name).attr("type", "text").end();
}
