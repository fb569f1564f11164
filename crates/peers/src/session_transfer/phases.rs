//! Phases of a session that moves to another node, on each of the two nodes.
//!
//! ```text
//! the node that takes it                       the node that gives it
//! Requested  -- request ------------------->   Claiming   its connection finishes the stanzas it has read
//! Receiving  <------------------- state ----   Sent       it accepts stanzas, and nothing leaves it
//! Bound      -- taken --------------------->   Moved      it has ended without `unavailable`
//! Complete   <-------------------- rest ----
//! ```

/// Phase of a session that this node gives to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivePhase {
    /// Its owner is asked for it.
    Claiming,
    /// Its state was sent.
    Sent,
    /// The other node has it.
    Moved,
    /// It stays here, and ends if its connection is gone.
    Failed,
}

/// Transition of a [`GivePhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveEvent {
    /// Its state is being sent.
    StateSent,
    /// The other node has bound it.
    Taken,
    /// The state has returned, or cannot be sent.
    Returned,
}

impl GivePhase {
    /// The phase after this event. Only what was sent can be taken.
    pub(super) const fn after(self, event: GiveEvent) -> GivePhase {
        match (self, event) {
            (GivePhase::Claiming, GiveEvent::StateSent) => GivePhase::Sent,
            (GivePhase::Sent, GiveEvent::Taken) => GivePhase::Moved,
            (GivePhase::Claiming | GivePhase::Sent, GiveEvent::Returned) => GivePhase::Failed,
            (phase, _) => phase,
        }
    }
}

/// Phase of a session that this node takes from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakePhase {
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

/// Transition of a [`TakePhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeEvent {
    /// A part of the state arrived.
    Part,
    /// The last part arrived.
    LastPart,
    /// It is bound.
    Bound,
    /// The last of what followed arrived.
    Rest,
    /// All nodes have refused it, or it is too late, or its node is gone.
    Lost,
}

impl TakePhase {
    /// The phase after this event. A session that is bound goes on without its node.
    pub(super) const fn after(self, event: TakeEvent) -> TakePhase {
        match (self, event) {
            (TakePhase::Requested | TakePhase::Receiving, TakeEvent::Part) => TakePhase::Receiving,
            (TakePhase::Requested | TakePhase::Receiving, TakeEvent::LastPart) => TakePhase::Received,
            (TakePhase::Received, TakeEvent::Bound) => TakePhase::Bound,
            (TakePhase::Bound, TakeEvent::Rest | TakeEvent::Lost) => TakePhase::Complete,
            (TakePhase::Requested | TakePhase::Receiving, TakeEvent::Lost) => TakePhase::Failed,
            (phase, _) => phase,
        }
    }

    /// Whether the state may arrive.
    pub(super) const fn accepts_state(self) -> bool {
        matches!(self, TakePhase::Requested | TakePhase::Receiving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_given_once_and_only_after_its_state_was_sent() {
        use GiveEvent::{Returned, StateSent, Taken};
        use GivePhase::{Claiming, Failed, Moved, Sent};
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
        use TakePhase::{Bound, Complete, Failed, Received, Receiving, Requested};
        let events =
            [TakeEvent::Part, TakeEvent::LastPart, TakeEvent::Bound, TakeEvent::Rest, TakeEvent::Lost];
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
