//! Text of a scenario: other files included, entities bounded, lines counted.
//!
//! Scenarios are split over several files with external entities (XML 1.0, section 4.2.2). They are included before the
//! text is parsed, so that no file is read except through the caller's `files`.
//!
//! Not implemented: parameter entities.
//!
//! # Pitfalls
//!
//! A line of the parsed text is not a line of the file; always use [`ScenarioSource::line`].

use std::io;

use hashbrown::HashMap;
use roxmltree::{Document, ParsingOptions};

use crate::plan::PlanError;

/// Maximum size of a scenario with all included files, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Maximum growth by entities, in bytes.
const MAX_GROWTH: u64 = 32 << 20;
/// Maximum number of elements, texts and comments.
const MAX_NODES: u32 = 2_000_000;
/// Maximum length of an entity's name in bytes; longer ones are not recognised.
const MAX_NAME: usize = 256;
/// Maximum nesting of included files.
const MAX_DEPTH: usize = 4;

/// Text ready for parsing.
pub(super) struct ScenarioSource {
    text: String,
    /// Offset of each line.
    starts: Vec<usize>,
    /// File of each range of lines, with the line number there.
    parts: Vec<SourcePart>,
}

struct SourcePart {
    line: u32,
    file: Option<String>,
    file_line: u32,
}

impl ScenarioSource {
    /// Includes other files and computes the expanded size of entities.
    pub(super) fn new(
        text: &str,
        files: &mut dyn FnMut(&str) -> io::Result<String>,
    ) -> Result<Self, PlanError> {
        if text.len() > MAX_BYTES {
            return Err(PlanError::of_plan(format!("the file has more than {} MB", MAX_BYTES >> 20)));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let subset = DtdSubset::of(text);
        let mut into = SourceBuilder { text: String::with_capacity(text.len()), parts: Vec::new(), line: 1 };
        into.part(None, 1);
        into.put(&subset.head);
        // The text after the removed declarations must keep its line numbers.
        into.body(&text[subset.end..], None, &subset, files, 0)?;
        if subset.growth(&into.text) > MAX_GROWTH {
            return Err(PlanError::of_plan(format!(
                "its entities would grow to more than {} MB",
                MAX_GROWTH >> 20
            )));
        }
        let starts = std::iter::once(0)
            .chain(memchr::memchr_iter(b'\n', into.text.as_bytes()).map(|n| n + 1))
            .collect();
        Ok(Self { text: into.text, starts, parts: into.parts })
    }

    /// Parses the document.
    pub(super) fn parse(&self) -> Result<Document<'_>, PlanError> {
        let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        Document::parse_with_options(&self.text, options).map_err(|error| {
            let row = error.pos().row;
            let (line, file) = self.of_row(row);
            let mut what = error.to_string();
            // The parser's message ends with its own position.
            if let Some(at) = what.rfind(" at ") {
                what.truncate(at);
            }
            PlanError {
                line: Some(line),
                key: file.unwrap_or_default(),
                text: format!("the XML is not well-formed: {what}"),
            }
        })
    }

    /// Line of an offset in the text, and the file if it is not the scenario itself.
    pub(super) fn line(&self, offset: usize) -> (u32, Option<String>) {
        let row = self.starts.partition_point(|start| *start <= offset);
        self.of_row(u32::try_from(row).unwrap_or(u32::MAX))
    }

    fn of_row(&self, row: u32) -> (u32, Option<String>) {
        let at = self.parts.partition_point(|part| part.line <= row).saturating_sub(1);
        match self.parts.get(at) {
            Some(part) => (part.file_line + row.saturating_sub(part.line), part.file.clone()),
            None => (row, None),
        }
    }
}

/// Text under construction.
struct SourceBuilder {
    text: String,
    parts: Vec<SourcePart>,
    line: u32,
}

impl SourceBuilder {
    fn part(&mut self, file: Option<&str>, file_line: u32) {
        self.parts.push(SourcePart { line: self.line, file: file.map(str::to_owned), file_line });
    }

    fn put(&mut self, text: &str) {
        self.line += lines_in(text);
        self.text.push_str(text);
    }

    /// Appends the text of one file, including the files that it refers to.
    fn body(
        &mut self,
        text: &str,
        file: Option<&str>,
        subset: &DtdSubset,
        files: &mut dyn FnMut(&str) -> io::Result<String>,
        depth: usize,
    ) -> Result<(), PlanError> {
        let mut rest = text;
        let mut line = match file {
            Some(_) => 1,
            None => self.line,
        };
        while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
            let name = reference(rest, at);
            let path = name.and_then(|name| subset.external.get(name));
            let (Some(name), Some(path)) = (name, path) else {
                self.put(&rest[..=at]);
                line += lines_in(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            };
            self.put(&rest[..at]);
            line += lines_in(&rest[..at]);
            let wrong =
                |text: String| PlanError { line: Some(line), key: file.unwrap_or_default().to_owned(), text };
            if depth == MAX_DEPTH {
                return Err(wrong(format!("{path}: more than {MAX_DEPTH} files within files")));
            }
            let content = files(path).map_err(|error| wrong(format!("{path}: {error}")))?;
            if self.text.len() + content.len() > MAX_BYTES {
                return Err(wrong(format!("{path}: the included files exceed {} MB", MAX_BYTES >> 20)));
            }
            self.part(Some(path), 1);
            self.body(without_declaration(&content), Some(path), subset, files, depth + 1)?;
            self.part(file, line);
            rest = &rest[at + name.len() + 2..];
        }
        self.put(rest);
        Ok(())
    }
}

/// Internal subset of the document type.
struct DtdSubset {
    /// Everything up to its end, without the external entities.
    head: String,
    /// Start of the rest.
    end: usize,
    external: HashMap<String, String>,
    internal: HashMap<String, String>,
}

impl DtdSubset {
    fn of(text: &str) -> Self {
        let mut subset =
            Self { head: String::new(), end: 0, external: HashMap::new(), internal: HashMap::new() };
        let Some(begin) = doctype(text) else { return subset };
        let bytes = text.as_bytes();
        let Some(open) = skip_to(text, begin, b"[>").filter(|at| bytes.get(*at) == Some(&b'[')) else {
            return subset;
        };
        subset.head.push_str(&text[..=open]);
        let mut at = open + 1;
        while at < text.len() {
            let rest = &text[at..];
            if rest.starts_with(']') {
                break;
            } else if rest.starts_with("<!--") {
                let length = rest.find("-->").map_or(rest.len(), |n| n + 3);
                subset.head.push_str(&rest[..length]);
                at += length;
            } else if rest.starts_with("<!ENTITY") {
                let length = skip_to(rest, 1, b">").map_or(rest.len(), |n| n + 1);
                let retained = subset.entity(&rest[..length]);
                if retained {
                    subset.head.push_str(&rest[..length]);
                } else {
                    subset.head.extend(rest[..length].chars().filter(|c| *c == '\n'));
                }
                at += length;
            } else {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                subset.head.push_str(&rest[..length]);
                at += length;
            }
        }
        subset.end = at;
        subset
    }

    /// Records a declaration; `false` if it names a file.
    fn entity(&mut self, declaration: &str) -> bool {
        let inner = declaration.trim_start_matches("<!ENTITY").trim_end_matches('>').trim();
        let (name, value) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
        let value = value.trim();
        let file = match (value.strip_prefix("SYSTEM"), value.strip_prefix("PUBLIC")) {
            (Some(system), _) => quoted(system).map(|(file, _)| file),
            (_, Some(public)) => quoted(public).and_then(|(_, rest)| quoted(rest)).map(|(file, _)| file),
            _ => {
                if let Some((text, _)) = quoted(value) {
                    self.internal.entry(name.to_owned()).or_insert_with(|| text.to_owned());
                }
                return true;
            }
        };
        if let Some(file) = file {
            self.external.entry(name.to_owned()).or_insert_with(|| file.to_owned());
        }
        false
    }

    /// Expanded size of all references in a text, in bytes.
    fn growth(&self, text: &str) -> u64 {
        let mut known = HashMap::new();
        self.expanded(text, &mut known, 0).saturating_sub(text.len() as u64)
    }

    fn expanded<'a>(&'a self, text: &'a str, known: &mut HashMap<&'a str, u64>, depth: usize) -> u64 {
        let mut size = text.len() as u64;
        if self.internal.is_empty() || depth > 64 {
            return size;
        }
        for at in memchr::memchr_iter(b'&', text.as_bytes()) {
            let Some((name, value)) = reference(text, at).and_then(|name| self.internal.get_key_value(name))
            else {
                continue;
            };
            let grown = match known.get(name.as_str()) {
                Some(grown) => *grown,
                None => {
                    // A reference to itself counts once; the parser refuses it.
                    known.insert(name, value.len() as u64);
                    let grown = self.expanded(value, known, depth + 1);
                    known.insert(name, grown);
                    grown
                }
            };
            size = size.saturating_add(grown);
        }
        size
    }
}

/// Name of the root element, if the text starts like XML.
pub(super) fn root_name(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    loop {
        let after = if rest.starts_with("<?") {
            rest.find("?>")? + 2
        } else if rest.starts_with("<!--") {
            rest.find("-->")? + 3
        } else if rest.starts_with("<!DOCTYPE") {
            let open = skip_to(rest, 0, b"[>")?;
            match rest.as_bytes().get(open) {
                Some(b'[') => {
                    let subset = DtdSubset::of(rest);
                    subset.end + rest[subset.end..].find('>')? + 1
                }
                _ => open + 1,
            }
        } else {
            let name = rest.strip_prefix('<')?;
            return name.split(|c: char| c.is_whitespace() || c == '>' || c == '/').next();
        };
        rest = rest.get(after..)?.trim_start();
    }
}

/// Start of the document type, if it precedes the root element.
fn doctype(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text.get(at..)?.find('<')?;
        let rest = &text[at..];
        if rest.starts_with("<!DOCTYPE") {
            return Some(at);
        } else if rest.starts_with("<!--") {
            at += rest.find("-->")?;
        } else if rest.starts_with("<?") {
            at += rest.find("?>")?;
        } else {
            return None;
        }
    }
}

/// Position of the next of these ASCII bytes outside quotes.
fn skip_to(text: &str, from: usize, stops: &[u8]) -> Option<usize> {
    let mut quote = None;
    text.as_bytes().iter().enumerate().skip(from).find_map(|(at, byte)| match quote {
        Some(open) => {
            if *byte == open {
                quote = None;
            }
            None
        }
        None if *byte == b'"' || *byte == b'\'' => {
            quote = Some(*byte);
            None
        }
        None => stops.contains(byte).then_some(at),
    })
}

/// Quoted string at the start, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    text[1..].split_once(quote)
}

/// Name of the entity referenced at a `&`.
fn reference(text: &str, at: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let near = bytes.get(at + 1..)?;
    let length = memchr::memchr(b';', &near[..near.len().min(MAX_NAME)])?;
    text.get(at + 1..at + 1 + length)
}

fn without_declaration(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match text.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")) {
        Some((_, rest)) => rest,
        None => text,
    }
}

fn lines_in(text: &str) -> u32 {
    u32::try_from(memchr::memchr_iter(b'\n', text.as_bytes()).count()).unwrap_or(u32::MAX)
}
