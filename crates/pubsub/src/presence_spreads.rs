//! Presence of users on its way to the nodes to which they are subscribed: one pass of each user at a time.
//!
//! What arrives meanwhile is remembered by session: an end of presence is never lost, repeated presence is one. Nodes are visited
//! at a rate for each user.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use hashbrown::HashMap;
use jid::Jid;
use throng_core::Node;

use crate::pubsub_shared::UserChange;
use crate::user_buckets::UserBuckets;

/// Users whose presence is passed on at the same time; presence of further ones is dropped, its end is not.
const MAX_USERS: usize = 1_024;
/// Sessions of one user that wait. Users of this server have fewer.
const MAX_SESSIONS: usize = 256;
/// Nodes that the presence of a user visits, each second and at once.
const NODES_PER_SECOND: u32 = 500;
const NODES_AT_ONCE: u32 = 20_000;

/// What waits for a session: the end of its presence before the presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WaitingPresence {
    is_gone: bool,
    is_back: bool,
}

#[derive(Default)]
struct SpreadState {
    /// By bare address, while a pass runs: what waits by full address.
    running: HashMap<Jid, HashMap<Jid, WaitingPresence>>,
    /// Passes that wait for the rate of their user.
    waiting: Vec<Waker>,
}

/// The passes of a domain.
pub(crate) struct PresenceSpreads {
    state: LeafMutex<SpreadState>,
    rates: UserBuckets,
}

impl Default for PresenceSpreads {
    fn default() -> PresenceSpreads {
        PresenceSpreads {
            state: LeafMutex::default(),
            rates: UserBuckets::new(NODES_PER_SECOND, NODES_AT_ONCE),
        }
    }
}

/// What follows from presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PresenceOutcome {
    /// The caller must start a pass.
    Starts,
    /// The pass that runs will continue with it.
    Waits,
    /// The same waits already, or there is no room.
    Dropped,
}

impl PresenceSpreads {
    /// A session has sent presence to the service, or its end.
    pub(crate) fn add(&self, session: &Jid, change: UserChange) -> PresenceOutcome {
        let user = session.bare().to_jid();
        let mut state = self.state.lock();
        let is_running = state.running.contains_key(&user);
        let is_end = change == UserChange::Unavailable;
        if !is_running && !is_end && state.running.len() >= MAX_USERS {
            return PresenceOutcome::Dropped;
        }
        let sessions = state.running.entry(user).or_default();
        if !sessions.contains_key(session) && sessions.len() >= MAX_SESSIONS {
            return PresenceOutcome::Dropped;
        }
        let waiting = sessions.entry(session.clone()).or_default();
        let before = *waiting;
        *waiting = match is_end {
            true => WaitingPresence { is_gone: true, is_back: false },
            false => WaitingPresence { is_back: true, ..before },
        };
        match is_running {
            false => PresenceOutcome::Starts,
            true if *waiting == before => PresenceOutcome::Dropped,
            true => PresenceOutcome::Waits,
        }
    }

    /// What the pass of a user continues with; `None`: it ends.
    pub(crate) fn next(&self, user: &Jid) -> Option<(Jid, UserChange)> {
        let mut state = self.state.lock();
        let sessions = state.running.get_mut(user)?;
        let Some((session, waiting)) = sessions.iter_mut().next() else {
            state.running.remove(user);
            return None;
        };
        let session = session.clone();
        if waiting.is_gone {
            waiting.is_gone = false;
            if !waiting.is_back {
                sessions.remove(&session);
            }
            return Some((session, UserChange::Unavailable));
        }
        sessions.remove(&session);
        Some((session, UserChange::Available))
    }

    /// Waits until the rate of a user permits to visit `count` nodes.
    pub(crate) async fn wait_for_rate(self: &Arc<Self>, node: &Node, user: &Jid, count: usize) {
        poll_fn(|cx| {
            if self.rates.try_take(node, user.as_ref(), count) {
                return Poll::Ready(());
            }
            self.state.lock().waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Called each second: passes try again.
    pub(crate) fn wake(&self) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub_shared::UserChange::{Available, Unavailable};

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    #[test]
    fn one_pass_of_a_user_at_a_time_takes_what_arrives_meanwhile() {
        let spreads = PresenceSpreads::default();
        let (user, session) = (jid("a@b"), jid("a@b/x"));
        assert_eq!(spreads.add(&session, Available), PresenceOutcome::Starts);
        assert_eq!(spreads.next(&user), Some((session.clone(), Available)));
        for (change, outcome) in [
            (Available, PresenceOutcome::Waits),
            (Available, PresenceOutcome::Dropped),
            (Unavailable, PresenceOutcome::Waits),
            (Unavailable, PresenceOutcome::Dropped),
            (Available, PresenceOutcome::Waits),
        ] {
            assert_eq!(spreads.add(&session, change), outcome, "{change:?}");
        }
        assert_eq!(spreads.next(&user), Some((session.clone(), Unavailable)));
        assert_eq!(spreads.next(&user), Some((session.clone(), Available)));
        assert_eq!(spreads.next(&user), None);
        assert_eq!(spreads.add(&session, Available), PresenceOutcome::Starts, "again");
    }

    #[test]
    fn the_end_of_presence_is_passed_on_however_many_users_there_are() {
        let spreads = PresenceSpreads::default();
        for number in 0..MAX_USERS {
            assert_eq!(spreads.add(&jid(&format!("u{number}@b/x")), Available), PresenceOutcome::Starts);
        }
        assert_eq!(spreads.add(&jid("a@b/x"), Available), PresenceOutcome::Dropped);
        assert_eq!(spreads.add(&jid("a@b/x"), Unavailable), PresenceOutcome::Starts);
        assert_eq!(spreads.next(&jid("a@b")), Some((jid("a@b/x"), Unavailable)));
    }
}
