//! The fields of the directory, in the form of data forms and in that of old (XEP-0055 sections 2 and 3).
//!
//! The trap: the four fields of old are all that may stand outside of a form.

use stanza::payload::data_form::{Field, FieldKind, Form, FormKind};
use store::{FoundUser, Query};
use xml::{Node, Ns, Writer};

/// A field.
#[derive(Clone, Copy)]
pub(super) struct Searched {
    pub(super) var: &'static str,
    pub(super) label: &'static str,
    set: fn(&mut Query, String),
    shown: for<'a> fn(&'a FoundUser) -> &'a str,
}

impl Searched {
    pub(super) fn shown<'a>(&self, user: &'a FoundUser) -> &'a str {
        (self.shown)(user)
    }
}

const FIRST: Searched = Searched {
    var: "first",
    label: "Given Name",
    set: |query, text| query.first = Some(text),
    shown: |user| &user.shown.first,
};
const LAST: Searched = Searched {
    var: "last",
    label: "Family Name",
    set: |query, text| query.last = Some(text),
    shown: |user| &user.shown.last,
};
const NICK: Searched = Searched {
    var: "nick",
    label: "Nickname",
    set: |query, text| query.nick = Some(text),
    shown: |user| &user.shown.nick,
};
const EMAIL: Searched = Searched {
    var: "email",
    label: "Email Address",
    set: |query, text| query.email = Some(text),
    shown: |user| &user.shown.email,
};

/// The four fields of section 2.
pub(super) const LEGACY: [Searched; 4] = [FIRST, LAST, NICK, EMAIL];

/// The fields of the form; `user` and `fn` are named as other servers name them.
pub(super) const FIELDS: [Searched; 6] = [
    Searched {
        var: "user",
        label: "User",
        set: |query, text| query.user = Some(text),
        shown: |user| user.jid.as_ref().local().unwrap_or_default(),
    },
    Searched {
        var: "fn",
        label: "Full Name",
        set: |query, text| query.name = Some(text),
        shown: |user| &user.shown.name,
    },
    FIRST,
    LAST,
    NICK,
    EMAIL,
];

const INSTRUCTIONS: &str =
    "Fill in one or more fields to find users whose entries begin with what you write.";

/// The form of section 3.
pub(super) fn form() -> Form {
    let form =
        Form::typed(FormKind::Form, Ns::Search.as_str()).title("User Directory").instructions(INSTRUCTIONS);
    FIELDS
        .iter()
        .fold(form, |form, field| form.field(Field::new(FieldKind::TextSingle, field.var).label(field.label)))
}

/// The answer to the question for the fields.
pub(super) fn write_form(w: &mut Writer<'_>) {
    w.start_ns("query", Ns::Search).leaf("instructions", INSTRUCTIONS);
    for field in LEGACY {
        w.start(field.var).end();
    }
    form().write(w);
    w.end();
}

/// What an accepted form asks for.
pub(super) fn of_form(form: &Form) -> Query {
    let mut query = Query::default();
    for field in FIELDS {
        if let Some(text) = form.value(field.var) {
            (field.set)(&mut query, text.to_owned());
        }
    }
    query
}

/// What the elements of old ask for.
pub(super) fn of_elements(element: Node<'_>) -> Query {
    let mut query = Query::default();
    for field in LEGACY {
        if let Some(child) = element.child(field.var, Ns::Search) {
            (field.set)(&mut query, child.text().into_owned());
        }
    }
    query
}
