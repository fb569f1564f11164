//! Hook points: typed, in named phases, with declared interest.
//!
//! A feature registers a handler for a [`Point`] in a [`Phase`] with an [`Interest`]. There are no priorities:
//! within a phase, the position in the feature registry decides. Chains are built once for each host and
//! frozen; a handler that is not interested costs two ANDs.
//!
//! # Pitfalls
//!
//! Handlers on the stanza path are not async. A handler whose decision needs the database returns [`Flow::Wait`]; no
//! later stanza of the sender is handled until it completes, which preserves the order between two addresses. A handler
//! that only writes does not wait: it attaches a [`crate::Receipt`] with [`Effects::receipt`].

mod chain;
mod deferred;
mod interest;
mod phase;
pub mod point;

use base::spawn::BoxFuture;
use stanza::StanzaError;

use crate::effect::Effects;

pub use chain::{Chain, ChainResult, Handler, HandlerEntry};
pub use deferred::DeferredDecision;
pub use interest::{Interest, InterestProbe};
pub use phase::{OnFailure, Phase};
pub use point::{
    Available, AvailableCtx, Closing, ClosingCtx, Created, CreatedCtx, Deliver, DeliverCtx, Delivered,
    DeliveredCtx, Incoming, IncomingCtx, Opened, OpenedCtx, Outgoing, OutgoingCtx, Point, Removed,
    RemovedCtx, Undelivered, UndeliveredCtx,
};

/// Decision of a handler about the stanza.
pub enum Flow {
    /// Continue with the next handler.
    Next,
    /// Stop the chain.
    Stop(StopReason),
    /// The decision is deferred. The chain continues after this handler when the future completes.
    Wait(DeferredOutcome),
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
pub type DeferredOutcome = BoxFuture<'static, HandlerOutcome>;

/// Result of a deferred decision. A future that waits again is a bug of the handler and counts as `Next`.
pub struct HandlerOutcome {
    /// `Next` or `Stop`.
    pub flow: Flow,
    /// Effects to perform.
    pub effects: Effects,
}

impl HandlerOutcome {
    /// The handler consumed the stanza.
    pub fn consumed(effects: Effects) -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects }
    }

    /// The sender receives an error.
    pub fn refused(error: impl Into<StanzaError>) -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Stop(StopReason::Refused(error.into())), effects: Effects::default() }
    }

    /// The chain continues.
    pub fn next() -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Next, effects: Effects::default() }
    }
}

/// All chains of a host, one field for each point: no look-up, no strings.
#[derive(Default)]
pub struct Hooks {
    /// Stanza from a local session, before routing.
    pub outgoing: Chain<Outgoing>,
    /// Stanza for a local account, before resources are chosen.
    pub incoming: Chain<Incoming>,
    /// Stanza for one session, before its queue.
    pub deliver: Chain<Deliver>,
    /// At least one session accepted the stanza.
    pub delivered: Chain<Delivered>,
    /// No session accepted the message.
    pub undelivered: Chain<Undelivered>,
    /// A resource was bound.
    pub opened: Chain<Opened>,
    /// A resource became available or changed its priority.
    pub available: Chain<Available>,
    /// A session ends.
    pub closing: Chain<Closing>,
    /// An account was removed.
    pub removed: Chain<Removed>,
    /// An account was created.
    pub created: Chain<Created>,
}

impl Hooks {
    /// The execution order, one handler a line: `point phase owner`. Compared with a golden file.
    pub fn order(&self) -> String {
        let mut out = String::new();
        self.outgoing.describe(&mut out);
        self.incoming.describe(&mut out);
        self.deliver.describe(&mut out);
        self.delivered.describe(&mut out);
        self.undelivered.describe(&mut out);
        self.opened.describe(&mut out);
        self.available.describe(&mut out);
        self.closing.describe(&mut out);
        self.removed.describe(&mut out);
        self.created.describe(&mut out);
        out
    }
}
