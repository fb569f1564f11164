//! Delivery rules for local accounts: RFC 6121 section 8.5, as one pure function.
//!
//! Choices where the specification leaves one: a message to a bare address goes to all resources of
//! non-negative priority (8.5.2.1.1 b); an undeliverable `normal` or `groupchat` message is bounced and a
//! headline dropped (8.5.3.2.1). The table test below names the section of every rule.

use stanza::{IqType, Kind, MessageType, PresenceType, StanzaCondition};

/// The form of the `to` address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `localpart@domainpart`
    Bare,
    /// `localpart@domainpart/resourcepart`
    Full,
}

/// What is known of the recipient's resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    /// A connected resource has exactly this full address.
    pub exact: bool,
    /// Available resources.
    pub available: usize,
    /// Available resources with a priority of zero or more.
    pub non_negative: usize,
    /// The sender may know of the recipient's presence (subscription or directed presence), or is the same account.
    pub trusted: bool,
}

/// What happens to the stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To the resource named in `to`.
    Exact,
    /// To all available resources with a priority of zero or more.
    NonNegative,
    /// To all available resources.
    Available,
    /// To the `undelivered` chain, which stores or bounces.
    Undelivered,
    /// An error to the sender.
    Bounce(StanzaCondition),
    /// Silence.
    Drop,
    /// The server answers for the account: IQ, subscriptions and probes.
    Server,
}

/// Decides for one stanza (RFC 6121 section 8.5).
pub fn decide(kind: Kind, form: Form, r: Resources) -> Action {
    const UNAVAILABLE: Action = Action::Bounce(StanzaCondition::ServiceUnavailable);
    match kind {
        Kind::Message(t) => {
            if form == Form::Full {
                if r.exact {
                    return Action::Exact;
                }
                match t {
                    MessageType::Chat => {} // as if sent to the bare address
                    MessageType::Normal | MessageType::Groupchat => return UNAVAILABLE,
                    MessageType::Headline | MessageType::Error => return Action::Drop,
                }
            }
            match t {
                MessageType::Groupchat => UNAVAILABLE,
                MessageType::Error => Action::Drop,
                _ if r.non_negative > 0 => Action::NonNegative,
                MessageType::Headline => Action::Drop,
                MessageType::Normal | MessageType::Chat => Action::Undelivered,
            }
        }
        Kind::Presence(PresenceType::Available | PresenceType::Unavailable) => match form {
            Form::Full if r.exact => Action::Exact,
            Form::Bare if r.available > 0 => Action::Available,
            _ => Action::Drop,
        },
        Kind::Presence(PresenceType::Error) => match form {
            Form::Full if r.exact => Action::Exact,
            _ => Action::Drop,
        },
        Kind::Presence(PresenceType::Subscribe | PresenceType::Probe) => Action::Server,
        // 8.5.3.2.2: the other three to a full address that is not there are ignored.
        Kind::Presence(_) if form == Form::Full && !r.exact => Action::Drop,
        Kind::Presence(_) => Action::Server,
        Kind::Iq(t) => match (form, t) {
            (Form::Bare, IqType::Get | IqType::Set) => Action::Server,
            // A reply to a request of the server; nobody waits for it at a bare address.
            (Form::Bare, _) => Action::Drop,
            (Form::Full, IqType::Get | IqType::Set) if r.exact && r.trusted => Action::Exact,
            (Form::Full, IqType::Get | IqType::Set) => UNAVAILABLE,
            (Form::Full, _) if r.exact => Action::Exact,
            (Form::Full, _) => Action::Drop,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action as A;
    use Form::{Bare, Full};
    use IqType as I;
    use MessageType as M;
    use PresenceType as P;

    const NONE: Resources = Resources { exact: false, available: 0, non_negative: 0, trusted: false };
    /// One available resource with a negative priority, not the one addressed.
    const NEGATIVE: Resources = Resources { available: 1, ..NONE };
    const ONE: Resources = Resources { available: 1, non_negative: 1, ..NONE };
    const MORE: Resources = Resources { available: 3, non_negative: 2, ..NONE };
    /// The addressed resource is there, and it is the only one.
    const EXACT: Resources = Resources { exact: true, available: 1, non_negative: 1, trusted: false };
    const EXACT_NEGATIVE: Resources =
        Resources { exact: true, available: 1, non_negative: 0, trusted: false };
    const EXACT_CONNECTED: Resources =
        Resources { exact: true, available: 0, non_negative: 0, trusted: false };
    const EXACT_TRUSTED: Resources = Resources { trusted: true, ..EXACT };
    const BOUNCE: Action = A::Bounce(StanzaCondition::ServiceUnavailable);

    #[test]
    fn rfc6121_section_8_5() {
        let table: &[(&str, Kind, Form, Resources, Action)] = &[
            // 8.5.2.1.1 bare address, resources: messages
            ("8.5.2.1.1 normal, negative", Kind::Message(M::Normal), Bare, NEGATIVE, A::Undelivered),
            ("8.5.2.1.1 normal, one", Kind::Message(M::Normal), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 normal, more", Kind::Message(M::Normal), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 chat, negative", Kind::Message(M::Chat), Bare, NEGATIVE, A::Undelivered),
            ("8.5.2.1.1 chat, one", Kind::Message(M::Chat), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 chat, more", Kind::Message(M::Chat), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 groupchat", Kind::Message(M::Groupchat), Bare, MORE, BOUNCE),
            ("8.5.2.1.1 headline, negative", Kind::Message(M::Headline), Bare, NEGATIVE, A::Drop),
            ("8.5.2.1.1 headline, one", Kind::Message(M::Headline), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 headline, more", Kind::Message(M::Headline), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 error", Kind::Message(M::Error), Bare, ONE, A::Drop),
            // 8.5.2.1.2 and 8.5.2.1.3
            ("8.5.2.1.2 presence", Kind::Presence(P::Available), Bare, MORE, A::Available),
            ("8.5.2.1.2 presence, negative", Kind::Presence(P::Available), Bare, NEGATIVE, A::Available),
            ("8.5.2.1.2 unavailable", Kind::Presence(P::Unavailable), Bare, MORE, A::Available),
            ("8.5.2.1.2 subscribe", Kind::Presence(P::Subscribe), Bare, ONE, A::Server),
            ("8.5.2.1.2 subscribed", Kind::Presence(P::Subscribed), Bare, ONE, A::Server),
            ("8.5.2.1.2 unsubscribe", Kind::Presence(P::Unsubscribe), Bare, ONE, A::Server),
            ("8.5.2.1.2 unsubscribed", Kind::Presence(P::Unsubscribed), Bare, ONE, A::Server),
            ("8.5.2.1.2 probe", Kind::Presence(P::Probe), Bare, ONE, A::Server),
            ("8.5.2.1.3 get", Kind::Iq(I::Get), Bare, ONE, A::Server),
            ("8.5.2.1.3 set", Kind::Iq(I::Set), Bare, MORE, A::Server),
            ("8.5.2.1.3 result", Kind::Iq(I::Result), Bare, ONE, A::Drop),
            // 8.5.2.2 bare address, no resources
            ("8.5.2.2.1 normal", Kind::Message(M::Normal), Bare, NONE, A::Undelivered),
            ("8.5.2.2.1 chat", Kind::Message(M::Chat), Bare, NONE, A::Undelivered),
            ("8.5.2.2.1 groupchat", Kind::Message(M::Groupchat), Bare, NONE, BOUNCE),
            ("8.5.2.2.1 headline", Kind::Message(M::Headline), Bare, NONE, A::Drop),
            ("8.5.2.2.1 error", Kind::Message(M::Error), Bare, NONE, A::Drop),
            ("8.5.2.2.2 presence", Kind::Presence(P::Available), Bare, NONE, A::Drop),
            ("8.5.2.2.2 unavailable", Kind::Presence(P::Unavailable), Bare, NONE, A::Drop),
            ("8.5.2.2.2 subscribe", Kind::Presence(P::Subscribe), Bare, NONE, A::Server),
            ("8.5.2.2.2 probe", Kind::Presence(P::Probe), Bare, NONE, A::Server),
            ("8.5.2.2.3 get", Kind::Iq(I::Get), Bare, NONE, A::Server),
            // 8.5.3.1 full address, resource matches
            ("8.5.3.1 iq get, no shared presence", Kind::Iq(I::Get), Full, EXACT, BOUNCE),
            ("8.5.3.1 iq set, shared presence", Kind::Iq(I::Set), Full, EXACT_TRUSTED, A::Exact),
            ("8.5.3.1 iq result", Kind::Iq(I::Result), Full, EXACT, A::Exact),
            ("8.5.3.1 iq error", Kind::Iq(I::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 chat", Kind::Message(M::Chat), Full, EXACT, A::Exact),
            ("8.5.3.1 chat, negative", Kind::Message(M::Chat), Full, EXACT_NEGATIVE, A::Exact),
            ("8.5.3.1 normal, connected only", Kind::Message(M::Normal), Full, EXACT_CONNECTED, A::Exact),
            ("8.5.3.1 groupchat", Kind::Message(M::Groupchat), Full, EXACT, A::Exact),
            ("8.5.3.1 headline", Kind::Message(M::Headline), Full, EXACT, A::Exact),
            ("8.5.3.1 error", Kind::Message(M::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 presence", Kind::Presence(P::Available), Full, EXACT_CONNECTED, A::Exact),
            ("8.5.3.1 unavailable", Kind::Presence(P::Unavailable), Full, EXACT, A::Exact),
            ("8.5.3.1 presence error", Kind::Presence(P::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 subscribe", Kind::Presence(P::Subscribe), Full, EXACT, A::Server),
            ("8.5.3.1 probe", Kind::Presence(P::Probe), Full, EXACT, A::Server),
            // 8.5.3.2 full address, no resource matches
            ("8.5.3.2.1 normal", Kind::Message(M::Normal), Full, ONE, BOUNCE),
            ("8.5.3.2.1 groupchat", Kind::Message(M::Groupchat), Full, ONE, BOUNCE),
            ("8.5.3.2.1 headline", Kind::Message(M::Headline), Full, ONE, A::Drop),
            ("8.5.3.2.1 chat, none", Kind::Message(M::Chat), Full, NONE, A::Undelivered),
            ("8.5.3.2.1 chat, negative", Kind::Message(M::Chat), Full, NEGATIVE, A::Undelivered),
            ("8.5.3.2.1 chat, one", Kind::Message(M::Chat), Full, ONE, A::NonNegative),
            ("8.5.3.2.1 chat, more", Kind::Message(M::Chat), Full, MORE, A::NonNegative),
            ("8.5.3.2.1 error", Kind::Message(M::Error), Full, ONE, A::Drop),
            ("8.5.3.2.2 presence", Kind::Presence(P::Available), Full, ONE, A::Drop),
            ("8.5.3.2.2 unavailable", Kind::Presence(P::Unavailable), Full, ONE, A::Drop),
            ("8.5.3.2.2 subscribe", Kind::Presence(P::Subscribe), Full, ONE, A::Server),
            ("8.5.3.2.2 subscribed", Kind::Presence(P::Subscribed), Full, ONE, A::Drop),
            ("8.5.3.2.2 unsubscribe", Kind::Presence(P::Unsubscribe), Full, ONE, A::Drop),
            ("8.5.3.2.2 unsubscribed", Kind::Presence(P::Unsubscribed), Full, ONE, A::Drop),
            ("8.5.3.2.2 probe", Kind::Presence(P::Probe), Full, ONE, A::Server),
            ("8.5.3.2.3 get", Kind::Iq(I::Get), Full, ONE, BOUNCE),
            ("8.5.3.2.3 set, none", Kind::Iq(I::Set), Full, NONE, BOUNCE),
            ("8.5.3.2.3 result", Kind::Iq(I::Result), Full, ONE, A::Drop),
        ];
        for (name, kind, form, resources, expect) in table {
            assert_eq!(decide(*kind, *form, *resources), *expect, "{name}");
        }
    }
}
