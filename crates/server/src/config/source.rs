//! Source text of a configuration: its values and the location of each, so that errors are reported by line and
//! column.
//!
//! A file with syntax errors is read as far as possible, so that one run reports all of its errors.
//!
//! # Pitfalls
//!
//! A key is found again by its path ([`KeyPath`]). The index of a list element is one part of it.

use std::collections::HashMap;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Location of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceLocation {
    /// Line and column, counted from 1; columns are characters.
    At(usize, usize),
    /// An environment variable.
    Variable(String),
}

/// Path of a value: names of sections, keys, and indices of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeyPath(Vec<String>);

impl KeyPath {
    /// The path of a child.
    pub(crate) fn then(&self, part: impl Into<String>) -> KeyPath {
        let mut parts = self.0.clone();
        parts.push(part.into());
        KeyPath(parts)
    }
}

impl<T: Into<String>> FromIterator<T> for KeyPath {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> KeyPath {
        KeyPath(parts.into_iter().map(Into::into).collect())
    }
}

/// Locations of all values.
#[derive(Debug, Default)]
pub(crate) struct ConfigSource {
    /// The file's name, for messages.
    pub(crate) name: Option<String>,
    locations: HashMap<KeyPath, SourceLocation>,
    /// Syntax errors; the values affected by them are missing.
    pub(crate) syntax_errors: Vec<(Option<SourceLocation>, String)>,
}

impl ConfigSource {
    /// Reads a text as far as it is valid TOML.
    pub(crate) fn read(text: &str, name: Option<String>) -> (Table, ConfigSource) {
        let (read, errors) = DeTable::parse_recoverable(text);
        let mut source = ConfigSource { name, ..ConfigSource::default() };
        for error in errors {
            let location = error.span().map(|span| location_at(text, span.start));
            // One per line: further errors of the parser there follow from the first.
            if location.is_none()
                || !source
                    .syntax_errors
                    .iter()
                    .any(|(known, _)| known.as_ref().map(line_of) == location.as_ref().map(line_of))
            {
                let message = error.message().replace('\n', ", ");
                source.syntax_errors.push((location, format!("not valid TOML: {message}")));
            }
        }
        let table = source.table(text, read.get_ref(), &KeyPath::default());
        (table, source)
    }

    /// The location of a key, or of the section that should contain it.
    pub(crate) fn location(&self, path: &KeyPath) -> Option<&SourceLocation> {
        (0..=path.0.len()).rev().find_map(|len| self.locations.get(&KeyPath(path.0.get(..len)?.to_vec())))
    }

    /// The location of a key, or of the first key below it.
    pub(crate) fn location_within(&self, path: &KeyPath) -> Option<&SourceLocation> {
        let below = |(one, _): &(&KeyPath, &SourceLocation)| one.0.starts_with(&path.0);
        self.locations
            .get(path)
            .or_else(|| self.locations.iter().filter(below).map(|(_, location)| location).min())
    }

    /// Records that the values at and below one path are read at another one.
    pub(crate) fn rename(&mut self, from: &KeyPath, to: &KeyPath) {
        let moved: Vec<(KeyPath, SourceLocation)> = self
            .locations
            .iter()
            .filter_map(|(path, location)| {
                let rest = path.0.strip_prefix(from.0.as_slice())?;
                Some((KeyPath([to.0.as_slice(), rest].concat()), location.clone()))
            })
            .collect();
        for (path, location) in moved {
            self.locations.entry(path).or_insert(location);
        }
    }

    /// Records that a key was set by the environment, whatever the file contains.
    pub(crate) fn mark_as_environment(&mut self, path: KeyPath, name: &str) {
        self.locations.insert(path, SourceLocation::Variable(name.to_owned()));
    }

    /// Adds the location to a sentence.
    pub(crate) fn with_location(&self, location: Option<&SourceLocation>, text: &str) -> String {
        match (location, &self.name) {
            (Some(SourceLocation::At(line, column)), Some(name)) => format!("{name}:{line}:{column}: {text}"),
            (Some(SourceLocation::Variable(name)), _) => format!("{name}: {text}"),
            (None, Some(name)) => format!("{name}: {text}"),
            (Some(SourceLocation::At(..)) | None, None) => text.to_owned(),
        }
    }

    fn table(&mut self, text: &str, read: &DeTable<'_>, path: &KeyPath) -> Table {
        let mut table = Table::new();
        for (key, value) in read {
            let path = path.then(key.get_ref().as_ref());
            self.locations.insert(path.clone(), location_at(text, key.span().start));
            if let Some(value) = self.value(text, value, &path) {
                table.insert(key.get_ref().clone().into_owned(), value);
            }
        }
        table
    }

    /// Converts a value; `None` for a number that TOML allows but the program cannot represent.
    fn value(&mut self, text: &str, read: &Spanned<DeValue<'_>>, path: &KeyPath) -> Option<Value> {
        Some(match read.get_ref() {
            DeValue::String(string) => Value::String(string.clone().into_owned()),
            DeValue::Boolean(on) => Value::Boolean(*on),
            DeValue::Datetime(time) => Value::Datetime(*time),
            DeValue::Float(number) => Value::Float(number.as_str().parse().ok()?),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => {
                    let location = location_at(text, read.span().start);
                    self.syntax_errors.push((Some(location), format!("the number {number} is too large")));
                    return None;
                }
            },
            DeValue::Array(list) => {
                let mut values = Vec::new();
                for (number, value) in list.iter().enumerate() {
                    let path = path.then(number.to_string());
                    self.locations.insert(path.clone(), location_at(text, value.span().start));
                    values.extend(self.value(text, value, &path));
                }
                Value::Array(values)
            }
            DeValue::Table(table) => Value::Table(self.table(text, table, path)),
        })
    }
}

/// The line and the column of a byte offset.
fn location_at(text: &str, at: usize) -> SourceLocation {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    SourceLocation::At(line, column)
}

fn line_of(location: &SourceLocation) -> Option<usize> {
    match location {
        SourceLocation::At(line, _) => Some(*line),
        SourceLocation::Variable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> KeyPath {
        text.split('/').collect()
    }

    #[test]
    fn keys_sections_and_elements_are_found_by_line_and_column() {
        let text = "a = 1\n[b]\n  '\u{fc}' = [\n  1,\n  2 ]\n[[c]]\nx = 1\n[[c]]\ny.z = 2\n";
        let (table, source) = ConfigSource::read(text, None);
        assert_eq!(table, text.parse::<Table>().unwrap());
        assert!(source.syntax_errors.is_empty());
        for (key, line, column) in [
            ("a", 1, 1),
            ("b", 2, 2),
            ("b/\u{fc}", 3, 3),
            ("b/\u{fc}/1", 5, 3),
            ("c/0/x", 7, 1),
            ("c/1/y/z", 9, 3),
            ("c/1/y/z/more", 9, 3),
        ] {
            assert_eq!(source.location(&path(key)), Some(&SourceLocation::At(line, column)), "{key}");
        }
        assert_eq!(source.location(&path("none")), None);
    }

    #[test]
    fn all_syntax_errors_are_found_and_the_rest_is_read() {
        let (table, source) =
            ConfigSource::read("a = = 1\nb = 2\nc = \"open\nd = 4\na = 3\n", Some("f".to_owned()));
        assert_eq!((table.get("b"), table.get("d")), (Some(&Value::Integer(2)), Some(&Value::Integer(4))));
        let lines: Vec<usize> = source
            .syntax_errors
            .iter()
            .filter_map(|(location, _)| match location {
                Some(SourceLocation::At(line, _)) => Some(*line),
                _ => None,
            })
            .collect();
        assert!(lines.contains(&1) && lines.contains(&3), "{:?}", source.syntax_errors);
    }

    #[test]
    fn any_text_is_read_without_a_panic() {
        let text = "a = [1, { b = \"x\" }]\n[c.\"d.e\"]\nf = 1979-05-27T07:32:00Z\ng = 0x1_F\nh = 1e3\n";
        for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            drop(ConfigSource::read(&text[..cut], None));
            drop(ConfigSource::read(&text[cut..], None));
        }
        let (table, _) = ConfigSource::read(text, None);
        assert_eq!(table, text.parse::<Table>().unwrap());
        let (_, source) = ConfigSource::read("n = 99999999999999999999", None);
        assert_eq!(source.syntax_errors.len(), 1, "{:?}", source.syntax_errors);
    }
}
