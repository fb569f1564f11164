//! A bound resource: RFC 6120 section 7, with the state that RFC 6121 needs for it.
//!
//! A session costs what `tests/sizes.rs` says and not a byte more for features that it does not use: a
//! feature's state is one bit in [`Flags`] or a boxed slot that is absent until used.

pub(crate) mod admission;
pub mod backlog;
pub(crate) mod delivery_sampling;
pub mod extensions;
pub mod flags;
pub mod outbox;
pub mod outbox_registry;
mod pending_requests;
pub mod presence_batching;
pub mod rates;
pub mod stream_management;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI8, Ordering};

use jid::{Jid, JidRef};
use parking_lot::Mutex;

use crate::account::Account;
use crate::caps_cache::CapsId;
use crate::shared_stanza::SharedStanza;

pub use backlog::{AdmissionContext, Backlog, ExceededLimit};
pub use extensions::{Extension, Extensions};
pub use flags::Flags;
pub use outbox::{
    DeliveryProgress, DequeueOutcome, Outbox, PushOutcome, QueuedBatch, QueuedStanza, ToRewrite, Urgency,
};
pub use outbox_registry::OutboxRegistry;
pub use presence_batching::PresenceBatcher;
pub use rates::{AccountRates, SessionRates};
pub use stream_management::{StreamManagementConfig, StreamManagementTerms};

/// A bound resource of a local account.
pub struct Session {
    /// The account behind it.
    pub account: Arc<Account>,
    /// The line to its connection.
    pub outbox: Arc<Outbox>,
    /// The full address.
    pub jid: Jid,
    /// One bit a feature.
    pub flags: Flags,
    /// The number of what its client announced; fits where alignment leaves room.
    pub(crate) caps_id: CapsId,
    /// Priority of the presence in [`State`], and written with that; here because alignment leaves room.
    priority: AtomicI8,
    ended: AtomicBool,
    state: Mutex<SessionState>,
}

/// What changes during a session.
#[derive(Default)]
pub struct SessionState {
    /// The last presence that was broadcast; none while the resource is not available.
    pub presence: Option<SharedStanza>,
    /// Entities outside the subscriptions that were sent presence directly (RFC 6121 section 4.6).
    /// A boxed vector, because most sessions have none and a thin pointer is a third of its size.
    #[allow(clippy::box_collection, reason = "8 bytes instead of 24 in every session")]
    pub directed_presence: Option<Box<Vec<Jid>>>,
    /// Boxed state of features.
    pub extensions: Extensions,
    /// How fast the client may send.
    pub(crate) rates: Option<Box<SessionRates>>,
}

impl Session {
    pub(crate) fn new(account: Arc<Account>, link: Arc<Outbox>, jid: Jid) -> Session {
        Session {
            account,
            outbox: link,
            jid,
            flags: Flags::default(),
            caps_id: CapsId::default(),
            priority: AtomicI8::new(0),
            ended: AtomicBool::new(false),
            state: Mutex::new(SessionState::default()),
        }
    }

    /// The full address.
    pub fn full(&self) -> JidRef<'_> {
        self.jid.as_ref()
    }
    /// The bare address.
    pub fn bare(&self) -> JidRef<'_> {
        self.account.jid.as_ref()
    }
    /// The resource.
    pub fn resource(&self) -> &str {
        self.full().resource().unwrap_or_default()
    }
    /// Reads or changes the state. Nothing slow may happen inside.
    pub fn with<T>(&self, f: impl FnOnce(&mut SessionState) -> T) -> T {
        f(&mut self.state.lock())
    }
    /// Makes the resource available (RFC 6121 section 4.2), or changes its presence; tells whether it is the first one, and
    /// the priority until now. Nothing if the session is over: it must not come back to life.
    ///
    /// What waits in the store goes first: from the same moment on newer messages line up behind it.
    pub fn set_available(&self, presence: SharedStanza, priority: i8) -> Option<(bool, i8)> {
        let keeps = self.account.host().stores_offline_messages;
        self.account.with(|account| {
            let before = self.with(|state| {
                if self.is_ended() {
                    return None;
                }
                let before = (state.presence.is_none(), self.priority.load(Ordering::Relaxed));
                state.presence = Some(presence);
                self.priority.store(priority, Ordering::Relaxed);
                Some(before)
            })?;
            // Only if the handlers of `available` will hear of it, since they clear it.
            let changed = before != (false, priority);
            account.flushing |= keeps && changed && account.may_have_offline_messages && priority >= 0;
            Some(before)
        })
    }
    /// Whether the resource is available (RFC 6121 section 4.2).
    pub fn is_available(&self) -> bool {
        self.state.lock().presence.is_some()
    }
    /// Priority, if the resource is available.
    pub fn priority(&self) -> Option<i8> {
        let state = self.state.lock();
        state.presence.as_ref().map(|_| self.priority.load(Ordering::Relaxed))
    }
    /// Sets the priority of the presence in [`State`], which must be locked meanwhile: by [`Session::with_state`].
    pub fn set_priority(&self, priority: i8) {
        self.priority.store(priority, Ordering::Relaxed);
    }
    /// Whether the session is over.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
    /// Marks the session as over; true for the first who does.
    pub(crate) fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.jid)
    }
}
