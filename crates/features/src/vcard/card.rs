//! Searchable fields of a vCard, by which the directory finds its owner (XEP-0054 1.3.0, XEP-0055 1.3).
//!
//! # Pitfalls
//!
//! Names are case-sensitive and in the namespace `vcard-temp`; any element may be missing, empty or repeated.

use store::SearchableProfile;
use xml::{Ns, TreeNode};

/// The searchable fields (named by XEP-0055). Of several email addresses the preferred one, else the first.
pub(crate) fn searchable(card: TreeNode<'_>) -> SearchableProfile {
    let emails = || card.child_elements().filter(|c| c.is("EMAIL", Ns::VCardTemp));
    let preferred = emails().find(|e| e.child("PREF", Ns::VCardTemp).is_some());
    let email = preferred.or_else(|| emails().find(|e| !text(Some(*e), "USERID").is_empty()));
    let name = card.child("N", Ns::VCardTemp);
    SearchableProfile {
        name: text(Some(card), "FN"),
        first: text(name, "GIVEN"),
        last: text(name, "FAMILY"),
        nick: text(Some(card), "NICKNAME"),
        email: text(email, "USERID"),
    }
}

fn text(parent: Option<TreeNode<'_>>, name: &str) -> String {
    let child = parent.and_then(|p| p.child(name, Ns::VCardTemp));
    child.map(|c| c.text().trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inner: &str) -> SearchableProfile {
        let text = format!("<vCard xmlns='vcard-temp'>{inner}</vCard>");
        let tree = throng_core::shared_stanza::tree(text.as_bytes()).unwrap();
        searchable(tree.root())
    }

    #[test]
    fn the_six_searchable_fields_are_found() {
        let found = of(
            "<FN>Peter Saint-Andre</FN><N><FAMILY> Saint-Andre\n</FAMILY><GIVEN>Peter</GIVEN><MIDDLE/></N>\
             <NICKNAME>stpeter</NICKNAME><EMAIL><USERID>old@jabber.org</USERID></EMAIL>\
             <EMAIL><INTERNET/><PREF/><USERID>stpeter@jabber.org</USERID></EMAIL>",
        );
        assert_eq!(
            found,
            SearchableProfile {
                name: "Peter Saint-Andre".into(),
                first: "Peter".into(),
                last: "Saint-Andre".into(),
                nick: "stpeter".into(),
                email: "stpeter@jabber.org".into(),
            }
        );
    }

    #[test]
    fn missing_fields_are_empty() {
        assert!(of("").is_empty());
        assert!(of("<fn>small</fn><FN xmlns='u:other'>foreign</FN><N>Peter</N><EMAIL/>").is_empty());
        let second = of("<EMAIL><USERID/></EMAIL><EMAIL><USERID>b@c</USERID></EMAIL>");
        assert_eq!(second.email, "b@c");
    }
}
