//! `setdynvars` of Tsung scenarios: variables with values of their own.
//!
//! Not implemented: Erlang functions except those that identify the user, Erlang code, JSONPath (refused by name).
//!
//! # Pitfalls
//!
//! The variables of one element receive the columns of one row, so they stay together in one step.

use super::reader::{TsungReader, XmlNode, attribute, elements};
use super::session_flow::SessionFlow;
use super::text::function;
use crate::plan::{DataTable, PlanStep, TextTemplate, VariableValue};

const SOURCES: [&str; 10] = [
    "random_string",
    "urandom_string",
    "random_number",
    "file",
    "local_file",
    "value",
    "server",
    "erlang",
    "eval",
    "jsonpath",
];

impl TsungReader<'_> {
    pub(super) fn set_variables(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        steps: &mut Vec<PlanStep>,
    ) {
        let mut names = Vec::new();
        for inner in elements(node) {
            if inner.tag_name().name() != "var" {
                self.unknown(inner, ["var"]);
                continue;
            }
            self.known_attributes(inner);
            if let Some(name) = self.needed(inner, "name") {
                flow.rows.remove(name);
                flow.set.insert(name.to_owned());
                names.push(name.to_owned());
            }
        }
        if names.is_empty() {
            self.error(node, "setdynvars", "needs a var");
            return;
        }
        // Tsung defaults to an Erlang function.
        let source = if attribute(node, "sourcetype").is_none() {
            Some("erlang")
        } else {
            self.choice(node, "sourcetype", &SOURCES)
        };
        let Some(values) = source.and_then(|source| self.values(node, source, &names, flow)) else { return };
        let set: Vec<(String, VariableValue)> = names.into_iter().zip(values).collect();
        for (name, value) in &set {
            if let VariableValue::Row { table, column, .. } = value {
                flow.rows.insert(name.clone(), (*table, *column));
            }
        }
        steps.push(PlanStep::Set(set));
    }

    fn values(
        &mut self,
        node: XmlNode<'_>,
        source: &str,
        names: &[String],
        flow: &mut SessionFlow,
    ) -> Option<Vec<VariableValue>> {
        let all = |value: VariableValue| Some(vec![value; names.len()]);
        match source {
            "random_string" | "urandom_string" => {
                let length = self.whole(node, "length", 0, 1 << 20).unwrap_or(20);
                all(VariableValue::RandomString(u32::try_from(length).unwrap_or(20)))
            }
            "random_number" => {
                let limit = i64::from(i32::MAX);
                let from = self.whole(node, "start", -limit, limit).unwrap_or(1);
                let to = self.whole(node, "end", -limit, limit).unwrap_or(10);
                if from > to {
                    self.error(node, "setdynvars", format!("start=\"{from}\" is above end=\"{to}\""));
                }
                all(VariableValue::RandomNumber(from, to.max(from)))
            }
            "value" => {
                let value = node.attribute("value").unwrap_or("");
                all(VariableValue::Text(self.text(node, flow, value, false)))
            }
            "server" => all(VariableValue::Text(TextTemplate::default())).map(|mut values| {
                // The server is known only once addresses are resolved: substituted at the end.
                for (value, word) in values.iter_mut().zip([SERVER_HOST, SERVER_PORT]) {
                    *value = VariableValue::Text(TextTemplate::literal(word));
                }
                values
            }),
            "file" | "local_file" => self.rows(node, source, names.len()),
            "erlang" => {
                let callback = attribute(node, "callback").unwrap_or("");
                match function(callback) {
                    Some(piece) => all(VariableValue::Text(TextTemplate(vec![piece]))),
                    None => {
                        self.error(
                            node,
                            "setdynvars",
                            format!("{callback}: this version does not run Erlang functions"),
                        );
                        None
                    }
                }
            }
            "eval" => {
                self.error(node, "setdynvars", "eval: this version does not run Erlang code");
                None
            }
            other => {
                self.error(node, "setdynvars", format!("{other}: this version does not read JSON"));
                None
            }
        }
    }

    fn rows(&mut self, node: XmlNode<'_>, source: &str, columns: usize) -> Option<Vec<VariableValue>> {
        let id = attribute(node, "fileid").unwrap_or("none");
        let delimiter = node.attribute("delimiter").filter(|text| !text.is_empty()).unwrap_or(";").to_owned();
        let random =
            source == "local_file" || self.choice(node, "order", &["iter", "random"]) == Some("random");
        let table = self.table(node, id, &delimiter)?;
        if let Some(table) = self.tables.get_mut(usize::from(table)) {
            let mut short = false;
            for row in table.rows.iter_mut().filter(|row| row.len() < columns) {
                row.resize(columns, String::new());
                short = true;
            }
            if short {
                let text =
                    format!("not every line of the file {id} has {columns} columns; missing ones are empty");
                self.note(node, text);
            }
        }
        let columns = (0..columns).map(|column| u16::try_from(column).unwrap_or(u16::MAX));
        Some(columns.map(|column| VariableValue::Row { table, column, random }).collect())
    }

    /// Index of the table with a file's split lines.
    pub(super) fn table(&mut self, node: XmlNode<'_>, id: &str, delimiter: &str) -> Option<u16> {
        let key = (id.to_owned(), delimiter.to_owned());
        if let Some(known) = self.table_of.get(&key) {
            return *known;
        }
        let table = self.new_table(node, id, delimiter);
        self.table_of.insert(key, table);
        table
    }

    fn new_table(&mut self, node: XmlNode<'_>, id: &str, delimiter: &str) -> Option<u16> {
        let Some(path) = self.settings.files.get(id).cloned() else {
            let near = crate::plan::nearest(id, self.settings.files.keys().map(String::as_str));
            let text = format!("there is no file_server with the id {id}{near}");
            self.error(node, node.tag_name().name(), text);
            return None;
        };
        let content = self.file(node, &path)?;
        let rows: Vec<Vec<String>> = content
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| line.split(delimiter).map(str::to_owned).collect())
            .collect();
        if rows.is_empty() {
            self.error(node, node.tag_name().name(), format!("{path}: the file is empty"));
            return None;
        }
        self.tables.push(DataTable { name: path, rows });
        u16::try_from(self.tables.len() - 1).ok()
    }
}

/// Placeholder for the host of the server until it is known.
pub(super) const SERVER_HOST: &str = "\u{0}host";
/// Placeholder for the port of the server until it is known.
pub(super) const SERVER_PORT: &str = "\u{0}port";
