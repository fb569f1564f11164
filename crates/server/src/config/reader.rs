//! Takes a TOML table apart key by key, so that what is left over can be named with a suggestion.
//!
//! Mistakes are collected, not returned: a person wants to see all of them at once. A wrong value counts as absent, so
//! that reading goes on; nobody may use the outcome unless [`Faults::settle`] agrees.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Result, bail};
use toml::{Table, Value};

/// Mistakes found so far, each one sentence with its mend.
#[derive(Clone, Default)]
pub(super) struct Faults(Rc<RefCell<Vec<String>>>);

impl Faults {
    pub(super) fn add(&self, fault: impl Into<String>) {
        self.0.borrow_mut().push(fault.into());
    }
    /// Keeps what is good; notes what is not.
    pub(super) fn note<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(format!("{error:#}"))).ok()
    }
    /// All of them, or that there are none.
    pub(super) fn settle(&self) -> Result<()> {
        let faults = self.0.take();
        if faults.is_empty() { Ok(()) } else { Err(Mistakes(faults).into()) }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct Mistakes(pub(crate) Vec<String>);

impl std::fmt::Display for Mistakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            all => write!(f, "{} mistakes\n- {}", all.len(), all.join("\n- ")),
        }
    }
}

impl std::error::Error for Mistakes {}

/// A table being read.
pub(super) struct Section {
    name: String,
    table: Table,
    asked: Vec<&'static str>,
    pub(super) faults: Faults,
}

impl Section {
    pub(super) fn new(name: &str, table: Table, faults: &Faults) -> Section {
        Section { name: name.to_owned(), table, asked: Vec::new(), faults: faults.clone() }
    }
    /// How a key of this section is named to a person.
    pub(super) fn place(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("[{}] {key}", self.name) }
    }
    fn inner(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.table.remove(key)
    }
    fn wrong<T>(&self, key: &str, expected: &str) -> Option<T> {
        self.faults.add(format!("{} must be {expected}", self.place(key)));
        None
    }
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.take(key).is_some()
    }
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => self.wrong(key, "text in quotes"),
        }
    }
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let list = match self.take(key)? {
            Value::Array(list) => {
                list.into_iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
            }
            _ => None,
        };
        list.or_else(|| self.wrong(key, "a list of texts"))
    }
    pub(super) fn bool(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Boolean(value) => Some(value),
            _ => self.wrong(key, "true or false"),
        }
    }
    pub(super) fn int(&mut self, key: &'static str, low: i64, high: i64) -> Option<i64> {
        match self.take(key)? {
            Value::Integer(n) if (low..=high).contains(&n) => Some(n),
            _ => self.wrong(key, &format!("a whole number between {low} and {high}")),
        }
    }
    /// One of a few words, by its place in the list.
    pub(super) fn choice(&mut self, key: &'static str, words: &[&str]) -> Option<usize> {
        let text = self.text(key)?;
        let found = words.iter().position(|word| *word == text);
        if found.is_none() {
            let [first @ .., last] = words else { return None };
            let known = format!("{} or {last}", first.join(", "));
            self.faults.add(format!("{} is {known}, not \"{text}\"", self.place(key)));
        }
        found
    }
    pub(super) fn section(&mut self, key: &'static str) -> Section {
        let name = self.inner(key);
        let table = match self.take(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => self.wrong(key, &format!("a section: [{name}]")).unwrap_or_default(),
        };
        Section::new(&name, table, &self.faults)
    }
    /// Sections whose names are up to the writer: `[key."name"]`.
    pub(super) fn named(&mut self, key: &'static str) -> Vec<(String, Section)> {
        let section = self.section(key);
        let mut named = Vec::new();
        for (name, value) in section.table {
            let place = format!("{}.\"{name}\"", section.name);
            match value {
                Value::Table(table) => named.push((name, Section::new(&place, table, &self.faults))),
                _ => self.faults.add(format!("[{}] {name} must be a section: [{place}]", section.name)),
            }
        }
        named
    }
    pub(super) fn sections(&mut self, key: &'static str) -> Option<Vec<Section>> {
        let name = self.inner(key);
        let expected = format!("sections: [[{name}]]");
        let Value::Array(list) = self.take(key)? else { return self.wrong(key, &expected) };
        let mut sections = Vec::new();
        for value in list {
            let Value::Table(table) = value else { return self.wrong(key, &expected) };
            sections.push(Section::new(&name, table, &self.faults));
        }
        Some(sections)
    }
    pub(super) fn into_entries(self) -> impl Iterator<Item = (String, Value)> {
        self.table.into_iter()
    }
    /// Whatever was not asked for is a mistake.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
            let near = features::registry::nearest(key, self.asked.iter().copied());
            self.faults.add(if near.is_empty() {
                format!("unknown key \"{key}\"{place}; known are {}", self.asked.join(", "))
            } else {
                format!("unknown key \"{key}\"{place}{near}")
            });
        }
    }
}

/// Puts `THRONG__SECTION__KEY=value` into the table.
pub(super) fn overlay(table: &mut Table, vars: impl Iterator<Item = (String, String)>) -> Result<()> {
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
        let value = format!("x = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        at.insert(key.clone(), value.unwrap_or(Value::String(text)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_overrides() {
        let mut table: Table = "[limits]\nstanza_bytes = 1".parse().unwrap();
        let vars = [
            ("THRONG__LIMITS__STANZA_BYTES", "20000"),
            ("THRONG__DATA_DIR", "/var/lib/throng"),
            ("THRONG__DOMAINS", "[\"a.org\"]"),
            ("OTHER", "x"),
        ];
        overlay(&mut table, vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))).unwrap();
        assert_eq!(table["limits"]["stanza_bytes"].as_integer(), Some(20_000));
        assert_eq!(table["data_dir"].as_str(), Some("/var/lib/throng"));
        assert_eq!(table["domains"][0].as_str(), Some("a.org"));
        assert!(!table.contains_key("other"));
    }
}
