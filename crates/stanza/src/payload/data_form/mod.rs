//! Data forms: XEP-0004 2.13.2, sections 3 (protocol) and 4 (validation); XEP-0068 1.3 (`FORM_TYPE`).
//!
//! A [`DataForm`] is read from a tree and written with the writer; [`DataForm::validate`] checks a submission against
//! the form that was shown.
//!
//! Not implemented: media (XEP-0221); of the data types of XEP-0122 1.0.2, only ranges of integers.
//!
//! # Pitfalls
//!
//! Fields of a submission often have no type, and only `validate` checks options, counts and addresses. A submission
//! that has not passed it must not be trusted.

mod read;
mod validation;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use xml::{Ns, Writer};

pub use validation::FormError;

/// Maximum number of fields per form, those of its items included; a form with more is rejected.
pub const MAX_FIELDS: usize = 1024;
/// Maximum number of values and options per form; a form with more is rejected.
pub const MAX_VALUES: usize = 8192;
/// Name of the field that identifies the form type (XEP-0068).
pub const FORM_TYPE: &str = "FORM_TYPE";

/// Purpose of a form (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// A form to fill in.
    Form,
    /// A filled-in form.
    Submit,
    /// A form that the user declined to fill in.
    Cancel,
    /// Data only.
    Result,
}

/// Type of a field (section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormFieldType {
    /// Yes or no.
    Boolean,
    /// Text to display.
    Fixed,
    /// Not displayed; returned unchanged.
    Hidden,
    /// Addresses.
    JidMulti,
    /// One address.
    JidSingle,
    /// Any number of the options.
    ListMulti,
    /// One of the options.
    ListSingle,
    /// Lines of text.
    TextMulti,
    /// One line of text, masked on input.
    TextPrivate,
    /// One line of text.
    TextSingle,
}

/// An option of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormOption {
    /// For display; may be empty.
    pub label: String,
    /// The value submitted.
    pub value: String,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Name; empty only for fixed text.
    pub var: String,
    /// Type as written. A field with a missing or unknown type is one line of text.
    pub kind: Option<FormFieldType>,
    /// Label for display; may be empty.
    pub label: String,
    /// Description for display; may be empty.
    pub desc: String,
    /// Whether it must be filled in.
    pub required: bool,
    /// The value is an integer of this range, both ends included (XEP-0122, section 3.2); written, not read.
    pub integers: Option<RangeInclusive<i64>>,
    /// Values.
    pub values: Vec<String>,
    /// Options, for lists.
    pub options: Vec<FormOption>,
}

/// A data form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataForm {
    /// Purpose.
    pub kind: FormKind,
    /// Title, one line; may be empty.
    pub title: String,
    /// Instructions for filling it in.
    pub instructions: Vec<String>,
    /// Fields, `FORM_TYPE` included.
    pub fields: Vec<FormField>,
    /// Columns of a table (section 3.4).
    pub reported: Vec<FormField>,
    /// Rows of a table.
    pub items: Vec<Vec<FormField>>,
}

impl FormKind {
    /// Value of the `type` attribute.
    pub const fn as_str(self) -> &'static str {
        match self {
            FormKind::Form => "form",
            FormKind::Submit => "submit",
            FormKind::Cancel => "cancel",
            FormKind::Result => "result",
        }
    }

    /// Parses the `type` attribute.
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

    /// Value of the `type` attribute.
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

    /// Parses the `type` attribute; an unknown type is one line of text.
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
    /// An option with a label.
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
            integers: None,
            values: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Name and value without a type, as in results.
    pub fn cell(var: impl Into<String>, value: impl Into<String>) -> FormField {
        FormField { kind: None, ..FormField::new(FormFieldType::TextSingle, var).value(value) }
    }

    /// Text to display.
    pub fn fixed(text: impl Into<String>) -> FormField {
        FormField::new(FormFieldType::Fixed, "").value(text)
    }

    /// A switch with its current state.
    pub fn boolean(var: impl Into<String>, on: bool) -> FormField {
        FormField::new(FormFieldType::Boolean, var).value(if on { "1" } else { "0" })
    }

    /// Sets the label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> FormField {
        self.label = label.into();
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn desc(mut self, desc: impl Into<String>) -> FormField {
        self.desc = desc.into();
        self
    }

    /// Marks the field as required.
    #[must_use]
    pub fn required(mut self) -> FormField {
        self.required = true;
        self
    }

    /// Permits integers of a range only.
    #[must_use]
    pub fn integers(mut self, range: RangeInclusive<i64>) -> FormField {
        self.integers = Some(range);
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

    /// The effective type.
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
        if let Some(range) = &self.integers {
            w.start_ns("validate", Ns::DataFormsValidate).attr("datatype", "xs:integer");
            w.start("range").attr("min", &range.start().to_string()).attr("max", &range.end().to_string());
            w.end().end();
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

    /// A form of this type (XEP-0068): starts with the hidden field `FORM_TYPE`.
    pub fn typed(kind: FormKind, form_type: impl Into<String>) -> DataForm {
        DataForm::new(kind).field(FormField::new(FormFieldType::Hidden, FORM_TYPE).value(form_type))
    }

    /// Sets the title.
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

    /// Value of a switch; `None` if it is absent or neither true nor false.
    pub fn bool(&self, var: &str) -> Option<bool> {
        boolean(self.value(var)?)
    }

    /// The values of a field, joined as lines of one text.
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

/// Parses the four spellings of XML Schema.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}
