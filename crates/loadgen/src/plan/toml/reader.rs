//! Reader of a TOML document, value by value, which collects every error with its line and key.
//!
//! Reading does not stop at an error: it is recorded, `None` is returned, and reading continues, so that a user sees
//! all errors of a file at once.
//!
//! # Pitfalls
//!
//! A plan is valid only if [`TomlContext::errors`] is empty after reading.

use std::cell::RefCell;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::super::DataTable;
use super::super::error::{PlanError, nearest};

/// Shared state while one document is read.
pub(super) struct TomlContext<'t> {
    text: &'t str,
    errors: RefCell<Vec<PlanError>>,
    /// Meaning of the word `connections`.
    pub(super) connections: u32,
    /// Names of transactions so far.
    pub(super) transactions: RefCell<Vec<String>>,
    /// Tables, by number.
    pub(super) tables: Vec<DataTable>,
}

impl<'t> TomlContext<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            errors: RefCell::default(),
            connections: 0,
            transactions: RefCell::default(),
            tables: Vec::new(),
        }
    }

    /// Records an error at an offset of the text.
    pub(super) fn error(&self, at: usize, key: &str, text: impl Into<String>) {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        self.errors.borrow_mut().push(PlanError {
            line: u32::try_from(line).ok(),
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// Records an error without a line.
    pub(super) fn wrong_nowhere(&self, text: impl Into<String>) {
        self.errors.borrow_mut().push(PlanError::of_plan(text));
    }

    /// All errors in order of their lines; those without a line come last.
    pub(super) fn errors(&self) -> Vec<PlanError> {
        let mut list = self.errors.borrow().clone();
        list.sort_by_key(|m| m.line.unwrap_or(u32::MAX));
        list
    }
}

/// A value with its position.
#[derive(Clone)]
pub(super) struct TomlNode<'a> {
    pub(super) context: &'a TomlContext<'a>,
    pub(super) path: String,
    at: usize,
    value: &'a DeValue<'a>,
}

impl<'a> TomlNode<'a> {
    /// Records an error at this value.
    pub(super) fn error(&self, text: impl Into<String>) {
        self.context.error(self.at, &self.path, text);
    }

    /// Records an error at this value and returns `None`.
    pub(super) fn none<T>(&self, text: impl Into<String>) -> Option<T> {
        self.error(text);
        None
    }

    /// Offset in the text.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Whether this is an empty list.
    pub(super) fn list_is_empty(&self) -> bool {
        matches!(self.value, DeValue::Array(list) if list.is_empty())
    }

    /// The value if it is a boolean; not an error otherwise.
    pub(super) fn truth_quiet(&self) -> Option<bool> {
        self.value.as_bool()
    }

    /// Whether this is a string.
    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    /// Whether this is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.none("must be a string in quotes"),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.none("must be true or false"),
        }
    }

    /// The value if it is an integer.
    pub(super) fn integer(&self) -> Option<i64> {
        let DeValue::Integer(number) = self.value else { return None };
        i64::from_str_radix(number.as_str(), number.radix()).ok()
    }

    pub(super) fn whole(&self, low: i64, high: i64) -> Option<i64> {
        match self.integer() {
            Some(number) if (low..=high).contains(&number) => Some(number),
            _ if high == i64::MAX && low == i64::MIN => self.none("must be a whole number"),
            _ if high == i64::MAX => self.none(format!("must be a whole number of at least {low}")),
            _ => self.none(format!("must be a whole number between {low} and {high}")),
        }
    }

    /// A number of at least 0, integer or not.
    pub(super) fn number(&self) -> Option<f64> {
        let number = match self.value {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number {
            Some(number) if number.is_finite() && number >= 0.0 => Some(number),
            _ => self.none("must be a number of at least 0"),
        }
    }

    pub(super) fn list(&self) -> Option<Vec<TomlNode<'a>>> {
        let DeValue::Array(list) = self.value else { return self.none("must be a list: [ … ]") };
        let nodes = list.iter().enumerate().map(|(i, value)| TomlNode {
            context: self.context,
            path: format!("{}[{i}]", self.path),
            at: value.span().start,
            value: value.get_ref(),
        });
        Some(nodes.collect())
    }

    pub(super) fn texts(&self) -> Option<Vec<String>> {
        if self.is_text() {
            return Some(vec![self.text()?.to_owned()]);
        }
        let DeValue::Array(_) = self.value else { return self.none("must be a string or a list of strings") };
        Some(self.list()?.iter().filter_map(|n| n.text().map(str::to_owned)).collect())
    }

    /// One of several keywords.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let near = nearest(text, words.iter().map(|(word, _)| *word));
        let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.none(format!("\"{text}\" is none of {}{near}", all.join(", ")))
    }

    pub(super) fn section(&self) -> Option<TomlSection<'a>> {
        let DeValue::Table(table) = self.value else { return self.none("must be a table: { … }") };
        Some(TomlSection::new(self.context, &self.path, self.at, table))
    }

    /// The value's table, or a table in which the value has the key `short`.
    pub(super) fn section_or(&self, short: &'static str) -> TomlSection<'a> {
        if let DeValue::Table(table) = self.value {
            return TomlSection::new(self.context, &self.path, self.at, table);
        }
        TomlSection {
            context: self.context,
            path: self.path.clone(),
            at: self.at,
            entries: vec![(short, self.at, self.clone())],
            read_keys: RefCell::default(),
        }
    }
}

/// A table being read.
pub(super) struct TomlSection<'a> {
    pub(super) context: &'a TomlContext<'a>,
    pub(super) path: String,
    at: usize,
    entries: Vec<(&'a str, usize, TomlNode<'a>)>,
    read_keys: RefCell<Vec<&'static str>>,
}

impl<'a> TomlSection<'a> {
    pub(super) fn new(context: &'a TomlContext<'a>, path: &str, at: usize, table: &'a DeTable<'a>) -> Self {
        let dot = if path.is_empty() { "" } else { "." };
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value): (&'a Spanned<_>, &'a Spanned<_>)| {
                let name: &'a str = key.get_ref();
                let path = format!("{path}{dot}{name}");
                let node = TomlNode { context, path, at: value.span().start, value: value.get_ref() };
                (name, key.span().start, node)
            })
            .collect();
        entries.sort_by_key(|entry| entry.1);
        Self { context, path: path.to_owned(), at, entries, read_keys: RefCell::default() }
    }

    /// A table without keys.
    pub(super) fn empty(context: &'a TomlContext<'a>, path: &str, at: usize) -> Self {
        Self { context, path: path.to_owned(), at, entries: Vec::new(), read_keys: RefCell::default() }
    }

    /// Records an error of the table as a whole.
    pub(super) fn error(&self, text: impl Into<String>) {
        self.context.error(self.at, &self.path, text);
    }

    pub(super) fn get(&self, key: &'static str) -> Option<TomlNode<'a>> {
        self.read_keys.borrow_mut().push(key);
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| entry.2.clone())
    }

    /// A required key.
    pub(super) fn need(&self, key: &'static str, example: &str) -> Option<TomlNode<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.error(format!("needs \"{key}\", such as {example}"));
        }
        found
    }

    /// All entries in file order, for tables with user-defined keys.
    pub(super) fn entries(&self) -> &[(&'a str, usize, TomlNode<'a>)] {
        &self.entries
    }

    /// Reports every unread key as an error.
    pub(super) fn finish(self) {
        let read_keys = self.read_keys.borrow();
        for (key, at, node) in &self.entries {
            if read_keys.iter().any(|known| known == key) {
                continue;
            }
            let near = nearest(key, read_keys.iter().copied());
            let text = match (near.is_empty(), read_keys.is_empty()) {
                (false, _) => format!("unknown key \"{key}\"{near}"),
                (true, true) => format!("unknown key \"{key}\"; no options are supported here"),
                (true, false) => format!("unknown key \"{key}\"; known are {}", read_keys.join(", ")),
            };
            self.context.error(*at, &node.path, text);
        }
    }
}
