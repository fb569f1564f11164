//! Numbers of the kinds of envelopes that nodes exchange beside stanzas with their chain, session reports and invalidations.
//!
//! A number is part of the protocol between nodes; it is not used again for another meaning. 5 is free, and 7 is
//! [`MULTICAST`] of the engine.

use cluster::EnvelopeKind;
use throng_core::router::multicast::MULTICAST;

/// As [`EnvelopeKind::ChainHasRun`], if another node or the home itself has delivered the stanza as well: nobody handles
/// what is refused.
pub(crate) const COPY: EnvelopeKind = EnvelopeKind::Engine(0);
/// A push to sessions of the recipients.
pub(crate) const PUSH: EnvelopeKind = EnvelopeKind::Engine(1);
/// Presence for contacts.
pub(crate) const PRESENCE: EnvelopeKind = EnvelopeKind::Engine(2);
/// A session became available: the presence of its contacts is wanted.
pub(crate) const PROBE: EnvelopeKind = EnvelopeKind::Engine(3);
/// That presence.
pub(crate) const PROBE_ANSWER: EnvelopeKind = EnvelopeKind::Engine(4);
/// The store has a message for the recipient: a session that becomes available must read it.
pub(crate) const MESSAGE_STORED: EnvelopeKind = EnvelopeKind::Engine(6);
/// The presence of an account's sessions must be sent to an address.
pub(crate) const PRESENCE_REQUEST: EnvelopeKind = EnvelopeKind::Engine(8);
/// A query to all nodes.
pub(crate) const NODE_QUERY: EnvelopeKind = EnvelopeKind::Engine(9);
/// Its answer.
pub(crate) const NODE_QUERY_ANSWER: EnvelopeKind = EnvelopeKind::Engine(10);
/// A notice of a feature.
pub(crate) const NOTICE: EnvelopeKind = EnvelopeKind::Engine(11);
/// The sender has discarded what was due for the receiver (`presence_resync.rs`).
pub(crate) const RESYNC: EnvelopeKind = EnvelopeKind::Engine(12);
/// A notice did not fit into the queue of the receiver.
pub(crate) const NOTICES_MISSED: EnvelopeKind = EnvelopeKind::Engine(13);
/// The receiver should request a session that the sender cannot keep.
pub(crate) const SESSION_OFFER: EnvelopeKind = EnvelopeKind::Engine(26);
/// What clients have used up of limits on the sender (`usage_reports.rs`).
pub(crate) const USAGE_REPORT: EnvelopeKind = EnvelopeKind::Engine(24);
/// A client wants to continue a stream that the receiver may hold.
pub(crate) const SESSION_REQUEST: EnvelopeKind = EnvelopeKind::Engine(14);
/// The receiver does not get that session.
pub(crate) const SESSION_REFUSAL: EnvelopeKind = EnvelopeKind::Engine(15);
/// A part of that session.
pub(crate) const SESSION_STATE: EnvelopeKind = EnvelopeKind::Engine(16);
/// The sender has bound that session.
pub(crate) const SESSION_TAKEN: EnvelopeKind = EnvelopeKind::Engine(17);
/// Messages that sessions on its old node have taken.
pub(crate) const MESSAGES_TAKEN: EnvelopeKind = EnvelopeKind::Engine(27);
/// A client has a new session on the sender: its earlier ones on the receiver end (`peer_sessions.rs`).
pub(crate) const CLIENT_REPLACED: EnvelopeKind = EnvelopeKind::Engine(28);
/// What that session has received meanwhile.
pub(crate) const SESSION_TAIL: EnvelopeKind = EnvelopeKind::Engine(18);
/// Presence for an account whose session has moved to the receiver.
pub(crate) const FORWARDED_PRESENCE: EnvelopeKind = EnvelopeKind::Engine(19);
/// A client's request that the receiver must answer.
pub(crate) const FORWARDED_REQUEST: EnvelopeKind = EnvelopeKind::Engine(20);
/// A part of its response.
pub(crate) const FORWARDED_RESPONSE: EnvelopeKind = EnvelopeKind::Engine(21);
/// The client has that response, or its connection broke.
pub(crate) const FORWARDED_REQUEST_END: EnvelopeKind = EnvelopeKind::Engine(22);
/// A stanza for an item of a service that the receiver owns.
pub(crate) const SERVICE_STANZA: EnvelopeKind = EnvelopeKind::Engine(23);

/// The sender has freed a slice of items that the receiver must own.
pub(crate) const SLICE_FREED: EnvelopeKind = EnvelopeKind::Engine(25);

/// A probe from an entity to which sessions on the receiver may have sent directed presence.
pub(crate) const DIRECTED_PROBE: EnvelopeKind = EnvelopeKind::Engine(29);

/// A probe for an account whose session has moved from the sender to the receiver.
pub(crate) const FORWARDED_PROBE: EnvelopeKind = EnvelopeKind::Engine(30);

/// The sender has discarded pushes to the sessions of an account.
pub(crate) const PUSHES_MISSED: EnvelopeKind = EnvelopeKind::Engine(31);

/// The name of a kind in logs.
pub(crate) fn name(kind: EnvelopeKind) -> &'static str {
    match kind {
        COPY => "copy",
        PUSH => "push",
        PRESENCE => "presence",
        PROBE => "probe",
        PROBE_ANSWER => "probe answer",
        MESSAGE_STORED => "message stored",
        PRESENCE_REQUEST => "presence request",
        NODE_QUERY => "query",
        NODE_QUERY_ANSWER => "query answer",
        NOTICE => "notice",
        RESYNC => "resync",
        NOTICES_MISSED => "notices missed",
        USAGE_REPORT => "usage report",
        MULTICAST => "multicast",
        SESSION_OFFER => "session offer",
        SESSION_REQUEST => "session request",
        SESSION_REFUSAL => "session refusal",
        SESSION_STATE => "session state",
        SESSION_TAKEN => "session taken",
        MESSAGES_TAKEN => "messages taken",
        CLIENT_REPLACED => "client replaced",
        SESSION_TAIL => "session tail",
        FORWARDED_PRESENCE => "forwarded presence",
        FORWARDED_REQUEST => "forwarded request",
        FORWARDED_RESPONSE => "forwarded response",
        FORWARDED_REQUEST_END => "end of a forwarded request",
        SERVICE_STANZA => "service stanza",
        SLICE_FREED => "slice freed",
        DIRECTED_PROBE => "directed probe",
        FORWARDED_PROBE => "forwarded probe",
        PUSHES_MISSED => "pushes missed",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of two releases run side by side.
    #[test]
    fn the_number_of_a_kind_never_changes() {
        let kinds = [
            COPY,
            PUSH,
            PRESENCE,
            PROBE,
            PROBE_ANSWER,
            MESSAGE_STORED,
            PRESENCE_REQUEST,
            NODE_QUERY,
            NODE_QUERY_ANSWER,
            NOTICE,
            RESYNC,
            NOTICES_MISSED,
            SESSION_REQUEST,
            SESSION_REFUSAL,
            SESSION_STATE,
            SESSION_TAKEN,
            SESSION_TAIL,
            FORWARDED_PRESENCE,
            FORWARDED_REQUEST,
            FORWARDED_RESPONSE,
            FORWARDED_REQUEST_END,
            SERVICE_STANZA,
            USAGE_REPORT,
            SESSION_OFFER,
            MESSAGES_TAKEN,
            CLIENT_REPLACED,
            DIRECTED_PROBE,
            FORWARDED_PROBE,
            PUSHES_MISSED,
        ];
        let numbers = [
            0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28,
            29, 30, 31,
        ];
        assert_eq!(kinds, numbers.map(EnvelopeKind::Engine));
    }

    #[test]
    fn each_kind_of_the_engine_has_a_number_and_a_name_of_its_own() {
        let kinds = [
            COPY,
            PUSH,
            PRESENCE,
            PROBE,
            PROBE_ANSWER,
            MESSAGE_STORED,
            PRESENCE_REQUEST,
            NODE_QUERY,
            NODE_QUERY_ANSWER,
            NOTICE,
            RESYNC,
            NOTICES_MISSED,
            USAGE_REPORT,
            MULTICAST,
            SESSION_OFFER,
            SESSION_REQUEST,
            SESSION_REFUSAL,
            SESSION_STATE,
            SESSION_TAKEN,
            SESSION_TAIL,
            MESSAGES_TAKEN,
            CLIENT_REPLACED,
            FORWARDED_PRESENCE,
            FORWARDED_REQUEST,
            FORWARDED_RESPONSE,
            FORWARDED_REQUEST_END,
            SERVICE_STANZA,
            SLICE_FREED,
            DIRECTED_PROBE,
            FORWARDED_PROBE,
            PUSHES_MISSED,
        ];
        assert_eq!(
            kinds.iter().filter_map(|kind| kind.to_byte()).collect::<std::collections::HashSet<_>>().len(),
            kinds.len()
        );
        assert_eq!(
            kinds.iter().map(|kind| name(*kind)).collect::<std::collections::HashSet<_>>().len(),
            kinds.len()
        );
    }
}
