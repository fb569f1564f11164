//! Generator of `docs/compliance.md`: every requirement of a server, with its implementation or the reason why none
//! exists.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Specification;
use super::quotes::Quote;
use super::review::{self, Requirement, Review};
use crate::tidy::files::SourceFile;
use crate::tidy::rust_lexer::has_word;

const INTRODUCTION: &str = "\
# Compliance

<!-- Written by `cargo xtask codegen` from docs/compliance/*.toml and the citations in the code. -->

Every sentence of these specifications with MUST, SHALL, REQUIRED, SHOULD or RECOMMENDED (or their negation) that applies to
a server, with the test or code that fulfils it, or the reason why it is not implemented or not applicable. Sentences that
apply to clients, operators or authors of extensions are in [compliance/](compliance/) with their reasons.

A citation is a comment above the item (`//= address`, `//# quoted sentence`; `//= type=test` at a test) or an entry
`cite` in the list. `cargo xtask tidy` refuses a quote that is not in the specification, a cited item that does not exist,
and a requirement without a review.

";

/// Generates the page.
pub(crate) fn page(reviews: &[(&Specification, Review)], quotes: &[Quote], files: &[SourceFile]) -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str(
        "| Specification | Requirements | For servers | Tested | In code | In part | Not implemented | Not applicable |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (specification, review) in reviews {
        out.push_str(&summary(specification, review, quotes, files));
    }
    for (specification, review) in reviews {
        let _ = write!(out, "\n## {}: not or partly implemented\n\n", specification.name);
        out.push_str(&unfulfilled(specification, review, |requirement| &requirement.missing));
        let _ = write!(out, "\n## {}: not applicable\n\n", specification.name);
        out.push_str(&unfulfilled(specification, review, |requirement| &requirement.inapplicable));
        let _ = write!(out, "\n## {}: fulfilled\n\n", specification.name);
        out.push_str("| Section | Requirement | Where |\n| --- | --- | --- |\n");
        let whole = |requirement: &&_| Requirement::of_server(requirement) && requirement.missing.is_empty();
        for requirement in review.requirements.iter().filter(whole) {
            let places = places(specification, requirement, quotes, files);
            if !places.is_empty() {
                let shown: Vec<String> = places.iter().map(Place::link).collect();
                let section = section(specification, requirement);
                let _ = writeln!(
                    out,
                    "| {section} | {} | {} |",
                    cell(&beginning(&requirement.text)),
                    shown.join(", ")
                );
            }
        }
    }
    out
}

fn summary(specification: &Specification, review: &Review, quotes: &[Quote], files: &[SourceFile]) -> String {
    let of_server: Vec<_> = review.requirements.iter().filter(|r| r.of_server()).collect();
    let (mut tested, mut coded, mut partial) = (0, 0, 0);
    for requirement in &of_server {
        let places = places(specification, requirement, quotes, files);
        if places.is_empty() {
            continue;
        }
        let column = match (requirement.missing.is_empty(), places.iter().any(|place| place.test)) {
            (false, _) => &mut partial,
            (true, true) => &mut tested,
            (true, false) => &mut coded,
        };
        *column += 1;
    }
    let missing = of_server.iter().filter(|r| !r.missing.is_empty()).count() - partial;
    let inapplicable = of_server.iter().filter(|r| !r.inapplicable.is_empty()).count();
    let (name, url) = (specification.name, specification.url);
    let (all, server) = (review.requirements.len(), of_server.len());
    format!(
        "| [{name}]({url}) | {all} | {server} | {tested} | {coded} | {partial} | {missing} | {inapplicable} |\n"
    )
}

/// Requirements grouped by the reason why they are not implemented.
fn unfulfilled(
    specification: &Specification,
    review: &Review,
    reason: impl Fn(&Requirement) -> &String,
) -> String {
    let mut groups: BTreeMap<&str, Vec<&Requirement>> = BTreeMap::new();
    for requirement in review.requirements.iter().filter(|requirement| !reason(requirement).is_empty()) {
        groups.entry(review.spelled(reason(requirement))).or_default().push(requirement);
    }
    if groups.is_empty() {
        return "Nothing.\n".to_owned();
    }
    let mut out = String::new();
    for (reason, requirements) in groups {
        let _ = writeln!(out, "* {reason}");
        for requirement in requirements {
            let section = section(specification, requirement);
            let _ = writeln!(out, "  * {section}: {}", cell(&requirement.text));
        }
    }
    out
}

struct Place {
    path: String,
    item: String,
    test: bool,
}

impl Place {
    fn link(&self) -> String {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        let name = if self.item.is_empty() { file } else { self.item.as_str() };
        format!("[`{name}`](../{})", self.path)
    }
}

/// Items that implement the requirement: those of the list, then those with a quote.
fn places(
    specification: &Specification,
    requirement: &Requirement,
    quotes: &[Quote],
    files: &[SourceFile],
) -> Vec<Place> {
    let mut places: Vec<Place> = requirement
        .cite
        .iter()
        .map(|citation| {
            let (path, item) = citation.split_once("::").unwrap_or((citation, ""));
            Place { path: path.to_owned(), item: item.to_owned(), test: is_test(path, item, files) }
        })
        .collect();
    for quote in quotes.iter().filter(|quote| quote.covers(specification, requirement)) {
        if !places.iter().any(|place| place.path == quote.path && place.item == quote.item) {
            let (path, item) = (quote.path.clone(), quote.item.clone());
            places.push(Place { path, item, test: quote.test });
        }
    }
    places
}

/// Whether the item is a test, judged by its file or its attributes.
fn is_test(path: &str, item: &str, files: &[SourceFile]) -> bool {
    let of_tests = |part: &str| {
        matches!(part, "tests" | "e2e" | "scenarios" | "attacks" | "conformance")
            || part.ends_with("tests.rs")
    };
    if path.split('/').any(of_tests) {
        return true;
    }
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    let Some(line) = review::declaration(&file.text, item) else { return false };
    let before: Vec<&str> = file.text.lines().take(line).map(str::trim).collect();
    let attributes = before.iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    attributes.into_iter().any(|line| line.starts_with("#[") && has_word(line, "test"))
}

fn section(specification: &Specification, requirement: &Requirement) -> String {
    let number = requirement.id.split('-').next().unwrap_or_default();
    format!("[{number}]({}#{})", specification.url, specification.fragment(requirement))
}

/// First words of a sentence; the list has all of it.
fn beginning(text: &str) -> String {
    const CHARACTERS: usize = 200;
    let mut out = String::new();
    for word in text.split(' ') {
        if out.len() + word.len() > CHARACTERS {
            out.push_str(" …");
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Escapes text for a table cell or list item.
fn cell(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('|', "&#124;")
        .replace('*', "&#42;")
}
