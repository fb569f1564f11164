//! Takes a TOML table apart key by key, so that what is left over can be named with a suggestion.

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// A table being read.
pub(super) struct Section {
    name: String,
    table: Table,
    asked: Vec<&'static str>,
}

impl Section {
    pub(super) fn new(name: &str, table: Table) -> Section {
        Section { name: name.to_owned(), table, asked: Vec::new() }
    }
    fn place(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("[{}] {key}", self.name) }
    }
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.table.remove(key)
    }
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.asked.push(key);
        self.table.contains_key(key)
    }
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => bail!("{} must be text in quotes", self.place(key)),
        }
    }
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let list = match value {
            Value::Array(list) => {
                list.into_iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
            }
            _ => None,
        };
        list.map(Some).with_context(|| format!("{} must be a list of texts", self.place(key)))
    }
    pub(super) fn bool(&mut self, key: &'static str) -> Result<Option<bool>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(value)),
            Some(_) => bail!("{} must be true or false", self.place(key)),
        }
    }
    pub(super) fn int(&mut self, key: &'static str, low: i64, high: i64) -> Result<Option<i64>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Integer(n)) if (low..=high).contains(&n) => Ok(Some(n)),
            Some(_) => bail!("{} must be a whole number between {low} and {high}", self.place(key)),
        }
    }
    pub(super) fn section(&mut self, key: &'static str) -> Result<Section> {
        match self.take(key) {
            None => Ok(Section::new(key, Table::new())),
            Some(Value::Table(table)) => Ok(Section::new(key, table)),
            Some(_) => bail!("{} must be a section: [{key}]", self.place(key)),
        }
    }
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Option<Vec<Section>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Value::Array(list) = value else { bail!("{} must be sections: [[{key}]]", self.place(key)) };
        let mut sections = Vec::new();
        for value in list {
            let Value::Table(table) = value else { bail!("{} must be sections: [[{key}]]", self.place(key)) };
            sections.push(Section::new(key, table));
        }
        Ok(Some(sections))
    }
    pub(super) fn into_entries(self) -> impl Iterator<Item = (String, Value)> {
        self.table.into_iter()
    }
    /// Whatever was not asked for is a mistake.
    pub(super) fn finish(self) -> Result<()> {
        let Some((key, _)) = self.table.iter().next() else { return Ok(()) };
        let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
        let near = features::registry::nearest(key, self.asked.iter().copied());
        if near.is_empty() {
            bail!("unknown key \"{key}\"{place}; known are {}", self.asked.join(", "));
        }
        bail!("unknown key \"{key}\"{place}{near}");
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
