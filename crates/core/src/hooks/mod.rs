//! Hook points: typed, in named phases, with declared interest.
//!
//! A feature that wants to see stanzas registers a handler for a [`Point`] in a [`Phase`] with an
//! [`Interest`]. There are no priorities: inside a phase the position in the feature registry decides. Chains
//! are built once for a host and frozen; running one costs two ANDs for each handler that is not interested.
//!
//! The trap: handlers on the stanza path are not async. Who needs the database returns [`Flow::Wait`]; the
//! sender's stream stops reading until it is done, which is what keeps the order between two addresses.

mod chain;
mod interest;
mod phase;
pub mod point;

pub use chain::{Chain, ChainResult, Handler, HandlerEntry};
pub use interest::{Interest, InterestProbe};
pub use phase::{OnFailure, Phase};
pub use point::{
    Available, AvailableCtx, Closing, ClosingCtx, Created, CreatedCtx, Deliver, DeliverCtx, Delivered,
    DeliveredCtx, Incoming, IncomingCtx, Opened, OpenedCtx, Outgoing, OutgoingCtx, Point, Removed,
    RemovedCtx, Undelivered, UndeliveredCtx,
};

use base::spawn::BoxFuture;
use stanza::StanzaError;

use crate::effect::Effects;

/// What a handler wants to happen with the stanza.
pub enum Flow {
    /// Go on with the next handler.
    Next,
    /// The chain ends here.
    Stop(StopReason),
    /// The answer needs something slow. The chain goes on behind this handler when it is there.
    Wait(DeferredOutcome),
}

/// How a chain was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The handler took care of the stanza.
    Consumed,
    /// The sender gets this error.
    Refused(StanzaError),
}

/// A slow answer. It owns all it needs.
pub type DeferredOutcome = BoxFuture<'static, HandlerOutcome>;

/// The slow answer, when it is there. A future that waits again is a mistake of the handler and counts as `Next`.
pub struct HandlerOutcome {
    /// Next or Stop.
    pub flow: Flow,
    /// What is to be done besides.
    pub effects: Effects,
}

impl HandlerOutcome {
    /// The handler took the stanza.
    pub fn consumed(effects: Effects) -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects }
    }
    /// The sender gets an error.
    pub fn refused(error: impl Into<StanzaError>) -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Stop(StopReason::Refused(error.into())), effects: Effects::default() }
    }
    /// The chain goes on.
    pub fn next() -> HandlerOutcome {
        HandlerOutcome { flow: Flow::Next, effects: Effects::default() }
    }
}

/// All chains of a host. A field a point: no look-up, no strings.
#[derive(Default)]
pub struct Hooks {
    /// From a local session, before routing.
    pub outgoing: Chain<Outgoing>,
    /// For a local account, before resources are chosen.
    pub incoming: Chain<Incoming>,
    /// For one session, before its queue.
    pub deliver: Chain<Deliver>,
    /// Somebody took it.
    pub delivered: Chain<Delivered>,
    /// Nobody took it.
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
    /// The frozen order, a line a handler: `point phase owner`. Compared with a golden file.
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
