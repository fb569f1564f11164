//! Registration of a user with a room, which reserves a nickname: XEP-0045 1.35.5, sections 7.10 and 7.12.
//!
//! In a room that is neither members-only nor moderated, registration is immediate. Otherwise it grants more than a nickname,
//! and the administrators decide, in the room or not (section 9.9).

use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::IqAnswer;
use xml::{Ns, Writer};

use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::Affiliation;

/// `FORM_TYPE` of registrations.
pub(super) const REGISTER_FORM: &str = "http://jabber.org/protocol/muc#register";

impl Room {
    /// A request of `jabber:iq:register`.
    pub(super) fn registration_request(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        request: &RoomRequest<'_>,
    ) -> IqAnswer {
        let user = request.from.bare().to_jid();
        let affiliation = self.affiliations.of(user.as_ref());
        if affiliation == Affiliation::Outcast {
            return Err(StanzaCondition::NotAllowed.into());
        }
        if !request.is_set {
            return Ok(self.registration_form(affiliation, self.affiliations.nick_of(user.as_ref())));
        }
        if request.payload.child("remove", Ns::Register).is_some() {
            if affiliation != Affiliation::Member {
                return Err(StanzaCondition::NotAllowed.into());
            }
            self.change_affiliation(ctx, &user, Affiliation::None, None, None, None);
            return Ok(Vec::new());
        }
        let form = request.payload.child("x", Ns::DataForms).ok_or(StanzaCondition::BadRequest)?;
        let form = DataForm::read(form).map_err(|_| StanzaCondition::BadRequest)?;
        if form.form_type() != Some(REGISTER_FORM) || form.kind != FormKind::Submit {
            return Err(StanzaCondition::BadRequest.into());
        }
        let nick = form.value("muc#register_roomnick").filter(|nick| !nick.is_empty());
        let nick = nick.ok_or_else(|| {
            StanzaError::new(StanzaCondition::NotAcceptable)
                .text("the field \"muc#register_roomnick\" is required")
        })?;
        let nick = self.check_nick(&user, nick)?.resource().unwrap_or_default().to_owned();
        self.check_affiliation_capacity(usize::from(!self.affiliations.contains(&user)))?;
        if affiliation >= Affiliation::Member {
            self.affiliations.set(&user, affiliation, Some(&nick), None);
            self.note_change();
        } else if self.config.members_only || self.config.moderated {
            self.request_registration(ctx, user.as_str(), &nick, &form);
        } else {
            self.change_affiliation(ctx, &user, Affiliation::Member, Some(&nick), None, None);
        }
        Ok(Vec::new())
    }

    fn registration_form(&self, affiliation: Affiliation, nick: Option<&str>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::Register);
        if affiliation >= Affiliation::Member {
            w.start("registered").end();
            w.text_element("username", nick.unwrap_or_default());
        }
        w.text_element("instructions", "To register with the room, submit the form.");
        let text = |var: &str, label: &str| FormField::new(FormFieldType::TextSingle, var).label(label);
        DataForm::typed(FormKind::Form, REGISTER_FORM)
            .title("Registration with the Room")
            .instructions("Please enter the nickname that you want to reserve.")
            .field(text("muc#register_first", "Given Name"))
            .field(text("muc#register_last", "Family Name"))
            .field(text("muc#register_roomnick", "Desired Nickname").required())
            .field(text("muc#register_url", "A Web Page"))
            .field(text("muc#register_email", "Email Address"))
            .field(FormField::new(FormFieldType::TextMulti, "muc#register_faqentry").label("FAQ Entry"))
            .write(&mut w);
        w.end();
        out
    }

    /// Section 9.9: administrators receive the request.
    fn request_registration(&self, ctx: &mut RoomCtx<'_>, user: &str, nick: &str, form: &DataForm) {
        let mut approval = DataForm::typed(FormKind::Form, REGISTER_FORM)
            .title("Registration Request")
            .instructions("To approve this registration request, select the check box and submit the form.")
            .field(FormField::new(FormFieldType::JidSingle, "muc#jid").label("User").value(user))
            .field(
                FormField::new(FormFieldType::TextSingle, "muc#register_roomnick")
                    .label("Desired Nickname")
                    .value(nick),
            );
        for var in ["muc#register_first", "muc#register_last", "muc#register_url", "muc#register_email"] {
            if let Some(value) = form.value(var) {
                approval = approval.field(FormField::new(FormFieldType::TextSingle, var).value(value));
            }
        }
        let allow = FormField::boolean("muc#register_allow", false);
        let approval = approval.field(allow.label("Allow this person to register with the room?"));
        let admins = self.occupants.sessions_of(|one| self.affiliations.of(one.user()).is_privileged());
        let message = self.form_message(&approval, &(ctx.new_id)());
        ctx.multicast(message.clone(), &self.jid, admins);
        let all = [Affiliation::Admin, Affiliation::Owner].map(|one| self.affiliations.with(one));
        for (admin, _) in all.into_iter().flatten() {
            if self.occupants.nicks_of_user(admin).is_empty() {
                ctx.send_shared(message.clone(), &self.jid, admin);
            }
        }
    }
}
