//! Output of commands.

use super::CommandField;

/// A value for people and machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputValue {
    /// Text.
    Text(String),
    /// Texts, addresses or lines.
    Texts(Vec<String>),
    /// A number.
    Int(u64),
    /// Yes or no.
    Bool(bool),
    /// Rows with a value for each column.
    Rows(Vec<OutputRow>),
}

/// A row of a table, in the order of its columns.
pub type OutputRow = Vec<OutputValue>;

impl OutputValue {
    /// The value as texts; none for rows.
    pub fn texts(&self) -> Vec<String> {
        match self {
            OutputValue::Text(text) => vec![text.clone()],
            OutputValue::Texts(texts) => texts.clone(),
            OutputValue::Int(n) => vec![n.to_string()],
            OutputValue::Bool(on) => vec![if *on { "1" } else { "0" }.to_owned()],
            OutputValue::Rows(_) => Vec::new(),
        }
    }
}

/// Output of a command: values of its output fields, in their order, and a sentence.
#[derive(Clone, Debug, Default)]
pub struct CommandOutput {
    /// Values.
    pub values: Vec<(&'static CommandField, OutputValue)>,
    /// One sentence for a person about the result; may be empty.
    pub note: String,
    /// The table inside a data form where a specification defines its XML; empty for the usual form.
    pub xml: Vec<u8>,
}

impl CommandOutput {
    /// Success without values.
    pub fn done() -> CommandOutput {
        CommandOutput::default()
    }

    /// Success with a sentence.
    pub fn with_note(note: impl Into<String>) -> CommandOutput {
        CommandOutput { note: note.into(), ..CommandOutput::default() }
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, field: &'static CommandField, value: OutputValue) -> CommandOutput {
        self.values.push((field, value));
        self
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&OutputValue> {
        self.values.iter().find(|(field, _)| field.name == name).map(|(_, value)| value)
    }
}
