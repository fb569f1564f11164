//! Rates of the stanzas that one sender may send to a service.
//!
//! A sender is an account of this server, with all its sessions, or another domain with all its addresses: a spammer can
//! create any number of addresses in his domain.
//!
//! Not implemented: other nodes of a cluster; each counts separately.
//!
//! # Pitfalls
//!
//! A full bucket carries no information, so full buckets are removed when the table is full. If that frees nothing, further
//! senders share one bucket. A reload of the configuration fills all buckets.

use std::collections::HashMap;

use base::clock::Millis;
use base::lock::LeafMutex;
use base::token_bucket::TokenBucket;

/// Maximum number of senders with a bucket of their own, for each service.
const MAX_SENDERS: usize = 16_384;
/// Seconds of the rate that a sender may send at once.
const BURST_SECONDS: u32 = 10;
/// Milliseconds between two removals of full buckets: a flood of senders would cause one for each stanza.
const SWEEP_MILLIS: u64 = 1000;

/// The buckets of one service.
#[derive(Debug)]
pub struct ServiceRates {
    /// Stanzas per second; 0: unlimited.
    rate: u32,
    senders: LeafMutex<SenderBuckets>,
}

#[derive(Debug)]
struct SenderBuckets {
    buckets: HashMap<Box<str>, TokenBucket>,
    overflow: TokenBucket,
    swept_at: Millis,
}

impl ServiceRates {
    /// Full buckets. A rate of 0 is unlimited.
    pub fn new(rate: u32) -> ServiceRates {
        let overflow = new_bucket(rate);
        let senders = SenderBuckets { buckets: HashMap::new(), overflow, swept_at: Millis::ZERO };
        ServiceRates { rate, senders: LeafMutex::new(senders) }
    }

    /// Counts a stanza of a sender: a bare address or a domain. False if it is above the rate.
    pub fn try_take(&self, sender: &str, now: Millis) -> bool {
        self.rate == 0 || self.senders.lock().try_take(sender, self.rate, now)
    }
}

impl SenderBuckets {
    fn try_take(&mut self, sender: &str, rate: u32, now: Millis) -> bool {
        if let Some(bucket) = self.buckets.get_mut(sender) {
            return bucket.try_take(1, now);
        }
        if self.buckets.len() >= MAX_SENDERS && now.since(self.swept_at) >= SWEEP_MILLIS {
            self.swept_at = now;
            self.buckets.retain(|_, bucket| bucket.full_ms(now) > 0);
        }
        if self.buckets.len() >= MAX_SENDERS {
            return self.overflow.try_take(1, now);
        }
        self.buckets.entry(sender.into()).or_insert_with(|| new_bucket(rate)).try_take(1, now)
    }
}

fn new_bucket(rate: u32) -> TokenBucket {
    TokenBucket::new(rate, rate.saturating_mul(BURST_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_senders_is_bounded_and_further_senders_share_a_bucket() {
        let rates = ServiceRates::new(1);
        for sender in 0..MAX_SENDERS {
            assert!(rates.try_take(&sender.to_string(), Millis(2_000)));
        }
        let further = |name: &str| (0..20).filter(|_| rates.try_take(name, Millis(2_000))).count();
        assert_eq!((further("a"), further("b"), further("0")), (10, 0, 9));
        assert_eq!(rates.senders.lock().buckets.len(), MAX_SENDERS);
        assert!(rates.try_take("a", Millis(20_000)));
        assert_eq!(rates.senders.lock().buckets.len(), 1, "full buckets are removed");
    }

    #[test]
    fn a_rate_of_zero_is_unlimited_and_remembers_nobody() {
        let rates = ServiceRates::new(0);
        assert!((0..10_000).all(|_| rates.try_take("a", Millis(0))));
        assert!(rates.senders.lock().buckets.is_empty());
    }
}
