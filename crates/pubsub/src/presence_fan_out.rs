//! Presence of users on its way to the nodes to which they are subscribed: one fan-out of each user at a time, and a few of each other
//! domain, which can have any number of users.
//!
//! What arrives meanwhile is remembered by session: repeated presence is one. Nodes are visited at a rate for each user; a fan-out that
//! waits for it takes no place of others. The end of presence waits for a place, and is tried again when the store fails.
//!
//! # Pitfalls
//!
//! What is dropped is counted, and logged: presence above the number of fan-outs, and the end of presence of more sessions of one
//! address, or of more users of another domain, than are remembered.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use hashbrown::HashMap;
use jid::Jid;
use throng_core::Node;

use crate::pubsub_shared::UserChange;
use crate::user_buckets::UserBuckets;

/// Fan-outs at the same time, without those that wait for their rate; presence of further users is dropped, its end is not.
const MAX_ACTIVE: usize = 1_024;
/// Fan-outs of users of one other domain, those that wait for their rate included.
const MAX_OF_BUCKET: usize = 32;
/// Users of one other domain whose presence ends, and who wait for a fan-out.
const MAX_WAITING_USERS: usize = 4_096;
/// Sessions of one user that wait. Users of this server have fewer.
const MAX_SESSIONS: usize = 256;
/// Nodes that the presence of a user visits, each second and at once.
const NODES_PER_SECOND: u32 = 500;
const NODES_AT_ONCE: u32 = 20_000;
/// Seconds until a failed read is tried again.
const RETRY_SECONDS: u64 = 10;
/// Seconds between two lines of the log about what was dropped.
const LOG_SECONDS: u64 = 60;

/// What waits for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitingPresence {
    Available,
    Unavailable,
    UnavailableThenAvailable,
}

/// The fan-outs of the users of one bucket.
#[derive(Default)]
struct BucketFanOuts {
    count: usize,
    /// Users for whom there is no fan-out yet, in their order.
    waiting: VecDeque<Jid>,
}

#[derive(Default)]
struct FanOutState {
    /// By bare address, while a fan-out runs or waits for its place: what waits by full address.
    users: HashMap<Jid, HashMap<Jid, WaitingPresence>>,
    buckets: HashMap<Box<str>, BucketFanOuts>,
    /// Fan-outs that do not wait for their rate, nor for the store.
    active: usize,
    /// Fan-outs that wait for the rate of their user, or for the store.
    wakers: Vec<Waker>,
    /// Calls of [`PresenceFanOuts::wake`].
    seconds: u64,
    dropped: u64,
}

/// The fan-outs of a domain.
pub(crate) struct PresenceFanOuts {
    state: LeafMutex<FanOutState>,
    rates: UserBuckets,
}

impl Default for PresenceFanOuts {
    fn default() -> PresenceFanOuts {
        PresenceFanOuts {
            state: LeafMutex::default(),
            rates: UserBuckets::new(NODES_PER_SECOND, NODES_AT_ONCE),
        }
    }
}

/// What follows from presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FanOutRequest {
    /// The caller must start a fan-out.
    Start,
    /// A fan-out that runs will continue with it.
    Queued,
    /// The same waits already.
    Duplicate,
    /// There is no room; it is counted.
    Dropped,
}

impl PresenceFanOuts {
    /// A session has sent presence to the service, or its end. `bucket` is that of its user ([`crate::user_buckets::bucket_of`]).
    pub(crate) fn add(&self, bucket: &str, session: &Jid, change: UserChange) -> FanOutRequest {
        let user = session.bare().to_jid();
        let is_end = change == UserChange::Unavailable;
        let state = &mut *self.state.lock();
        let is_known = state.users.contains_key(&user);
        let mut outcome = FanOutRequest::Queued;
        if !is_known {
            let fan_outs = state.buckets.entry(bucket.into()).or_default();
            let has_place = fan_outs.count < MAX_OF_BUCKET && (is_end || state.active < MAX_ACTIVE);
            if has_place {
                fan_outs.count += 1;
                state.active += 1;
                outcome = FanOutRequest::Start;
            } else if is_end && fan_outs.waiting.len() < MAX_WAITING_USERS {
                fan_outs.waiting.push_back(user.clone());
            } else {
                if fan_outs.count == 0 {
                    state.buckets.remove(bucket);
                }
                state.dropped += 1;
                return FanOutRequest::Dropped;
            }
        }
        let sessions = state.users.entry(user).or_default();
        if !sessions.contains_key(session) && sessions.len() >= MAX_SESSIONS {
            let is_presence =
                |(_, waiting): &(&Jid, &WaitingPresence)| **waiting == WaitingPresence::Available;
            let presence = sessions.iter().find(is_presence).filter(|_| is_end);
            let presence = presence.map(|(session, _)| session.clone());
            state.dropped += 1;
            // The end of presence displaces presence.
            match presence {
                Some(other) => drop(sessions.remove(&other)),
                None => return FanOutRequest::Dropped,
            }
        }
        let before = sessions.get(session).copied();
        let waiting = match (is_end, before) {
            (true, _) => WaitingPresence::Unavailable,
            (false, None | Some(WaitingPresence::Available)) => WaitingPresence::Available,
            (false, Some(_)) => WaitingPresence::UnavailableThenAvailable,
        };
        if before == Some(waiting) {
            return FanOutRequest::Duplicate;
        }
        sessions.insert(session.clone(), waiting);
        outcome
    }

    /// What the fan-out of a user continues with; `None`: it has ended, and the caller continues with [`PresenceFanOuts::next_user`].
    pub(crate) fn next(&self, user: &Jid) -> Option<(Jid, UserChange)> {
        let mut state = self.state.lock();
        let sessions = state.users.get_mut(user)?;
        let Some((session, waiting)) = sessions.iter_mut().next() else {
            state.users.remove(user);
            return None;
        };
        let session = session.clone();
        if *waiting == WaitingPresence::UnavailableThenAvailable {
            *waiting = WaitingPresence::Available;
            return Some((session, UserChange::Unavailable));
        }
        match sessions.remove(&session)? {
            WaitingPresence::Available => Some((session, UserChange::Available)),
            _ => Some((session, UserChange::Unavailable)),
        }
    }

    /// Another user who takes the place of one whose fan-out has ended; `None`: the place is free.
    pub(crate) fn next_user(&self, bucket: &str) -> Option<Jid> {
        let state = &mut *self.state.lock();
        let fan_outs = state.buckets.get_mut(bucket)?;
        let next = fan_outs.waiting.pop_front();
        if next.is_none() {
            state.active -= 1;
            fan_outs.count -= 1;
            if fan_outs.count == 0 {
                state.buckets.remove(bucket);
            }
        }
        next
    }

    /// Waits until the rate of a user permits to visit `count` nodes.
    pub(crate) async fn wait_for_rate(&self, node: &Node, user: &Jid, count: usize) {
        self.wait_inactive(|_| self.rates.try_take(node, user.as_ref(), count)).await;
    }

    /// Waits until a failed read may be tried again.
    pub(crate) async fn wait_for_store(&self) {
        let until = self.state.lock().seconds + RETRY_SECONDS;
        self.wait_inactive(|seconds| seconds >= until).await;
    }

    /// Waits without a place among the active fan-outs.
    async fn wait_inactive(&self, mut is_ready: impl FnMut(u64) -> bool) {
        let mut is_active = true;
        poll_fn(|cx| {
            let seconds = self.state.lock().seconds;
            let is_ready = is_ready(seconds);
            let mut state = self.state.lock();
            if is_ready {
                state.active += usize::from(!is_active);
                return Poll::Ready(());
            }
            state.active -= usize::from(std::mem::take(&mut is_active));
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Called each second: fan-outs try again.
    pub(crate) fn wake(&self) {
        let (wakers, dropped) = {
            let mut state = self.state.lock();
            state.seconds += 1;
            let is_logged = state.seconds.is_multiple_of(LOG_SECONDS);
            let dropped = if is_logged { std::mem::take(&mut state.dropped) } else { 0 };
            (std::mem::take(&mut state.wakers), dropped)
        };
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "presence to PubSub services was dropped: too many users or sessions send it at the same time"
            );
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub_shared::UserChange::{Available, Unavailable};
    use std::task::Context;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    /// Of a user of this server.
    fn add(fan_outs: &PresenceFanOuts, session: &Jid, change: UserChange) -> FanOutRequest {
        fan_outs.add(session.as_ref().bare().as_str(), session, change)
    }

    fn foreign(fan_outs: &PresenceFanOuts, number: usize, change: UserChange) -> FanOutRequest {
        fan_outs.add("far.lit", &jid(&format!("u{number}@far.lit/x")), change)
    }

    #[test]
    fn one_fan_out_of_a_user_at_a_time_takes_what_arrives_meanwhile() {
        let fan_outs = PresenceFanOuts::default();
        let (user, session) = (jid("a@b"), jid("a@b/x"));
        assert_eq!(add(&fan_outs, &session, Available), FanOutRequest::Start);
        assert_eq!(fan_outs.next(&user), Some((session.clone(), Available)));
        for (change, outcome) in [
            (Available, FanOutRequest::Queued),
            (Available, FanOutRequest::Duplicate),
            (Unavailable, FanOutRequest::Queued),
            (Unavailable, FanOutRequest::Duplicate),
            (Available, FanOutRequest::Queued),
        ] {
            assert_eq!(add(&fan_outs, &session, change), outcome, "{change:?}");
        }
        assert_eq!(fan_outs.next(&user), Some((session.clone(), Unavailable)));
        assert_eq!(fan_outs.next(&user), Some((session.clone(), Available)));
        assert_eq!((fan_outs.next(&user), fan_outs.next_user("a@b")), (None, None));
        assert_eq!(add(&fan_outs, &session, Available), FanOutRequest::Start, "again");
    }

    #[test]
    fn the_end_of_presence_is_passed_on_however_many_users_and_sessions_there_are() {
        let fan_outs = PresenceFanOuts::default();
        for number in 0..MAX_ACTIVE {
            let session = jid(&format!("u{number}@b/x"));
            assert_eq!(add(&fan_outs, &session, Available), FanOutRequest::Start);
        }
        assert_eq!(add(&fan_outs, &jid("a@b/x"), Available), FanOutRequest::Dropped);
        assert_eq!(add(&fan_outs, &jid("a@b/x"), Unavailable), FanOutRequest::Start);
        assert_eq!(fan_outs.next(&jid("a@b")), Some((jid("a@b/x"), Unavailable)));
        for number in 0..MAX_SESSIONS {
            add(&fan_outs, &jid(&format!("u0@b/{number}")), Available);
        }
        assert_eq!(add(&fan_outs, &jid("u0@b/last"), Unavailable), FanOutRequest::Queued);
        let rest = std::iter::from_fn(|| fan_outs.next(&jid("u0@b")));
        let rest: Vec<_> = rest.collect();
        assert!(rest.len() == MAX_SESSIONS && rest.contains(&(jid("u0@b/last"), Unavailable)));
        assert_eq!(fan_outs.state.lock().dropped, 3);
    }

    #[test]
    fn the_users_of_another_domain_take_few_places_and_the_end_of_their_presence_waits() {
        let fan_outs = PresenceFanOuts::default();
        let started = (0..2_000).filter(|n| foreign(&fan_outs, *n, Available) == FanOutRequest::Start);
        assert_eq!(started.count(), MAX_OF_BUCKET);
        assert_eq!(add(&fan_outs, &jid("a@b/x"), Available), FanOutRequest::Start, "of others");
        let waiting =
            (10_000..20_000).filter(|n| foreign(&fan_outs, *n, Unavailable) == FanOutRequest::Queued);
        assert_eq!(waiting.count(), MAX_WAITING_USERS);
        // A place goes to those that wait.
        while fan_outs.next(&jid("u0@far.lit")).is_some() {}
        let next = fan_outs.next_user("far.lit").unwrap();
        assert_eq!(next, jid("u10000@far.lit"));
        assert_eq!(fan_outs.next(&next), Some((jid("u10000@far.lit/x"), Unavailable)));
        assert_eq!(fan_outs.next(&next), None);
        let rest = std::iter::from_fn(|| fan_outs.next_user("far.lit"))
            .inspect(|user| while fan_outs.next(user).is_some() {});
        assert_eq!(rest.count(), MAX_WAITING_USERS - 1);
        assert_eq!(fan_outs.state.lock().buckets["far.lit"].count, MAX_OF_BUCKET - 1);
    }

    #[test]
    fn a_fan_out_that_waits_takes_no_place_of_others() {
        let fan_outs = PresenceFanOuts::default();
        for number in 0..MAX_ACTIVE {
            add(&fan_outs, &jid(&format!("u{number}@b/x")), Available);
        }
        let mut waits = Box::pin(fan_outs.wait_for_store());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(add(&fan_outs, &jid("a@b/x"), Available), FanOutRequest::Start);
        assert_eq!(add(&fan_outs, &jid("c@b/x"), Available), FanOutRequest::Dropped);
        (0..RETRY_SECONDS).for_each(|_| fan_outs.wake());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        drop(waits);
        assert_eq!(fan_outs.state.lock().active, MAX_ACTIVE + 1);
    }
}
