//! Downgrade protection for SCRAM: XEP-0474 (0.5.0).
//!
//! The server repeats in its first message, as attribute `h`, a hash of the mechanisms and channel bindings that it
//! offered. SCRAM authenticates that message with the password, so removing entries from the list in transit is
//! detected.
//!
//! Not implemented: the client's rules (section 6); [`crate::client::ScramClient::require_offer`] has the one check.
//!
//! # Pitfalls
//!
//! The list is that of the profile in use: `<mechanisms/>` (RFC 6120) or `<authentication/>` (XEP-0388), never both,
//! and without the mechanisms inside `<fast/>`. Sort by octets, not by preference.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::ScramHash;

/// Separator between two names.
const NAME_SEPARATOR: char = '\u{1e}';
/// Separator between mechanisms and channel bindings.
const BINDINGS_SEPARATOR: char = '\u{1f}';

/// The value of `h`: the names of the offered mechanisms, and of the channel bindings if they were listed (XEP-0440).
pub fn hash_attribute<'a>(
    hash: ScramHash,
    mechanisms: impl Iterator<Item = &'a str>,
    bindings: Option<impl Iterator<Item = &'a str>>,
) -> String {
    let mut text = String::with_capacity(192);
    list(&mut text, mechanisms);
    if let Some(bindings) = bindings {
        text.push(BINDINGS_SEPARATOR);
        list(&mut text, bindings);
    }
    STANDARD.encode(hash.digest(text.as_bytes()).expose())
}

fn list<'a>(out: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            out.push(NAME_SEPARATOR);
        }
        out.push_str(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_5_3_the_example() {
        let bindings = || Some(["tls-server-end-point", "tls-exporter"].into_iter());
        let mechanisms = ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-1"].into_iter();
        assert_eq!(hash_attribute(ScramHash::Sha1, mechanisms, bindings()), "G6k/rBLDqgOhRRaCuuatSDFkJ08=");
        // A removed mechanism changes the hash.
        let short = hash_attribute(ScramHash::Sha1, ["SCRAM-SHA-1"].into_iter(), bindings());
        assert_ne!(short, "G6k/rBLDqgOhRRaCuuatSDFkJ08=");
        let none = None::<std::iter::Empty<&str>>;
        let unbound = hash_attribute(ScramHash::Sha1, ["SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"].into_iter(), none);
        assert_ne!(unbound, "G6k/rBLDqgOhRRaCuuatSDFkJ08=");
    }
}
