//! Data forms: XEP-0004 2.13.2 sections 3 (protocol) and 4 (validation), field standardisation XEP-0068 1.3 (`FORM_TYPE`).
//!
//! A [`Form`] is read from a tree and written with the writer; [`Form::accept`] holds a submission against the form that
//! was shown. Left out: data types beyond those of XEP-0004 (XEP-0122) and media (XEP-0221).
//!
//! The trap: a submission's fields often come without a type, and nothing in one is to be trusted before `accept` has
//! seen it: options, counts and addresses are only checked there.

mod accept;
mod read;

pub use accept::FormError;

use xml::{Ns, Writer};

/// Fields that one form may have, those of its items included; a form with more is refused.
pub const MOST_FIELDS: usize = 1024;
/// Values and options that one form may have in all; a form with more is refused.
pub const MOST_VALUES: usize = 8192;
/// The name of the field that says what the fields mean (XEP-0068).
pub const FORM_TYPE: &str = "FORM_TYPE";

/// What a form is for (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// It is to be filled in.
    Form,
    /// It was filled in.
    Submit,
    /// It will not be filled in.
    Cancel,
    /// It holds data.
    Result,
}

/// The type of a field (section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Yes or no.
    Boolean,
    /// Text to read.
    Fixed,
    /// Not shown; goes back as it came.
    Hidden,
    /// Addresses.
    JidMulti,
    /// One address.
    JidSingle,
    /// Some of the options.
    ListMulti,
    /// One of the options.
    ListSingle,
    /// Lines of text.
    TextMulti,
    /// One line that nobody should read.
    TextPrivate,
    /// One line of text.
    TextSingle,
}

/// One of the options of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// For people; may be empty.
    pub label: String,
    /// For machines.
    pub value: String,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; empty only for fixed text.
    pub var: String,
    /// Its type, when it is written out. Without one, or with one that is unknown, it is one line of text.
    pub kind: Option<FieldKind>,
    /// Its name for people; may be empty.
    pub label: String,
    /// More for people; may be empty.
    pub desc: String,
    /// Whether it must be filled in.
    pub required: bool,
    /// Its values.
    pub values: Vec<String>,
    /// What may be chosen, for lists.
    pub options: Vec<Choice>,
}

/// A form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// What it is for.
    pub kind: FormKind,
    /// One line; may be empty.
    pub title: String,
    /// What to do with it.
    pub instructions: Vec<String>,
    /// Its fields, `FORM_TYPE` included.
    pub fields: Vec<Field>,
    /// The columns of a table (section 3.4).
    pub reported: Vec<Field>,
    /// The rows of a table.
    pub items: Vec<Vec<Field>>,
}

impl FormKind {
    /// As written.
    pub const fn as_str(self) -> &'static str {
        match self {
            FormKind::Form => "form",
            FormKind::Submit => "submit",
            FormKind::Cancel => "cancel",
            FormKind::Result => "result",
        }
    }
    /// Reads what is written.
    pub fn of(text: &str) -> Option<FormKind> {
        [FormKind::Form, FormKind::Submit, FormKind::Cancel, FormKind::Result]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl FieldKind {
    const ALL: [FieldKind; 10] = [
        FieldKind::Boolean,
        FieldKind::Fixed,
        FieldKind::Hidden,
        FieldKind::JidMulti,
        FieldKind::JidSingle,
        FieldKind::ListMulti,
        FieldKind::ListSingle,
        FieldKind::TextMulti,
        FieldKind::TextPrivate,
        FieldKind::TextSingle,
    ];

    /// As written.
    pub const fn as_str(self) -> &'static str {
        match self {
            FieldKind::Boolean => "boolean",
            FieldKind::Fixed => "fixed",
            FieldKind::Hidden => "hidden",
            FieldKind::JidMulti => "jid-multi",
            FieldKind::JidSingle => "jid-single",
            FieldKind::ListMulti => "list-multi",
            FieldKind::ListSingle => "list-single",
            FieldKind::TextMulti => "text-multi",
            FieldKind::TextPrivate => "text-private",
            FieldKind::TextSingle => "text-single",
        }
    }
    /// Reads what is written; an unknown type is one line of text.
    pub fn of(text: &str) -> FieldKind {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).unwrap_or(FieldKind::TextSingle)
    }
    /// Whether a field of this type may have several values.
    pub const fn is_multi(self) -> bool {
        matches!(self, FieldKind::JidMulti | FieldKind::ListMulti | FieldKind::TextMulti | FieldKind::Hidden)
    }
}

impl Choice {
    /// An option with a name for people.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Choice {
        Choice { label: label.into(), value: value.into() }
    }
}

impl Field {
    /// A field with neither label nor value.
    pub fn new(kind: FieldKind, var: impl Into<String>) -> Field {
        Field {
            var: var.into(),
            kind: Some(kind),
            label: String::new(),
            desc: String::new(),
            required: false,
            values: Vec::new(),
            options: Vec::new(),
        }
    }
    /// Name and value without a type, as in results.
    pub fn cell(var: impl Into<String>, value: impl Into<String>) -> Field {
        Field { kind: None, ..Field::new(FieldKind::TextSingle, var).value(value) }
    }
    /// Text to read.
    pub fn fixed(text: impl Into<String>) -> Field {
        Field::new(FieldKind::Fixed, "").value(text)
    }
    /// A switch with its present state.
    pub fn boolean(var: impl Into<String>, on: bool) -> Field {
        Field::new(FieldKind::Boolean, var).value(if on { "1" } else { "0" })
    }
    /// Names it for people.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Field {
        self.label = label.into();
        self
    }
    /// Describes it for people.
    #[must_use]
    pub fn desc(mut self, desc: impl Into<String>) -> Field {
        self.desc = desc.into();
        self
    }
    /// It must be filled in.
    #[must_use]
    pub fn required(mut self) -> Field {
        self.required = true;
        self
    }
    /// Adds a value.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Field {
        self.values.push(value.into());
        self
    }
    /// Adds values.
    #[must_use]
    pub fn values(mut self, values: impl IntoIterator<Item = impl Into<String>>) -> Field {
        self.values.extend(values.into_iter().map(Into::into));
        self
    }
    /// Adds an option.
    #[must_use]
    pub fn option(mut self, label: impl Into<String>, value: impl Into<String>) -> Field {
        self.options.push(Choice::new(label, value));
        self
    }
    /// The type that counts.
    pub fn kind(&self) -> FieldKind {
        self.kind.unwrap_or(FieldKind::TextSingle)
    }

    /// Writes `<field/>`.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.start("field");
        if !self.var.is_empty() {
            w.attr("var", &self.var);
        }
        w.attr_opt("type", self.kind.map(FieldKind::as_str));
        if !self.label.is_empty() {
            w.attr("label", &self.label);
        }
        if !self.desc.is_empty() {
            w.leaf("desc", &self.desc);
        }
        if self.required {
            w.start("required").end();
        }
        for value in &self.values {
            w.leaf("value", value);
        }
        for option in &self.options {
            w.start("option");
            if !option.label.is_empty() {
                w.attr("label", &option.label);
            }
            w.leaf("value", &option.value).end();
        }
        w.end();
    }
}

impl Form {
    /// An empty form.
    pub fn new(kind: FormKind) -> Form {
        Form {
            kind,
            title: String::new(),
            instructions: Vec::new(),
            fields: Vec::new(),
            reported: Vec::new(),
            items: Vec::new(),
        }
    }
    /// A form of a known type (XEP-0068): begins with the hidden field `FORM_TYPE`.
    pub fn typed(kind: FormKind, form_type: impl Into<String>) -> Form {
        Form::new(kind).field(Field::new(FieldKind::Hidden, FORM_TYPE).value(form_type))
    }
    /// Gives it a title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Form {
        self.title = title.into();
        self
    }
    /// Adds a line of instructions.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Form {
        self.instructions.push(text.into());
        self
    }
    /// Adds a field.
    #[must_use]
    pub fn field(mut self, field: Field) -> Form {
        self.fields.push(field);
        self
    }
    /// Adds a column.
    #[must_use]
    pub fn column(mut self, kind: FieldKind, var: impl Into<String>, label: impl Into<String>) -> Form {
        self.reported.push(Field::new(kind, var).label(label));
        self
    }
    /// Adds a row.
    #[must_use]
    pub fn item(mut self, fields: Vec<Field>) -> Form {
        self.items.push(fields);
        self
    }

    /// The value of `FORM_TYPE`.
    pub fn form_type(&self) -> Option<&str> {
        self.value(FORM_TYPE)
    }
    /// The field of this name.
    pub fn get(&self, var: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.var == var)
    }
    /// The first value of a field.
    pub fn value(&self, var: &str) -> Option<&str> {
        self.get(var)?.values.first().map(String::as_str)
    }
    /// All values of a field; none if it is absent.
    pub fn values(&self, var: &str) -> &[String] {
        self.get(var).map(|field| field.values.as_slice()).unwrap_or_default()
    }
    /// The value of a switch; `None` when it is absent or neither true nor false.
    pub fn bool(&self, var: &str) -> Option<bool> {
        boolean(self.value(var)?)
    }
    /// The lines of a field of several lines as one text.
    pub fn text(&self, var: &str) -> String {
        self.values(var).join("\n")
    }

    /// Writes `<x/>`.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.start_ns("x", Ns::DataForms).attr("type", self.kind.as_str());
        if !self.title.is_empty() {
            w.leaf("title", &self.title);
        }
        for line in &self.instructions {
            w.leaf("instructions", line);
        }
        for field in &self.fields {
            field.write(w);
        }
        if !self.reported.is_empty() {
            w.start("reported");
            for field in &self.reported {
                field.write(w);
            }
            w.end();
        }
        for item in &self.items {
            w.start("item");
            for field in item {
                field.write(w);
            }
            w.end();
        }
        w.end();
    }
}

/// The four spellings of XML Schema.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
