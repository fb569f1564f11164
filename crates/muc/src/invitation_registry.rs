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
/// Bytes of the invitations of rooms that are not in memory; further ones cannot be declined.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// What a room counts besides its address and invitations.
const ROOM_BYTES: usize = 128;
/// Time between two searches for invitations that have expired, in milliseconds: each examines all rooms.
const SWEEP_INTERVAL_MILLIS: u64 = 60_000;

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
    kept_bytes: usize,
    /// The latest known time, and that of the next search for expired invitations.
    now: u64,
    sweep_at: u64,
}

impl RegistryState {
    fn remove_kept(&mut self, room: &Jid) -> Option<PendingInvitations> {
        let pending = self.kept.remove(room)?;
        self.kept_bytes -= kept_bytes(room, &pending);
        Some(pending)
    }

    fn remove_expired(&mut self) {
        let now = self.now;
        self.kept.retain(|_, pending| {
            pending.forget_expired(now);
            !pending.is_empty()
        });
        self.kept_bytes = self.kept.iter().map(|(room, pending)| kept_bytes(room, pending)).sum();
        self.sweep_at = now.saturating_add(SWEEP_INTERVAL_MILLIS);
    }
}

fn kept_bytes(room: &Jid, pending: &PendingInvitations) -> usize {
    ROOM_BYTES + room.as_str().len() + pending.bytes()
}

/// The invitations of a service.
#[derive(Default)]
pub(crate) struct InvitationRegistry(LeafMutex<RegistryState>);

impl InvitationRegistry {
    /// Counts this number of invitations of a user; false if they are too many, and do not count. `limit` is that of an hour.
    pub(crate) fn try_add(&self, user: JidRef<'_>, number: usize, limit: usize, now: u64) -> bool {
        let hour = now / HOUR_MILLIS;
        let mut state = self.0.lock();
        state.now = state.now.max(now);
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
    pub(crate) fn keep(&self, room: &Jid, mut pending: PendingInvitations) {
        let mut state = self.0.lock();
        state.remove_kept(room);
        pending.forget_expired(state.now);
        if pending.is_empty() {
            return;
        }
        let bytes = kept_bytes(room, &pending);
        if state.kept_bytes + bytes > MAX_KEPT_BYTES && state.now >= state.sweep_at {
            state.remove_expired();
        }
        if state.kept_bytes + bytes <= MAX_KEPT_BYTES {
            state.kept_bytes += bytes;
            state.kept.insert(room.clone(), pending);
        }
    }

    /// The invitations of a room that is in memory again.
    pub(crate) fn take(&self, room: &Jid, now: u64) -> PendingInvitations {
        let mut state = self.0.lock();
        state.now = state.now.max(now);
        state.remove_kept(room).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitations_count_for_each_user_and_hour() {
        let registry = InvitationRegistry::default();
        let user = |number: usize| Jid::parse(&format!("witch{number}@example.com/x")).unwrap();
        assert!(registry.try_add(user(0).as_ref(), 3, 5, 0));
        assert!(!registry.try_add(user(0).as_ref(), 3, 5, 0));
        assert!(registry.try_add(user(0).as_ref(), 2, 5, 0) && registry.try_add(user(1).as_ref(), 5, 5, 0));
        assert!(registry.try_add(user(0).as_ref(), 5, 5, HOUR_MILLIS));
        for number in 0..10_000 {
            registry.try_add(user(number).as_ref(), 1, 5, number as u64 * HOUR_MILLIS);
        }
        assert!(registry.0.lock().sent.len() <= FEW_USERS);
    }

    #[test]
    fn kept_invitations_are_bounded_in_bytes_and_expired_ones_make_room() {
        let registry = InvitationRegistry::default();
        let jid = |text: String| Jid::parse(&text).unwrap();
        let room = |number: usize| jid(format!("room{number}@chat.example.com"));
        let long = "x".repeat(1_000);
        let pending = |millis: u64| {
            let mut pending = PendingInvitations::default();
            for number in 0..100 {
                let invitee = jid(format!("{long}@{number}.example.com"));
                pending.add(invitee, jid(format!("{long}@example.com/x")), millis);
            }
            pending
        };
        let day = 24 * HOUR_MILLIS;
        for number in 0..1_000 {
            registry.keep(&room(number), pending(1));
        }
        let state = || {
            let state = registry.0.lock();
            let bytes: usize = state.kept.iter().map(|(room, pending)| kept_bytes(room, pending)).sum();
            assert_eq!(bytes, state.kept_bytes);
            (state.kept.len(), bytes)
        };
        let (rooms, bytes) = state();
        assert!(bytes <= MAX_KEPT_BYTES && (50..100).contains(&rooms), "{rooms} rooms, {bytes} bytes");
        assert!(registry.take(&room(999), 1).is_empty(), "one too many");
        assert!(!registry.take(&room(0), day + 1).is_empty());
        registry.keep(&room(0), pending(1));
        assert_eq!(state().0, rooms - 1, "expired ones are not kept");
        (1_000..1_003).for_each(|number| registry.keep(&room(number), pending(day)));
        assert_eq!(state().0, 3, "the others have expired");
        registry.keep(&room(1_000), PendingInvitations::default());
        assert_eq!(state().0, 2);
    }
}
