//! A limit for log lines that something outside of this node causes: one in ten seconds, which says how many were left out.

use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::Millis;

const INTERVAL_MILLIS: u64 = 10_000;

/// The limit.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// When the next line is permitted, in milliseconds of the clock.
    next_at: AtomicU64,
    left_out: AtomicU64,
}

impl LogLimit {
    /// Whether to write a line: the number of those that were left out since the last one.
    pub(crate) fn permit(&self, now: Millis) -> Option<u64> {
        let next_at = self.next_at.load(Ordering::Acquire);
        let next = now.0.saturating_add(INTERVAL_MILLIS);
        let permitted = now.0 >= next_at
            && self.next_at.compare_exchange(next_at, next, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if permitted {
            return Some(self.left_out.swap(0, Ordering::AcqRel));
        }
        self.left_out.fetch_add(1, Ordering::AcqRel);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_says_how_many_were_left_out() {
        let limit = LogLimit::default();
        assert_eq!(limit.permit(Millis(5)), Some(0));
        for at in [5, 6, 10_004] {
            assert_eq!(limit.permit(Millis(at)), None);
        }
        assert_eq!(limit.permit(Millis(10_005)), Some(3));
        assert_eq!(limit.permit(Millis(10_006)), None);
    }
}
