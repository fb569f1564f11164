//! Slow mode: XEP-0500 0.1.0, section 6. The limit is that of the user, in whichever session and under whichever nickname.

use std::collections::BTreeMap;

use jid::JidRef;
use stanza::{ErrorType, StanzaCondition, StanzaError};

use super::{Room, RoomCtx};

/// Users at which those who need not wait any more are forgotten.
const FEW_USERS: usize = 64;

/// Times of the last messages of users, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct SlowModeTimes {
    last: BTreeMap<Box<str>, u64>,
    /// Number of users at which they are counted again.
    prune_at: usize,
}

impl SlowModeTimes {
    /// A user has sent a message.
    pub(super) fn note(&mut self, user: JidRef<'_>, millis: u64, seconds: u32) {
        if self.last.len() >= self.prune_at.max(FEW_USERS) {
            self.last.retain(|_, last| is_waiting(*last, millis, seconds));
            self.prune_at = self.last.len() * 2;
        }
        self.last.insert(user.bare().as_str().into(), millis);
    }

    /// All of them, for the next owner of the room.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.last.iter().map(|(user, millis)| (&**user, *millis))
    }

    fn of(&self, user: JidRef<'_>) -> Option<u64> {
        self.last.get(user.bare().as_str()).copied()
    }

    fn clear(&mut self) {
        *self = SlowModeTimes::default();
    }
}

fn due(last: u64, seconds: u32) -> u64 {
    last.saturating_add(u64::from(seconds) * 1000)
}

fn is_waiting(last: u64, now: u64, seconds: u32) -> bool {
    now < due(last, seconds)
}

impl Room {
    /// One message in this time, except from administrators and owners; the message counts if it is not refused.
    pub(super) fn check_slow_mode(&mut self, ctx: &RoomCtx<'_>, user: JidRef<'_>) -> Result<(), StanzaError> {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use jid::Jid;

    #[test]
    fn users_who_need_not_wait_are_forgotten() {
        let mut times = SlowModeTimes::default();
        for number in 0..1_000_u64 {
            let user = Jid::parse(&format!("witch{number}@example.com/x")).unwrap();
            times.note(user.as_ref(), number * 1_000, 20);
            assert_eq!(times.of(user.as_ref()), Some(number * 1_000));
        }
        assert!(times.iter().count() <= FEW_USERS + 1, "{}", times.iter().count());
    }
}
