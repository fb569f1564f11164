//! Classification of messages as a set of bits: the one place that distinguishes a text from a typing notification.
//!
//! Carbons, client state indication, offline storage and archives use it instead of inspecting messages themselves. It
//! covers chat states (XEP-0085 2.1), receipts (XEP-0184 1.4.0), markers (XEP-0333 1.0.0), corrections (XEP-0308
//! 1.2.1), replies (XEP-0461 0.2.1), encryption (XEP-0380 0.4.0 and its methods), invitations (XEP-0045, XEP-0249),
//! calls (XEP-0353), events (XEP-0060), carbon copies (XEP-0280) and hints (XEP-0334).
//!
//! Not implemented: policy, which the users of this module define. Messages of type error often repeat the original's
//! children; whether those count is up to the caller (XEP-0334, section 5: hints in errors do not).
//!
//! # Pitfalls
//!
//! A message with a body and without hints is classified by its [`Head`] alone. A receipt then counts as a request and
//! a marker as *markable*, because their element names are not known; beside a body nothing depends on the difference.

use xml::{Event, Limits, NamespaceContext, Ns, Reader};

use crate::head::Head;
use crate::kind::{MessageType, StanzaKind};
use crate::payload_set::{PayloadNs, PayloadSet};

/// Classification of a message by its children. Children without meaning of their own (thread, ids, delay, nick) set no
/// bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTraits(pub u32);

macro_rules! traits {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl MessageTraits {
            $($(#[$doc])* pub const $name: MessageTraits = MessageTraits(1 << $bit);)*
        }
    };
}

traits! {
    /// A `<body/>`.
    BODY = 0,
    /// A `<subject/>`.
    SUBJECT = 1,
    /// A chat state (XEP-0085).
    STATE = 2,
    /// Requests a receipt (XEP-0184).
    REQUEST = 3,
    /// Is a receipt (XEP-0184).
    RECEIPT = 4,
    /// May be marked (XEP-0333).
    MARKABLE = 5,
    /// Is a marker (XEP-0333).
    MARKER = 6,
    /// Corrects an earlier message (XEP-0308).
    CORRECTION = 7,
    /// Is encrypted (XEP-0380, OMEMO, OpenPGP).
    ENCRYPTED = 8,
    /// A reaction (XEP-0444).
    REACTION = 9,
    /// Retracts an earlier message (XEP-0424).
    RETRACTION = 10,
    /// Replies to an earlier message (XEP-0461).
    REPLY = 11,
    /// Invites to a room: direct (XEP-0249) or mediated (XEP-0045, section 7.8.2).
    INVITE = 12,
    /// Concerns a room (XEP-0045, `muc#user`).
    ROOM = 13,
    /// A pubsub event (XEP-0060, XEP-0163).
    EVENT = 14,
    /// A call, its answer or its end (XEP-0353).
    CALL = 15,
    /// A carbon copy of another message (XEP-0280 `<sent/>` and `<received/>`).
    COPY = 16,
    /// Must not be copied (XEP-0280, section 9).
    PRIVATE = 17,
    /// Should not be copied (XEP-0334, section 4.3).
    NO_COPY = 18,
    /// Should not be stored, not even temporarily (XEP-0334, section 4.2).
    NO_STORE = 19,
    /// Should not be archived (XEP-0334, section 4.1).
    NO_PERMANENT_STORE = 20,
    /// Should be stored (XEP-0334, section 4.4).
    STORE = 21,
    /// Anything else. Not detected beside a body.
    OTHER = 22,
    /// The message cannot be parsed again. Policing handlers refuse it; all others treat it as a message without known
    /// content.
    UNREADABLE = 23,
}

/// Hints state how to handle a message, not what it is.
const HINT_TRAITS: u32 = MessageTraits::NO_COPY.0
    | MessageTraits::NO_STORE.0
    | MessageTraits::NO_PERMANENT_STORE.0
    | MessageTraits::STORE.0;

/// Namespaces in which the element name matters, even beside a body.
const NAMESPACES_BY_NAME: PayloadSet =
    PayloadSet::of(&[PayloadNs::Hints, PayloadNs::Carbons2, PayloadNs::MucUser]);

/// Traits of children in these namespaces, regardless of element name.
const TRAIT_BY_NAMESPACE: &[(PayloadNs, MessageTraits)] = &[
    (PayloadNs::Chatstates, MessageTraits::STATE),
    (PayloadNs::Correct, MessageTraits::CORRECTION),
    (PayloadNs::Eme, MessageTraits::ENCRYPTED),
    (PayloadNs::OmemoLegacy, MessageTraits::ENCRYPTED),
    (PayloadNs::Omemo2, MessageTraits::ENCRYPTED),
    (PayloadNs::Openpgp, MessageTraits::ENCRYPTED),
    (PayloadNs::Reactions, MessageTraits::REACTION),
    (PayloadNs::Retract, MessageTraits::RETRACTION),
    (PayloadNs::Reply, MessageTraits::REPLY),
    (PayloadNs::Conference, MessageTraits::INVITE),
    (PayloadNs::PubsubEvent, MessageTraits::EVENT),
    (PayloadNs::JingleMessage, MessageTraits::CALL),
];

/// Namespaces of children that do not affect the classification.
const NEUTRAL_NAMESPACES: &[Ns] =
    &[Ns::StanzaId, Ns::OccupantId, Ns::Delay, Ns::DelayLegacy, Ns::Nick, Ns::Fallback, Ns::Hats];

static CLIENT: NamespaceContext = NamespaceContext::client();
// The bytes were validated on arrival.
const LIMITS: Limits = Limits::CEILING;

impl MessageTraits {
    /// Classifies a message. Parses it again only if the head is not sufficient.
    pub fn of(head: &Head, bytes: &[u8]) -> MessageTraits {
        let found = head.payloads();
        if head.has_body && !found.intersects(NAMESPACES_BY_NAME) {
            let mut all = MessageTraits::BODY;
            let beside = [
                (PayloadNs::Receipts, MessageTraits::REQUEST),
                (PayloadNs::ChatMarkers, MessageTraits::MARKABLE),
            ];
            for (ns, bit) in TRAIT_BY_NAMESPACE.iter().chain(&beside) {
                if found.contains(*ns) {
                    all.0 |= bit.0;
                }
            }
            return all;
        }
        if head.child_count == 0 {
            return MessageTraits::default();
        }
        traits_of_children(bytes, 1).map_or(MessageTraits::UNREADABLE, |(_, content)| content)
    }

    /// Type and traits of the message inside a carbon copy ([`MessageTraits::COPY`]); `None` if there is none.
    pub fn of_carbon(bytes: &[u8]) -> Option<(MessageType, MessageTraits)> {
        traits_of_children(bytes, 4)
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: MessageTraits) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    pub const fn intersects(self, other: MessageTraits) -> bool {
        self.0 & other.0 != 0
    }

    /// The union of both.
    #[must_use]
    pub const fn union(self, other: MessageTraits) -> MessageTraits {
        MessageTraits(self.0 | other.0)
    }

    /// Whether no bit outside `other` is set, hints aside.
    pub const fn is_within_ignoring_hints(self, other: MessageTraits) -> bool {
        self.0 & !(other.0 | HINT_TRAITS) == 0
    }

    /// A chat state and nothing else (XEP-0085, section 5.6: a *standalone notification*).
    pub const fn is_standalone_chat_state(self) -> bool {
        self.contains(MessageTraits::STATE) && self.is_within_ignoring_hints(MessageTraits::STATE)
    }
}

/// Traits of one child.
fn traits_of_child(ns: Option<Ns>, name: &str) -> MessageTraits {
    let Some(ns) = ns else { return MessageTraits::OTHER };
    if NEUTRAL_NAMESPACES.contains(&ns) {
        return MessageTraits::default();
    }
    if let Some((_, content)) = TRAIT_BY_NAMESPACE.iter().find(|(known, _)| known.ns() == ns) {
        return *content;
    }
    match (ns, name) {
        (Ns::Client, "body") => MessageTraits::BODY,
        (Ns::Client, "subject") => MessageTraits::SUBJECT,
        (Ns::Client, "thread" | "error") => MessageTraits::default(),
        (Ns::Receipts, "received") => MessageTraits::RECEIPT,
        (Ns::Receipts, _) => MessageTraits::REQUEST,
        (Ns::ChatMarkers, "markable") => MessageTraits::MARKABLE,
        (Ns::ChatMarkers, _) => MessageTraits::MARKER,
        (Ns::MucUser, _) => MessageTraits::ROOM,
        (Ns::Carbons2, "private") => MessageTraits::PRIVATE,
        (Ns::Carbons2, "sent" | "received") => MessageTraits::COPY,
        (Ns::Hints, "no-copy") => MessageTraits::NO_COPY,
        (Ns::Hints, "no-store") => MessageTraits::NO_STORE,
        (Ns::Hints, "no-permanent-store") => MessageTraits::NO_PERMANENT_STORE,
        (Ns::Hints, "store") => MessageTraits::STORE,
        _ => MessageTraits::OTHER,
    }
}

/// Type and traits of the message at depth `level`: 1 is the element itself, 4 the one inside a carbon copy (`message`,
/// `sent` or `received`, `forwarded`, `message`). `None` if there is none or the bytes cannot be parsed.
fn traits_of_children(bytes: &[u8], level: usize) -> Option<(MessageType, MessageTraits)> {
    let mut reader = Reader::new(bytes, &CLIENT, &LIMITS).ok()?;
    let mut content = MessageTraits::default();
    let mut ty = None;
    // Number of open elements, and how many of them, from the outside, are on the path to the message.
    let (mut depth, mut way) = (0, 0);
    let mut room = false;
    // After a parse error the remaining children are unknown, so the result is `None`.
    while let Some(event) = reader.next().ok()? {
        match event {
            Event::Start(start) => {
                if way == level {
                    if depth == level {
                        let one = traits_of_child(start.ns.id, start.name);
                        room = one == MessageTraits::ROOM;
                        content.0 |= one.0;
                    } else if room && depth == level + 1 && start.is("invite", Ns::MucUser) {
                        content.0 |= MessageTraits::INVITE.0;
                    }
                } else if way == depth {
                    let leads = match depth {
                        0 => true,
                        1 => start.is("sent", Ns::Carbons2) || start.is("received", Ns::Carbons2),
                        2 => start.is("forwarded", Ns::Forward),
                        _ => start.is("message", Ns::Client),
                    };
                    if leads {
                        way += 1;
                    }
                    if way == level {
                        let text = start.attr("type");
                        ty = match StanzaKind::parse("message", text.as_ref().map(|t| t.value()).as_deref()) {
                            Some(Ok(StanzaKind::Message(ty))) => Some(ty),
                            _ => None,
                        };
                    }
                }
                depth += 1;
            }
            Event::End => {
                depth -= 1;
                if depth < way {
                    if way == level {
                        break;
                    }
                    way = depth;
                }
            }
            Event::Text(_) => {}
        }
    }
    Some((ty?, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Element;
    use MessageTraits as C;

    fn of(children: &str) -> MessageTraits {
        let text = format!("<message type='chat'>{children}</message>");
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &CLIENT, &LIMITS) else { panic!() };
        MessageTraits::of(&head, text.as_bytes())
    }

    const TABLE: &[(&str, MessageTraits)] = &[
        ("", C(0)),
        ("<thread>1</thread>", C(0)),
        ("<body>Hi</body>", C::BODY),
        ("<subject>Hi</subject>", C::SUBJECT),
        ("<composing xmlns='http://jabber.org/protocol/chatstates'/>", C::STATE),
        ("<request xmlns='urn:xmpp:receipts'/>", C::REQUEST),
        ("<received xmlns='urn:xmpp:receipts' id='1'/>", C::RECEIPT),
        ("<markable xmlns='urn:xmpp:chat-markers:0'/>", C::MARKABLE),
        ("<displayed xmlns='urn:xmpp:chat-markers:0' id='1'/>", C::MARKER),
        ("<received xmlns='urn:xmpp:chat-markers:0' id='1'/>", C::MARKER),
        ("<replace xmlns='urn:xmpp:message-correct:0' id='1'/>", C::CORRECTION),
        ("<encryption xmlns='urn:xmpp:eme:0' namespace='x'/>", C::ENCRYPTED),
        ("<encrypted xmlns='eu.siacs.conversations.axolotl'><header sid='1'/></encrypted>", C::ENCRYPTED),
        ("<encrypted xmlns='urn:xmpp:omemo:2'/>", C::ENCRYPTED),
        ("<openpgp xmlns='urn:xmpp:openpgp:0'>x</openpgp>", C::ENCRYPTED),
        ("<reactions xmlns='urn:xmpp:reactions:0' id='1'/>", C::REACTION),
        ("<retract xmlns='urn:xmpp:message-retract:1' id='1'/>", C::RETRACTION),
        ("<reply xmlns='urn:xmpp:reply:0' id='1'/>", C::REPLY),
        ("<x xmlns='jabber:x:conference' jid='a@b'/>", C::INVITE),
        ("<x xmlns='http://jabber.org/protocol/muc#user'/>", C::ROOM),
        (
            "<x xmlns='http://jabber.org/protocol/muc#user'><invite from='a@b'><reason>r</reason></invite></x>",
            C(C::ROOM.0 | C::INVITE.0),
        ),
        ("<x xmlns='http://jabber.org/protocol/muc#user'><decline><invite/></decline></x>", C::ROOM),
        ("<event xmlns='http://jabber.org/protocol/pubsub#event'/>", C::EVENT),
        ("<propose xmlns='urn:xmpp:jingle-message:0' id='1'/>", C::CALL),
        ("<private xmlns='urn:xmpp:carbons:2'/>", C::PRIVATE),
        ("<sent xmlns='urn:xmpp:carbons:2'/>", C::COPY),
        ("<received xmlns='urn:xmpp:carbons:2'/>", C::COPY),
        ("<no-copy xmlns='urn:xmpp:hints'/>", C::NO_COPY),
        ("<no-store xmlns='urn:xmpp:hints'/>", C::NO_STORE),
        ("<no-permanent-store xmlns='urn:xmpp:hints'/>", C::NO_PERMANENT_STORE),
        ("<store xmlns='urn:xmpp:hints'/>", C::STORE),
        ("<delay xmlns='urn:xmpp:delay' stamp='x'/>", C(0)),
        ("<stanza-id xmlns='urn:xmpp:sid:0' id='1' by='a@b'/>", C(0)),
        ("<x xmlns='urn:unknown'><body xmlns='jabber:client'/></x>", C::OTHER),
        ("<strange/>", C::OTHER),
    ];

    #[test]
    fn each_child_has_the_same_traits_alone_and_among_others() {
        for (one, expect) in TABLE {
            assert_eq!(of(one), *expect, "{one}");
            for (other, with) in TABLE {
                let (both, want) = (of(&format!("{one}{other}")), expect.union(*with));
                if !want.contains(C::BODY) {
                    assert_eq!(both, want, "{one}{other}");
                }
            }
        }
    }

    #[test]
    fn the_head_of_a_message_with_a_body_gives_the_same_traits() {
        let blur = |c: MessageTraits| {
            let named = [(C::RECEIPT, C::REQUEST), (C::MARKER, C::MARKABLE)];
            let c = named
                .iter()
                .fold(c, |c, (from, to)| if c.contains(*from) { C(c.0 & !from.0 | to.0) } else { c });
            C(c.0 & !(C::OTHER.0 | C::SUBJECT.0))
        };
        for (one, expect) in TABLE {
            let text = format!("<body>Hi</body>{one}");
            assert_eq!(blur(of(&text)), blur(expect.union(C::BODY)), "{text}");
        }
    }

    #[test]
    fn xep_0085_section_5_6_standalone_notifications() {
        let composing = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
        assert!(of(composing).is_standalone_chat_state());
        assert!(
            of(&format!("<thread>1</thread>{composing}<no-store xmlns='urn:xmpp:hints'/>"))
                .is_standalone_chat_state()
        );
        assert!(!of(&format!("{composing}<body/>")).is_standalone_chat_state());
        assert!(!of(&format!("{composing}<x xmlns='urn:unknown'/>")).is_standalone_chat_state());
        assert!(!of("<thread>1</thread>").is_standalone_chat_state());
    }

    #[test]
    fn an_unreadable_message_has_no_known_traits() {
        let text = "<message><sent xmlns='urn:xmpp:carbons:2'/></message>";
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &CLIENT, &LIMITS) else { panic!() };
        let attributes: String = (0..=LIMITS.attributes).map(|i| format!(" a{i}=''")).collect();
        for worse in [
            text.replacen("<message", &format!("<message{attributes}"), 1),
            text.replacen("/></message>", &format!("/><x{attributes}/></message>"), 1),
            text.replacen("/>", ">", 1),
        ] {
            assert_eq!(MessageTraits::of(&head, worse.as_bytes()), MessageTraits::UNREADABLE, "{worse}");
        }
        assert!(
            !MessageTraits::UNREADABLE.is_within_ignoring_hints(MessageTraits::OTHER)
                && !MessageTraits::UNREADABLE.is_standalone_chat_state()
        );
    }

    #[test]
    fn a_carbon_is_classified_by_the_message_inside() {
        let copy = |way: &str, forwarded: &str, children: &str| {
            let text = format!(
                "<message from='a@b' type='chat'><{way} xmlns='urn:xmpp:carbons:2'>\
                 <{forwarded} xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='x'/>\
                 <message xmlns='jabber:client' type='headline'>{children}</message><body xmlns='jabber:client'/>\
                 </{forwarded}></{way}></message>"
            );
            MessageTraits::of_carbon(text.as_bytes())
        };
        for (one, expect) in TABLE {
            for way in ["sent", "received"] {
                assert_eq!(copy(way, "forwarded", one), Some((MessageType::Headline, *expect)), "{one}");
            }
        }
        assert_eq!(copy("private", "forwarded", "<body/>"), None);
        assert_eq!(copy("sent", "result", "<body/>"), None);
        assert_eq!(MessageTraits::of_carbon(b"<message><body/></message>"), None);
        assert_eq!(MessageTraits::of_carbon(b"no stanza"), None);
    }
}
