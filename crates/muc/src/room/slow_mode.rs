//! Slow mode: XEP-0500 0.1.0, section 6. The limit is that of the user, in whichever session and under whichever nickname.
//!
//! # Pitfalls
//!
//! Messages without a body pass, but those that are stored would push the others out of the history: few of a user are.

use std::collections::BTreeMap;

use jid::JidRef;
use stanza::{ErrorType, StanzaCondition, StanzaError};

use super::{Room, RoomCtx};

/// Users at which those who need not wait any more are forgotten.
const FEW_USERS: usize = 64;
/// Bytes of all users; those who have sent nothing for the longest time are forgotten.
const MAX_BYTES: usize = 512 << 10;
/// What a user counts besides the address.
const USER_BYTES: usize = 64;
/// Messages without a body that a user can store in the time between two messages.
const MAX_BODILESS: u8 = 5;

/// When a user has sent something, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UserTimes {
    /// The last message.
    last: u64,
    /// The first message without a body that was stored in the current interval.
    bodiless_since: u64,
    bodiless: u8,
}

impl UserTimes {
    fn latest(&self) -> u64 {
        self.last.max(self.bodiless_since)
    }
}

/// Times of the last messages of users.
#[derive(Debug, Default)]
pub(super) struct SlowModeTimes {
    users: BTreeMap<Box<str>, UserTimes>,
    bytes: usize,
    /// Number of users at which those who need not wait any more are forgotten.
    prune_at: usize,
}

impl SlowModeTimes {
    /// A user has sent a message.
    pub(super) fn note(&mut self, user: JidRef<'_>, millis: u64, seconds: u32) {
        self.times(user, millis, seconds).last = millis;
    }

    /// Counts one more message of a user without a body; false if it must not be stored.
    fn try_count_bodiless(&mut self, user: JidRef<'_>, millis: u64, seconds: u32) -> bool {
        let times = self.times(user, millis, seconds);
        if !is_waiting(times.bodiless_since, millis, seconds) {
            (times.bodiless_since, times.bodiless) = (millis, 0);
        }
        times.bodiless = times.bodiless.saturating_add(1);
        times.bodiless <= MAX_BODILESS
    }

    fn times(&mut self, user: JidRef<'_>, millis: u64, seconds: u32) -> &mut UserTimes {
        let address = user.bare().as_str();
        if !self.users.contains_key(address) {
            if self.users.len() >= self.prune_at.max(FEW_USERS) {
                self.users.retain(|_, times| is_waiting(times.latest(), millis, seconds));
                self.bytes = self.users.keys().map(|user| user_bytes(user)).sum();
                self.prune_at = self.users.len() * 2;
            }
            self.bytes += user_bytes(address);
            if self.bytes > MAX_BYTES {
                self.forget_oldest();
                self.bytes += user_bytes(address);
            }
        }
        self.users.entry(address.into()).or_default()
    }

    /// Forgets a tenth of the users, so that it is not done for each.
    fn forget_oldest(&mut self) {
        let mut latest: Vec<u64> = self.users.values().map(UserTimes::latest).collect();
        if !latest.is_empty() {
            let tenth = latest.len() / 10;
            let newest_forgotten = *latest.select_nth_unstable(tenth).1;
            self.users.retain(|_, times| times.latest() > newest_forgotten);
        }
        self.bytes = self.users.keys().map(|user| user_bytes(user)).sum();
    }

    /// All who have sent a message, for the next owner of the room.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        let sent = self.users.iter().filter(|(_, times)| times.last > 0);
        sent.map(|(user, times)| (&**user, times.last))
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn of(&self, user: JidRef<'_>) -> Option<u64> {
        self.users.get(user.bare().as_str()).map(|times| times.last).filter(|last| *last > 0)
    }

    fn clear(&mut self) {
        *self = SlowModeTimes::default();
    }
}

fn user_bytes(address: &str) -> usize {
    address.len() + USER_BYTES
}

fn due(last: u64, seconds: u32) -> u64 {
    last.saturating_add(u64::from(seconds) * 1000)
}

fn is_waiting(last: u64, now: u64, seconds: u32) -> bool {
    now < due(last, seconds)
}

impl Room {
    /// Counts a message with a body of a user: one in this time, except from administrators and owners.
    ///
    /// # Errors
    /// `policy-violation` for a further one, which does not count.
    pub(super) fn count_for_slow_mode(
        &mut self,
        ctx: &RoomCtx<'_>,
        user: JidRef<'_>,
    ) -> Result<(), StanzaError> {
        let seconds = self.config.slow_mode_seconds;
        if seconds == 0 {
            self.slow_mode.clear();
            return Ok(());
        }
        if self.affiliation(ctx, user).is_privileged() {
            return Ok(());
        }
        if let Some(last) = self.slow_mode.of(user).filter(|last| is_waiting(*last, ctx.now, seconds)) {
            let wait = (due(last, seconds) - ctx.now).div_ceil(1000);
            let text = format!(
                "You have exceeded the limit imposed by the slow mode in this room. You have to wait {seconds} seconds \
                 between messages; {wait} are left."
            );
            return Err(StanzaError::new(StanzaCondition::PolicyViolation).kind(ErrorType::Wait).text(text));
        }
        self.slow_mode.note(user, ctx.now, seconds);
        Ok(())
    }

    /// Counts a message of a user without a body; false if it must not be stored.
    pub(super) fn try_count_bodiless(&mut self, ctx: &RoomCtx<'_>, user: JidRef<'_>) -> bool {
        let seconds = self.config.slow_mode_seconds;
        seconds == 0
            || self.affiliation(ctx, user).is_privileged()
            || self.slow_mode.try_count_bodiless(user, ctx.now, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jid::Jid;

    fn user(number: usize) -> Jid {
        Jid::parse(&format!("witch{number}@example.com/x")).unwrap()
    }

    #[test]
    fn users_who_need_not_wait_are_forgotten() {
        let mut times = SlowModeTimes::default();
        for number in 0..1_000_usize {
            let (user, millis) = (user(number), 1_000 + number as u64 * 1_000);
            times.note(user.as_ref(), millis, 20);
            assert_eq!(times.of(user.as_ref()), Some(millis));
        }
        assert!(times.users.len() <= FEW_USERS + 1, "{}", times.users.len());
    }

    #[test]
    fn users_who_wait_for_a_day_are_bounded_and_the_oldest_are_forgotten() {
        let mut times = SlowModeTimes::default();
        for number in 0..20_000_usize {
            times.note(user(number).as_ref(), 1 + number as u64, 86_400);
            assert!(times.bytes <= MAX_BYTES, "{}", times.bytes);
        }
        let bytes: usize = times.users.keys().map(|user| user_bytes(user)).sum();
        assert_eq!(times.bytes, bytes);
        assert!((2_000..10_000).contains(&times.users.len()), "{}", times.users.len());
        assert_eq!(times.of(user(0).as_ref()), None);
        assert_eq!(times.of(user(19_999).as_ref()), Some(20_000));
    }

    #[test]
    fn few_messages_without_a_body_are_stored_and_they_do_not_make_a_user_wait() {
        let mut times = SlowModeTimes::default();
        let hag = user(0);
        let mut store = |millis| times.try_count_bodiless(hag.as_ref(), millis, 20);
        let stored = (0..100).filter(|number| store(1_000_000 + number * 100)).count();
        assert_eq!(stored, usize::from(MAX_BODILESS));
        assert!(store(1_020_000));
        assert_eq!(times.of(hag.as_ref()), None);
        assert_eq!(times.iter().count(), 0, "nothing for the next owner");
    }
}
