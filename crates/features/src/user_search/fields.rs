//! The fields of the directory, in the form of data forms and in that of old (XEP-0055 sections 2 and 3).
//!
//! The trap: the four fields of old are all that may stand outside of a form.

use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::{FoundUser, UserQuery};
use xml::{Ns, TreeNode, Writer};

/// A field.
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

/// The four fields of section 2.
pub(super) const LEGACY_FIELDS: [DirectoryField; 4] = [FIRST, LAST, NICK, EMAIL];

/// The fields of the form; `user` and `fn` are named as other servers name them.
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
    "Fill in one or more fields to find users whose entries begin with what you write.";

/// The form of section 3.
pub(super) fn form() -> DataForm {
    let form = DataForm::typed(FormKind::Form, Ns::Search.as_str())
        .title("User Directory")
        .instructions(INSTRUCTIONS);
    FIELDS.iter().fold(form, |form, field| {
        form.field(FormField::new(FormFieldType::TextSingle, field.var).label(field.label))
    })
}

/// The answer to the question for the fields.
pub(super) fn write_form(w: &mut Writer<'_>) {
    w.start_ns("query", Ns::Search).text_element("instructions", INSTRUCTIONS);
    for field in LEGACY_FIELDS {
        w.start(field.var).end();
    }
    form().write(w);
    w.end();
}

/// What an accepted form asks for.
pub(super) fn query_from_form(form: &DataForm) -> UserQuery {
    let mut query = UserQuery::default();
    for field in FIELDS {
        if let Some(text) = form.value(field.var) {
            (field.set_term)(&mut query, text.to_owned());
        }
    }
    query
}

/// What the elements of old ask for.
pub(super) fn query_from_elements(element: TreeNode<'_>) -> UserQuery {
    let mut query = UserQuery::default();
    for field in LEGACY_FIELDS {
        if let Some(child) = element.child(field.var, Ns::Search) {
            (field.set_term)(&mut query, child.text().into_owned());
        }
    }
    query
}
