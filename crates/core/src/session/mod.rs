//! A bound resource: RFC 6120, section 7, with the session state of RFC 6121.
//!
//! `tests/sizes.rs` limits the size of a session, and unused features add nothing to it: the state of a feature
//! is one bit in [`Flags`] or a boxed extension that is absent until used.

pub mod flags;
mod pending_requests;
pub mod rates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI8, AtomicU32, AtomicU64, Ordering};

use base::lock::{RankedMutex, rank};
use jid::{Jid, JidRef};

use crate::account::Account;
use crate::shared_stanza::SharedStanza;

pub use base::{Extension, Extensions};
pub use flags::Flags;
pub use outbox::{
    AdmissionContext, Backlog, DelayToken, DeliveryProgress, DequeueOutcome, ExceededLimit, Outbox,
    OutboxRegistry, PresenceBatcher, PushOutcome, QueuedBatch, QueuedStanza, StreamManagementConfig,
    StreamManagementTerms, ToRewrite, Urgency, WrittenMessages, backlog, outstanding, queued_size,
    stream_management,
};
pub use stanza_rates::{AccountRates, SessionRates, SpentRates, SpentReport, SpentReports};

/// A bound resource of a local account.
pub struct Session {
    /// The account of the resource.
    pub account: Arc<Account>,
    /// Outgoing queue of its connection.
    pub outbox: Arc<Outbox>,
    /// The full address.
    pub jid: Jid,
    bound_at: AtomicU64,
    /// One bit for each feature.
    pub flags: Flags,
    /// Number of the capabilities that its client announced; placed in existing padding.
    pub caps_id: AtomicU32,
    /// Priority of the presence in [`SessionState`], written together with it; placed in existing padding.
    priority: AtomicI8,
    ended: AtomicBool,
    state: RankedMutex<SessionState, { rank::SESSION }>,
}

/// Mutable state of a session.
#[derive(Default)]
pub struct SessionState {
    /// The presence that was last broadcast; none while the resource is unavailable.
    pub presence: Option<SharedStanza>,
    /// Entities without a subscription that were sent directed presence (RFC 6121, section 4.6). A boxed
    /// vector, because most sessions have none and a thin pointer is a third of its size.
    #[allow(clippy::box_collection, reason = "8 bytes instead of 24 in every session")]
    pub directed_presence: Option<Box<Vec<Jid>>>,
    /// Boxed state of features.
    pub extensions: Extensions,
    /// Rate limits of the client.
    pub(crate) rates: Option<Box<SessionRates>>,
}

impl Session {
    pub(crate) fn new(account: Arc<Account>, outbox: Arc<Outbox>, jid: Jid, bound_at: u64) -> Session {
        Session {
            account,
            outbox,
            jid,
            bound_at: AtomicU64::new(bound_at),
            flags: Flags::default(),
            caps_id: AtomicU32::new(0),
            priority: AtomicI8::new(0),
            ended: AtomicBool::new(false),
            state: RankedMutex::new(SessionState::default()),
        }
    }

    /// When it was bound, in milliseconds since 1970: of two sessions with one full address on two nodes, the newer one
    /// stays.
    pub fn bound_at(&self) -> u64 {
        self.bound_at.load(Ordering::Relaxed)
    }

    /// Makes this session newer than one of another node. `other`: when that was bound, in milliseconds since 1970 by the clock there.
    pub fn make_newer_than(&self, other: u64) {
        self.bound_at.fetch_max(other.saturating_add(1), Ordering::Relaxed);
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

    /// Runs `f` on the locked state. `f` must be fast.
    pub fn with<T>(&self, f: impl FnOnce(&mut SessionState) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// Frees the state of features when the session has ended, and not with the last reference to it.
    pub(crate) fn clear_state(&self) {
        self.with(|state| {
            // The connection may still read the stanza it has started.
            let rates = state.rates.take();
            *state = SessionState { rates, ..SessionState::default() };
        });
    }

    /// Makes the resource available (RFC 6121, section 4.2) or changes its presence; returns whether it was
    /// unavailable before, and the earlier priority. `None` if the session has ended, so that it cannot become
    /// available again.
    ///
    /// Stored messages are delivered first: newer messages follow them from this call on.
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
            // Only if the handlers of `available` will run, because they clear the flag.
            let changed = before != (false, priority);
            let older = account.may_have_offline_messages || account.has_messages_in_transit;
            account.flushing |= keeps && changed && older && priority >= 0;
            Some(before)
        })
    }

    /// Whether the resource is available (RFC 6121, section 4.2).
    pub fn is_available(&self) -> bool {
        self.state.lock().presence.is_some()
    }

    /// Priority, if the resource is available.
    pub fn priority(&self) -> Option<i8> {
        let state = self.state.lock();
        state.presence.as_ref().map(|_| self.priority.load(Ordering::Relaxed))
    }

    /// Sets the priority of the presence in [`SessionState`]; the caller must hold its lock.
    pub fn set_priority(&self, priority: i8) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// Whether the session has sent directed presence to this entity, or to a resource of it.
    pub fn has_directed_presence_to(&self, entity: JidRef<'_>) -> bool {
        let list = self.state.lock();
        list.directed_presence
            .as_ref()
            .is_some_and(|list| list.iter().any(|known| known.as_ref().bare() == entity.bare()))
    }

    /// Whether the session has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Marks the session as ended; true for the first caller, which must close its outbox and call [`crate::Node::finish_session`].
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.jid)
    }
}
