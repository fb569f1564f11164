//! Fields of the user directory, as data forms and as legacy elements (XEP-0055 1.3, sections 2 and 3).
//!
//! # Pitfalls
//!
//! Only the four legacy fields may appear outside of a form.

use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::{FoundUser, UserQuery};
use xml::{Ns, TreeNode, Writer};

/// A field of the directory.
#[derive(Clone, Copy)]
pub(super) struct DirectoryField {
    pub(super) var: &'static str,
    pub(super) label: &'static str,
    set_term: fn(&mut UserQuery, String),
    value_of: for<'a> fn(&'a FoundUser) -> &'a str,
}

impl DirectoryField {
    pub(super) fn value<'a>(&self, user: &'a FoundUser) -> &'a str {
        (self.value_of)(user)
    }
}

const FIRST: DirectoryField = DirectoryField {
    var: "first",
    label: "Given Name",
    set_term: |query, text| query.first = Some(text),
    value_of: |user| &user.shown.first,
};
const LAST: DirectoryField = DirectoryField {
    var: "last",
    label: "Family Name",
    set_term: |query, text| query.last = Some(text),
    value_of: |user| &user.shown.last,
};
const NICK: DirectoryField = DirectoryField {
    var: "nick",
    label: "Nickname",
    set_term: |query, text| query.nick = Some(text),
    value_of: |user| &user.shown.nick,
};
const EMAIL: DirectoryField = DirectoryField {
    var: "email",
    label: "Email Address",
    set_term: |query, text| query.email = Some(text),
    value_of: |user| &user.shown.email,
};

/// The four legacy fields of section 2.
pub(super) const LEGACY_FIELDS: [DirectoryField; 4] = [FIRST, LAST, NICK, EMAIL];

/// Fields of the form; `user` and `fn` are named as in other servers.
pub(super) const FIELDS: [DirectoryField; 6] = [
    DirectoryField {
        var: "user",
        label: "User",
        set_term: |query, text| query.user = Some(text),
        value_of: |user| user.jid.as_ref().local().unwrap_or_default(),
    },
    DirectoryField {
        var: "fn",
        label: "Full Name",
        set_term: |query, text| query.name = Some(text),
        value_of: |user| &user.shown.name,
    },
    FIRST,
    LAST,
    NICK,
    EMAIL,
];

const INSTRUCTIONS: &str =
    "Fill in one or more fields to find users whose entries start with the given text.";

/// The data form of section 3.
pub(super) fn form() -> DataForm {
    let form = DataForm::typed(FormKind::Form, Ns::Search.as_str())
        .title("User Directory")
        .instructions(INSTRUCTIONS);
    FIELDS.iter().fold(form, |form, field| {
        form.field(FormField::new(FormFieldType::TextSingle, field.var).label(field.label))
    })
}

/// Reply to a request for the fields.
pub(super) fn write_form(w: &mut Writer<'_>) {
    w.start_ns("query", Ns::Search).text_element("instructions", INSTRUCTIONS);
    for field in LEGACY_FIELDS {
        w.start(field.var).end();
    }
    form().write(w);
    w.end();
}

/// Query of a submitted form.
pub(super) fn query_from_form(form: &DataForm) -> UserQuery {
    let mut query = UserQuery::default();
    for field in FIELDS {
        if let Some(text) = form.value(field.var) {
            (field.set_term)(&mut query, text.to_owned());
        }
    }
    query
}

/// Query of legacy elements.
pub(super) fn query_from_elements(element: TreeNode<'_>) -> UserQuery {
    let mut query = UserQuery::default();
    for field in LEGACY_FIELDS {
        if let Some(child) = element.child(field.var, Ns::Search) {
            (field.set_term)(&mut query, child.text().into_owned());
        }
    }
    query
}
