//! Reader of the server's output as another client sees it: an independent parser, resolved namespaces, and names of
//! the fourth edition of XML 1.0.
//!
//! # Pitfalls
//!
//! It is stricter than the parsers of most clients, so what it accepts they accept too.

use roxmltree::Document;

use super::is_name;

/// Reads one first-level element of a client's stream and resolves the namespace of each element.
///
/// # Panics
/// If it is not well-formed, uses a prefix that it does not declare, or has a name that the fourth edition of XML 1.0
/// does not allow.
#[track_caller]
pub(crate) fn assert_well_formed(text: &str) {
    // Declared as in the stream header, as a client that splits the stream into elements does.
    let document = format!(
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>{text}</stream:stream>"
    );
    let short: String = text.chars().take(600).collect();
    let document = Document::parse(&document)
        .unwrap_or_else(|error| panic!("a foreign parser refuses this ({error}): {short}"));
    let elements: Vec<_> = document.root_element().children().collect();
    assert!(elements.len() == 1 && elements[0].is_element(), "not one element: {short}");
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(is_name(node.tag_name().name()), "a name of the fifth edition only: {short}");
        for attribute in node.attributes() {
            assert!(is_name(attribute.name()), "an attribute of the fifth edition only: {short}");
        }
        for namespace in node.namespaces() {
            assert!(namespace.name().is_none_or(is_name), "a prefix of the fifth edition only: {short}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::assert_well_formed;

    #[test]
    fn the_reader_resolves_prefixes_and_checks_names_of_the_fourth_edition() {
        assert_well_formed(
            "<message xml:lang='en'><a:b xmlns:a='u:v' a:c='é'>\u{1F600}</a:b><été/></message>",
        );
        for bad in [
            "<a:b/>",
            "<a b:c=''/>",
            "<a/><b/>",
            "<\u{2C00}/>",
            "<a \u{10000}=''/>",
            "<a>&b;</a>",
            "<a>\u{1}</a>",
        ] {
            assert!(std::panic::catch_unwind(|| assert_well_formed(bad)).is_err(), "{bad}");
        }
    }
}
