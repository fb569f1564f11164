//! A deferred decision of a handler. Its panic is treated as that of the handler itself.

use base::spawn::catch_unwind;
use stanza::StanzaCondition;

use crate::{DeferredOutcome, HandlerOutcome, OnFailure};

/// A decision that a handler has deferred.
pub struct DeferredDecision<E> {
    later: DeferredOutcome<E>,
    owner: &'static str,
    point: &'static str,
    on_failure: OnFailure,
}

impl<E: Default> DeferredDecision<E> {
    /// `owner` and `point` are for the log.
    pub fn new(
        later: DeferredOutcome<E>,
        (owner, point): (&'static str, &'static str),
        on_failure: OnFailure,
    ) -> DeferredDecision<E> {
        DeferredDecision { later, owner, point, on_failure }
    }

    /// Waits for the decision. If the future panics, which is logged, the outcome is that of the handler's phase.
    pub async fn outcome(self) -> HandlerOutcome<E> {
        match catch_unwind(self.later).await {
            Some(outcome) => outcome,
            None => {
                tracing::error!(
                    feature = self.owner,
                    point = self.point,
                    "a handler panicked after it had waited"
                );
                match self.on_failure {
                    OnFailure::Closed => HandlerOutcome::refused(StanzaCondition::InternalServerError),
                    OnFailure::Open => HandlerOutcome::next(),
                }
            }
        }
    }
}
