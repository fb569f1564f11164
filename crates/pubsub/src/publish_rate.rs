//! Publications of a domain's nodes: how many since the start, and in the last minute.

use base::lock::LeafMutex;

/// Seconds of which publications are known.
const SECONDS: u32 = 60;

#[derive(Debug)]
struct RateState {
    /// Second of the newest count.
    second: u32,
    /// By second, modulo their number.
    counts: [u32; SECONDS as usize],
    total: u64,
}

/// The publications, with seconds of the node's clock.
#[derive(Debug)]
pub(crate) struct PublishRate(LeafMutex<RateState>);

impl Default for PublishRate {
    fn default() -> PublishRate {
        PublishRate(LeafMutex::new(RateState { second: 0, counts: [0; SECONDS as usize], total: 0 }))
    }
}

impl RateState {
    /// Forgets seconds that are too old.
    fn advance(&mut self, now: u32) {
        for second in (self.second + 1..=now).take(SECONDS as usize) {
            self.count_at(second, |_| 0);
        }
        self.second = self.second.max(now);
    }

    fn count_at(&mut self, second: u32, change: impl Fn(u32) -> u32) {
        if let Some(count) = self.counts.get_mut((second % SECONDS) as usize) {
            *count = change(*count);
        }
    }
}

impl PublishRate {
    /// Items are published.
    pub(crate) fn add(&self, now: u32, items: u32) {
        let mut state = self.0.lock();
        state.advance(now);
        state.count_at(now, |count| count.saturating_add(items));
        state.total += u64::from(items);
    }

    /// Items since the start, and in the last minute.
    pub(crate) fn read(&self, now: u32) -> (u64, u64) {
        let mut state = self.0.lock();
        state.advance(now);
        (state.total, state.counts.iter().map(|count| u64::from(*count)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_remembered() {
        let rate = PublishRate::default();
        rate.add(1_000, 2);
        rate.add(1_059, 3);
        assert_eq!(rate.read(1_059), (5, 5));
        assert_eq!(rate.read(1_060), (5, 3));
        assert_eq!(rate.read(2_000), (5, 0));
        rate.add(2_000, 1);
        assert_eq!(rate.read(2_001), (6, 1));
    }
}
