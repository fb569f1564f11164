//! Number of messages an hour: XEP-0502 0.1.0. Counters of hours, so that a message and a request cost the same in every room.
//!
//! # Pitfalls
//!
//! Of a room that was loaded, only messages of the history in memory are counted; without them nothing is known for an hour, and section
//! 3.1 forbids a number in its place.

use std::collections::VecDeque;

const HOUR_MILLIS: u64 = 3_600_000;
/// Complete hours that count, besides the current one.
const HOURS: u64 = 24;

/// Messages in each of the last hours.
#[derive(Debug, Default)]
pub(super) struct RoomActivity {
    /// Hours since 1970, ascending, and their messages.
    hours: VecDeque<(u64, u32)>,
    /// Time from which messages are counted.
    since: Option<u64>,
}

impl RoomActivity {
    /// Messages are counted from now on.
    pub(super) fn start(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// A message was sent.
    pub(super) fn note(&mut self, millis: u64) {
        self.start(millis);
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

    /// Messages an hour, as the text of a number with two decimals; `None` if it is not known.
    pub(super) fn per_hour(&self, now: u64) -> Option<String> {
        let counted = now.saturating_sub(self.since?);
        if self.hours.is_empty() && counted < HOUR_MILLIS {
            return None;
        }
        let hour = now / HOUR_MILLIS;
        let recent = self.hours.iter().filter(|(one, _)| one + HOURS >= hour);
        let count: u64 = recent.map(|(_, count)| u64::from(*count)).sum();
        let time = counted.clamp(HOUR_MILLIS, HOURS * HOUR_MILLIS + now % HOUR_MILLIS);
        let hundredths = count.saturating_mul(100 * HOUR_MILLIS) / time;
        Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_day_are_counted_by_hours() {
        let mut activity = RoomActivity::default();
        let start = 1_000 * HOUR_MILLIS;
        (0..30).for_each(|number| activity.note(start + number * 60_000));
        let per_hour = |now: u64| activity.per_hour(now).unwrap();
        assert_eq!(per_hour(start + HOUR_MILLIS / 2), "30.00");
        assert_eq!(per_hour(start + 4 * HOUR_MILLIS), "7.50");
        assert_eq!(per_hour(start + 24 * HOUR_MILLIS), "1.25");
        assert_eq!(per_hour(start + 26 * HOUR_MILLIS), "0.00");
        (0..1_000).for_each(|hour| activity.note(start + hour * HOUR_MILLIS));
        assert!(activity.hours.len() <= 26, "{}", activity.hours.len());
    }

    #[test]
    fn the_time_in_which_messages_are_counted_is_that_by_which_they_are_divided() {
        let mut activity = RoomActivity::default();
        let start = 1_000 * HOUR_MILLIS;
        // One in each minute of 26 hours, without a minute.
        (0..26 * 60 - 1).for_each(|minute| activity.note(start + minute * 60_000));
        assert_eq!(activity.per_hour(start + 26 * HOUR_MILLIS - 1).unwrap(), "59.96", "of 25 hours");
    }

    #[test]
    fn section_3_1_without_data_there_is_no_number() {
        let mut activity = RoomActivity::default();
        assert_eq!(activity.per_hour(HOUR_MILLIS), None);
        activity.start(HOUR_MILLIS);
        assert_eq!(activity.per_hour(2 * HOUR_MILLIS - 1), None);
        assert_eq!(activity.per_hour(2 * HOUR_MILLIS).as_deref(), Some("0.00"));
        activity.note(2 * HOUR_MILLIS);
        assert_eq!(activity.per_hour(3 * HOUR_MILLIS).as_deref(), Some("0.50"));
    }
}
