//! The hook points and the contexts of their handlers.
//!
//! The contexts of sender and recipient are different types: a handler for the wrong side does not compile, and
//! no data of the sender's session can reach the recipient's side by accident.

use std::sync::Arc;

use base::TimeOrderedId;
use hook_chain::Point;
use jid::JidRef;
use stanza::Head;

use crate::account::Account;
use crate::effect::Effects;
use crate::host::Host;
use crate::node::Node;
use crate::session::{Session, Urgency};
use crate::shared_stanza::SharedStanza;

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident = $text:literal => $ctx:ident;)*) => {$(
        $(#[$doc])*
        pub enum $name {}
        impl Point for $name {
            type Ctx<'a> = $ctx<'a>;
            type Effects = Effects;
            const NAME: &'static str = $text;
        }
    )*};
}

points! {
    /// Stanza from a local session, before routing: the sender's context.
    Outgoing = "outgoing" => OutgoingCtx;
    /// Stanza for a local account, before resources are chosen: the recipient's context.
    Incoming = "incoming" => IncomingCtx;
    /// Stanza for one session, before its queue.
    Deliver = "deliver" => DeliverCtx;
    /// At least one session of a local account accepted the stanza.
    Delivered = "delivered" => DeliveredCtx;
    /// No session accepted the message: offline storage, push, then the bounce.
    Undelivered = "undelivered" => UndeliveredCtx;
    /// A resource was bound.
    Opened = "opened" => OpenedCtx;
    /// A resource became available or changed its priority; its presence has already been sent.
    Available = "available" => AvailableCtx;
    /// A session ends; it is still in the routing table.
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
    /// The sender's host.
    pub host: &'a Arc<Host>,
    /// The sender's session.
    pub session: &'a Arc<Session>,
    /// The stanza as it will be routed: `from` has been set.
    pub stanza: &'a mut SharedStanza,
    /// The recipient; none for presence broadcasts.
    pub to: Option<JidRef<'a>>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

impl OutgoingCtx<'_> {
    /// Positions and properties of the stanza.
    pub fn head(&self) -> &Head {
        self.stanza.head()
    }
}

/// A stanza that arrives for an account of this host.
pub struct IncomingCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient's host.
    pub host: &'a Arc<Host>,
    /// The recipient, if one of its resources is connected here.
    pub account: Option<&'a Arc<Account>>,
    /// The stanza.
    pub stanza: &'a mut SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// The stanza id (XEP-0359) that another node gave the stanza. It keeps it.
    pub stanza_id: Option<TimeOrderedId>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// A stanza about to enter the queue of one session.
pub struct DeliverCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The receiving session.
    pub session: &'a Arc<Session>,
    /// The stanza.
    pub stanza: &'a SharedStanza,
    /// Whether it may be delayed in the queue until an urgent stanza.
    pub urgency: &'a mut Urgency,
}

/// A stanza that is in the queue of every session in `accepted_by`. Not run again when the stanza leaves the
/// queue of a lost connection and is redelivered.
pub struct DeliveredCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient.
    pub account: &'a Arc<Account>,
    /// The stanza.
    pub stanza: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// Sessions here that accepted it.
    pub accepted_by: &'a [Arc<Session>],
    /// Resources on other nodes that receive it. At least one of the two lists is not empty.
    pub accepted_by_peers: &'a [Box<str>],
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// A message that no resource accepted.
pub struct UndeliveredCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The recipient's host.
    pub host: &'a Arc<Host>,
    /// The recipient, if one of its resources is connected here.
    pub account: Option<&'a Arc<Account>>,
    /// The stanza.
    pub stanza: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The recipient: bare or full.
    pub to: JidRef<'a>,
    /// The sender must learn when the stanza is safe; see [`crate::message_backup`].
    pub tracks_delivery: bool,
    /// A session had accepted the stanza and has ended.
    pub redelivery: bool,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// A resource that has just been bound.
pub struct OpenedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The new session.
    pub session: &'a Arc<Session>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// A resource that has just become available or changed its priority.
pub struct AvailableCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session.
    pub session: &'a Arc<Session>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// A session that is about to end.
pub struct ClosingCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session.
    pub session: &'a Arc<Session>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// An account that was removed from the store.
pub struct RemovedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// Its host.
    pub host: &'a Arc<Host>,
    /// Its bare address.
    pub jid: JidRef<'a>,
    /// Contacts with a subscription in either direction, with their state.
    pub contacts: &'a [store::RosterItem],
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// An account that was created in the store.
pub struct CreatedCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// Its host.
    pub host: &'a Arc<Host>,
    /// Its bare address.
    pub jid: JidRef<'a>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}
