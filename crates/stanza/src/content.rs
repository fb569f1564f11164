//! What a message carries, as a set of bits: the one place that tells a text from a typing notification.
//!
//! Copies to other clients, holding back for idle ones, offline storage and archives all ask this, and none of them looks
//! into messages itself. Told apart are chat states (XEP-0085 2.1), receipts (XEP-0184 1.4.0), markers (XEP-0333 1.0.0),
//! corrections (XEP-0308 1.2.1), replies (XEP-0461 0.2.1), encryption (XEP-0380 0.4.0 and its methods), invitations
//! (XEP-0045, XEP-0249), calls (XEP-0353), events (XEP-0060), copies (XEP-0280) and hints (XEP-0334).
//!
//! Left out: what is to be done with each; that is said where it is done. Messages of type error often contain what the
//! original contained; whether that counts is for the caller to say (XEP-0334 section 5: hints in errors do not).
//!
//! The trap: a message with a body and without hints is told from its [`Head`] alone and not read again. There a receipt
//! counts as a request and a marker as *markable*, because their names are not known and beside a text nobody asks.

use xml::{Event, Limits, Ns, NsSet, Reader, Scope};

use crate::head::Head;
use crate::kind::{Kind, MessageType};

/// What the children of a message are. Children that say nothing by themselves (thread, ids, delay, nick) have no bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content(pub u32);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl Content {
            $($(#[$doc])* pub const $name: Content = Content(1 << $bit);)*
        }
    };
}

bits! {
    /// A `<body/>`.
    BODY = 0,
    /// A `<subject/>`.
    SUBJECT = 1,
    /// A chat state (XEP-0085).
    STATE = 2,
    /// Asks for a receipt (XEP-0184).
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
    /// Takes an earlier message back (XEP-0424).
    RETRACTION = 10,
    /// Answers an earlier message (XEP-0461).
    REPLY = 11,
    /// Invites to a room: direct (XEP-0249) or mediated (XEP-0045 section 7.8.2).
    INVITE = 12,
    /// Has to do with a room (XEP-0045, `muc#user`).
    ROOM = 13,
    /// An event of a node (XEP-0060, XEP-0163).
    EVENT = 14,
    /// A call, its answer or its end (XEP-0353).
    CALL = 15,
    /// A copy of another message (XEP-0280 `<sent/>` and `<received/>`).
    COPY = 16,
    /// Must not be copied (XEP-0280 section 9).
    PRIVATE = 17,
    /// Should not be copied (XEP-0334 section 4.3).
    NO_COPY = 18,
    /// Should not be stored, not even for a while (XEP-0334 section 4.2).
    NO_STORE = 19,
    /// Should not be archived (XEP-0334 section 4.1).
    NO_PERMANENT_STORE = 20,
    /// Should be stored (XEP-0334 section 4.4).
    STORE = 21,
    /// Anything else. Not looked for beside a body.
    OTHER = 22,
    /// The message cannot be read again. Those who police refuse it; to all others it is nothing that they know.
    UNREADABLE = 23,
}

/// The hints say what to do with a message, not what it is.
const HINTS: u32 =
    Content::NO_COPY.0 | Content::NO_STORE.0 | Content::NO_PERMANENT_STORE.0 | Content::STORE.0;

/// Namespaces whose names decide, also beside a body.
const NAMED: NsSet = NsSet::of(&[Ns::Hints, Ns::Carbons2, Ns::MucUser]);

/// What a child in these namespaces is, whatever its name.
const PLAIN: &[(Ns, Content)] = &[
    (Ns::Chatstates, Content::STATE),
    (Ns::Correct, Content::CORRECTION),
    (Ns::Eme, Content::ENCRYPTED),
    (Ns::OmemoLegacy, Content::ENCRYPTED),
    (Ns::Omemo2, Content::ENCRYPTED),
    (Ns::Openpgp, Content::ENCRYPTED),
    (Ns::Reactions, Content::REACTION),
    (Ns::Retract, Content::RETRACTION),
    (Ns::Reply, Content::REPLY),
    (Ns::Conference, Content::INVITE),
    (Ns::PubsubEvent, Content::EVENT),
    (Ns::JingleMessage, Content::CALL),
];

/// Children in these say nothing about what the message is.
const SILENT: NsSet =
    NsSet::of(&[Ns::StanzaId, Ns::OccupantId, Ns::Delay, Ns::DelayLegacy, Ns::Nick, Ns::Fallback, Ns::Hats]);

static CLIENT: Scope = Scope::client();
/// The bytes were checked when they arrived.
const LIMITS: Limits = Limits::CEILING;

impl Content {
    /// What a message carries. Reads it again only if the head does not tell.
    pub fn of(head: &Head, bytes: &[u8]) -> Content {
        let found = head.payloads();
        if head.has_body && !found.intersects(NAMED) {
            let mut all = Content::BODY;
            let beside = [(Ns::Receipts, Content::REQUEST), (Ns::ChatMarkers, Content::MARKABLE)];
            for (ns, bit) in PLAIN.iter().chain(&beside) {
                if found.contains(*ns) {
                    all.0 |= bit.0;
                }
            }
            return all;
        }
        if head.children == 0 {
            return Content::default();
        }
        children(bytes, 1).map_or(Content::UNREADABLE, |(_, content)| content)
    }

    /// Type and content of the message inside a copy ([`Content::COPY`]); `None` if there is none.
    pub fn copied(bytes: &[u8]) -> Option<(MessageType, Content)> {
        children(bytes, 4)
    }

    /// Whether all bits of `other` are there.
    pub const fn has(self, other: Content) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether any bit of `other` is there.
    pub const fn any(self, other: Content) -> bool {
        self.0 & other.0 != 0
    }
    /// Both.
    #[must_use]
    pub const fn and(self, other: Content) -> Content {
        Content(self.0 | other.0)
    }
    /// Whether there is nothing but what `other` has, hints aside.
    pub const fn within(self, other: Content) -> bool {
        self.0 & !(other.0 | HINTS) == 0
    }
    /// A chat state and nothing else (XEP-0085 section 5.6: a *standalone notification*).
    pub const fn is_lone_state(self) -> bool {
        self.has(Content::STATE) && self.within(Content::STATE)
    }
}

/// What one child is.
fn child(ns: Option<Ns>, name: &str) -> Content {
    let Some(ns) = ns else { return Content::OTHER };
    if SILENT.contains(ns) {
        return Content::default();
    }
    if let Some((_, content)) = PLAIN.iter().find(|(known, _)| *known == ns) {
        return *content;
    }
    match (ns, name) {
        (Ns::Client, "body") => Content::BODY,
        (Ns::Client, "subject") => Content::SUBJECT,
        (Ns::Client, "thread" | "error") => Content::default(),
        (Ns::Receipts, "received") => Content::RECEIPT,
        (Ns::Receipts, _) => Content::REQUEST,
        (Ns::ChatMarkers, "markable") => Content::MARKABLE,
        (Ns::ChatMarkers, _) => Content::MARKER,
        (Ns::MucUser, _) => Content::ROOM,
        (Ns::Carbons2, "private") => Content::PRIVATE,
        (Ns::Carbons2, "sent" | "received") => Content::COPY,
        (Ns::Hints, "no-copy") => Content::NO_COPY,
        (Ns::Hints, "no-store") => Content::NO_STORE,
        (Ns::Hints, "no-permanent-store") => Content::NO_PERMANENT_STORE,
        (Ns::Hints, "store") => Content::STORE,
        _ => Content::OTHER,
    }
}

/// The children of the message that stands `level - 1` elements deep: 1 is the element itself, 4 the one inside a copy
/// (`message`, `sent` or `received`, `forwarded`, `message`). `None` if there is none or the bytes cannot be read.
fn children(bytes: &[u8], level: usize) -> Option<(MessageType, Content)> {
    let mut reader = Reader::new(bytes, &CLIENT, &LIMITS).ok()?;
    let mut content = Content::default();
    let mut ty = None;
    // Open elements, and how many of them, from the outside, lead to the message.
    let (mut depth, mut way) = (0, 0);
    let mut room = false;
    // An error on the way is not the end: what is behind it is not known.
    while let Some(event) = reader.next().ok()? {
        match event {
            Event::Start(start) => {
                if way == level {
                    if depth == level {
                        let one = child(start.ns.id, start.name);
                        room = one == Content::ROOM;
                        content.0 |= one.0;
                    } else if room && depth == level + 1 && start.is("invite", Ns::MucUser) {
                        content.0 |= Content::INVITE.0;
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
                        ty = match Kind::parse("message", text.as_ref().map(|t| t.value()).as_deref()) {
                            Some(Ok(Kind::Message(ty))) => Some(ty),
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
    use Content as C;

    fn of(children: &str) -> Content {
        let text = format!("<message type='chat'>{children}</message>");
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &CLIENT, &LIMITS) else { panic!() };
        Content::of(&head, text.as_bytes())
    }

    const TABLE: &[(&str, Content)] = &[
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
    fn each_child_is_what_it_is_alone_and_in_company() {
        for (one, expect) in TABLE {
            assert_eq!(of(one), *expect, "{one}");
            for (other, with) in TABLE {
                let (both, want) = (of(&format!("{one}{other}")), expect.and(*with));
                if !want.has(C::BODY) {
                    assert_eq!(both, want, "{one}{other}");
                }
            }
        }
    }

    #[test]
    fn beside_a_body_the_head_tells_the_same() {
        let blur = |c: Content| {
            let named = [(C::RECEIPT, C::REQUEST), (C::MARKER, C::MARKABLE)];
            let c =
                named.iter().fold(c, |c, (from, to)| if c.has(*from) { C(c.0 & !from.0 | to.0) } else { c });
            C(c.0 & !(C::OTHER.0 | C::SUBJECT.0))
        };
        for (one, expect) in TABLE {
            let text = format!("<body>Hi</body>{one}");
            assert_eq!(blur(of(&text)), blur(expect.and(C::BODY)), "{text}");
        }
    }

    #[test]
    fn xep_0085_section_5_6_standalone_notifications() {
        let composing = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
        assert!(of(composing).is_lone_state());
        assert!(
            of(&format!("<thread>1</thread>{composing}<no-store xmlns='urn:xmpp:hints'/>")).is_lone_state()
        );
        assert!(!of(&format!("{composing}<body/>")).is_lone_state());
        assert!(!of(&format!("{composing}<x xmlns='urn:unknown'/>")).is_lone_state());
        assert!(!of("<thread>1</thread>").is_lone_state());
    }

    #[test]
    fn a_message_that_cannot_be_read_is_nothing_that_is_known() {
        let text = "<message><sent xmlns='urn:xmpp:carbons:2'/></message>";
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &CLIENT, &LIMITS) else { panic!() };
        let attributes: String = (0..=LIMITS.attributes).map(|i| format!(" a{i}=''")).collect();
        for worse in [
            text.replacen("<message", &format!("<message{attributes}"), 1),
            text.replacen("/></message>", &format!("/><x{attributes}/></message>"), 1),
            text.replacen("/>", ">", 1),
        ] {
            assert_eq!(Content::of(&head, worse.as_bytes()), Content::UNREADABLE, "{worse}");
        }
        assert!(!Content::UNREADABLE.within(Content::OTHER) && !Content::UNREADABLE.is_lone_state());
    }

    #[test]
    fn a_copy_is_told_by_what_is_inside() {
        let copy = |way: &str, forwarded: &str, children: &str| {
            let text = format!(
                "<message from='a@b' type='chat'><{way} xmlns='urn:xmpp:carbons:2'>\
                 <{forwarded} xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='x'/>\
                 <message xmlns='jabber:client' type='headline'>{children}</message><body xmlns='jabber:client'/>\
                 </{forwarded}></{way}></message>"
            );
            Content::copied(text.as_bytes())
        };
        for (one, expect) in TABLE {
            for way in ["sent", "received"] {
                assert_eq!(copy(way, "forwarded", one), Some((MessageType::Headline, *expect)), "{one}");
            }
        }
        assert_eq!(copy("private", "forwarded", "<body/>"), None);
        assert_eq!(copy("sent", "result", "<body/>"), None);
        assert_eq!(Content::copied(b"<message><body/></message>"), None);
        assert_eq!(Content::copied(b"no stanza"), None);
    }
}
