//! Data forms: XEP-0004 2.13.2 sections 3 (protocol) and 4 (validation), field standardisation XEP-0068 1.3 (`FORM_TYPE`).
//!
//! A [`DataForm`] is read from a tree and written with the writer; [`DataForm::validate`] holds a submission against the form that
//! was shown. Left out: data types beyond those of XEP-0004 (XEP-0122) and media (XEP-0221).
//!
//! The trap: a submission's fields often come without a type, and nothing in one is to be trusted before `accept` has
//! seen it: options, counts and addresses are only checked there.

mod read;
mod validation;

pub use validation::FormError;

use xml::{Ns, Writer};

/// Fields that one form may have, those of its items included; a form with more is refused.
pub const MAX_FIELDS: usize = 1024;
/// Values and options that one form may have in all; a form with more is refused.
pub const MAX_VALUES: usize = 8192;
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
pub enum FormFieldType {
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
pub struct FormOption {
    /// For people; may be empty.
    pub label: String,
    /// For machines.
    pub value: String,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Its name; empty only for fixed text.
    pub var: String,
    /// Its type, when it is written out. Without one, or with one that is unknown, it is one line of text.
    pub kind: Option<FormFieldType>,
    /// Its name for people; may be empty.
    pub label: String,
    /// More for people; may be empty.
    pub desc: String,
    /// Whether it must be filled in.
    pub required: bool,
    /// Its values.
    pub values: Vec<String>,
    /// What may be chosen, for lists.
    pub options: Vec<FormOption>,
}

/// A form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataForm {
    /// What it is for.
    pub kind: FormKind,
    /// One line; may be empty.
    pub title: String,
    /// What to do with it.
    pub instructions: Vec<String>,
    /// Its fields, `FORM_TYPE` included.
    pub fields: Vec<FormField>,
    /// The columns of a table (section 3.4).
    pub reported: Vec<FormField>,
    /// The rows of a table.
    pub items: Vec<Vec<FormField>>,
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
    pub fn from_name(text: &str) -> Option<FormKind> {
        [FormKind::Form, FormKind::Submit, FormKind::Cancel, FormKind::Result]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl FormFieldType {
    const ALL: [FormFieldType; 10] = [
        FormFieldType::Boolean,
        FormFieldType::Fixed,
        FormFieldType::Hidden,
        FormFieldType::JidMulti,
        FormFieldType::JidSingle,
        FormFieldType::ListMulti,
        FormFieldType::ListSingle,
        FormFieldType::TextMulti,
        FormFieldType::TextPrivate,
        FormFieldType::TextSingle,
    ];

    /// As written.
    pub const fn as_str(self) -> &'static str {
        match self {
            FormFieldType::Boolean => "boolean",
            FormFieldType::Fixed => "fixed",
            FormFieldType::Hidden => "hidden",
            FormFieldType::JidMulti => "jid-multi",
            FormFieldType::JidSingle => "jid-single",
            FormFieldType::ListMulti => "list-multi",
            FormFieldType::ListSingle => "list-single",
            FormFieldType::TextMulti => "text-multi",
            FormFieldType::TextPrivate => "text-private",
            FormFieldType::TextSingle => "text-single",
        }
    }
    /// Reads what is written; an unknown type is one line of text.
    pub fn from_name(text: &str) -> FormFieldType {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).unwrap_or(FormFieldType::TextSingle)
    }
    /// Whether a field of this type may have several values.
    pub const fn is_multi(self) -> bool {
        matches!(
            self,
            FormFieldType::JidMulti
                | FormFieldType::ListMulti
                | FormFieldType::TextMulti
                | FormFieldType::Hidden
        )
    }
}

impl FormOption {
    /// An option with a name for people.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> FormOption {
        FormOption { label: label.into(), value: value.into() }
    }
}

impl FormField {
    /// A field with neither label nor value.
    pub fn new(kind: FormFieldType, var: impl Into<String>) -> FormField {
        FormField {
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
    pub fn cell(var: impl Into<String>, value: impl Into<String>) -> FormField {
        FormField { kind: None, ..FormField::new(FormFieldType::TextSingle, var).value(value) }
    }
    /// Text to read.
    pub fn fixed(text: impl Into<String>) -> FormField {
        FormField::new(FormFieldType::Fixed, "").value(text)
    }
    /// A switch with its present state.
    pub fn boolean(var: impl Into<String>, on: bool) -> FormField {
        FormField::new(FormFieldType::Boolean, var).value(if on { "1" } else { "0" })
    }
    /// Names it for people.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> FormField {
        self.label = label.into();
        self
    }
    /// Describes it for people.
    #[must_use]
    pub fn desc(mut self, desc: impl Into<String>) -> FormField {
        self.desc = desc.into();
        self
    }
    /// It must be filled in.
    #[must_use]
    pub fn required(mut self) -> FormField {
        self.required = true;
        self
    }
    /// Adds a value.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> FormField {
        self.values.push(value.into());
        self
    }
    /// Adds values.
    #[must_use]
    pub fn values(mut self, values: impl IntoIterator<Item = impl Into<String>>) -> FormField {
        self.values.extend(values.into_iter().map(Into::into));
        self
    }
    /// Adds an option.
    #[must_use]
    pub fn option(mut self, label: impl Into<String>, value: impl Into<String>) -> FormField {
        self.options.push(FormOption::new(label, value));
        self
    }
    /// The type that counts.
    pub fn kind(&self) -> FormFieldType {
        self.kind.unwrap_or(FormFieldType::TextSingle)
    }

    /// Writes `<field/>`.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.start("field");
        if !self.var.is_empty() {
            w.attr("var", &self.var);
        }
        w.attr_opt("type", self.kind.map(FormFieldType::as_str));
        if !self.label.is_empty() {
            w.attr("label", &self.label);
        }
        if !self.desc.is_empty() {
            w.text_element("desc", &self.desc);
        }
        if self.required {
            w.start("required").end();
        }
        for value in &self.values {
            w.text_element("value", value);
        }
        for option in &self.options {
            w.start("option");
            if !option.label.is_empty() {
                w.attr("label", &option.label);
            }
            w.text_element("value", &option.value).end();
        }
        w.end();
    }
}

impl DataForm {
    /// An empty form.
    pub fn new(kind: FormKind) -> DataForm {
        DataForm {
            kind,
            title: String::new(),
            instructions: Vec::new(),
            fields: Vec::new(),
            reported: Vec::new(),
            items: Vec::new(),
        }
    }
    /// A form of a known type (XEP-0068): begins with the hidden field `FORM_TYPE`.
    pub fn typed(kind: FormKind, form_type: impl Into<String>) -> DataForm {
        DataForm::new(kind).field(FormField::new(FormFieldType::Hidden, FORM_TYPE).value(form_type))
    }
    /// Gives it a title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> DataForm {
        self.title = title.into();
        self
    }
    /// Adds a line of instructions.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> DataForm {
        self.instructions.push(text.into());
        self
    }
    /// Adds a field.
    #[must_use]
    pub fn field(mut self, field: FormField) -> DataForm {
        self.fields.push(field);
        self
    }
    /// Adds a column.
    #[must_use]
    pub fn column(
        mut self,
        kind: FormFieldType,
        var: impl Into<String>,
        label: impl Into<String>,
    ) -> DataForm {
        self.reported.push(FormField::new(kind, var).label(label));
        self
    }
    /// Adds a row.
    #[must_use]
    pub fn item(mut self, fields: Vec<FormField>) -> DataForm {
        self.items.push(fields);
        self
    }

    /// The value of `FORM_TYPE`.
    pub fn form_type(&self) -> Option<&str> {
        self.value(FORM_TYPE)
    }
    /// The field of this name.
    pub fn get(&self, var: &str) -> Option<&FormField> {
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
            w.text_element("title", &self.title);
        }
        for line in &self.instructions {
            w.text_element("instructions", line);
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
