//! Property of the stanza rewriter that holds for every input; shared by the seeded test and the fuzz target.
//!
//! # Pitfalls
//!
//! Spans are private to the crate, so two heads are compared by the text that they describe in their own bytes.

use throng_stanza::{Element, Head, NewAddresses, append_child, rewrite_addresses};
use xml::{Limits, NamespaceContext, Ns};

/// Everything that a head describes in its bytes, as text.
fn words(head: &Head, bytes: &[u8]) -> String {
    let first = head.first_child.map(|c| {
        let text = |span: throng_stanza::Span| String::from_utf8_lossy(span.of(bytes)).into_owned();
        (c.ns, text(c.name), text(c.span))
    });
    format!(
        "{:?} {:?} to {:?} from {:?} id {:?} raw {:?} lang {:?} first {first:?} children {} body {} empty {} at {} {:?} inner {:?}",
        head.kind,
        head.payloads(),
        head.to(bytes),
        head.from(bytes),
        head.id(bytes),
        head.raw_id(bytes),
        head.lang(bytes),
        head.child_count,
        head.has_body,
        head.is_empty(),
        head.attr_insert_offset(),
        head.child_append_offset(bytes),
        String::from_utf8_lossy(head.inner_xml(bytes)),
    )
}

/// Reads a rewritten stanza, which must have the head that the rewriting returned.
fn reread(bytes: &[u8], expected: &Head, scope: &NamespaceContext) {
    let text = String::from_utf8_lossy(bytes);
    match Element::read(bytes, scope, &Limits::CEILING) {
        // An unknown type stays unknown: only the head is compared.
        Ok(Element::Stanza(head) | Element::UnknownType(head)) => {
            assert_eq!(words(&head, bytes), words(expected, bytes), "{text}");
        }
        other => panic!("rewritten into {other:?}: {text}"),
    }
}

/// Reads `data` and, if it is a stanza, rewrites and extends it. Returns whether it was one.
///
/// # Panics
/// If a property does not hold.
pub(crate) fn check(data: &[u8]) -> bool {
    // A stream whose content namespace is the client's, and one that declares nothing else.
    let scope = NamespaceContext::client();
    let (Ok(Element::Stanza(head)) | Ok(Element::UnknownType(head))) =
        Element::read(data, &scope, &Limits::DEFAULT)
    else {
        return false;
    };
    reread(data, &head, &scope);
    let child = b"<delay xmlns='urn:xmpp:delay' stamp='2002-09-10T23:08:25Z'/>";
    let all = [
        NewAddresses { from: Some("romeo@example.net/orchard"), to: Some("juliet@example.com") },
        NewAddresses { from: Some("r"), to: None },
        NewAddresses { from: None, to: Some("juliet@example.com/it's <\"&> here") },
        NewAddresses { from: None, to: None },
    ];
    for new in all {
        let (mut stamped, mut longer, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let expected = rewrite_addresses(data, &head, new, &mut stamped).unwrap();
        reread(&stamped, &expected, &scope);
        assert_eq!(expected.from(&stamped).as_deref(), new.from);
        assert_eq!(expected.to(&stamped).as_deref(), new.to);
        assert_eq!(expected.inner_xml(&stamped), head.inner_xml(data), "the content is untouched");
        let extended = append_child(&stamped, &expected, child, Ns::Delay, &mut longer).unwrap();
        reread(&longer, &extended, &scope);
        assert_eq!(usize::from(extended.child_count), usize::from(expected.child_count) + 1);
        // Rewriting is repeatable, and the last addresses count.
        let twice = rewrite_addresses(&longer, &extended, all[0], &mut again).unwrap();
        reread(&again, &twice, &scope);
    }
    true
}
