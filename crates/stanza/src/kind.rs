//! The three stanza kinds and their types: RFC 6120, section 8.2; RFC 6121, sections 4.7.1 and 5.2.2.
//!
//! An unknown message type counts as `normal` (RFC 6121, section 5.2.2). An unknown presence or IQ type is an error,
//! which the caller answers with `bad-request`.

/// Message types (RFC 6121, section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageType {
    /// No type, or an unknown one.
    Normal,
    /// One-to-one conversation.
    Chat,
    /// Multi-user conversation.
    Groupchat,
    /// No reply expected; never stored.
    Headline,
    /// Error reply to an earlier message.
    Error,
}

/// Presence types (RFC 6121, section 4.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PresenceType {
    /// No `type` attribute.
    Available,
    /// No longer available.
    Unavailable,
    /// Request for a subscription.
    Subscribe,
    /// Request granted.
    Subscribed,
    /// Cancellation of one's own subscription.
    Unsubscribe,
    /// Request denied, or subscription cancelled by the contact.
    Unsubscribed,
    /// Request of a server for current presence.
    Probe,
    /// Error reply to earlier presence.
    Error,
}

impl PresenceType {
    /// True for the four types that change a subscription (RFC 6121, section 3).
    pub const fn is_subscription(self) -> bool {
        matches!(self, Self::Subscribe | Self::Subscribed | Self::Unsubscribe | Self::Unsubscribed)
    }

    /// Value of the `type` attribute; none for available.
    pub const fn as_str(self) -> Option<&'static str> {
        Some(match self {
            Self::Available => return None,
            Self::Unavailable => "unavailable",
            Self::Subscribe => "subscribe",
            Self::Subscribed => "subscribed",
            Self::Unsubscribe => "unsubscribe",
            Self::Unsubscribed => "unsubscribed",
            Self::Probe => "probe",
            Self::Error => "error",
        })
    }
}

/// IQ types (RFC 6120, section 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IqType {
    /// Request for information.
    Get,
    /// Request that provides data or changes something.
    Set,
    /// Response to a get or set.
    Result,
    /// Error response to a get or set.
    Error,
}

/// Kind and type of a stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StanzaKind {
    /// `<message/>`
    Message(MessageType),
    /// `<presence/>`
    Presence(PresenceType),
    /// `<iq/>`
    Iq(IqType),
}

impl StanzaKind {
    /// Element name.
    pub const fn name(self) -> &'static str {
        match self {
            StanzaKind::Message(_) => "message",
            StanzaKind::Presence(_) => "presence",
            StanzaKind::Iq(_) => "iq",
        }
    }

    /// Whether the type is error; such stanzas are never answered with an error (RFC 6120, section 8.3.1).
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            StanzaKind::Message(MessageType::Error)
                | StanzaKind::Presence(PresenceType::Error)
                | StanzaKind::Iq(IqType::Error)
        )
    }

    /// Whether it is an IQ of type get or set, which must be answered.
    pub const fn is_request(self) -> bool {
        matches!(self, StanzaKind::Iq(IqType::Get | IqType::Set))
    }

    /// The bit of this kind and type in a [`StanzaKindSet`].
    pub const fn bit(self) -> u32 {
        match self {
            StanzaKind::Message(t) => 1 << (t as u8),
            StanzaKind::Presence(t) => 1 << (5 + t as u8),
            StanzaKind::Iq(t) => 1 << (13 + t as u8),
        }
    }

    /// Kind and type from element name and `type` attribute; `None` for an unknown name, `Some(Err(()))` for a type
    /// that the kind does not have.
    #[allow(clippy::result_unit_err, reason = "the only error is an unknown type; the caller has the text")]
    pub fn parse(name: &str, ty: Option<&str>) -> Option<Result<StanzaKind, ()>> {
        Some(match name {
            "message" => Ok(StanzaKind::Message(match ty {
                Some("chat") => MessageType::Chat,
                Some("groupchat") => MessageType::Groupchat,
                Some("headline") => MessageType::Headline,
                Some("error") => MessageType::Error,
                _ => MessageType::Normal,
            })),
            "presence" => Ok(StanzaKind::Presence(match ty {
                None => PresenceType::Available,
                Some("unavailable") => PresenceType::Unavailable,
                Some("subscribe") => PresenceType::Subscribe,
                Some("subscribed") => PresenceType::Subscribed,
                Some("unsubscribe") => PresenceType::Unsubscribe,
                Some("unsubscribed") => PresenceType::Unsubscribed,
                Some("probe") => PresenceType::Probe,
                Some("error") => PresenceType::Error,
                Some(_) => return Some(Err(())),
            })),
            "iq" => Ok(StanzaKind::Iq(match ty {
                Some("get") => IqType::Get,
                Some("set") => IqType::Set,
                Some("result") => IqType::Result,
                Some("error") => IqType::Error,
                _ => return Some(Err(())),
            })),
            _ => return None,
        })
    }
}

/// A set of kinds and types, for a declared interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StanzaKindSet(pub u32);

impl StanzaKindSet {
    /// Every stanza.
    pub const ALL: StanzaKindSet = StanzaKindSet(u32::MAX);
    /// Messages of every type.
    pub const MESSAGES: StanzaKindSet = StanzaKindSet(0b1_1111);
    /// Presence of every type.
    pub const PRESENCE: StanzaKindSet = StanzaKindSet(0b1111_1111 << 5);
    /// IQs of every type.
    pub const IQS: StanzaKindSet = StanzaKindSet(0b1111 << 13);
    /// The set of one kind and type.
    pub const fn of(kind: StanzaKind) -> StanzaKindSet {
        StanzaKindSet(kind.bit())
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: StanzaKindSet) -> StanzaKindSet {
        StanzaKindSet(self.0 | other.0)
    }

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: StanzaKind) -> bool {
        self.0 & kind.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6120#section-15
    //= type=test
    //# Feature: stanza-attribute-type. Description: Support the common 'type' attribute for all stanza kinds.
    //# Section: Section 8.1.4. Roles: Client MUST, Server MUST.
    //= https://www.rfc-editor.org/rfc/rfc6121#section-5.2.2
    //= type=test
    //# it MUST consider the message to be of type "normal" (i.e., "normal" is the default).
    #[test]
    fn unknown_message_type_is_normal_and_unknown_iq_type_is_an_error() {
        assert_eq!(
            StanzaKind::parse("message", Some("x")),
            Some(Ok(StanzaKind::Message(MessageType::Normal)))
        );
        assert_eq!(StanzaKind::parse("iq", None), Some(Err(())));
        assert_eq!(StanzaKind::parse("presence", Some("x")), Some(Err(())));
        assert_eq!(StanzaKind::parse("foo", None), None);
    }

    #[test]
    fn bits_do_not_overlap() {
        let all = [
            StanzaKind::Message(MessageType::Error),
            StanzaKind::Presence(PresenceType::Available),
            StanzaKind::Presence(PresenceType::Error),
            StanzaKind::Iq(IqType::Get),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_eq!(a.bit() & b.bit(), 0);
            }
        }
        assert!(
            StanzaKindSet::PRESENCE.contains(all[1])
                && StanzaKindSet::PRESENCE.contains(all[2])
                && !StanzaKindSet::PRESENCE.contains(all[0])
        );
        assert!(StanzaKindSet::IQS.contains(all[3]) && !StanzaKindSet::MESSAGES.contains(all[3]));
    }
}
