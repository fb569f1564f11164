//! Compliance with the specifications: where each requirement of a server is fulfilled.
//!
//! A *requirement* is a sentence of a specification that contains MUST, SHALL, REQUIRED, SHOULD or RECOMMENDED, also
//! negated. All of them are listed in `docs/compliance/*.toml`, one file for each specification, with a review: who is
//! obliged, and for a server either where it is fulfilled or why it is not ([`review`]). Code and tests quote the
//! sentence in a comment above the item ([`quotes`]):
//!
//! ```text
//! //= https://www.rfc-editor.org/rfc/rfc6121#section-8.5.2.1.1
//! //= type=test
//! //# the server MUST NOT deliver the stanza
//! ```
//!
//! This is the syntax of duvet, which s2n-quic uses. Duvet itself is not used because it downloads the specifications;
//! here the sentences are taken from `../shared/specs` where that folder exists, and from the list otherwise.
//!
//! `cargo xtask codegen` keeps the list in step with the specifications and writes `docs/compliance.md`;
//! `cargo xtask tidy` finds every quote in the list, every cited item in its file, and every requirement without a
//! review.
//!
//! # Pitfalls
//!
//! A sentence whose text changes loses its review and has to be reviewed again. That is the purpose.

mod markup;
mod page;
mod quotes;
mod review;
mod sentences;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use review::Review;

use crate::tidy::Finding;
use crate::tidy::files::SourceFile;

/// A specification whose requirements are listed.
pub(crate) struct Specification {
    /// Name of the source without `.xml`, and of the list without `.toml`.
    pub(crate) file: &'static str,
    /// Name in text.
    pub(crate) name: &'static str,
    /// Address without the fragment.
    pub(crate) url: &'static str,
    /// Whether fragments are `#section-1.2`; otherwise they are the anchors of the source.
    pub(crate) numbered: bool,
}

/// All specifications, in the order of the page.
pub(crate) const SPECIFICATIONS: [Specification; 3] = [
    Specification {
        file: "rfc6120",
        name: "RFC 6120",
        url: "https://www.rfc-editor.org/rfc/rfc6120",
        numbered: true,
    },
    Specification {
        file: "rfc6121",
        name: "RFC 6121",
        url: "https://www.rfc-editor.org/rfc/rfc6121",
        numbered: true,
    },
    Specification {
        file: "xep-0198",
        name: "XEP-0198",
        url: "https://xmpp.org/extensions/xep-0198.html",
        numbered: false,
    },
];

/// Directory of the lists.
pub(crate) const FOLDER: &str = "docs/compliance";

/// Expected contents of the lists and the page, each with its path.
///
/// `specs` is the directory with the sources of the specifications; without it the lists stay as they are.
///
/// # Errors
/// If a file cannot be read, or a list is not TOML of the expected form.
pub(crate) fn files(root: &Path, specs: Option<&PathBuf>) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut reviews = Vec::new();
    for specification in &SPECIFICATIONS {
        let path = format!("{FOLDER}/{}.toml", specification.file);
        let mut review = match std::fs::read_to_string(root.join(&path)) {
            Ok(text) => {
                Review::parse(&text).with_context(|| format!("{path} is not a list of requirements"))?
            }
            Err(_) => Review::default(),
        };
        let source = specs.map(|folder| folder.join(format!("{}.xml", specification.file)));
        if let Some(source) = source.filter(|source| source.exists()) {
            let text = std::fs::read_to_string(&source)
                .with_context(|| format!("cannot read {}", source.display()))?;
            review.update(sentences::requirements(&text));
        }
        files.push((path, review.to_toml(specification)));
        reviews.push((specification, review));
    }
    let sources = crate::tidy::files::read(root)?;
    let quotes = quotes::all(&sources);
    files.push((format!("{FOLDER}.md"), page::page(&reviews, &quotes, &sources)));
    Ok(files)
}

/// Reports broken citations and requirements without a review.
///
/// # Errors
/// If a list is not TOML of the expected form.
pub(crate) fn check(files: &[SourceFile]) -> Result<Vec<Finding>> {
    let mut reviews = Vec::new();
    for specification in &SPECIFICATIONS {
        let path = format!("{FOLDER}/{}.toml", specification.file);
        let text = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
        let review = Review::parse(text).with_context(|| format!("{path} is not a list of requirements"))?;
        reviews.push((specification, review));
    }
    let quotes = quotes::all(files);
    let mut findings = quotes::check(&quotes, &reviews);
    for (specification, review) in &reviews {
        findings.extend(review.check(specification, files, &quotes));
    }
    Ok(findings)
}
