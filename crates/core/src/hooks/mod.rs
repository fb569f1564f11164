//! Hook points: typed, in named phases, with declared interest.
//!
//! A feature registers a handler for a [`Point`] in a [`Phase`] with an [`Interest`]. There are no priorities:
//! within a phase, the position in the feature registry decides. Chains are built once for each host and
//! frozen; a handler that is not interested costs two ANDs. The crate `hook-chain` runs them.
//!
//! # Pitfalls
//!
//! Handlers on the stanza path are not async. A handler whose decision needs the database returns [`Flow::Wait`]; no
//! later stanza of the sender is handled until it completes, which preserves the order between two addresses. A handler
//! that only writes does not wait: it attaches a [`crate::Receipt`] with [`Effects::receipt`].

pub mod point;

use crate::effect::Effects;

pub use hook_chain::{
    Chain, Handler, HandlerEntry, Interest, InterestProbe, OnFailure, Phase, Point, StopReason,
};
pub use point::{
    Available, AvailableCtx, Closing, ClosingCtx, Created, CreatedCtx, Deliver, DeliverCtx, Delivered,
    DeliveredCtx, Incoming, IncomingCtx, Opened, OpenedCtx, Outgoing, OutgoingCtx, Removed, RemovedCtx,
    Undelivered, UndeliveredCtx,
};

// The crate `hook-chain` has these types for any effects.

/// Decision of a handler about the stanza.
pub type Flow = hook_chain::Flow<Effects>;

/// A deferred decision. It owns all its data.
pub type DeferredOutcome = hook_chain::DeferredOutcome<Effects>;

/// Result of a deferred decision.
pub type HandlerOutcome = hook_chain::HandlerOutcome<Effects>;

/// A decision that a handler has deferred.
pub type DeferredDecision = hook_chain::DeferredDecision<Effects>;

/// Result of running a chain.
pub type ChainResult = hook_chain::ChainResult<Effects>;

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
