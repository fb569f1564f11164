//! Number of messages an hour: XEP-0502 0.1.0. Counters of hours, so that a message and a request cost the same in every room.

use std::collections::VecDeque;

const HOUR_MILLIS: u64 = 3_600_000;
/// Hours that count.
const HOURS: u64 = 24;

/// Messages in each of the last hours.
#[derive(Debug, Default)]
pub(super) struct RoomActivity {
    /// Hours since 1970, ascending, and their messages.
    hours: VecDeque<(u64, u32)>,
    /// Time of the first message that was counted.
    since: Option<u64>,
}

impl RoomActivity {
    /// A message was sent.
    pub(super) fn note(&mut self, millis: u64) {
        self.since.get_or_insert(millis);
        let hour = millis / HOUR_MILLIS;
        match self.hours.back_mut() {
            // A clock that was set back does not begin another hour.
            Some((last, count)) if *last >= hour => *count = count.saturating_add(1),
            _ => self.hours.push_back((hour, 1)),
        }
        self.forget_before(hour);
    }

    fn forget_before(&mut self, hour: u64) {
        while self.hours.front().is_some_and(|(first, _)| first + HOURS < hour) {
            self.hours.pop_front();
        }
    }

    /// Messages an hour, as the text of a number with two decimals.
    pub(super) fn per_hour(&self, now: u64) -> String {
        let hour = now / HOUR_MILLIS;
        let recent = self.hours.iter().filter(|(one, _)| one + HOURS >= hour);
        let count: u64 = recent.map(|(_, count)| u64::from(*count)).sum();
        let time = now.saturating_sub(self.since.unwrap_or(now)).clamp(HOUR_MILLIS, HOURS * HOUR_MILLIS);
        let hundredths = count.saturating_mul(100 * HOUR_MILLIS) / time;
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_day_are_counted_by_hours() {
        let mut activity = RoomActivity::default();
        assert_eq!(activity.per_hour(HOUR_MILLIS), "0.00");
        let start = 1_000 * HOUR_MILLIS;
        (0..30).for_each(|number| activity.note(start + number * 60_000));
        assert_eq!(activity.per_hour(start + HOUR_MILLIS / 2), "30.00");
        assert_eq!(activity.per_hour(start + 4 * HOUR_MILLIS), "7.50");
        assert_eq!(activity.per_hour(start + 24 * HOUR_MILLIS), "1.25");
        assert_eq!(activity.per_hour(start + 26 * HOUR_MILLIS), "0.00");
        (0..1_000).for_each(|hour| activity.note(start + hour * HOUR_MILLIS));
        assert!(activity.hours.len() <= 26, "{}", activity.hours.len());
    }
}
