//! Invitations of all rooms of the service (XEP-0045 1.35.5, section 7.8.2): how many each user sends, and those of rooms that are not
//! in memory, so that they can be declined.
//!
//! # Pitfalls
//!
//! Each node counts what its own rooms send.

use base::lock::LeafMutex;
use hashbrown::HashMap;
use jid::{Jid, JidRef};

use crate::room::PendingInvitations;

const HOUR_MILLIS: u64 = 3_600_000;
/// Users at which those of former hours are forgotten.
const FEW_USERS: usize = 1_024;
/// Rooms whose invitations are kept while they are not in memory; those of further ones cannot be declined.
const MAX_KEPT_ROOMS: usize = 10_000;

/// Invitations that a user has sent in an hour.
#[derive(Clone, Copy, Default)]
struct SentInvitations {
    hour: u64,
    count: usize,
}

#[derive(Default)]
struct RegistryState {
    sent: HashMap<Jid, SentInvitations>,
    prune_at: usize,
    kept: HashMap<Jid, PendingInvitations>,
}

/// The invitations of a service.
#[derive(Default)]
pub(crate) struct InvitationRegistry(LeafMutex<RegistryState>);

impl InvitationRegistry {
    /// Whether a user may send this number of invitations, which then count. `limit` is that of an hour.
    pub(crate) fn count(&self, user: JidRef<'_>, number: usize, limit: usize, now: u64) -> bool {
        let hour = now / HOUR_MILLIS;
        let mut state = self.0.lock();
        if state.sent.len() >= state.prune_at.max(FEW_USERS) {
            state.sent.retain(|_, sent| sent.hour == hour);
            state.prune_at = state.sent.len() * 2;
        }
        let sent = state.sent.entry(user.bare().to_jid()).or_default();
        if sent.hour != hour {
            *sent = SentInvitations { hour, count: 0 };
        }
        let fits = sent.count.saturating_add(number) <= limit;
        sent.count += if fits { number } else { 0 };
        fits
    }

    /// Keeps the invitations of a room that leaves memory.
    pub(crate) fn keep(&self, room: &Jid, pending: PendingInvitations) {
        let mut state = self.0.lock();
        if pending.is_empty() {
            state.kept.remove(room);
        } else if state.kept.len() < MAX_KEPT_ROOMS || state.kept.contains_key(room) {
            state.kept.insert(room.clone(), pending);
        }
    }

    /// The invitations of a room that is in memory again.
    pub(crate) fn take(&self, room: &Jid, now: u64) -> PendingInvitations {
        let mut state = self.0.lock();
        if state.kept.len() >= MAX_KEPT_ROOMS {
            state.kept.retain(|_, pending| !pending.is_expired(now));
        }
        state.kept.remove(room).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_count_for_each_user_and_hour() {
        let registry = InvitationRegistry::default();
        let user = |number: usize| Jid::parse(&format!("witch{number}@example.com/x")).unwrap();
        assert!(registry.count(user(0).as_ref(), 3, 5, 0));
        assert!(!registry.count(user(0).as_ref(), 3, 5, 0));
        assert!(registry.count(user(0).as_ref(), 2, 5, 0) && registry.count(user(1).as_ref(), 5, 5, 0));
        assert!(registry.count(user(0).as_ref(), 5, 5, HOUR_MILLIS));
        for number in 0..10_000 {
            registry.count(user(number).as_ref(), 1, 5, number as u64 * HOUR_MILLIS);
        }
        assert!(registry.0.lock().sent.len() <= FEW_USERS);
    }
}
