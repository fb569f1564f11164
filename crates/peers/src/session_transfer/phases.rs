//! Phases of a session that moves to another node, on each of the two nodes.
//!
//! ```text
//! the new node                                 the old node
//! Requested  -- request ------------------->   Claiming   its connection finishes the stanzas it has read
//! Receiving  <------------------- state ----   Sent       it accepts stanzas, and nothing leaves it
//! Bound      -- taken --------------------->   Moved      it has ended without `unavailable`
//! Complete   <-------------------- tail ----
//! ```

/// Phase of a session on its old node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingPhase {
    /// Its owner is asked for it.
    Claiming,
    /// Its state was sent.
    Sent,
    /// The other node has it.
    Moved,
    /// It stays here, and ends if its connection is gone.
    Failed,
}

/// Transition of a [`OutgoingPhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingEvent {
    /// Its state is being sent.
    StateSent,
    /// The other node has bound it.
    Taken,
    /// The state has returned, or cannot be sent.
    Returned,
}

impl OutgoingPhase {
    /// The phase after this event. Only what was sent can be taken.
    pub(super) const fn after(self, event: OutgoingEvent) -> OutgoingPhase {
        match (self, event) {
            (OutgoingPhase::Claiming, OutgoingEvent::StateSent) => OutgoingPhase::Sent,
            (OutgoingPhase::Sent, OutgoingEvent::Taken) => OutgoingPhase::Moved,
            (OutgoingPhase::Claiming | OutgoingPhase::Sent, OutgoingEvent::Returned) => OutgoingPhase::Failed,
            (phase, _) => phase,
        }
    }
}

/// Phase of a session on its new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncomingPhase {
    /// Other nodes are asked.
    Requested,
    /// A node sends its state.
    Receiving,
    /// All of its state is here.
    Received,
    /// It is bound here, and what its node has received meanwhile is on its way.
    Bound,
    /// Everything is here.
    Complete,
    /// No node gives it.
    Failed,
}

/// Transition of a [`IncomingPhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncomingEvent {
    /// A part of the state arrived.
    Part,
    /// The last part arrived.
    LastPart,
    /// It is bound.
    Bound,
    /// The last chunk of the tail arrived.
    LastChunk,
    /// All nodes have refused it, or it is too late, or its node is gone.
    Lost,
}

impl IncomingPhase {
    /// The phase after this event. A session that is bound goes on without its node.
    pub(super) const fn after(self, event: IncomingEvent) -> IncomingPhase {
        match (self, event) {
            (IncomingPhase::Requested | IncomingPhase::Receiving, IncomingEvent::Part) => {
                IncomingPhase::Receiving
            }
            (IncomingPhase::Requested | IncomingPhase::Receiving, IncomingEvent::LastPart) => {
                IncomingPhase::Received
            }
            (IncomingPhase::Received, IncomingEvent::Bound) => IncomingPhase::Bound,
            (IncomingPhase::Bound, IncomingEvent::LastChunk | IncomingEvent::Lost) => IncomingPhase::Complete,
            (IncomingPhase::Requested | IncomingPhase::Receiving, IncomingEvent::Lost) => {
                IncomingPhase::Failed
            }
            (phase, _) => phase,
        }
    }

    /// Whether the state may arrive.
    pub(super) const fn accepts_state(self) -> bool {
        matches!(self, IncomingPhase::Requested | IncomingPhase::Receiving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_given_once_and_only_after_its_state_was_sent() {
        use OutgoingEvent::{Returned, StateSent, Taken};
        use OutgoingPhase::{Claiming, Failed, Moved, Sent};
        for (phase, sent, taken, returned) in [
            (Claiming, Sent, Claiming, Failed),
            (Sent, Sent, Moved, Failed),
            (Moved, Moved, Moved, Moved),
            (Failed, Failed, Failed, Failed),
        ] {
            let next = [StateSent, Taken, Returned].map(|event| phase.after(event));
            assert_eq!(next, [sent, taken, returned], "{phase:?}");
        }
    }

    #[test]
    fn a_session_that_is_bound_goes_on_and_another_one_fails() {
        use IncomingPhase::{Bound, Complete, Failed, Received, Receiving, Requested};
        let events = [
            IncomingEvent::Part,
            IncomingEvent::LastPart,
            IncomingEvent::Bound,
            IncomingEvent::LastChunk,
            IncomingEvent::Lost,
        ];
        for (phase, next, accepts) in [
            (Requested, [Receiving, Received, Requested, Requested, Failed], true),
            (Receiving, [Receiving, Received, Receiving, Receiving, Failed], true),
            (Received, [Received, Received, Bound, Received, Received], false),
            (Bound, [Bound, Bound, Bound, Complete, Complete], false),
            (Complete, [Complete; 5], false),
            (Failed, [Failed; 5], false),
        ] {
            assert_eq!(events.map(|event| phase.after(event)), next, "{phase:?}");
            assert_eq!(phase.accepts_state(), accepts, "{phase:?}");
        }
    }
}
