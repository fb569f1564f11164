//! Voice requests and their approval: XEP-0045 1.35.5, sections 7.13 and 8.6; approval of registrations: section 9.9.

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use xml::TreeNode;

use super::admin::check_domain;
use super::registration::REGISTER_FORM;
use super::unanswered_requests::RequestTimes;
use super::{Room, RoomCtx};
use crate::privileges::{Affiliation, RoomRole};

/// `FORM_TYPE` of voice requests.
const REQUEST_FORM: &str = "http://jabber.org/protocol/muc#request";
/// Times of requests that moderators receive.
const TIMES: RequestTimes = RequestTimes { expiry: 60_000, interval: 10_000 };

impl Room {
    /// A form in a message to the room.
    pub(super) fn submitted_form(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        form: TreeNode<'_>,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        // Section 9.9: administrators approve registrations also when they are not in the room.
        let is_admin = self.affiliation(ctx, from.bare()).is_privileged();
        if !is_admin {
            self.occupant(from)?;
        }
        let form = DataForm::read(form).map_err(|_| StanzaCondition::BadRequest)?;
        if form.kind != FormKind::Submit {
            return Ok(());
        }
        match form.form_type() {
            Some(REQUEST_FORM) if form.get("muc#request_allow").is_some() => {
                if self.occupant(from)?.role != RoomRole::Moderator {
                    return Err(StanzaCondition::Forbidden.into());
                }
                self.answer_voice_request(ctx, &form)
            }
            Some(REQUEST_FORM) => {
                let occupant = self.occupant(from)?;
                let (nick, is_visitor) = (occupant.nick().to_owned(), occupant.role == RoomRole::Visitor);
                if is_visitor && self.voice_requests.add(from.bare(), "", ctx.now, &TIMES)? {
                    self.request_voice(ctx, &nick);
                }
                Ok(())
            }
            Some(REGISTER_FORM) => {
                if !is_admin {
                    return Err(StanzaCondition::Forbidden.into());
                }
                self.answer_registration(ctx, &form)
            }
            _ => Err(StanzaCondition::BadRequest.into()),
        }
    }

    /// Section 7.13: moderators receive the request of a visitor.
    fn request_voice(&self, ctx: &mut RoomCtx<'_>, nick: &str) {
        let Some(visitor) = self.occupants.get(nick).filter(|one| one.role == RoomRole::Visitor) else {
            return;
        };
        let Some(session) = visitor.sessions.last() else { return };
        let form = DataForm::typed(FormKind::Form, REQUEST_FORM)
            .title("Voice Request")
            .instructions("To approve this request for voice, select the check box and submit the form.")
            .field(
                FormField::new(FormFieldType::ListSingle, "muc#role")
                    .label("Requested Role")
                    .value("participant")
                    .option("Participant", "participant"),
            )
            .field(
                FormField::new(FormFieldType::JidSingle, "muc#jid").label("User").value(session.jid.as_str()),
            )
            .field(FormField::new(FormFieldType::TextSingle, "muc#roomnick").label("Nickname").value(nick))
            .field(FormField::boolean("muc#request_allow", false).label("Grant voice to this person?"));
        let moderators = self.occupants.sessions_of(|one| one.role == RoomRole::Moderator);
        ctx.multicast(self.form_message(&form, &(ctx.new_id)()), &self.jid, moderators);
    }

    /// A message from the room with a form.
    pub(super) fn form_message(&self, form: &DataForm, id: &str) -> Option<SharedStanza> {
        SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("id", id);
            form.write(w);
            w.end();
        })
    }

    /// Section 8.6: a moderator answers.
    fn answer_voice_request(&mut self, ctx: &mut RoomCtx<'_>, form: &DataForm) -> Result<(), StanzaError> {
        if form.bool("muc#request_allow") != Some(true) {
            return Ok(());
        }
        let nick = form.value("muc#roomnick").ok_or(StanzaCondition::BadRequest)?;
        // Meanwhile, the visitor may have changed the nickname, and another occupant may have taken it.
        let visitor = match form.value("muc#jid") {
            Some(jid) => {
                let jid = Jid::parse(jid).map_err(|_| StanzaCondition::JidMalformed)?;
                self.occupants.of_session(&jid)
            }
            None => self.occupants.get(nick),
        };
        let visitor = visitor.filter(|one| one.role == RoomRole::Visitor);
        let Some(nick) = visitor.map(|one| one.nick().to_owned()) else { return Ok(()) };
        self.change_role(ctx, &nick, RoomRole::Participant, None, None);
        Ok(())
    }

    /// Section 9.9: an administrator answers a registration.
    fn answer_registration(&mut self, ctx: &mut RoomCtx<'_>, form: &DataForm) -> Result<(), StanzaError> {
        let user = form.value("muc#jid").and_then(|jid| Jid::parse(jid).ok());
        let user = user.ok_or(StanzaCondition::BadRequest)?.bare().to_jid();
        self.registrations.remove(&user);
        if form.bool("muc#register_allow") != Some(true) {
            return Ok(());
        }
        check_domain(&user, Affiliation::Member)?;
        let nick = form.value("muc#register_roomnick");
        if self.affiliations.of(user.as_ref()) != Affiliation::None {
            return Ok(());
        }
        let address = nick.map(|nick| self.check_nick(&user, nick)).transpose()?;
        let nick = address.as_ref().and_then(Jid::resource);
        self.check_affiliation_capacity(1, self.affiliations.growth(&user, nick, None))?;
        self.change_affiliation(ctx, &user, Affiliation::Member, nick, None, None);
        Ok(())
    }
}
