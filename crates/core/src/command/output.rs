//! What a command answers.

use super::Field;

/// A value for people and machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Text.
    Text(String),
    /// Texts, addresses or lines.
    Texts(Vec<String>),
    /// A number.
    Int(u64),
    /// Yes or no.
    Bool(bool),
    /// Rows with a value for each column.
    Rows(Vec<Row>),
}

/// A row of a table, in the order of its columns.
pub type Row = Vec<Shown>;

impl Shown {
    /// As texts; a row has none.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Shown::Text(text) => vec![text.clone()],
            Shown::Texts(texts) => texts.clone(),
            Shown::Int(n) => vec![n.to_string()],
            Shown::Bool(on) => vec![if *on { "1" } else { "0" }.to_owned()],
            Shown::Rows(_) => Vec::new(),
        }
    }
}

/// What a command answers: values of its output fields, in their order, and a sentence.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Values.
    pub values: Vec<(&'static Field, Shown)>,
    /// One sentence for a person about what was done; may be empty.
    pub note: String,
    /// How a specification wants its table written inside a data form; empty for the usual way.
    pub xml: Vec<u8>,
}

impl Output {
    /// Nothing but that it is done.
    pub fn done() -> Output {
        Output::default()
    }
    /// A sentence.
    pub fn said(note: impl Into<String>) -> Output {
        Output { note: note.into(), ..Output::default() }
    }
    /// Adds a value.
    #[must_use]
    pub fn with(mut self, field: &'static Field, value: Shown) -> Output {
        self.values.push((field, value));
        self
    }
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Shown> {
        self.values.iter().find(|(field, _)| field.name == name).map(|(_, value)| value)
    }
}
