//! Generator of `doap.xml`, the machine-readable description of this software and the specifications that it
//! implements: Description of a Project (<http://usefulinc.com/ns/doap#>) with the vocabulary of XEP-0453 0.1.2, DOAP
//! usage in XMPP.
//!
//! Not implemented: `xmpp:since`; it needs releases.
//!
//! # Pitfalls
//!
//! A specification appears once, however many modules implement it. The parts that different modules do not implement
//! are joined.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use feature_api::feature::Spec;

use crate::codegen::docs::implemented;

const HEAD: &str = "<?xml version='1.0' encoding='UTF-8'?>
<!-- Written by `cargo xtask codegen` from the features' declarations; change those. -->
<rdf:RDF xmlns='http://usefulinc.com/ns/doap#'
         xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'
         xmlns:xmpp='https://linkmauve.fr/ns/xmpp-doap#'>
  <Project>
    <name>Throng</name>
    <shortname>throng</shortname>
    <shortdesc xml:lang='en'>An XMPP server for very large services</shortdesc>
    <description xml:lang='en'>An XMPP server that needs two kilobytes of memory for an online user, never loses an acknowledged stanza, and includes a load generator.</description>
    <programming-language>Rust</programming-language>
    <os>Linux</os>
    <license rdf:resource='https://www.apache.org/licenses/LICENSE-2.0'/>
    <category rdf:resource='https://linkmauve.fr/ns/xmpp-doap#category-xmpp'/>
    <category rdf:resource='https://linkmauve.fr/ns/xmpp-doap#category-server'/>
";

/// Content of the file.
pub fn doap() -> String {
    let mut out = HEAD.to_owned();
    let mut specs: BTreeMap<(bool, &str), (Spec, Vec<String>)> = BTreeMap::new();
    for (part, spec) in implemented() {
        let key = (spec.name.starts_with("XEP"), spec.name);
        let (_, notes) = specs.entry(key).or_insert((spec, Vec::new()));
        if !spec.not_implemented.is_empty() {
            notes.push(format!("{part}: without {}", spec.not_implemented));
        }
    }
    for (spec, notes) in specs.values() {
        match spec.name.strip_prefix("RFC ") {
            Some(number) => {
                let _ = writeln!(
                    out,
                    "    <implements rdf:resource='https://www.rfc-editor.org/info/rfc{number}'/>"
                );
            }
            None => extension(&mut out, spec, notes),
        }
    }
    out.push_str("  </Project>\n</rdf:RDF>\n");
    out
}

fn extension(out: &mut String, spec: &Spec, notes: &[String]) {
    let number = spec.name.trim_start_matches("XEP-");
    let status = if notes.is_empty() { "complete" } else { "partial" };
    let _ = write!(
        out,
        "    <implements>\n      <xmpp:SupportedXep>\n        \
         <xmpp:xep rdf:resource='https://xmpp.org/extensions/xep-{number}.html'/>\n        \
         <xmpp:version>{}</xmpp:version>\n        <xmpp:status>{status}</xmpp:status>\n",
        spec.version
    );
    if !notes.is_empty() {
        let mut note = Vec::new();
        xml::escape::text(&notes.join("; "), &mut note);
        let note = String::from_utf8_lossy(&note);
        let _ = writeln!(out, "        <xmpp:note xml:lang='en'>{note}</xmpp:note>");
    }
    out.push_str("      </xmpp:SupportedXep>\n    </implements>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, and whether an element opens or closes: enough to check that tags are balanced.
    fn balanced(text: &str) -> bool {
        let mut open = Vec::new();
        for tag in text.split('<').skip(1).filter(|t| !t.starts_with(['?', '!'])) {
            let tag = tag.split('>').next().unwrap_or_default();
            match tag.strip_prefix('/') {
                Some(name) => {
                    if open.pop() != Some(name) {
                        return false;
                    }
                }
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(char::is_whitespace).next().unwrap_or_default()),
            }
        }
        open.is_empty()
    }

    #[test]
    fn each_specification_is_listed_once_in_a_balanced_document() {
        let text = doap();
        assert!(balanced(&text), "{text}");
        for spec in implemented().map(|(_, spec)| spec) {
            let link = match spec.name.split_once(['-', ' ']) {
                Some(("XEP", number)) => format!("/xep-{number}.html'"),
                Some((_, number)) => format!("/rfc{number}'"),
                None => panic!("{}", spec.name),
            };
            assert_eq!(text.matches(&link).count(), 1, "{}", spec.name);
        }
    }

    #[test]
    fn the_committed_doap_file_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doap.xml");
        let current = std::fs::read_to_string(path).unwrap_or_default();
        assert!(current == doap(), "doap.xml is stale; run `cargo xtask codegen`");
    }
}
