//! Stanza forwarding: a message inside a message, XEP-0297 1.0, as used by the carbon copies of XEP-0280 1.0.1.
//!
//! The original is copied byte by byte and only needs its namespace declared, so nothing is parsed and only one buffer
//! is allocated.
//!
//! Not implemented: `<delay/>` (section 3.1, optional), since copies are made when the original is delivered.
//!
//! # Pitfalls
//!
//! Many clients write `xmlns='jabber:client'` on every stanza. It must not be declared twice.

use xml::Ns;

use crate::head::{Child, Head, ShortSpan, Span};
use crate::kind::{MessageType, StanzaKind};
use crate::payload_set::{PayloadNs, PayloadSet};

/// Direction of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarbonDirection {
    /// The account sent it (XEP-0280, section 8).
    Sent,
    /// The account received it (XEP-0280, section 7).
    Received,
}

impl CarbonDirection {
    /// Element name.
    pub const fn as_str(self) -> &'static str {
        match self {
            CarbonDirection::Sent => "sent",
            CarbonDirection::Received => "received",
        }
    }
}

const FORWARDED: &[u8] = b"<forwarded xmlns='urn:xmpp:forward:0'>";

/// Replaces `out` with the carbon copy of a message for the account `owner` (its bare address) and returns its head,
/// with `to` missing. `None` if the original is not a message or is too long for a head.
pub fn carbon_copy(
    bytes: &[u8],
    head: &Head,
    way: CarbonDirection,
    owner: &str,
    out: &mut Vec<u8>,
) -> Option<Head> {
    let StanzaKind::Message(ty) = head.kind else { return None };
    let name = b"<message";
    out.clear();
    out.reserve(bytes.len() + owner.len() + 256);
    out.extend_from_slice(name);
    let from_attr = out.len();
    out.extend_from_slice(b" from='");
    let from = out.len();
    xml::escape::attr(owner, out);
    let from = ShortSpan::new(from..out.len())?;
    out.push(b'\'');
    let from_attr = ShortSpan::new(from_attr..out.len())?;
    if let Some(ty) = carbon_type(ty) {
        out.extend_from_slice(b" type='");
        out.extend_from_slice(ty.as_bytes());
        out.push(b'\'');
    }
    out.push(b'>');
    let tag_end = u16::try_from(out.len()).ok()?;
    let way = way.as_str();
    let start = out.len();
    out.push(b'<');
    out.extend_from_slice(way.as_bytes());
    out.extend_from_slice(b" xmlns='urn:xmpp:carbons:2'>");
    out.extend_from_slice(FORWARDED);
    let (tag, rest) = bytes.split_at(head.attr_insert_offset());
    out.extend_from_slice(tag);
    if !declares_default(&bytes[head.attr_insert_offset()..usize::from(head.tag_end)]) {
        out.extend_from_slice(b" xmlns='jabber:client'");
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(b"</forwarded></");
    out.extend_from_slice(way.as_bytes());
    out.push(b'>');
    let first = Child {
        ns: Some(Ns::Carbons2),
        name: Span::new(start + 1..start + 1 + way.len())?,
        span: Span::new(start..out.len())?,
    };
    out.extend_from_slice(b"</message>");
    let mut copy = Head::with_kind(head.kind);
    copy.payloads = PayloadSet::of(&[PayloadNs::Carbons2]);
    copy.first_child = Some(first);
    (copy.from, copy.from_attr) = (from, from_attr);
    copy.name_end = u16::try_from(name.len()).ok()?;
    copy.tag_end = tag_end;
    copy.child_count = 1;
    Some(copy)
}

/// XEP-0280, section 7: the copy keeps the type of the original.
const fn carbon_type(ty: MessageType) -> Option<&'static str> {
    Some(match ty {
        MessageType::Normal => return None,
        MessageType::Chat => "chat",
        MessageType::Groupchat => "groupchat",
        MessageType::Headline => "headline",
        MessageType::Error => "error",
    })
}

/// Whether a start tag, of which `rest` is the part after the name, declares its default namespace.
fn declares_default(mut rest: &[u8]) -> bool {
    let position = |bytes: &[u8], of: &[u8]| bytes.iter().position(|b| of.contains(b));
    while let Some(equals) = position(rest, b"=") {
        let (name, value) = rest.split_at(equals);
        if name.trim_ascii() == b"xmlns" {
            return true;
        }
        let Some(open) = position(value, b"'\"") else { return false };
        let quote = value[open];
        let Some(length) = position(&value[open + 1..], &[quote]) else { return false };
        rest = &value[open + length + 2..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Element;
    use xml::{Limits, NamespaceContext};

    fn check(text: &str, way: CarbonDirection, expect: &str) {
        let (scope, limits) = (NamespaceContext::client(), Limits::default());
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        let mut out = b"old".to_vec();
        let built = carbon_copy(text.as_bytes(), &head, way, "o'brien@example.com", &mut out).unwrap();
        assert_eq!(std::str::from_utf8(&out).unwrap(), expect);
        let read = Element::read(&out, &scope, &limits);
        let Ok(Element::Stanza(fresh)) = read else { panic!("{read:?}") };
        assert_eq!(format!("{built:?}"), format!("{fresh:?}"), "the head is as if read anew");
    }

    #[test]
    fn the_original_is_inside_and_only_its_namespace_is_added() {
        check(
            "<message from='a@b/c' to='o&apos;brien@example.com' id='1' type='chat'><body>x</body></message>",
            CarbonDirection::Sent,
            "<message from='o&apos;brien@example.com' type='chat'><sent xmlns='urn:xmpp:carbons:2'>\
             <forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' from='a@b/c' \
             to='o&apos;brien@example.com' id='1' type='chat'><body>x</body></message></forwarded></sent></message>",
        );
        check(
            "<message/>",
            CarbonDirection::Received,
            "<message from='o&apos;brien@example.com'><received xmlns='urn:xmpp:carbons:2'>\
             <forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client'/></forwarded></received></message>",
        );
    }

    #[test]
    fn an_existing_namespace_declaration_is_not_repeated() {
        for attributes in [
            " xmlns='jabber:client'",
            " id='xmlns=' xmlns = \"jabber:client\" to='a=b@c/\"d'",
            "\n to='a@b/>'\n xmlns='jabber:client'\n",
        ] {
            check(
                &format!("<message{attributes}><body>x</body></message>"),
                CarbonDirection::Received,
                &format!(
                    "<message from='o&apos;brien@example.com'><received xmlns='urn:xmpp:carbons:2'>\
                     <forwarded xmlns='urn:xmpp:forward:0'><message{attributes}><body>x</body></message></forwarded>\
                     </received></message>"
                ),
            );
        }
        for rest in [" xmlns:x='u:v'>", " x:xmlns='a' xmlns:x='u'>", " id='xmlns' to='xmlns=\"x\"'/>", ">"] {
            assert!(!declares_default(rest.as_bytes()), "{rest}");
        }
    }

    #[test]
    fn only_messages_are_copied() {
        let Ok(Element::Stanza(head)) =
            Element::read(b"<presence/>", &NamespaceContext::client(), &Limits::default())
        else {
            panic!()
        };
        assert!(carbon_copy(b"<presence/>", &head, CarbonDirection::Sent, "a@b", &mut Vec::new()).is_none());
    }
}
