//! State of the request for an acknowledgement: XEP-0198, section 4.

/// Whether an acknowledgement was requested from the peer, and what its last answer was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckRequest {
    /// No request is pending.
    #[default]
    Idle,
    /// A request is pending since this second.
    Pending(u32),
    /// The last answer acknowledged nothing new: the peer is still busy. The next request follows the next stanza,
    /// or [`super::stream_management::ACK_RETRY_SECONDS`].
    Stalled,
}

/// Transition of an [`AckRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckEvent {
    /// An acknowledgement was requested at this second.
    Requested(u32),
    /// The peer answered and acknowledged something, or nothing was outstanding.
    Acknowledged,
    /// The peer answered and acknowledged none of the outstanding stanzas.
    NothingNew,
    /// The peer could receive a pending request only at this second.
    Delivered(u32),
    /// The delay after an answer that acknowledged nothing new is over, or the stream was resumed.
    RetryAllowed,
    /// The connection was lost, and a pending request with it.
    ConnectionLost,
}

impl AckRequest {
    /// The state after this event.
    pub(super) const fn after(self, event: AckEvent) -> AckRequest {
        match (self, event) {
            (_, AckEvent::Requested(now)) => AckRequest::Pending(now),
            (_, AckEvent::Acknowledged) => AckRequest::Idle,
            (_, AckEvent::NothingNew) => AckRequest::Stalled,
            (AckRequest::Pending(_), AckEvent::Delivered(now)) => AckRequest::Pending(now),
            (AckRequest::Stalled, AckEvent::RetryAllowed)
            | (AckRequest::Pending(_), AckEvent::ConnectionLost) => AckRequest::Idle,
            (state, AckEvent::Delivered(_) | AckEvent::RetryAllowed | AckEvent::ConnectionLost) => state,
        }
    }

    /// Second of the pending request.
    pub(super) const fn pending_since(self) -> Option<u32> {
        match self {
            AckRequest::Pending(second) => Some(second),
            AckRequest::Idle | AckRequest::Stalled => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AckEvent::{Acknowledged, ConnectionLost, Delivered, NothingNew, Requested, RetryAllowed};
    use AckRequest::{Idle, Pending, Stalled};

    #[test]
    fn every_event_leads_to_the_next_state() {
        // The states after Idle, Pending(3) and Stalled.
        for (event, next) in [
            (Requested(7), [Pending(7), Pending(7), Pending(7)]),
            (Acknowledged, [Idle, Idle, Idle]),
            (NothingNew, [Stalled, Stalled, Stalled]),
            (Delivered(9), [Idle, Pending(9), Stalled]),
            (RetryAllowed, [Idle, Pending(3), Idle]),
            (ConnectionLost, [Idle, Idle, Stalled]),
        ] {
            assert_eq!([Idle, Pending(3), Stalled].map(|state| state.after(event)), next, "{event:?}");
        }
        assert_eq!([Idle, Pending(3), Stalled].map(AckRequest::pending_since), [None, Some(3), None]);
    }
}
