//! Effects: what handlers want done, as data. The engine performs them.
//!
//! So a handler's test is input and expected effects; it needs no mock of the router.

use std::sync::Arc;

use jid::Jid;
use smallvec::SmallVec;
use stanza::StreamError;
use store::Subscription;

use crate::account::Account;
use crate::session::Session;
use crate::shared_stanza::SharedStanza;

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// Put into the queue of one session as it is.
    Send(Arc<Session>, SharedStanza),
    /// Put into the queue of one session, with `to` set to its bare address.
    SendTo(Arc<Session>, SharedStanza),
    /// Route as if it had just arrived from `from`.
    Route {
        /// The stanza; its `from` and `to` are what the two fields say.
        frame: SharedStanza,
        /// The sender.
        from: Jid,
        /// The recipient.
        to: Jid,
    },
    /// To every resource of the account that has asked for its roster (RFC 6121 section 2.1.6).
    PushToInterested(Arc<Account>, SharedStanza),
    /// To every resource of the account that has all of these [`crate::session::flags`], with `to` set to its full
    /// address. A message that does not fit into a queue is lost there: it is a copy, and nobody else misses it.
    Copy {
        /// Whose resources.
        account: Arc<Account>,
        /// Bits of sessions.
        flags: u64,
        /// Resources that are left out.
        except: SmallVec<[Arc<Session>; 1]>,
        /// The stanza, without `to`.
        frame: SharedStanza,
    },
    /// To all contacts of the account whose subscription has one of these bits, and to nobody else.
    Broadcast {
        /// Whose contacts.
        account: Arc<Account>,
        /// The presence, without `to`.
        frame: SharedStanza,
        /// Which contacts.
        to: Subscription,
    },
    /// To every other available resource of the account.
    OtherResources {
        /// The session that is left out.
        except: Arc<Session>,
        /// The presence, without `to`.
        frame: SharedStanza,
    },
    /// End a stream.
    Close(Arc<Session>, StreamError),
    /// The session has become available, or its priority has changed: runs the `available` chain.
    Available(Arc<Session>),
}

/// A list of effects, performed in order.
#[derive(Debug, Default)]
pub struct Effects(pub Vec<Effect>);

impl Effects {
    /// Adds one.
    pub fn add(&mut self, effect: Effect) {
        self.0.push(effect);
    }
    /// Routes a stanza.
    pub fn route(&mut self, frame: Option<SharedStanza>, from: Jid, to: Jid) {
        if let Some(frame) = frame {
            self.0.push(Effect::Route { frame, from, to });
        }
    }
    /// Puts a stanza into a session's queue.
    pub fn send(&mut self, session: &Arc<Session>, frame: Option<SharedStanza>) {
        if let Some(frame) = frame {
            self.0.push(Effect::Send(session.clone(), frame));
        }
    }
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
