//! Citations of specifications in comments of Rust files: `//= address`, `//= type=…`, `//# quoted text`.

use super::review::{Requirement, Review};
use super::{SPECIFICATIONS, Specification, sentences};
use crate::tidy::Finding;
use crate::tidy::files::SourceFile;

/// A citation in a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// File of the comment.
    pub(crate) path: String,
    /// Line of the address, from 1.
    pub(crate) line: usize,
    /// Address with its fragment.
    pub(crate) url: String,
    /// Whether the citation is of type test.
    pub(crate) test: bool,
    /// Quoted text with single spaces.
    pub(crate) text: String,
    /// Item below the comment.
    pub(crate) item: String,
}

impl Quote {
    /// Whether it quotes the requirement: all of it, or a part that obliges.
    pub(crate) fn covers(&self, specification: &Specification, requirement: &Requirement) -> bool {
        let section = self.url.strip_prefix(specification.url).and_then(|rest| rest.strip_prefix('#'));
        section == Some(&specification.fragment(requirement))
            && (self.text.contains(&requirement.text)
                || sentences::obliges(&self.text) && requirement.text.contains(&self.text))
    }
}

/// All citations in the Rust files.
pub(crate) fn all(files: &[SourceFile]) -> Vec<Quote> {
    files.iter().filter(|file| file.path.ends_with(".rs")).flat_map(in_file).collect()
}

fn in_file(file: &SourceFile) -> Vec<Quote> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut quotes = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(url) = lines[at].strip_prefix("//= https://") else {
            at += 1;
            continue;
        };
        let line = at + 1;
        at += 1;
        let mut test = false;
        let mut words = Vec::new();
        while let Some(rest) = lines.get(at).and_then(|line| citation_line(line)) {
            match rest {
                Line::Kind(kind) => test = kind == "test",
                Line::Text(text) => words.extend(text.split_whitespace()),
                Line::Address => break,
            }
            at += 1;
        }
        let item = lines[at..].iter().find_map(|line| item(line)).unwrap_or_default();
        quotes.push(Quote {
            path: file.path.clone(),
            line,
            url: format!("https://{url}"),
            test,
            text: words.join(" "),
            item: item.to_owned(),
        });
    }
    quotes
}

enum Line<'a> {
    Address,
    Kind(&'a str),
    Text(&'a str),
}

fn citation_line(line: &str) -> Option<Line<'_>> {
    if line.starts_with("//= https://") {
        return Some(Line::Address);
    }
    let kind = line.strip_prefix("//= type=").map(Line::Kind);
    kind.or_else(|| line.strip_prefix("//#").map(Line::Text))
}

/// Name of the item that a line declares.
fn item(line: &str) -> Option<&str> {
    if line.starts_with("//") || line.starts_with('#') {
        return None;
    }
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.by_ref().find(|word| matches!(*word, "fn" | "const" | "static" | "struct" | "enum" | "mod"))?;
    words.find(|word| !word.is_empty())
}

/// Citations whose text is not in a listed specification.
pub(crate) fn check(quotes: &[Quote], reviews: &[(&Specification, Review)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for quote in quotes {
        let known = SPECIFICATIONS.iter().any(|s| {
            quote.url.strip_prefix(s.url).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
        });
        let text = if !known {
            format!("cites {}, of which there is no list in {}", quote.url, super::FOLDER)
        } else if !quote.quotes_one(reviews) {
            format!("no sentence that obliges in {} reads \"{}\"", quote.url, quote.text)
        } else {
            continue;
        };
        findings.push(Finding::new(format!("{}:{}", quote.path, quote.line), text));
    }
    findings
}

impl Quote {
    fn quotes_one(&self, reviews: &[(&Specification, Review)]) -> bool {
        reviews.iter().any(|(specification, review)| {
            review.requirements.iter().any(|requirement| self.covers(specification, requirement))
        })
    }
}
