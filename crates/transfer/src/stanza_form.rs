//! The form of stanzas in the store: in the namespace `jabber:client`, without declaring it. In files it is declared.
//!
//! # Pitfalls
//!
//! The two functions are inverse only together: a file always has the declaration as the first attribute, the store never
//! has it. So an export of what an export contained has the same bytes.

use jid::Jid;
use limits::STANZA_LIMITS;
use stanza::payload::datetime::{format_utc, parse_datetime};
use stanza::{Element, MessageType, PresenceType, StanzaKind};
use xml::{NamespaceContext, Ns, Tree};

use crate::{SourceElement, SourceNode};

const CLIENT_DECLARATION: &[u8] = b" xmlns='jabber:client'";

/// The stanza without the declaration of `jabber:client` on its root.
pub(crate) fn to_store_form(stanza: &[u8]) -> Vec<u8> {
    let client = NamespaceContext::client();
    let Ok(tree) = Tree::parse(stanza, &client, &STANZA_LIMITS) else { return stanza.to_vec() };
    let Some(start) = tree.root().start_tag() else { return stanza.to_vec() };
    let declared = start.declarations().find(|attr| attr.prefix.is_none() && attr.raw == Ns::Client.as_str());
    let Some(declared) = declared else { return stanza.to_vec() };
    let before = stanza.get(..declared.name_start).unwrap_or_default();
    let after = stanza.get(declared.value_range.end + 1..).unwrap_or_default();
    [before.trim_ascii_end(), after].concat()
}

/// The stanza with the declaration as its first attribute.
pub(crate) fn to_file_form(stanza: &[u8]) -> Vec<u8> {
    let bare = to_store_form(stanza);
    let name = bare.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>'));
    let (name, rest) = bare.split_at(name.unwrap_or(bare.len()));
    [name, CLIENT_DECLARATION, rest].concat()
}

/// Checks that the engine can read a stored message. The error is a reason for people.
pub(crate) fn check_message(stanza: &[u8]) -> Result<(), String> {
    match read(stanza)? {
        StanzaKind::Message(MessageType::Chat | MessageType::Normal) => Ok(()),
        // XEP-0160, section 3: no other type is stored offline.
        StanzaKind::Message(_) => Err("a message of its type is not stored for offline users".to_owned()),
        _ => Err("it is not a message".to_owned()),
    }
}

/// Checks a stored subscription request.
pub(crate) fn check_request(stanza: &[u8]) -> Result<(), String> {
    match read(stanza)? {
        StanzaKind::Presence(PresenceType::Subscribe) => Ok(()),
        _ => Err("it is not a subscription request".to_owned()),
    }
}

fn read(stanza: &[u8]) -> Result<StanzaKind, String> {
    let client = NamespaceContext::client();
    match Element::read(stanza, &client, &STANZA_LIMITS) {
        Ok(Element::Stanza(head)) => Ok(head.kind),
        Ok(_) => Err("it is not a stanza".to_owned()),
        Err(error) => Err(format!("it is not valid XML: {error}")),
    }
}

/// The time at which the server accepted a message (XEP-0203), in milliseconds since 1970: the stamp of the server if there
/// is one, else the first.
pub(crate) fn delay_stamp(stanza: &[u8], domain: &str) -> Option<u64> {
    let client = NamespaceContext::client();
    let tree = Tree::parse(stanza, &client, &STANZA_LIMITS).ok()?;
    let delays = || tree.root().child_elements().filter(|child| child.is("delay", Ns::Delay));
    let own = delays().find(|delay| delay.attr("from").as_deref() == Some(domain));
    let stamp = own.or_else(|| delays().next())?.attr("stamp")?;
    u64::try_from(parse_datetime(&stamp)?).ok()
}

/// Adds `<delay/>` to a message of another server that stores the time beside it, unless the server's is there already.
pub(crate) fn add_delay(message: &mut SourceElement, domain: &str, unix_millis: u64) {
    let is_own = |child: &SourceNode| match child {
        SourceNode::Element(element) => {
            element.name == "delay"
                && element.attribute("xmlns") == Some(Ns::Delay.as_str())
                && element.attribute("from") == Some(domain)
        }
        SourceNode::Text(_) => false,
    };
    if message.children.iter().any(is_own) {
        return;
    }
    let attribute = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    message.children.push(SourceNode::Element(SourceElement {
        name: "delay".to_owned(),
        attributes: vec![
            attribute("xmlns", Ns::Delay.as_str()),
            attribute("from", domain),
            attribute("stamp", &format_utc(unix_millis, true)),
        ],
        children: Vec::new(),
    }));
}

/// The bare address in the `from` of a stanza.
pub(crate) fn bare_from(stanza: &[u8]) -> Option<Jid> {
    let client = NamespaceContext::client();
    let tree = Tree::parse(stanza, &client, &STANZA_LIMITS).ok()?;
    let from = tree.root().attr("from")?;
    Some(Jid::from_stored(&from).ok()?.bare().to_jid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_declaration_is_added_as_first_attribute_and_removed_from_any_place() {
        for (stored, file) in [
            ("<message/>", "<message xmlns='jabber:client'/>"),
            (
                "<message to='a'><body>x</body></message>",
                "<message xmlns='jabber:client' to='a'><body>x</body></message>",
            ),
            ("<message\n to='a'/>", "<message xmlns='jabber:client'\n to='a'/>"),
            (
                "<message><x xmlns='jabber:client'/></message>",
                "<message xmlns='jabber:client'><x xmlns='jabber:client'/></message>",
            ),
        ] {
            assert_eq!(text(to_file_form(stored.as_bytes())), file);
            assert_eq!(text(to_store_form(file.as_bytes())), stored);
            assert_eq!(text(to_store_form(stored.as_bytes())), stored);
            assert_eq!(text(to_file_form(file.as_bytes())), file);
        }
        assert_eq!(
            text(to_store_form(b"<message to='a' xmlns=\"jabber:client\" id='1'/>")),
            "<message to='a' id='1'/>"
        );
        assert_eq!(text(to_store_form(b"<message xmlns='urn:x'/>")), "<message xmlns='urn:x'/>");
        assert_eq!(text(to_store_form(b"no xml")), "no xml");
    }

    #[test]
    fn only_what_the_engine_can_read_is_a_message_or_request() {
        assert_eq!(check_message(b"<message type='chat'><body/></message>"), Ok(()));
        assert_eq!(check_message(b"<message/>"), Ok(()));
        for kind in ["groupchat", "headline", "error"] {
            assert!(check_message(format!("<message type='{kind}'/>").as_bytes()).is_err(), "{kind}");
        }
        assert!(check_message(b"<presence/>").is_err());
        assert!(check_message(b"<message xmlns='urn:x'/>").is_err());
        assert!(check_message(b"<message>").is_err());
        assert_eq!(check_request(b"<presence type='subscribe' from='a@b'/>"), Ok(()));
        assert!(check_request(b"<presence/>").is_err());
    }

    #[test]
    fn the_stamp_of_the_own_server_counts() {
        let delay = |from: &str, second: u8| {
            format!("<delay xmlns='urn:xmpp:delay' from='{from}' stamp='1970-01-01T00:00:0{second}Z'/>")
        };
        let message = format!("<message>{}{}</message>", delay("room", 1), delay("capulet.lit", 2));
        assert_eq!(delay_stamp(message.as_bytes(), "capulet.lit"), Some(2000));
        assert_eq!(delay_stamp(message.as_bytes(), "montague.lit"), Some(1000));
        assert_eq!(delay_stamp(b"<message/>", "capulet.lit"), None);
        assert_eq!(
            bare_from(b"<message from='Romeo@Montague.lit/x'/>").unwrap().as_str(),
            "romeo@montague.lit"
        );
    }
}
