//! Phases of an outbox while it closes.

/// Phase of an outbox. A requested close ([`super::Outbox::close`]) is not a phase: the task that owns the outbox
/// begins to close it when it has written what the client may still read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OutboxPhase {
    /// Stanzas are accepted and sent.
    #[default]
    Open,
    /// Stanzas are accepted, but leave only through [`super::Outbox::drain_for_close`].
    Draining,
    /// Nothing is accepted, and the queue is empty.
    Closed,
}

/// Transition of an [`OutboxPhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseStep {
    /// Everything that was queued was removed for rerouting; more may arrive.
    Drained,
    /// Nothing is queued or will be accepted.
    Finished,
}

impl OutboxPhase {
    /// The phase after this step. A closed outbox stays closed.
    pub(super) const fn after(self, step: CloseStep) -> OutboxPhase {
        match (self, step) {
            (OutboxPhase::Open | OutboxPhase::Draining, CloseStep::Drained) => OutboxPhase::Draining,
            (OutboxPhase::Closed, _) | (_, CloseStep::Finished) => OutboxPhase::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CloseStep::{Drained, Finished};
    use OutboxPhase::{Closed, Draining, Open};

    #[test]
    fn an_outbox_closes_in_one_direction() {
        for (phase, step, next) in [
            (Open, Drained, Draining),
            (Open, Finished, Closed),
            (Draining, Drained, Draining),
            (Draining, Finished, Closed),
            (Closed, Drained, Closed),
            (Closed, Finished, Closed),
        ] {
            assert_eq!(phase.after(step), next, "{phase:?} {step:?}");
        }
    }
}
