//! Requests that wait for the answer of a person: registrations (XEP-0045 1.35.5, section 9.9) and requests for voice (section 8.6).
//!
//! # Pitfalls
//!
//! Anybody can send one without entering the room, under many names. So old requests make room for others, but not many in a short time,
//! since those who answer receive each of them.

use std::collections::VecDeque;

use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError};

/// Requests of a kind that wait for an answer.
const MAX_PENDING: usize = 64;

/// Times of a kind of requests, in milliseconds.
pub(super) struct RequestTimes {
    /// After it a request that was not answered is sent again.
    pub(super) expiry: u64,
    /// After it a request makes room for another one, and a user can send another one.
    pub(super) interval: u64,
}

#[derive(Debug)]
struct UnansweredRequest {
    user: Jid,
    /// What is requested.
    content: Box<str>,
    millis: u64,
}

/// Requests that were sent to others, so that each is sent once. Oldest first.
#[derive(Debug, Default)]
pub(super) struct UnansweredRequests(VecDeque<UnansweredRequest>);

impl UnansweredRequests {
    /// Adds the request of a user, or replaces another one of the user; false if the same is there already.
    ///
    /// # Errors
    /// `resource-constraint` if the user has just sent another one, or too many others have.
    pub(super) fn add(
        &mut self,
        user: JidRef<'_>,
        content: &str,
        now: u64,
        times: &RequestTimes,
    ) -> Result<bool, StanzaError> {
        self.0.retain(|one| now < one.millis.saturating_add(times.expiry));
        let own = self.0.iter().position(|one| one.user.as_ref() == user.bare());
        if own.and_then(|at| self.0.get(at)).is_some_and(|one| *one.content == *content) {
            return Ok(false);
        }
        let replaced = own.or_else(|| (self.0.len() >= MAX_PENDING).then_some(0));
        if let Some(at) = replaced {
            if self.0.get(at).is_some_and(|one| now < one.millis.saturating_add(times.interval)) {
                let text = "too many requests wait for an answer; wait";
                return Err(StanzaError::new(StanzaCondition::ResourceConstraint).text(text));
            }
            self.0.remove(at);
        }
        let (user, content) = (user.bare().to_jid(), content.into());
        self.0.push_back(UnansweredRequest { user, content, millis: now });
        Ok(true)
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |one: &UnansweredRequest| {
            size_of::<UnansweredRequest>() + one.user.as_str().len() + one.content.len()
        };
        self.0.iter().map(bytes).sum()
    }

    /// The request is answered.
    pub(super) fn remove(&mut self, user: &Jid) {
        self.0.retain(|one| one.user != *user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: RequestTimes = RequestTimes { expiry: 86_400_000, interval: 60_000 };

    fn add(requests: &mut UnansweredRequests, user: usize, content: &str, now: u64) -> Option<bool> {
        let user = Jid::parse(&format!("witch{user}@example.com/x")).unwrap();
        requests.add(user.as_ref(), content, now, &TIMES).ok()
    }

    #[test]
    fn the_oldest_request_makes_room_for_another_but_not_at_once() {
        let mut requests = UnansweredRequests::default();
        for user in 0..MAX_PENDING {
            assert_eq!(add(&mut requests, user, "nick", 0), Some(true));
        }
        assert_eq!(add(&mut requests, 100, "nick", 59_999), None);
        assert_eq!(add(&mut requests, 100, "nick", 60_000), Some(true));
        assert_eq!(requests.0.len(), MAX_PENDING);
        assert_eq!(add(&mut requests, 1, "nick", 60_000), Some(false), "the second is still there");
        assert_eq!(add(&mut requests, 100, "nick", 86_460_000), Some(true), "it has expired");
    }

    #[test]
    fn another_request_of_a_user_replaces_the_first() {
        let mut requests = UnansweredRequests::default();
        assert_eq!(add(&mut requests, 0, "crone", 0), Some(true));
        assert_eq!(add(&mut requests, 0, "hag", 1), None, "too soon, and not dropped silently");
        assert_eq!(add(&mut requests, 0, "hag", 60_000), Some(true));
        assert_eq!(add(&mut requests, 0, "hag", 60_001), Some(false));
        assert_eq!(requests.0.len(), 1);
        requests.remove(&Jid::parse("witch0@example.com").unwrap());
        assert_eq!(add(&mut requests, 0, "hag", 60_002), Some(true));
    }
}
