//! Effects: what handlers want done, as data. The engine performs them.
//!
//! So a handler's test is input and expected effects; it needs no mock of the router.

use std::sync::Arc;

use jid::Jid;
use smallvec::SmallVec;
use stanza::StreamError;
use store::Subscription;

use crate::account::Account;
use crate::frame::Frame;
use crate::session::Session;

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// Put into the queue of one session as it is.
    Send(Arc<Session>, Frame),
    /// Put into the queue of one session, with `to` set to its bare address.
    SendTo(Arc<Session>, Frame),
    /// Route as if it had just arrived from `from`.
    Route {
        /// The stanza; its `from` and `to` are what the two fields say.
        frame: Frame,
        /// The sender.
        from: Jid,
        /// The recipient.
        to: Jid,
    },
    /// To every resource of the account that has asked for its roster (RFC 6121 section 2.1.6).
    Push(Arc<Account>, Frame),
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
        frame: Frame,
    },
    /// To all contacts of the account whose subscription has one of these bits, and to nobody else.
    Broadcast {
        /// Whose contacts.
        account: Arc<Account>,
        /// The presence, without `to`.
        frame: Frame,
        /// Which contacts.
        to: Subscription,
    },
    /// To every other available resource of the account.
    Siblings {
        /// The session that is left out.
        except: Arc<Session>,
        /// The presence, without `to`.
        frame: Frame,
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
    pub fn route(&mut self, frame: Option<Frame>, from: Jid, to: Jid) {
        if let Some(frame) = frame {
            self.0.push(Effect::Route { frame, from, to });
        }
    }
    /// Puts a stanza into a session's queue.
    pub fn send(&mut self, session: &Arc<Session>, frame: Option<Frame>) {
        if let Some(frame) = frame {
            self.0.push(Effect::Send(session.clone(), frame));
        }
    }
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
