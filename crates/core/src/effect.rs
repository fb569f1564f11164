//! Effects: the actions that handlers request, as data. The engine performs them.
//!
//! Thus the test of a handler is input and expected effects; it needs no mock of the router.

use std::sync::Arc;

use jid::Jid;
use smallvec::SmallVec;
use stanza::StreamError;
use store::Subscription;

use crate::account::Account;
use crate::metrics::StanzaSource;
use crate::multicast::Multicast;
use crate::receipt::{AttachedReceipt, Receipt};
use crate::session::Session;
use crate::shared_stanza::SharedStanza;

/// One action.
#[derive(Debug)]
pub enum Effect {
    /// Puts a stanza into the queue of one session, unchanged.
    Send(Arc<Session>, SharedStanza),
    /// Puts a stanza into the queue of one session, with `to` set to its bare address.
    SendTo(Arc<Session>, SharedStanza),
    /// Routes a stanza as if it had just arrived from `from`.
    Route {
        /// The stanza; its `from` and `to` equal the two fields.
        stanza: SharedStanza,
        /// The sender.
        from: Jid,
        /// The recipient.
        to: Jid,
    },
    /// Like [`Effect::Route`], in the recipient's lane: what the stanza waits for holds up neither the other effects nor
    /// the stream whose stanza caused them.
    RouteInLane {
        /// What sends it.
        source: StanzaSource,
        /// The stanza; its `from` and `to` equal the two fields.
        stanza: SharedStanza,
        /// The sender.
        from: Jid,
        /// The recipient.
        to: Jid,
    },
    /// Sends one stanza to many recipients.
    Multicast(Box<Multicast>),
    /// Sends to every resource of the account that has requested its roster (RFC 6121, section 2.1.6).
    PushToInterested(Arc<Account>, SharedStanza),
    /// Sends to every resource of the account that has all of these [`crate::session::flags`], unchanged.
    ToResources {
        /// The account of the resources.
        account: Arc<Account>,
        /// Required session flags.
        flags: u64,
        /// Only available resources receive it.
        available: bool,
        /// The stanza.
        stanza: SharedStanza,
    },
    /// Sends to every resource of the account that has all of these [`crate::session::flags`], with `to` set to
    /// its full address. A message that does not fit into a queue is dropped, because it is a copy.
    Copy {
        /// The account of the resources.
        account: Arc<Account>,
        /// Required session flags.
        flags: u64,
        /// Resources that are excluded.
        except: SmallVec<[Arc<Session>; 1]>,
        /// Resources on other nodes that are excluded.
        except_peers: Vec<Box<str>>,
        /// The stanza, without `to`.
        stanza: SharedStanza,
    },
    /// Sends to all contacts of the account whose subscription has one of these bits, and to nobody else.
    Broadcast {
        /// The account of the contacts.
        account: Arc<Account>,
        /// The presence, without `to`.
        stanza: SharedStanza,
        /// Subscription bits.
        to: Subscription,
    },
    /// Sends to every other available resource of the account.
    OtherResources {
        /// The session that is excluded.
        except: Arc<Session>,
        /// The presence, without `to`.
        stanza: SharedStanza,
    },
    /// The account's sessions on this node receive the presence of a contact that has approved its subscription. Only for several
    /// nodes, where the approval and the presence travel separately: presence that arrives before the approval is not shown. On a
    /// single node the contact sends it ([`Effect::PresenceTo`]).
    FetchPresence {
        /// The subscriber.
        account: Arc<Account>,
        /// The bare address of the contact.
        contact: Jid,
    },
    /// Sends the last presence of each available resource to one address, or `unavailable` from each.
    PresenceTo {
        /// The account of the resources.
        account: Arc<Account>,
        /// The recipient.
        to: Jid,
        /// Their presence; otherwise `unavailable`.
        available: bool,
        /// Also of the resources on other nodes. They follow a change of the roster without it.
        peers: bool,
    },
    /// Closes a stream.
    Close(Arc<Session>, StreamError),
    /// The session became available, or its priority changed: runs the `available` chain.
    Available(Arc<Session>),
    /// A stanza is safe when this receipt is fulfilled. If it fails, the sender of the stanza gets the error.
    Receipt(AttachedReceipt),
}

/// A list of effects, performed in order.
#[derive(Debug, Default)]
pub struct Effects(pub Vec<Effect>);

impl Effects {
    /// Adds an effect.
    pub fn add(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Routes a stanza.
    pub fn route(&mut self, stanza: Option<SharedStanza>, from: Jid, to: Jid) {
        if let Some(stanza) = stanza {
            self.0.push(Effect::Route { stanza, from, to });
        }
    }

    /// Puts a stanza into a session's queue.
    pub fn send(&mut self, session: &Arc<Session>, stanza: Option<SharedStanza>) {
        if let Some(stanza) = stanza {
            self.0.push(Effect::Send(session.clone(), stanza));
        }
    }

    /// Sends one stanza to many recipients.
    pub fn multicast(&mut self, multicast: Multicast) {
        self.0.push(Effect::Multicast(Box::new(multicast)));
    }

    /// The same effects, with routed stanzas in the lanes of their recipients.
    pub(crate) fn in_lanes(self, source: StanzaSource) -> Effects {
        let in_lane = |effect| match effect {
            Effect::Route { stanza, from, to } => Effect::RouteInLane { source, stanza, from, to },
            other => other,
        };
        Effects(self.0.into_iter().map(in_lane).collect())
    }

    /// Attaches a receipt to a stanza, which has both addresses.
    pub fn receipt(&mut self, stanza: &SharedStanza, receipt: Receipt) {
        self.0.push(Effect::Receipt(AttachedReceipt { stanza: stanza.clone(), receipt }));
    }

    /// Whether there are no effects.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
