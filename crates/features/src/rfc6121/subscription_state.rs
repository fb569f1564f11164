//! State transitions of a contact on subscription stanzas: RFC 6121, appendix A and section 3.4, as one pure
//! function.
//!
//! The nine states of A.1 are bits of [`Subscription`]: `TO`, `FROM`, `ASK` (pending out), `PENDING_IN`. Not being in
//! the roster at all is the absence of `IN_ROSTER`; for the tables it is the same as `None` (A.1).
//!
//! A pre-approval is used up by the request that it answers; section 3.4.2 leaves that to the server.
//!
//! # Pitfalls
//!
//! The state changes inside a transaction of the store, its effects happen outside of it. So the function is called
//! twice and must be deterministic: it may depend on nothing but its arguments.

use stanza::PresenceType;
use store::Subscription;

/// Direction of the stanza, seen from the owner of the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the owner to the contact (A.2).
    Outbound,
    /// From the contact to the owner (A.3).
    Inbound,
}

/// Presence of the owner's resources to send to the contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceUpdate {
    /// Nothing.
    Nothing,
    /// The current presence of each available resource: a subscription began (section 3.1.5).
    Available,
    /// `unavailable` from each available resource: a subscription ended (sections 3.2.2 and 3.3.3).
    Unavailable,
}

/// Result of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionTransition {
    /// The new state.
    pub after: Subscription,
    /// Outbound: route the stanza to the contact. Inbound: deliver it to the owner's resources.
    pub forward: bool,
    /// The owner's clients see a difference in the roster.
    pub push: bool,
    /// Reply to the contact on the owner's behalf.
    pub reply: Option<PresenceType>,
    /// Presence to send to the contact.
    pub presence: PresenceUpdate,
}

/// Decides on one stanza of the four subscription types; any other type changes nothing and is not forwarded.
pub fn transition(direction: Direction, ty: PresenceType, before: Subscription) -> SubscriptionTransition {
    use Direction::{Inbound, Outbound};
    const TO: Subscription = Subscription::TO;
    const FROM: Subscription = Subscription::FROM;
    const ASK: Subscription = Subscription::PENDING_OUT;
    const PENDING_IN: Subscription = Subscription::PENDING_IN;
    const APPROVED: Subscription = Subscription::APPROVED;
    const IN_ROSTER: Subscription = Subscription::IN_ROSTER;

    let (after, pass, reply) = match (direction, ty) {
        // Table 2
        (Outbound, PresenceType::Subscribe) => {
            let after = if before.contains(TO) { before } else { before | ASK };
            (after | IN_ROSTER, true, None)
        }
        // Table 3
        (Outbound, PresenceType::Unsubscribe) => (before.without(TO | ASK), true, None),
        // Table 4 and section 3.4.2
        (Outbound, PresenceType::Subscribed) => {
            if before.contains(FROM) {
                (before, false, None)
            } else if before.contains(PENDING_IN) {
                (before.without(PENDING_IN | APPROVED) | FROM | IN_ROSTER, true, None)
            } else {
                (before | APPROVED | IN_ROSTER, false, None)
            }
        }
        // Table 5; the pre-approval is removed in any case
        (Outbound, PresenceType::Unsubscribed) => {
            let pass = before.contains(FROM) || before.contains(PENDING_IN);
            (before.without(FROM | PENDING_IN | APPROVED), pass, None)
        }
        // Table 6
        (Inbound, PresenceType::Subscribe) => {
            if before.contains(FROM) {
                (before, false, Some(PresenceType::Subscribed))
            } else if before.contains(APPROVED) {
                (
                    before.without(APPROVED | PENDING_IN) | FROM | IN_ROSTER,
                    false,
                    Some(PresenceType::Subscribed),
                )
            } else {
                (before | PENDING_IN, !before.contains(PENDING_IN), None)
            }
        }
        // Table 7
        (Inbound, PresenceType::Unsubscribe) => {
            let known = before.contains(FROM) || before.contains(PENDING_IN);
            (before.without(FROM | PENDING_IN), known, known.then_some(PresenceType::Unsubscribed))
        }
        // Table 8
        (Inbound, PresenceType::Subscribed) => {
            if before.contains(ASK) && !before.contains(TO) {
                (before.without(ASK) | TO, true, None)
            } else {
                (before, false, None)
            }
        }
        // Table 9
        (Inbound, PresenceType::Unsubscribed) => {
            (before.without(TO | ASK), before.contains(TO) || before.contains(ASK), None)
        }
        _ => (before, false, None),
    };
    let show = match (before.contains(FROM), after.contains(FROM)) {
        (true, false) => PresenceUpdate::Unavailable,
        (false, true) => PresenceUpdate::Available,
        // The contact has lost its subscription, and so our presence as well.
        (true, true) if reply.is_some() => PresenceUpdate::Available,
        _ => PresenceUpdate::Nothing,
    };
    let push = after.contains(IN_ROSTER) && before.without(PENDING_IN) != after.without(PENDING_IN);
    SubscriptionTransition { after, forward: pass, push, reply, presence: show }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Inbound, Outbound};
    use PresenceType::{Subscribe, Subscribed, Unsubscribe, Unsubscribed};

    const NONE: Subscription = Subscription::IN_ROSTER;
    const NONE_OUT: Subscription = Subscription(NONE.0 | Subscription::PENDING_OUT.0);
    const NONE_IN: Subscription = Subscription(NONE.0 | Subscription::PENDING_IN.0);
    const NONE_OUT_IN: Subscription = Subscription(NONE_OUT.0 | Subscription::PENDING_IN.0);
    const TO: Subscription = Subscription(NONE.0 | Subscription::TO.0);
    const TO_IN: Subscription = Subscription(TO.0 | Subscription::PENDING_IN.0);
    const FROM: Subscription = Subscription(NONE.0 | Subscription::FROM.0);
    const FROM_OUT: Subscription = Subscription(FROM.0 | Subscription::PENDING_OUT.0);
    const BOTH: Subscription = Subscription(NONE.0 | Subscription::BOTH.0);
    const STATES: [Subscription; 9] = [NONE, NONE_OUT, NONE_IN, NONE_OUT_IN, TO, TO_IN, FROM, FROM_OUT, BOTH];

    /// One row: existing state, route or deliver, new state, other actions of the server.
    type Row = (Subscription, bool, Subscription, Option<PresenceType>, PresenceUpdate);

    fn check(table: &str, direction: Direction, ty: PresenceType, rows: &[Row]) {
        assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), STATES, "{table}: all nine states in order");
        for (before, pass, after, reply, show) in rows {
            let push = before.without(Subscription::PENDING_IN) != after.without(Subscription::PENDING_IN);
            let want = SubscriptionTransition {
                after: *after,
                forward: *pass,
                push,
                reply: *reply,
                presence: *show,
            };
            assert_eq!(transition(direction, ty, *before), want, "{table}, {before:?}");
        }
    }

    const fn row(before: Subscription, pass: bool, after: Subscription) -> Row {
        (before, pass, after, None, PresenceUpdate::Nothing)
    }

    #[test]
    fn a_2_1_outbound_subscribe() {
        check(
            "table 2",
            Outbound,
            Subscribe,
            &[
                row(NONE, true, NONE_OUT),
                row(NONE_OUT, true, NONE_OUT),
                row(NONE_IN, true, NONE_OUT_IN),
                row(NONE_OUT_IN, true, NONE_OUT_IN),
                row(TO, true, TO),
                row(TO_IN, true, TO_IN),
                row(FROM, true, FROM_OUT),
                row(FROM_OUT, true, FROM_OUT),
                row(BOTH, true, BOTH),
            ],
        );
    }

    #[test]
    fn a_2_2_outbound_unsubscribe() {
        check(
            "table 3",
            Outbound,
            Unsubscribe,
            &[
                row(NONE, true, NONE),
                row(NONE_OUT, true, NONE),
                row(NONE_IN, true, NONE_IN),
                row(NONE_OUT_IN, true, NONE_IN),
                row(TO, true, NONE),
                row(TO_IN, true, NONE_IN),
                row(FROM, true, FROM),
                row(FROM_OUT, true, FROM),
                row(BOTH, true, FROM),
            ],
        );
    }

    #[test]
    fn a_2_3_outbound_subscribed() {
        let approved = Subscription::APPROVED;
        check(
            "table 4",
            Outbound,
            Subscribed,
            &[
                row(NONE, false, NONE | approved),
                row(NONE_OUT, false, NONE_OUT | approved),
                (NONE_IN, true, FROM, None, PresenceUpdate::Available),
                (NONE_OUT_IN, true, FROM_OUT, None, PresenceUpdate::Available),
                row(TO, false, TO | approved),
                (TO_IN, true, BOTH, None, PresenceUpdate::Available),
                row(FROM, false, FROM),
                row(FROM_OUT, false, FROM_OUT),
                row(BOTH, false, BOTH),
            ],
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-3.2.2
    //= type=test
    //# the contact's server SHOULD NOT route or deliver the presence stanza of type "unsubscribed" to the user and
    //# MUST NOT send presence notifications of type "unavailable" to the user as described below.
    #[test]
    fn a_2_4_outbound_unsubscribed() {
        check(
            "table 5",
            Outbound,
            Unsubscribed,
            &[
                row(NONE, false, NONE),
                row(NONE_OUT, false, NONE_OUT),
                row(NONE_IN, true, NONE),
                row(NONE_OUT_IN, true, NONE_OUT),
                row(TO, false, TO),
                row(TO_IN, true, TO),
                (FROM, true, NONE, None, PresenceUpdate::Unavailable),
                (FROM_OUT, true, NONE_OUT, None, PresenceUpdate::Unavailable),
                (BOTH, true, TO, None, PresenceUpdate::Unavailable),
            ],
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-A.3.1
    //= type=test
    //# [2] Server SHOULD auto-reply with "subscribed".
    #[test]
    fn a_3_1_inbound_subscribe() {
        let again = |state| (state, false, state, Some(Subscribed), PresenceUpdate::Available);
        check(
            "table 6",
            Inbound,
            Subscribe,
            &[
                row(NONE, true, NONE_IN),
                row(NONE_OUT, true, NONE_OUT_IN),
                row(NONE_IN, false, NONE_IN),
                row(NONE_OUT_IN, false, NONE_OUT_IN),
                row(TO, true, TO_IN),
                row(TO_IN, false, TO_IN),
                again(FROM),
                again(FROM_OUT),
                again(BOTH),
            ],
        );
    }

    #[test]
    fn a_3_2_inbound_unsubscribe() {
        let reply = Some(Unsubscribed);
        check(
            "table 7",
            Inbound,
            Unsubscribe,
            &[
                row(NONE, false, NONE),
                row(NONE_OUT, false, NONE_OUT),
                (NONE_IN, true, NONE, reply, PresenceUpdate::Nothing),
                (NONE_OUT_IN, true, NONE_OUT, reply, PresenceUpdate::Nothing),
                row(TO, false, TO),
                (TO_IN, true, TO, reply, PresenceUpdate::Nothing),
                (FROM, true, NONE, reply, PresenceUpdate::Unavailable),
                (FROM_OUT, true, NONE_OUT, reply, PresenceUpdate::Unavailable),
                (BOTH, true, TO, reply, PresenceUpdate::Unavailable),
            ],
        );
    }

    #[test]
    fn a_3_3_inbound_subscribed() {
        check(
            "table 8",
            Inbound,
            Subscribed,
            &[
                row(NONE, false, NONE),
                row(NONE_OUT, true, TO),
                row(NONE_IN, false, NONE_IN),
                row(NONE_OUT_IN, true, TO_IN),
                row(TO, false, TO),
                row(TO_IN, false, TO_IN),
                row(FROM, false, FROM),
                row(FROM_OUT, true, BOTH),
                row(BOTH, false, BOTH),
            ],
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-3.2.3
    //= type=test
    //# When the user's server receives the inbound subscription cancellation, it MUST first check if the contact is
    //# in the user's roster with subscription='to' or subscription='both' (see Section A).
    //= https://www.rfc-editor.org/rfc/rfc6121#section-3.2.3
    //= type=test
    //# then the user's server MUST silently ignore the unsubscribed notification by not delivering it to the user
    //= https://www.rfc-editor.org/rfc/rfc6121#section-A.3.4
    //= type=test
    //# When the user's server receives a presence stanza of type "unsubscribed" for the user from the contact, if
    //# there is a pending outbound request for access to the contact's presence information or if the user
    //# currently is subscribed to the contact's presence information, then the user's server MUST change the
    //# subscription state and MUST deliver the stanza to the user.
    //= https://www.rfc-editor.org/rfc/rfc6121#section-A.3.4
    //= type=test
    //# Otherwise, the user's server MUST NOT change the subscription state and (because there is no state change)
    //# SHOULD NOT deliver the stanza.
    #[test]
    fn a_3_4_inbound_unsubscribed() {
        check(
            "table 9",
            Inbound,
            Unsubscribed,
            &[
                row(NONE, false, NONE),
                row(NONE_OUT, true, NONE),
                row(NONE_IN, false, NONE_IN),
                row(NONE_OUT_IN, true, NONE_IN),
                row(TO, true, NONE),
                row(TO_IN, true, NONE_IN),
                row(FROM, false, FROM),
                row(FROM_OUT, true, FROM),
                row(BOTH, true, FROM),
            ],
        );
    }

    #[test]
    fn section_3_4_pre_approval() {
        let approved = Subscription::APPROVED;
        for (before, after) in [(NONE, FROM), (NONE_OUT, FROM_OUT), (TO, BOTH)] {
            let got = transition(Inbound, Subscribe, before | approved);
            let want = SubscriptionTransition {
                after,
                forward: false,
                push: true,
                reply: Some(Subscribed),
                presence: PresenceUpdate::Available,
            };
            assert_eq!(got, want, "a request that was approved before is answered and not delivered");
            let got = transition(Outbound, Unsubscribed, before | approved);
            assert_eq!((got.after, got.forward, got.push), (before, false, true), "3.2.2 rule 2: cancelled");
            let got = transition(Outbound, Subscribed, before | approved);
            assert_eq!((got.after, got.forward, got.push), (before | approved, false, false), "noted once");
        }
        let got = transition(Inbound, Unsubscribed, TO | approved);
        assert_eq!(got.after, NONE | approved, "4.3.2: an answer to a probe must not cancel a pre-approval");
        let got = transition(Outbound, Subscribed, Subscription::NONE);
        assert_eq!((got.after, got.push), (NONE | approved, true), "a contact that was not in the roster");
    }

    //= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.3
    //= type=test
    //# Security Warning: Until and unless the contact approves the subscription request as described under Section
    //# 3.1.4, the contact's server MUST NOT add an item for the user to the contact's roster.
    //= https://www.rfc-editor.org/rfc/rfc6121#section-A.1
    //= type=test
    //# if the user has created a roster item for the contact then the server MUST maintain that roster item and
    //# also note the existence of the inbound presence subscription request
    #[test]
    fn a_request_alone_does_not_enter_the_roster() {
        let got = transition(Inbound, Subscribe, Subscription::NONE);
        assert_eq!(got.after, Subscription::PENDING_IN, "3.1.3, security warning");
        assert!(got.forward && !got.push);
        let got = transition(Inbound, Unsubscribe, Subscription::PENDING_IN);
        assert_eq!((got.after, got.push), (Subscription::NONE, false), "3.3.3: only the record goes");
        let got = transition(Outbound, Unsubscribed, Subscription::PENDING_IN);
        assert_eq!((got.after, got.forward, got.push), (Subscription::NONE, true, false));
        let got = transition(Outbound, Subscribed, Subscription::PENDING_IN);
        assert_eq!((got.after, got.forward, got.push), (FROM, true, true));
        let got = transition(Outbound, Subscribe, Subscription::PENDING_IN);
        assert_eq!((got.after, got.push), (NONE_OUT_IN, true));
        let got = transition(Outbound, Unsubscribe, Subscription::NONE);
        assert_eq!((got.after, got.forward, got.push), (Subscription::NONE, true, false));
    }

    #[test]
    fn other_types_change_nothing() {
        for ty in
            [PresenceType::Available, PresenceType::Unavailable, PresenceType::Probe, PresenceType::Error]
        {
            for direction in [Outbound, Inbound] {
                assert_eq!(transition(direction, ty, BOTH).after, BOTH);
                assert!(!transition(direction, ty, BOTH).forward);
            }
        }
    }
}
