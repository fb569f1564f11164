//! Registration forms: parser of requests, legacy fields and data forms (XEP-0077 2.4, sections 3 and 4), and writer
//! of replies.
//!
//! A data form takes precedence over legacy fields (section 6).
//!
//! # Pitfalls
//!
//! An empty password counts as absent, never as the empty password.

use base::Secret;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use xml::{Ns, TreeNode, Writer};

/// `FORM_TYPE` of the three forms (section 12.4).
const REGISTER: &str = "jabber:iq:register";
const CANCEL: &str = "jabber:iq:register:cancel";

/// Parsed request.
pub(super) enum RegistrationRequest {
    /// Registration or password change. Empty fields count as absent.
    Fields {
        /// User name.
        username: Option<String>,
        /// Password.
        password: Option<Secret>,
        /// Current password.
        old: Option<Secret>,
    },
    /// Removal of the account. The password is present if a form was submitted.
    Remove(Option<Secret>),
}

/// Parses the `<query/>` of a request of type set.
pub(super) fn read(query: TreeNode<'_>) -> Result<RegistrationRequest, StanzaError> {
    let own = |name: &str| query.child(name, Ns::Register);
    if own("remove").is_some() {
        return match query.child_elements().count() {
            1 => Ok(RegistrationRequest::Remove(None)),
            _ => Err(StanzaError::new(StanzaCondition::BadRequest).text("remove must be the only field")),
        };
    }
    let secret = |text: &str| Some(text).filter(|t| !t.is_empty()).map(Secret::new);
    if let Some(x) = query.child("x", Ns::DataForms) {
        let form = DataForm::read(x)?;
        if form.kind == FormKind::Cancel {
            return Err(StanzaError::new(StanzaCondition::BadRequest).text("the form is empty"));
        }
        let value = |var: &str| form.value(var).unwrap_or_default();
        return Ok(match form.form_type() {
            Some(CANCEL) => RegistrationRequest::Remove(secret(value("password"))),
            _ => RegistrationRequest::Fields {
                username: Some(value("username").to_owned()).filter(|n| !n.is_empty()),
                password: secret(value("password")),
                old: secret(value("old_password")),
            },
        });
    }
    Ok(RegistrationRequest::Fields {
        username: own("username").map(|n| n.text().into_owned()).filter(|n| !n.is_empty()),
        password: own("password").and_then(|n| secret(&n.text())),
        old: None,
    })
}

/// Registration form for unauthenticated clients (section 3.1), as fields and as a data form.
pub(super) fn registration_form(instructions: &str) -> Vec<u8> {
    query(|w| {
        w.text_element("instructions", instructions);
        w.start("username").end();
        w.start("password").end();
        DataForm::typed(FormKind::Form, REGISTER)
            .title("Registration")
            .instructions(instructions)
            .field(FormField::new(FormFieldType::TextSingle, "username").label("User name").required())
            .field(FormField::new(FormFieldType::TextPrivate, "password").label("Password").required())
            .write(w);
    })
}

/// Reply to a registered user who requests the registration.
pub(super) fn registered_reply(username: &str) -> Vec<u8> {
    query(|w| {
        w.start("registered").end();
        w.text_element("username", username);
        w.start("password").end();
    })
}

/// Redirection to an external registration page (section 5).
pub(super) fn external_registration(url: &str) -> Vec<u8> {
    query(|w| {
        w.text_element("instructions", &format!("To register, visit {url}"));
        w.start_ns("x", Ns::Oob).text_element("url", url).end();
    })
}

fn query(content: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut w = Writer::new(&mut out);
    w.start_ns("query", Ns::Register);
    content(&mut w);
    w.end();
    out
}
