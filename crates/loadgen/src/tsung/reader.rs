//! Shared state and helpers of the Tsung reader: attributes with their checks, notes, errors.
//!
//! Values are parsed as Tsung does: numbers may be surrounded by spaces, atoms may be in single quotes.
//!
//! Not implemented: the rest of Erlang's term syntax.
//!
//! # Pitfalls
//!
//! All problems are collected: a helper that finds one reports it and returns `None`, and the caller continues with a
//! harmless value instead of returning.

use std::io;

use hashbrown::HashMap;

use super::accounts::TsungLogin;
use super::names;
use super::options::TsungOptions;
use super::source::ScenarioSource;
use super::{ImportNote, PlanOverrides};
use crate::plan::{DataTable, LoadPlan, PlanError, nearest};

/// An XML element.
pub(super) type XmlNode<'a> = roxmltree::Node<'a, 'a>;

/// Maximum number of errors shown; more are only counted.
const MAX_SHOWN: usize = 100;

/// State while reading a scenario.
pub(super) struct TsungReader<'r> {
    source: &'r ScenarioSource,
    /// Reads the files named by the scenario.
    pub(super) files: &'r mut dyn FnMut(&str) -> io::Result<String>,
    notes: Vec<ImportNote>,
    errors: Vec<PlanError>,
    /// Values of `options`.
    pub(super) settings: TsungOptions,
    /// Names of transactions; a step holds the index.
    pub(super) transactions: Vec<String>,
    /// Split lines of files.
    pub(super) tables: Vec<DataTable>,
    /// Index into `tables` by the file's id and the delimiter.
    pub(super) table_of: HashMap<(String, String), Option<u16>>,
    /// Sources of name and password in sessions.
    pub(super) logins: Vec<(TsungLogin, u32)>,
    /// Contents of the certificate files that sessions use: authorities, certificate, key.
    pub(super) certificates: Vec<(Option<String>, Option<String>, Option<String>)>,
}

impl<'r> TsungReader<'r> {
    pub(super) fn new(
        source: &'r ScenarioSource,
        files: &'r mut dyn FnMut(&str) -> io::Result<String>,
    ) -> Self {
        Self {
            source,
            files,
            notes: Vec::new(),
            errors: Vec::new(),
            settings: TsungOptions::default(),
            transactions: Vec::new(),
            tables: Vec::new(),
            table_of: HashMap::new(),
            logins: Vec::new(),
            certificates: Vec::new(),
        }
    }

    /// Reads the whole scenario. The result is valid only if there are no errors.
    pub(super) fn scenario(
        &mut self,
        root: XmlNode<'_>,
        name: &str,
        arguments: &PlanOverrides,
    ) -> Option<LoadPlan> {
        if root.tag_name().name() != "tsung" {
            let name = root.tag_name().name();
            self.error(root, name, "not a Tsung scenario: the root element is not \"tsung\"");
            return None;
        }
        self.known_attributes(root);
        for name in ["loglevel", "dumptraffic", "backend"] {
            if let Some(value) = root.attribute(name).filter(|value| *value != "false") {
                self.note(root, format!("{name}=\"{value}\" is ignored: the report uses its own files"));
            }
        }
        self.top_level(root);
        if let Some(options) = child(root, "options") {
            self.read_options(options);
        }
        let servers = self.read_servers(child(root, "servers"), arguments);
        let sources = self.read_clients(child(root, "clients"));
        let (mut sessions, names) = self.read_sessions(root, child(root, "sessions"));
        let mut load = self.read_load(root, child(root, "load"), &names);
        let starts = names.leave_out(&mut sessions, &mut load);
        if starts > 0 {
            self.note_plan(format!("{starts} of the users with a start time are skipped with their session"));
        }
        let title = title(root);
        self.assemble(name, title, servers, sources, sessions, load, arguments)
    }

    /// Reads the children of the root: each once, none unknown.
    fn top_level(&mut self, root: XmlNode<'_>) {
        const KNOWN: [&str; 7] =
            ["information", "clients", "servers", "monitoring", "load", "options", "sessions"];
        let mut seen = Vec::new();
        for node in elements(root) {
            let name = node.tag_name().name();
            if !KNOWN.contains(&name) {
                self.unknown(node, KNOWN);
            } else if seen.contains(&name) {
                self.error(node, name, "occurs twice here");
            } else {
                seen.push(name);
            }
            if name == "monitoring" {
                self.note(node, "monitoring is ignored; use --pid and --metrics instead");
            }
        }
    }

    /// Returns the plan and the notes, or the errors.
    pub(super) fn finish(
        mut self,
        plan: Option<LoadPlan>,
    ) -> Result<(LoadPlan, Vec<ImportNote>), Vec<PlanError>> {
        self.errors.sort_by_key(|error| error.line.unwrap_or(u32::MAX));
        self.errors.dedup();
        if self.errors.len() > MAX_SHOWN {
            let more = self.errors.len() - MAX_SHOWN;
            self.errors.truncate(MAX_SHOWN);
            self.errors.push(PlanError::of_plan(format!("and {more} more errors")));
        }
        match plan {
            Some(plan) if self.errors.is_empty() => {
                self.notes.sort_by_key(|note| note.line);
                self.notes.dedup();
                Ok((plan, self.notes))
            }
            _ if self.errors.is_empty() => {
                Err(vec![PlanError::of_plan("the scenario cannot be converted to a plan")])
            }
            _ => Err(self.errors),
        }
    }

    /// Reports an error at an element.
    pub(super) fn error(&mut self, node: XmlNode<'_>, key: &str, text: impl Into<String>) {
        let (line, file) = self.source.line(node.range().start);
        let key = match file {
            Some(file) => format!("{file}: {key}"),
            None => key.to_owned(),
        };
        self.errors.push(PlanError { line: Some(line), key, text: text.into() });
    }

    /// Reports an error of the scenario or the arguments as a whole.
    pub(super) fn wrong_plan(&mut self, text: impl Into<String>) {
        self.errors.push(PlanError::of_plan(text));
    }

    /// Notes that something is ignored or handled differently.
    pub(super) fn note(&mut self, node: XmlNode<'_>, text: impl Into<String>) {
        let (line, file) = self.source.line(node.range().start);
        let text = match file {
            Some(file) => format!("{file}: {}", text.into()),
            None => text.into(),
        };
        self.notes.push(ImportNote { line: Some(line), text });
    }

    /// Reports an error in an earlier line.
    pub(super) fn wrong_line(&mut self, line: u32, key: &str, text: impl Into<String>) {
        self.errors.push(PlanError { line: Some(line), key: key.to_owned(), text: text.into() });
    }

    /// Adds a note about an earlier line.
    pub(super) fn note_line(&mut self, line: u32, text: impl Into<String>) {
        self.notes.push(ImportNote { line: Some(line), text: text.into() });
    }

    /// Adds a note about the plan as a whole.
    pub(super) fn note_plan(&mut self, text: impl Into<String>) {
        self.notes.push(ImportNote { line: None, text: text.into() });
    }

    /// Line of an element in its file.
    pub(super) fn line(&self, node: XmlNode<'_>) -> u32 {
        self.source.line(node.range().start).0
    }

    /// Reports an element that is unknown here.
    pub(super) fn unknown<'n>(&mut self, node: XmlNode<'_>, names: impl IntoIterator<Item = &'n str>) {
        let name = node.tag_name().name();
        let parent = node.parent_element().map_or("", |parent| parent.tag_name().name());
        let near = nearest(name, names);
        self.error(node, name, format!("unknown element in {parent}{near}"));
    }

    /// Notes attributes that are ignored because Tsung does not define them.
    pub(super) fn known_attributes(&mut self, node: XmlNode<'_>) {
        let element = node.tag_name().name();
        let known = names::attributes(element);
        for attribute in node.attributes() {
            let name = attribute.name();
            if !known.contains(&name) {
                let near = nearest(name, known.iter().copied());
                self.note(node, format!("the unknown attribute {name} of {element} is ignored{near}"));
            }
        }
    }

    /// A required attribute.
    pub(super) fn needed<'a>(&mut self, node: XmlNode<'a>, name: &str) -> Option<&'a str> {
        let value = attribute(node, name);
        if value.is_none() {
            self.error(node, node.tag_name().name(), format!("requires the attribute {name}"));
        }
        value
    }

    /// A number that is not negative.
    pub(super) fn number(&mut self, node: XmlNode<'_>, name: &str) -> Option<f64> {
        let text = attribute(node, name)?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Some(value),
            _ => {
                self.error(
                    node,
                    node.tag_name().name(),
                    format!("{name}=\"{text}\" is not a number from 0 up"),
                );
                None
            }
        }
    }

    /// An integer within bounds.
    pub(super) fn whole(&mut self, node: XmlNode<'_>, name: &str, from: i64, to: i64) -> Option<i64> {
        let text = attribute(node, name)?;
        match text.parse::<i64>() {
            Ok(value) if (from..=to).contains(&value) => Some(value),
            _ => {
                let range =
                    if to == i64::MAX { format!("from {from} up") } else { format!("from {from} to {to}") };
                self.error(
                    node,
                    node.tag_name().name(),
                    format!("{name}=\"{text}\" is not a whole number {range}"),
                );
                None
            }
        }
    }

    /// An unsigned 32-bit integer.
    pub(super) fn count(&mut self, node: XmlNode<'_>, name: &str) -> Option<u32> {
        self.whole(node, name, 0, i64::from(u32::MAX)).and_then(|value| u32::try_from(value).ok())
    }

    /// `true` or `false`; `default` if missing.
    pub(super) fn flag(&mut self, node: XmlNode<'_>, name: &str, default: bool) -> bool {
        match self.choice(node, name, &["true", "false"]) {
            Some(value) => value == "true",
            None => default,
        }
    }

    /// One of several keywords.
    pub(super) fn choice<'a>(&mut self, node: XmlNode<'a>, name: &str, words: &[&str]) -> Option<&'a str> {
        let text = attribute(node, name)?;
        if words.contains(&text) {
            return Some(text);
        }
        let near = nearest(text, words.iter().copied());
        let all = words.join(", ");
        self.error(node, node.tag_name().name(), format!("{name}=\"{text}\" must be one of {all}{near}"));
        None
    }

    /// Milliseconds per unit; seconds if none is given.
    pub(super) fn unit(&mut self, node: XmlNode<'_>) -> f64 {
        match self.choice(node, "unit", &["second", "minute", "hour", "millisecond"]) {
            Some("minute") => 60_000.0,
            Some("hour") => 3_600_000.0,
            Some("millisecond") => 1.0,
            _ => 1_000.0,
        }
    }

    /// Content of a file named by the scenario.
    pub(super) fn file(&mut self, node: XmlNode<'_>, path: &str) -> Option<String> {
        match (self.files)(path) {
            Ok(content) => Some(content),
            Err(error) => {
                self.error(node, node.tag_name().name(), format!("{path}: {error}"));
                None
            }
        }
    }
}

/// Value of an attribute, without surrounding spaces and without the quotes of an Erlang atom.
pub(super) fn attribute<'a>(node: XmlNode<'a>, name: &str) -> Option<&'a str> {
    let value = node.attribute(name)?.trim();
    Some(value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value))
}

/// Child elements.
pub(super) fn elements(node: XmlNode<'_>) -> impl Iterator<Item = XmlNode<'_>> {
    node.children().filter(|child| child.is_element())
}

/// First child element with a name.
pub(super) fn child<'a>(node: XmlNode<'a>, name: &str) -> Option<XmlNode<'a>> {
    elements(node).find(|child| child.tag_name().name() == name)
}

/// Rounds to the plan's milliseconds.
pub(super) fn milliseconds(ms: f64) -> u64 {
    if ms.is_finite() && ms > 0.0 { ms.round() as u64 } else { 0 }
}

/// The author's description of the scenario.
fn title(root: XmlNode<'_>) -> String {
    let information = child(root, "information");
    let text = |name: &str| {
        let text = information.and_then(|node| child(node, name)).and_then(|node| node.text()).unwrap_or("");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    match (text("name"), text("description")) {
        (name, description) if name.is_empty() => description,
        (name, description) if description.is_empty() => name,
        (name, description) => format!("{name}: {description}"),
    }
}
