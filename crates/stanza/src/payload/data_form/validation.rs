//! Validation of a submission against the form that was shown (XEP-0004 2.13.2, section 4).

use std::fmt;

use super::{DataForm, FORM_TYPE, FormField, FormFieldType, FormKind, boolean};
use crate::{ErrorType, StanzaCondition, StanzaError};

/// Longest field name echoed to the sender, in characters.
const MAX_ECHOED_NAME_CHARS: usize = 64;

/// A form error: one sentence for a human reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormError(String);

impl FormError {
    /// An error with this sentence.
    pub fn new(text: impl Into<String>) -> FormError {
        FormError(text.into())
    }

    /// An error about a field: `the field "x" is there twice`.
    pub fn of(var: &str, what: &str) -> FormError {
        let shown: String = var.chars().take(MAX_ECHOED_NAME_CHARS).collect();
        FormError(format!("the field \"{shown}\" {what}"))
    }

    /// The sentence.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormError {}

/// `not-acceptable`, as section 4 requires, of type modify.
impl From<FormError> for StanzaError {
    fn from(error: FormError) -> StanzaError {
        StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Modify).text(error.0)
    }
}

impl DataForm {
    /// Validates a submission against this form. The result has only the fields of this form, in its order, with its
    /// types and valid values: switches are `1` or `0`, addresses are normalised and unique. Fields that were not
    /// submitted are absent (section 3.5: they keep their value); an empty single value counts as none.
    ///
    /// # Errors
    /// One sentence about the first error.
    pub fn validate(&self, submitted: &DataForm) -> Result<DataForm, FormError> {
        if submitted.kind != FormKind::Submit {
            return Err(FormError::new("the form must be of type submit"));
        }
        if let (Some(ours), Some(theirs)) = (self.form_type(), submitted.form_type())
            && ours != theirs
        {
            return Err(FormError::new(format!("the form must be of the type {ours}")));
        }
        let mut accepted = DataForm::new(FormKind::Submit);
        for shown in self.fields.iter().filter(|f| f.kind() != FormFieldType::Fixed) {
            let field = match submitted.get(&shown.var) {
                // A client that omits the form type means this form.
                None if shown.var == FORM_TYPE => Some(shown.clone()),
                None => None,
                Some(field) => Some(validate_field(shown, field)?),
            };
            if shown.required && field.as_ref().is_none_or(|f| f.values.iter().all(String::is_empty)) {
                return Err(FormError::of(&shown.var, "is required"));
            }
            accepted.fields.extend(field);
        }
        Ok(accepted)
    }
}

fn validate_field(shown: &FormField, field: &FormField) -> Result<FormField, FormError> {
    let kind = shown.kind();
    let wrong = |what: &str| Err(FormError::of(&shown.var, what));
    if !kind.is_multi() && field.values.len() > 1 {
        return wrong("accepts only one value");
    }
    let mut values: Vec<String> = Vec::with_capacity(field.values.len());
    // Section 3.5: an empty value equals none, except for an empty line of text.
    let given = field.values.iter().filter(|v| kind == FormFieldType::TextMulti || !v.is_empty());
    for value in given {
        values.push(match kind {
            FormFieldType::Boolean => match boolean(value) {
                Some(on) => if on { "1" } else { "0" }.to_owned(),
                None => return wrong("must be true or false"),
            },
            FormFieldType::JidSingle | FormFieldType::JidMulti => match jid::Jid::parse(value) {
                Ok(jid) => jid.to_string(),
                Err(_) => return wrong("must be an address"),
            },
            FormFieldType::ListSingle | FormFieldType::ListMulti => {
                if !shown.options.iter().any(|o| o.value == *value) {
                    return wrong("has a value that is not one of its options");
                }
                value.clone()
            }
            _ => value.clone(),
        });
    }
    if let Some(range) = &shown.integers
        && !values.iter().all(|value| value.trim().parse().is_ok_and(|number| range.contains(&number)))
    {
        return Err(FormError::of(
            &shown.var,
            &format!("must be an integer from {} to {}", range.start(), range.end()),
        ));
    }
    if matches!(kind, FormFieldType::JidMulti | FormFieldType::ListMulti) {
        let mut seen = std::collections::BTreeSet::new();
        let fresh: Vec<bool> = values.iter().map(|value| seen.insert(value.as_str())).collect();
        let mut fresh = fresh.into_iter();
        values.retain(|_| fresh.next().unwrap_or(false));
    }
    Ok(FormField { kind: Some(kind), values, ..FormField::new(kind, shown.var.clone()) })
}
