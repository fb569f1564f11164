//! What holds for every input: shared by the seeded test and the fuzz target, so that both ask the same.
//!
//! The trap: spans are private to the crate, so two heads are compared by what they say of their own bytes.

use throng_stanza::{Addresses, Element, Head, append_child, restamp};
use xml::{Limits, Ns, Scope};

/// Everything that a head says of its bytes, as text.
fn words(head: &Head, bytes: &[u8]) -> String {
    let first = head.first.map(|c| {
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
        head.children,
        head.has_body,
        head.is_empty(),
        head.insert_at(),
        head.append_at(bytes),
        String::from_utf8_lossy(head.inner(bytes)),
    )
}

/// Reads what was rewritten; it must be a stanza with the head that the rewriting returned.
fn reread(bytes: &[u8], told: &Head, scope: &Scope) {
    let text = String::from_utf8_lossy(bytes);
    match Element::read(bytes, scope, &Limits::CEILING) {
        // A bad type stays a bad type: only its head is compared.
        Ok(Element::Stanza(head) | Element::BadType(head)) => {
            assert_eq!(words(&head, bytes), words(told, bytes), "{text}");
        }
        other => panic!("rewritten into {other:?}: {text}"),
    }
}

/// Reads `data`, and if it is a stanza, stamps and extends it. True if it was one.
///
/// # Panics
/// If a property does not hold.
pub(crate) fn check(data: &[u8]) -> bool {
    // A stream whose content namespace is the client's, and one that declares nothing else.
    let scope = Scope::client();
    let (Ok(Element::Stanza(head)) | Ok(Element::BadType(head))) =
        Element::read(data, &scope, &Limits::DEFAULT)
    else {
        return false;
    };
    reread(data, &head, &scope);
    let child = b"<delay xmlns='urn:xmpp:delay' stamp='2002-09-10T23:08:25Z'/>";
    let all = [
        Addresses { from: Some("romeo@example.net/orchard"), to: Some("juliet@example.com") },
        Addresses { from: Some("r"), to: None },
        Addresses { from: None, to: Some("juliet@example.com/it's <\"&> here") },
        Addresses { from: None, to: None },
    ];
    for new in all {
        let (mut stamped, mut longer, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let told = restamp(data, &head, new, &mut stamped).unwrap();
        reread(&stamped, &told, &scope);
        assert_eq!(told.from(&stamped).as_deref(), new.from);
        assert_eq!(told.to(&stamped).as_deref(), new.to);
        assert_eq!(told.inner(&stamped), head.inner(data), "the content is untouched");
        let extended = append_child(&stamped, &told, child, Ns::Delay, &mut longer).unwrap();
        reread(&longer, &extended, &scope);
        assert_eq!(usize::from(extended.children), usize::from(told.children) + 1);
        // What was stamped once can be stamped again, and the last one counts.
        let twice = restamp(&longer, &extended, all[0], &mut again).unwrap();
        reread(&again, &twice, &scope);
    }
    true
}
