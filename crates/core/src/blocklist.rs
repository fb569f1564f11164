//! The blocklist of an account in the form that is matched against every stanza.
//!
//! Matching of XEP-0191 1.3, section 6: an entry is a full address, a bare address (which covers its
//! resources), a domain with a resource, or a domain (which covers all its addresses).
//!
//! Not implemented: the stored order of entries and the pushes, which are the feature's.
//!
//! # Pitfalls
//!
//! Entries are normalised addresses; text that was never parsed matches nothing.

use jid::{Jid, JidRef};

/// The blocklist of one account, never empty.
#[derive(Debug)]
pub struct Blocklist(Box<[Jid]>);

impl Blocklist {
    /// Builds a list of these entries; none if there are no entries.
    pub fn new(entries: &[Jid]) -> Option<Blocklist> {
        let mut list = entries.to_vec();
        list.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        list.dedup();
        if list.is_empty() { None } else { Some(Blocklist(list.into())) }
    }

    /// Whether an entry covers this address.
    pub fn matches(&self, jid: JidRef<'_>) -> bool {
        self.has(jid.as_str())
            || jid.resource().is_some() && self.has(jid.bare().as_str())
            || jid.local().is_some() && self.has_domain(jid)
    }

    /// Approximate size of its entries in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|entry| entry.as_str().len() + 48).sum()
    }

    /// The entries, sorted.
    pub fn entries(&self) -> &[Jid] {
        &self.0
    }

    fn has(&self, text: &str) -> bool {
        self.0.binary_search_by(|entry| entry.as_str().cmp(text)).is_ok()
    }

    fn has_domain(&self, jid: JidRef<'_>) -> bool {
        self.has(jid.domain())
            || jid.resource().is_some_and(|resource| {
                self.0.iter().any(|e| {
                    e.local().is_none()
                        && e.domain() == jid.domain()
                        && e.as_ref().resource() == Some(resource)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_6_the_four_address_forms_match_as_specified() {
        let list = |entries: &[&str]| {
            let entries: Vec<Jid> = entries.iter().map(|e| Jid::parse(e).unwrap()).collect();
            Blocklist::new(&entries).unwrap()
        };
        let covers = |entry: &str, jid: &str| {
            list(&["zz@zz", entry, "a@a"]).matches(Jid::parse(jid).unwrap().as_ref())
        };
        for (entry, yes, no) in [
            ("u@d/r", &["u@d/r"][..], &["u@d", "u@d/x", "d", "d/r"][..]),
            ("u@d", &["u@d", "u@d/r"], &["v@d", "d", "u@e"]),
            ("d/r", &["d/r", "u@d/r"], &["d", "u@d", "u@d/x"]),
            ("d", &["d", "d/r", "u@d", "u@d/r"], &["e", "u@e", "x.d"]),
        ] {
            assert!(yes.iter().all(|jid| covers(entry, jid)), "{entry} covers {yes:?}");
            assert!(!no.iter().any(|jid| covers(entry, jid)), "{entry} does not cover {no:?}");
        }
        assert!(Blocklist::new(&[]).is_none());
    }
}
