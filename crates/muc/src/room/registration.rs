//! Registration of a user with a room, which reserves a nickname: XEP-0045 1.35.5, sections 7.10 and 7.12.
//!
//! In a room that is neither members-only nor moderated, registration is immediate. Otherwise it grants more than a nickname,
//! and the administrators decide, in the room or not (section 9.9).

use std::collections::BTreeSet;

use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::IqAnswer;
use xml::{Ns, Writer};

use super::unanswered_requests::RequestTimes;
use super::{Occupant, Room, RoomCtx, RoomRequest};
use crate::privileges::Affiliation;

/// `FORM_TYPE` of registrations.
pub(super) const REGISTER_FORM: &str = "http://jabber.org/protocol/muc#register";
/// Times of registrations that administrators receive.
const TIMES: RequestTimes = RequestTimes { expiry: 86_400_000, interval: 60_000 };
/// Longest text of a field that administrators receive, in bytes.
const MAX_FIELD_BYTES: usize = 1024;
/// Administrators who receive a request although they are not in the room.
const MAX_ABSENT_ADMINS: usize = 20;

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
            match affiliation {
                Affiliation::Member => {}
                // They end the reservation of their nickname only.
                Affiliation::Admin | Affiliation::Owner => {
                    self.affiliations.set(&user, affiliation, Some(""), None);
                    return Ok(Vec::new());
                }
                Affiliation::None | Affiliation::Outcast => return Err(StanzaCondition::NotAllowed.into()),
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
        if affiliation == Affiliation::None {
            self.check_capacity_for_outsiders(std::iter::once(&user))?;
        }
        self.check_affiliation_capacity(0, self.affiliations.growth(&user, Some(&nick), None))?;
        if affiliation >= Affiliation::Member {
            self.affiliations.set(&user, affiliation, Some(&nick), None);
        } else if self.config.members_only || self.config.moderated {
            if self.registrations.add(user.as_ref(), &nick, ctx.now, &TIMES)? {
                self.request_registration(ctx, user.as_str(), &nick, &form);
            }
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
            if let Some(value) = form.value(var).filter(|value| value.len() <= MAX_FIELD_BYTES) {
                approval = approval.field(FormField::new(FormFieldType::TextSingle, var).value(value));
            }
        }
        let entry = form.values("muc#register_faqentry");
        if !entry.is_empty() && entry.iter().map(String::len).sum::<usize>() <= MAX_FIELD_BYTES {
            let field = FormField::new(FormFieldType::TextMulti, "muc#register_faqentry");
            approval = approval.field(field.values(entry));
        }
        let allow = FormField::boolean("muc#register_allow", false);
        let approval = approval.field(allow.label("Allow this person to register with the room?"));
        let is_admin = |one: &Occupant| self.affiliations.of(one.user()).is_privileged();
        let present: BTreeSet<&str> =
            self.occupants.iter().filter(|one| is_admin(one)).map(|one| one.user().as_str()).collect();
        let admins = self.occupants.sessions_of(is_admin);
        let message = self.form_message(&approval, &(ctx.new_id)());
        ctx.multicast(message.clone(), &self.jid, admins);
        let all = [Affiliation::Admin, Affiliation::Owner].map(|one| self.affiliations.with(one));
        let absent = all.into_iter().flatten().filter(|(admin, _)| !present.contains(admin.as_str()));
        for (admin, _) in absent.take(MAX_ABSENT_ADMINS) {
            ctx.send_shared(message.clone(), &self.jid, admin);
        }
    }
}
