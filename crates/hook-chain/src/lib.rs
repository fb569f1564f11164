//! Chains of handlers: their order in phases, the stanzas in which each is interested, deferred decisions, and handlers that panic.
//!
//! Not implemented: the hook points, the contexts and the effects of their handlers, which are the engine's
//! (`core/src/hooks/mod.rs`). It has the types below with its effects under the same names.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod chain;
mod deferred_decision;
mod interest;
mod phase;

use base::spawn::BoxFuture;
use stanza::StanzaError;

pub use chain::{Chain, ChainResult, Handler, HandlerEntry};
pub use deferred_decision::DeferredDecision;
pub use interest::{Interest, InterestProbe};
pub use phase::{OnFailure, Phase};

/// A place at which features can register handlers.
pub trait Point: 'static {
    /// Context passed to a handler.
    type Ctx<'a>;
    /// What a handler requests besides its decision, if it decides later.
    type Effects: Default;
    /// The name, as in the golden file.
    const NAME: &'static str;
}

/// Decision of a handler about the stanza.
pub enum Flow<E> {
    /// Continue with the next handler.
    Next,
    /// Stop the chain.
    Stop(StopReason),
    /// The decision is deferred. The chain continues after this handler when the future completes.
    Wait(DeferredOutcome<E>),
}

/// Why a chain was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The handler consumed the stanza.
    Consumed,
    /// The sender receives this error.
    Refused(StanzaError),
}

/// A deferred decision. It owns all its data.
pub type DeferredOutcome<E> = BoxFuture<'static, HandlerOutcome<E>>;

/// Result of a deferred decision. A future that waits again is a bug of the handler and counts as `Next`.
pub struct HandlerOutcome<E> {
    /// `Next` or `Stop`.
    pub flow: Flow<E>,
    /// Effects to perform.
    pub effects: E,
}

impl<E> HandlerOutcome<E> {
    /// The handler consumed the stanza.
    pub fn consumed(effects: E) -> HandlerOutcome<E> {
        HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects }
    }

    /// The sender receives an error.
    pub fn refused(error: impl Into<StanzaError>) -> HandlerOutcome<E>
    where
        E: Default,
    {
        HandlerOutcome { flow: Flow::Stop(StopReason::Refused(error.into())), effects: E::default() }
    }

    /// The chain continues.
    pub fn next() -> HandlerOutcome<E>
    where
        E: Default,
    {
        HandlerOutcome { flow: Flow::Next, effects: E::default() }
    }
}
