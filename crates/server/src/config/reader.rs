//! Reader of TOML tables that takes one key after the other, so that the remaining keys can be reported with a
//! suggestion.
//!
//! Errors are collected, not returned, so that all of them are reported at once, each with its line and column. A
//! wrong value counts as absent, so that reading continues; the result must not be used unless
//! [`ConfigErrors::check`] succeeds.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Result, bail};
use toml::{Table, Value};

use super::source::{ConfigSource, KeyPath, SourceLocation};

/// Errors found so far, each one sentence with its fix.
#[derive(Clone, Default)]
pub(super) struct ConfigErrors(Rc<ConfigErrorsInner>);

#[derive(Default)]
struct ConfigErrorsInner {
    list: RefCell<Vec<(Option<SourceLocation>, String)>>,
    source: ConfigSource,
}

impl ConfigErrors {
    /// No errors so far, except syntax errors.
    pub(super) fn new(mut source: ConfigSource) -> ConfigErrors {
        let list = RefCell::new(std::mem::take(&mut source.syntax_errors));
        ConfigErrors(Rc::new(ConfigErrorsInner { list, source }))
    }

    /// Records a mistake without a location.
    pub(super) fn add(&self, fault: impl Into<String>) {
        self.0.list.borrow_mut().push((None, fault.into()));
    }

    /// Records the mistake of a key.
    pub(super) fn at(&self, path: &KeyPath, fault: impl Into<String>) {
        let location = self.0.source.location(path).cloned();
        self.0.list.borrow_mut().push((location, fault.into()));
    }

    /// Returns the value, or records the error.
    pub(super) fn record_error<T>(&self, path: &KeyPath, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.at(path, format!("{error:#}"))).ok()
    }

    /// Fails with all recorded errors.
    pub(super) fn check(&self) -> Result<()> {
        let mut faults = self.0.list.take();
        if faults.is_empty() {
            return Ok(());
        }
        // In the order of the file; errors without a location come last.
        faults.sort_by(|(a, _), (b, _)| (a.is_none(), a).cmp(&(b.is_none(), b)));
        let say = |(location, text): (Option<SourceLocation>, String)| {
            self.0.source.with_location(location.as_ref(), &text)
        };
        Err(ConfigError(faults.into_iter().map(say).collect()).into())
    }
}

/// All errors of a configuration.
#[derive(Debug)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            all => write!(f, "{} errors\n- {}", all.len(), all.join("\n- ")),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A table being read.
pub(super) struct ConfigSection {
    name: String,
    path: KeyPath,
    table: Table,
    known_keys: Vec<&'static str>,
    pub(super) faults: ConfigErrors,
}

impl ConfigSection {
    /// The root of a configuration.
    pub(super) fn root(table: Table, faults: &ConfigErrors) -> ConfigSection {
        ConfigSection::new("", KeyPath::default(), table, faults)
    }

    fn new(name: &str, path: KeyPath, table: Table, faults: &ConfigErrors) -> ConfigSection {
        ConfigSection { name: name.to_owned(), path, table, known_keys: Vec::new(), faults: faults.clone() }
    }

    /// Path of a key of this section.
    pub(super) fn path(&self, key: &str) -> KeyPath {
        self.path.then(key)
    }

    /// Path of this section.
    pub(super) fn here(&self) -> KeyPath {
        self.path.clone()
    }

    /// Records the mistake of one key.
    pub(super) fn fault(&self, key: &str, fault: impl Into<String>) {
        self.faults.at(&self.path(key), fault);
    }

    /// Records the mistake of one element of a list.
    pub(super) fn fault_at(&self, key: &str, index: usize, fault: impl Into<String>) {
        self.faults.at(&self.path(key).then(index.to_string()), fault);
    }

    /// Name of a key of this section in messages.
    pub(super) fn key_in_section(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("[{}] {key}", self.name) }
    }

    fn qualified_name(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known_keys.push(key);
        self.table.remove(key)
    }

    fn wrong_type<T>(&self, key: &str, expected: &str) -> Option<T> {
        self.fault(key, format!("{} must be {expected}", self.key_in_section(key)));
        None
    }

    /// Whether a key is present. It must still be read.
    pub(super) fn is_written(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => self.wrong_type(key, "a string in quotes"),
        }
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let list = match self.take(key)? {
            Value::Array(list) => {
                list.into_iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
            }
            _ => None,
        };
        list.or_else(|| self.wrong_type(key, "a list of strings"))
    }

    pub(super) fn bool(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Boolean(value) => Some(value),
            _ => self.wrong_type(key, "true or false"),
        }
    }

    pub(super) fn int(&mut self, key: &'static str, low: i64, high: i64) -> Option<i64> {
        match self.take(key)? {
            Value::Integer(n) if (low..=high).contains(&n) => Some(n),
            _ => self.wrong_type(key, &format!("a whole number between {low} and {high}")),
        }
    }

    /// One of several words, as an index into the list.
    pub(super) fn choice(&mut self, key: &'static str, words: &[&str]) -> Option<usize> {
        let text = self.text(key)?;
        let found = words.iter().position(|word| *word == text);
        if found.is_none() {
            let [first @ .., last] = words else { return None };
            let known = format!("{} or {last}", first.join(", "));
            self.fault(key, format!("{} must be {known}, not \"{text}\"", self.key_in_section(key)));
        }
        found
    }

    pub(super) fn section(&mut self, key: &'static str) -> ConfigSection {
        let name = self.qualified_name(key);
        // Perhaps another key was meant, such as `hosts`.
        let near = features::registry::did_you_mean(key, self.known_keys.iter().copied());
        let table = match self.take(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => self.wrong_type(key, &format!("a section: [{name}]{near}")).unwrap_or_default(),
        };
        ConfigSection::new(&name, self.path(key), table, &self.faults)
    }

    /// Sections with arbitrary names: `[key."name"]`.
    pub(super) fn named(&mut self, key: &'static str) -> Vec<(String, ConfigSection)> {
        let section = self.section(key);
        let mut named = Vec::new();
        for (name, value) in section.table {
            let (section_name, path) =
                (format!("{}.\"{name}\"", section.name), section.path.then(name.as_str()));
            match value {
                Value::Table(table) => {
                    named.push((name, ConfigSection::new(&section_name, path, table, &self.faults)))
                }
                _ => self
                    .faults
                    .at(&path, format!("[{}] {name} must be a section: [{section_name}]", section.name)),
            }
        }
        named
    }

    pub(super) fn sections(&mut self, key: &'static str) -> Option<Vec<ConfigSection>> {
        let name = self.qualified_name(key);
        let expected = format!("sections: [[{name}]]");
        let Value::Array(list) = self.take(key)? else { return self.wrong_type(key, &expected) };
        let mut sections = Vec::new();
        for (number, value) in list.into_iter().enumerate() {
            let Value::Table(table) = value else { return self.wrong_type(key, &expected) };
            let path = self.path(key).then(number.to_string());
            sections.push(ConfigSection::new(&name, path, table, &self.faults));
        }
        Some(sections)
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = (String, Value)> {
        self.table.into_iter()
    }

    /// Reports every key that was not read as a mistake.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let in_section =
                if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
            let near = features::registry::did_you_mean(key, self.known_keys.iter().copied());
            self.fault(
                key,
                if near.is_empty() {
                    format!("unknown key \"{key}\"{in_section}; known keys: {}", self.known_keys.join(", "))
                } else {
                    format!("unknown key \"{key}\"{in_section}{near}")
                },
            );
        }
    }
}

/// Sets `THRONG__SECTION__KEY=value` in the table.
pub(super) fn overlay(
    table: &mut Table,
    source: &mut ConfigSource,
    vars: impl Iterator<Item = (String, String)>,
) -> Result<()> {
    for (name, text) in vars {
        let Some(path) = name.strip_prefix("THRONG__") else { continue };
        let path: Vec<String> = path.split("__").map(str::to_lowercase).collect();
        let Some((key, sections)) = path.split_last() else { continue };
        let mut at = &mut *table;
        for section in sections {
            let entry = at.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = entry else {
                bail!("{name} does not name a section of the configuration")
            };
            at = inner;
        }
        source.mark_as_environment(path.iter().map(String::as_str).collect(), &name);
        let value = format!("x = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        at.insert(key.clone(), value.unwrap_or(Value::String(text)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_override_keys_of_the_file() {
        let mut table: Table = "[limits]\nstanza_bytes = 1".parse().unwrap();
        let vars = [
            ("THRONG__LIMITS__STANZA_BYTES", "20000"),
            ("THRONG__DATA_DIR", "/var/lib/throng"),
            ("THRONG__HOSTS", "[\"a.org\"]"),
            ("OTHER", "x"),
        ];
        overlay(
            &mut table,
            &mut ConfigSource::default(),
            vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
        .unwrap();
        assert_eq!(table["limits"]["stanza_bytes"].as_integer(), Some(20_000));
        assert_eq!(table["data_dir"].as_str(), Some("/var/lib/throng"));
        assert_eq!(table["hosts"][0].as_str(), Some("a.org"));
        assert!(!table.contains_key("other"));
    }
}
