//! Reviewed list of a specification's requirements: `docs/compliance/*.toml`.
//!
//! Each entry has the sentence, who is obliged (`server`, `both`, `client`, or `other`: authors of extensions,
//! operators, the text about itself) and the result of the review:
//!
//! * `cite`: items that fulfil it, `path::item`, or a path alone for a scenario. A quote above the item serves as well.
//! * `missing`: why the server does not fulfil it.
//! * `inapplicable`: why it does not apply here.
//! * `reason`: why it obliges no server; for `client` and `other`.
//!
//! Shared reasons have a name and stand in the table `reasons`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde::Deserialize;

use super::quotes::Quote;
use super::sentences::Sentence;
use super::{FOLDER, Specification};
use crate::tidy::Finding;
use crate::tidy::files::SourceFile;
use crate::tidy::rust_lexer::has_word;

/// The list of one specification.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Review {
    #[serde(default)]
    pub(crate) reasons: BTreeMap<String, String>,
    #[serde(default, rename = "requirement")]
    pub(crate) requirements: Vec<Requirement>,
}

/// A requirement and its review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) anchor: String,
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) who: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) missing: String,
    #[serde(default)]
    pub(crate) inapplicable: String,
    #[serde(default)]
    pub(crate) cite: Vec<String>,
}

impl Requirement {
    /// Whether it obliges a server.
    pub(crate) fn of_server(&self) -> bool {
        matches!(self.who.as_str(), "server" | "both")
    }
}

impl Specification {
    /// URL fragment of the section with the requirement.
    pub(crate) fn fragment(&self, requirement: &Requirement) -> String {
        if self.numbered {
            format!("section-{}", requirement.id.split('-').next().unwrap_or_default())
        } else {
            requirement.anchor.clone()
        }
    }
}

impl Review {
    /// Parses a list.
    ///
    /// # Errors
    /// If it does not have the expected form.
    pub(crate) fn parse(text: &str) -> Result<Review> {
        Ok(toml::from_str(text)?)
    }

    /// Resolves the name of a shared reason; other text is returned unchanged.
    pub(crate) fn spelled<'a>(&'a self, reason: &'a str) -> &'a str {
        self.reasons.get(reason).map_or(reason, String::as_str)
    }

    /// Replaces the requirements; those with the same text keep their review.
    pub(crate) fn update(&mut self, sentences: Vec<Sentence>) {
        let mut previous = std::mem::take(&mut self.requirements);
        for sentence in sentences {
            let same = |known: &Requirement| known.text == sentence.text;
            let found = previous.iter().position(|known| same(known) && known.id == sentence.id);
            let found = found.or_else(|| previous.iter().position(same));
            let known = found.map(|at| previous.remove(at)).unwrap_or_default();
            let Sentence { id, anchor, text } = sentence;
            self.requirements.push(Requirement { id, anchor, text, ..known });
        }
    }

    /// Formats the list in its canonical form.
    pub(crate) fn to_toml(&self, specification: &Specification) -> String {
        let mut out = format!(
            "# Requirements of {} and their review. Edit all but the sentences, which `cargo xtask codegen` takes from \
             the\n# specification. Keys: crates/xtask/src/compliance/review.rs. Result: docs/compliance.md.\n\n[reasons]\n",
            specification.name
        );
        for (name, text) in &self.reasons {
            let _ = writeln!(out, "{name} = {}", quoted(text));
        }
        for requirement in &self.requirements {
            out.push_str("\n[[requirement]]\n");
            let fields = [
                ("id", &requirement.id),
                ("anchor", &requirement.anchor),
                ("text", &requirement.text),
                ("who", &requirement.who),
                ("reason", &requirement.reason),
                ("missing", &requirement.missing),
                ("inapplicable", &requirement.inapplicable),
            ];
            for (key, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
                let _ = writeln!(out, "{key} = {}", quoted(value));
            }
            if !requirement.cite.is_empty() {
                let items: Vec<String> = requirement.cite.iter().map(|item| quoted(item)).collect();
                let _ = writeln!(out, "cite = [{}]", items.join(", "));
            }
        }
        out
    }

    /// Requirements without a review, with two, or with a citation of an item that does not exist.
    pub(crate) fn check(
        &self,
        specification: &Specification,
        files: &[SourceFile],
        quotes: &[Quote],
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for requirement in &self.requirements {
            let place = format!("{FOLDER}/{}.toml, requirement {}", specification.file, requirement.id);
            let quoted = quotes.iter().any(|quote| quote.covers(specification, requirement));
            if let Some(text) = requirement.wrong(quoted) {
                findings.push(Finding::new(place.as_str(), text));
            }
            for item in requirement.cite.iter().filter(|item| !exists(item, files)) {
                findings.push(Finding::new(place.as_str(), format!("cites {item}, which does not exist")));
            }
        }
        findings
    }
}

impl Requirement {
    fn wrong(&self, quoted: bool) -> Option<String> {
        let cited = quoted || !self.cite.is_empty();
        let reasons = [&self.missing, &self.inapplicable].into_iter().filter(|text| !text.is_empty()).count();
        if self.of_server() {
            return match (cited, reasons) {
                (true, 0) | (false, 1) if self.reason.is_empty() => None,
                // A requirement may be implemented in part.
                (true, 1) if !self.missing.is_empty() => None,
                (false, 0) => {
                    Some("is neither cited nor listed; cite it or add `missing` or `inapplicable`".to_owned())
                }
                _ => Some("has contradicting reviews; keep one of them".to_owned()),
            };
        }
        if !matches!(self.who.as_str(), "client" | "other") {
            return Some("has no review; set `who` to server, both, client or other".to_owned());
        }
        (self.reason.is_empty() || cited || reasons > 0)
            .then(|| "obliges no server, so it needs a `reason` and nothing else".to_owned())
    }
}

/// Whether `path::item`, or the file `path`, exists.
fn exists(citation: &str, files: &[SourceFile]) -> bool {
    let (path, item) = citation.split_once("::").map_or((citation, None), |(path, item)| (path, Some(item)));
    let file = files.iter().find(|file| file.path == path);
    file.is_some_and(|file| item.is_none_or(|item| declaration(&file.text, item).is_some()))
}

/// Line number, from 0, of the declaration of the item.
pub(crate) fn declaration(text: &str, item: &str) -> Option<usize> {
    let declarations = ["fn", "const", "static", "struct", "enum", "trait", "mod", "type"];
    let declarations = declarations.map(|kind| format!("{kind} {item}"));
    text.lines().position(|line| {
        !line.trim_start().starts_with("//")
            && declarations.iter().any(|declaration| has_word(line, declaration))
    })
}

/// Formats a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
