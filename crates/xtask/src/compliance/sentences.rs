//! Extraction of requirements from a specification: sentences with an obligating keyword of RFC 2119.
//!
//! Not implemented: MAY and OPTIONAL, which permit.

use std::collections::HashMap;

use super::markup;

/// A sentence that states a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// Section and number within it: `8.5.2-3`.
    pub(crate) id: String,
    /// Anchor of the section in the source.
    pub(crate) anchor: String,
    /// Sentence with single spaces.
    pub(crate) text: String,
}

/// Keywords that oblige. The negated forms contain them.
const KEYWORDS: [&str; 5] = ["MUST", "SHALL", "REQUIRED", "SHOULD", "RECOMMENDED"];
/// Abbreviations whose full stop ends no sentence.
const ABBREVIATIONS: [&str; 7] = ["e.g.", "i.e.", "etc.", "vs.", "cf.", "(e.g.", "(i.e."];

/// All requirements of the source, in order.
pub(crate) fn requirements(source: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for paragraph in markup::paragraphs(source) {
        let whole = paragraph.text.starts_with("Feature:");
        let sentences = if whole { vec![paragraph.text.as_str()] } else { split(&paragraph.text) };
        for text in sentences.into_iter().filter(|text| obliges(text)) {
            let count = counts.entry(paragraph.section.clone()).or_default();
            *count += 1;
            found.push(Sentence {
                id: format!("{}-{count}", paragraph.section),
                anchor: paragraph.anchor.clone(),
                text: text.to_owned(),
            });
        }
    }
    found
}

/// Whether the text contains a keyword as a whole word.
pub(crate) fn obliges(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| KEYWORDS.contains(&word))
}

/// Splits a paragraph with single spaces into sentences.
fn split(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(' ') {
        let before = &text[start..at];
        let ends = before.trim_end_matches([')', '"', '\'']).ends_with(['.', '!', '?']);
        let abbreviated = before.rsplit(' ').next().is_some_and(|word| ABBREVIATIONS.contains(&word));
        let next = text[at + 1..].chars().next();
        let begins = next.is_some_and(|c| c.is_uppercase() || matches!(c, '(' | '"' | '\'' | '<' | '['));
        if ends && begins && !abbreviated {
            sentences.push(before);
            start = at + 1;
        }
    }
    sentences.push(&text[start..]);
    sentences
}
