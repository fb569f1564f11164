//! Delivery rules for local accounts: RFC 6121, section 8.5, as one pure function.
//!
//! Choices where the specification permits several: a message to a bare address goes to all resources of
//! non-negative priority (section 8.5.2.1.1 b); an undeliverable `normal` or `groupchat` message is bounced, and
//! a headline is dropped (section 8.5.3.2.1). The table test below names the section of every rule.

use stanza::{IqType, MessageType, PresenceType, StanzaCondition, StanzaKind};

/// The form of the `to` address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressForm {
    /// `localpart@domainpart`
    Bare,
    /// `localpart@domainpart/resourcepart`
    Full,
}

/// The recipient's resources, as far as the rules need them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceSummary {
    /// A connected resource has exactly this full address.
    pub exact_match: bool,
    /// Available resources.
    pub available: usize,
    /// Available resources with a priority of zero or more.
    pub non_negative: usize,
    /// The sender may see the recipient's presence (subscription or directed presence), or belongs to the same
    /// account.
    pub sender_trusted: bool,
}

/// Action for a stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryAction {
    /// Deliver to the resource named in `to`.
    Exact,
    /// Deliver to all available resources with a priority of zero or more.
    NonNegative,
    /// Deliver to all available resources.
    Available,
    /// Run the `undelivered` chain, which stores or bounces.
    Undelivered,
    /// Return an error to the sender.
    Bounce(StanzaCondition),
    /// Drop silently.
    Drop,
    /// The server handles it for the account: IQ requests, subscriptions and probes.
    Server,
}

/// Decides on one stanza (RFC 6121, section 8.5).
pub fn decide(kind: StanzaKind, form: AddressForm, r: ResourceSummary) -> DeliveryAction {
    const UNAVAILABLE: DeliveryAction = DeliveryAction::Bounce(StanzaCondition::ServiceUnavailable);
    match kind {
        StanzaKind::Message(t) => {
            if form == AddressForm::Full {
                if r.exact_match {
                    return DeliveryAction::Exact;
                }
                match t {
                    MessageType::Chat => {} // as if sent to the bare address
                    MessageType::Normal | MessageType::Groupchat => return UNAVAILABLE,
                    MessageType::Headline | MessageType::Error => return DeliveryAction::Drop,
                }
            }
            match t {
                MessageType::Groupchat => UNAVAILABLE,
                MessageType::Error => DeliveryAction::Drop,
                _ if r.non_negative > 0 => DeliveryAction::NonNegative,
                MessageType::Headline => DeliveryAction::Drop,
                MessageType::Normal | MessageType::Chat => DeliveryAction::Undelivered,
            }
        }
        StanzaKind::Presence(PresenceType::Available | PresenceType::Unavailable) => match form {
            AddressForm::Full if r.exact_match => DeliveryAction::Exact,
            AddressForm::Bare if r.available > 0 => DeliveryAction::Available,
            _ => DeliveryAction::Drop,
        },
        StanzaKind::Presence(PresenceType::Error) => match form {
            AddressForm::Full if r.exact_match => DeliveryAction::Exact,
            _ => DeliveryAction::Drop,
        },
        StanzaKind::Presence(PresenceType::Subscribe | PresenceType::Probe) => DeliveryAction::Server,
        // Section 8.5.3.2.2: the other three are ignored when sent to the full address of an absent resource.
        StanzaKind::Presence(_) if form == AddressForm::Full && !r.exact_match => DeliveryAction::Drop,
        StanzaKind::Presence(_) => DeliveryAction::Server,
        StanzaKind::Iq(t) => match (form, t) {
            (AddressForm::Bare, IqType::Get | IqType::Set) => DeliveryAction::Server,
            // A response to a request of the server; none is expected at a bare address.
            (AddressForm::Bare, _) => DeliveryAction::Drop,
            (AddressForm::Full, IqType::Get | IqType::Set) if r.exact_match && r.sender_trusted => {
                DeliveryAction::Exact
            }
            (AddressForm::Full, IqType::Get | IqType::Set) => UNAVAILABLE,
            (AddressForm::Full, _) if r.exact_match => DeliveryAction::Exact,
            (AddressForm::Full, _) => DeliveryAction::Drop,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AddressForm::{Bare, Full};
    use DeliveryAction as A;
    use IqType as I;
    use MessageType as M;
    use PresenceType as P;

    const NONE: ResourceSummary =
        ResourceSummary { exact_match: false, available: 0, non_negative: 0, sender_trusted: false };
    /// One available resource with a negative priority, which is not the addressed one.
    const NEGATIVE: ResourceSummary = ResourceSummary { available: 1, ..NONE };
    const ONE: ResourceSummary = ResourceSummary { available: 1, non_negative: 1, ..NONE };
    const MORE: ResourceSummary = ResourceSummary { available: 3, non_negative: 2, ..NONE };
    /// The addressed resource is available and the only one.
    const EXACT: ResourceSummary =
        ResourceSummary { exact_match: true, available: 1, non_negative: 1, sender_trusted: false };
    const EXACT_NEGATIVE: ResourceSummary =
        ResourceSummary { exact_match: true, available: 1, non_negative: 0, sender_trusted: false };
    const EXACT_CONNECTED: ResourceSummary =
        ResourceSummary { exact_match: true, available: 0, non_negative: 0, sender_trusted: false };
    const EXACT_TRUSTED: ResourceSummary = ResourceSummary { sender_trusted: true, ..EXACT };
    const BOUNCE: DeliveryAction = A::Bounce(StanzaCondition::ServiceUnavailable);

    #[test]
    fn rfc6121_section_8_5_every_row_of_the_delivery_table() {
        let table: &[(&str, StanzaKind, AddressForm, ResourceSummary, DeliveryAction)] = &[
            // 8.5.2.1.1 bare address, resources: messages
            ("8.5.2.1.1 normal, negative", StanzaKind::Message(M::Normal), Bare, NEGATIVE, A::Undelivered),
            ("8.5.2.1.1 normal, one", StanzaKind::Message(M::Normal), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 normal, more", StanzaKind::Message(M::Normal), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 chat, negative", StanzaKind::Message(M::Chat), Bare, NEGATIVE, A::Undelivered),
            ("8.5.2.1.1 chat, one", StanzaKind::Message(M::Chat), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 chat, more", StanzaKind::Message(M::Chat), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 groupchat", StanzaKind::Message(M::Groupchat), Bare, MORE, BOUNCE),
            ("8.5.2.1.1 headline, negative", StanzaKind::Message(M::Headline), Bare, NEGATIVE, A::Drop),
            ("8.5.2.1.1 headline, one", StanzaKind::Message(M::Headline), Bare, ONE, A::NonNegative),
            ("8.5.2.1.1 headline, more", StanzaKind::Message(M::Headline), Bare, MORE, A::NonNegative),
            ("8.5.2.1.1 error", StanzaKind::Message(M::Error), Bare, ONE, A::Drop),
            // 8.5.2.1.2 and 8.5.2.1.3
            ("8.5.2.1.2 presence", StanzaKind::Presence(P::Available), Bare, MORE, A::Available),
            (
                "8.5.2.1.2 presence, negative",
                StanzaKind::Presence(P::Available),
                Bare,
                NEGATIVE,
                A::Available,
            ),
            ("8.5.2.1.2 unavailable", StanzaKind::Presence(P::Unavailable), Bare, MORE, A::Available),
            ("8.5.2.1.2 subscribe", StanzaKind::Presence(P::Subscribe), Bare, ONE, A::Server),
            ("8.5.2.1.2 subscribed", StanzaKind::Presence(P::Subscribed), Bare, ONE, A::Server),
            ("8.5.2.1.2 unsubscribe", StanzaKind::Presence(P::Unsubscribe), Bare, ONE, A::Server),
            ("8.5.2.1.2 unsubscribed", StanzaKind::Presence(P::Unsubscribed), Bare, ONE, A::Server),
            ("8.5.2.1.2 probe", StanzaKind::Presence(P::Probe), Bare, ONE, A::Server),
            ("8.5.2.1.3 get", StanzaKind::Iq(I::Get), Bare, ONE, A::Server),
            ("8.5.2.1.3 set", StanzaKind::Iq(I::Set), Bare, MORE, A::Server),
            ("8.5.2.1.3 result", StanzaKind::Iq(I::Result), Bare, ONE, A::Drop),
            // 8.5.2.2 bare address, no resources
            ("8.5.2.2.1 normal", StanzaKind::Message(M::Normal), Bare, NONE, A::Undelivered),
            ("8.5.2.2.1 chat", StanzaKind::Message(M::Chat), Bare, NONE, A::Undelivered),
            ("8.5.2.2.1 groupchat", StanzaKind::Message(M::Groupchat), Bare, NONE, BOUNCE),
            ("8.5.2.2.1 headline", StanzaKind::Message(M::Headline), Bare, NONE, A::Drop),
            ("8.5.2.2.1 error", StanzaKind::Message(M::Error), Bare, NONE, A::Drop),
            ("8.5.2.2.2 presence", StanzaKind::Presence(P::Available), Bare, NONE, A::Drop),
            ("8.5.2.2.2 unavailable", StanzaKind::Presence(P::Unavailable), Bare, NONE, A::Drop),
            ("8.5.2.2.2 subscribe", StanzaKind::Presence(P::Subscribe), Bare, NONE, A::Server),
            ("8.5.2.2.2 probe", StanzaKind::Presence(P::Probe), Bare, NONE, A::Server),
            ("8.5.2.2.3 get", StanzaKind::Iq(I::Get), Bare, NONE, A::Server),
            // 8.5.3.1 full address, resource matches
            ("8.5.3.1 iq get, no shared presence", StanzaKind::Iq(I::Get), Full, EXACT, BOUNCE),
            ("8.5.3.1 iq set, shared presence", StanzaKind::Iq(I::Set), Full, EXACT_TRUSTED, A::Exact),
            ("8.5.3.1 iq result", StanzaKind::Iq(I::Result), Full, EXACT, A::Exact),
            ("8.5.3.1 iq error", StanzaKind::Iq(I::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 chat", StanzaKind::Message(M::Chat), Full, EXACT, A::Exact),
            ("8.5.3.1 chat, negative", StanzaKind::Message(M::Chat), Full, EXACT_NEGATIVE, A::Exact),
            (
                "8.5.3.1 normal, connected only",
                StanzaKind::Message(M::Normal),
                Full,
                EXACT_CONNECTED,
                A::Exact,
            ),
            ("8.5.3.1 groupchat", StanzaKind::Message(M::Groupchat), Full, EXACT, A::Exact),
            ("8.5.3.1 headline", StanzaKind::Message(M::Headline), Full, EXACT, A::Exact),
            ("8.5.3.1 error", StanzaKind::Message(M::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 presence", StanzaKind::Presence(P::Available), Full, EXACT_CONNECTED, A::Exact),
            ("8.5.3.1 unavailable", StanzaKind::Presence(P::Unavailable), Full, EXACT, A::Exact),
            ("8.5.3.1 presence error", StanzaKind::Presence(P::Error), Full, EXACT, A::Exact),
            ("8.5.3.1 subscribe", StanzaKind::Presence(P::Subscribe), Full, EXACT, A::Server),
            ("8.5.3.1 probe", StanzaKind::Presence(P::Probe), Full, EXACT, A::Server),
            // 8.5.3.2 full address, no resource matches
            ("8.5.3.2.1 normal", StanzaKind::Message(M::Normal), Full, ONE, BOUNCE),
            ("8.5.3.2.1 groupchat", StanzaKind::Message(M::Groupchat), Full, ONE, BOUNCE),
            ("8.5.3.2.1 headline", StanzaKind::Message(M::Headline), Full, ONE, A::Drop),
            ("8.5.3.2.1 chat, none", StanzaKind::Message(M::Chat), Full, NONE, A::Undelivered),
            ("8.5.3.2.1 chat, negative", StanzaKind::Message(M::Chat), Full, NEGATIVE, A::Undelivered),
            ("8.5.3.2.1 chat, one", StanzaKind::Message(M::Chat), Full, ONE, A::NonNegative),
            ("8.5.3.2.1 chat, more", StanzaKind::Message(M::Chat), Full, MORE, A::NonNegative),
            ("8.5.3.2.1 error", StanzaKind::Message(M::Error), Full, ONE, A::Drop),
            ("8.5.3.2.2 presence", StanzaKind::Presence(P::Available), Full, ONE, A::Drop),
            ("8.5.3.2.2 unavailable", StanzaKind::Presence(P::Unavailable), Full, ONE, A::Drop),
            ("8.5.3.2.2 subscribe", StanzaKind::Presence(P::Subscribe), Full, ONE, A::Server),
            ("8.5.3.2.2 subscribed", StanzaKind::Presence(P::Subscribed), Full, ONE, A::Drop),
            ("8.5.3.2.2 unsubscribe", StanzaKind::Presence(P::Unsubscribe), Full, ONE, A::Drop),
            ("8.5.3.2.2 unsubscribed", StanzaKind::Presence(P::Unsubscribed), Full, ONE, A::Drop),
            ("8.5.3.2.2 probe", StanzaKind::Presence(P::Probe), Full, ONE, A::Server),
            ("8.5.3.2.3 get", StanzaKind::Iq(I::Get), Full, ONE, BOUNCE),
            ("8.5.3.2.3 set, none", StanzaKind::Iq(I::Set), Full, NONE, BOUNCE),
            ("8.5.3.2.3 result", StanzaKind::Iq(I::Result), Full, ONE, A::Drop),
        ];
        for (name, kind, form, resources, expect) in table {
            assert_eq!(decide(*kind, *form, *resources), *expect, "{name}");
        }
    }
}
