//! The hook points and what their handlers see.
//!
//! Sender's and recipient's contexts are different types: a handler for the wrong side does not compile, and
//! nothing of the sender's session can reach the recipient's side by accident.

use std::sync::Arc;

use jid::JidRef;
use stanza::Head;

use crate::account::Account;
use crate::effect::Effects;
use crate::host::Host;
use crate::node::Node;
use crate::session::{Session, Urgency};
use crate::shared_stanza::SharedStanza;

/// A place where features may step in.
pub trait Point: 'static {
    /// What a handler sees.
    type Ctx<'a>;
    /// The name, as in the golden file.
    const NAME: &'static str;
}

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident = $text:literal => $ctx:ident;)*) => {$(
        $(#[$doc])*
        pub enum $name {}
        impl Point for $name {
            type Ctx<'a> = $ctx<'a>;
            const NAME: &'static str = $text;
        }
    )*};
}

points! {
    /// From a local session, before routing: the sender's context.
    Outgoing = "outgoing" => OutgoingCtx;
    /// For a local account, before resources are chosen: the recipient's context.
    Incoming = "incoming" => IncomingCtx;
    /// For one session, before its queue.
    Deliver = "deliver" => DeliverCtx;
    /// At least one session of a local account took it.
    Delivered = "delivered" => DeliveredCtx;
    /// Nobody took it: offline storage, push, then the bounce.
    Undelivered = "undelivered" => UndeliveredCtx;
    /// A resource was bound.
    Opened = "opened" => OpenedCtx;
    /// A resource became available or changed its priority; its presence is out already.
    Available = "available" => AvailableCtx;
    /// A session ends; it is still in the table.
    Closing = "closing" => ClosingCtx;
    /// An account was removed.
    Removed = "removed" => RemovedCtx;
    /// An account was created.
    Created = "created" => CreatedCtx;
}

/// A stanza leaving a session.
pub struct OutgoingCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The sender's session.
    pub session: &'a Arc<Session>,
    /// The stanza as it will be routed: `from` is stamped.
    pub frame: &'a mut SharedStanza,
    /// Where it goes; none for presence broadcasts.
    pub to: Option<JidRef<'a>>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

impl OutgoingCtx<'_> {
    /// Positions and facts of the stanza.
    pub fn head(&self) -> &Head {
        self.frame.head()
    }
    /// The host of the sender.
    pub fn host(&self) -> &Arc<Host> {
        self.session.account.host()
    }
}

/// A stanza arriving for an account of this host.
pub struct IncomingCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient's host.
    pub host: &'a Arc<Host>,
    /// The recipient, if one of its resources is connected here.
    pub account: Option<&'a Arc<Account>>,
    /// The stanza.
    pub frame: &'a mut SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// A stanza about to enter the queue of one session.
pub struct DeliverCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The receiving session.
    pub session: &'a Arc<Session>,
    /// The stanza.
    pub frame: &'a SharedStanza,
    /// Whether it may wait in the queue until something urgent comes.
    pub urgency: &'a mut Urgency,
}

/// A stanza that is in the queue of every session in `taken`. Not told when it comes out of a queue whose connection is
/// gone and goes elsewhere: it was told before.
pub struct DeliveredCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient.
    pub account: &'a Arc<Account>,
    /// The stanza.
    pub frame: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// Who took it; never empty.
    pub accepted_by: &'a [Arc<Session>],
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// A message that no resource took.
pub struct UndeliveredCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient's host.
    pub host: &'a Arc<Host>,
    /// The recipient, if one of its resources is connected here.
    pub account: Option<&'a Arc<Account>>,
    /// The stanza.
    pub frame: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// A resource that was just bound.
pub struct OpenedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The new session.
    pub session: &'a Arc<Session>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// A resource whose presence counts from now on.
pub struct AvailableCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session.
    pub session: &'a Arc<Session>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// A session about to end.
pub struct ClosingCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session.
    pub session: &'a Arc<Session>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// An account that is gone from the store.
pub struct RemovedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// Its host.
    pub host: &'a Arc<Host>,
    /// Its bare address.
    pub jid: JidRef<'a>,
    /// The contacts that had a subscription either way, with their state.
    pub contacts: &'a [store::RosterItem],
    /// What else is to be done.
    pub effects: &'a mut Effects,
}

/// An account that is new in the store.
pub struct CreatedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// Its host.
    pub host: &'a Arc<Host>,
    /// Its bare address.
    pub jid: JidRef<'a>,
    /// What else is to be done.
    pub effects: &'a mut Effects,
}
