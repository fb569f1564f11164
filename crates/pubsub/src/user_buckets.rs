//! Rates of what users cause: of an account of this server each for itself, of another domain all together, since it can have any
//! number of addresses.

use base::clock::Millis;
use base::lock::LeafMutex;
use base::token_bucket::TokenBucket;
use hashbrown::HashMap;
use jid::JidRef;
use throng_core::Node;

/// Users with a bucket of their own; further ones share one.
const MAX_USERS: usize = 16_384;
/// Milliseconds between two removals of full buckets.
const SWEEP_MILLIS: u64 = 1000;

#[derive(Debug)]
struct Buckets {
    by_user: HashMap<Box<str>, TokenBucket>,
    of_others: TokenBucket,
    swept_at: Millis,
}

/// A bucket for each user.
#[derive(Debug)]
pub(crate) struct UserBuckets {
    full: TokenBucket,
    buckets: LeafMutex<Buckets>,
}

/// Whose bucket a user's is: an account of this server has one, another domain has one for all its users.
pub(crate) fn bucket_of<'u>(node: &Node, user: JidRef<'u>) -> &'u str {
    match node.host(user.domain()) {
        Some(_) => user.bare().as_str(),
        None => user.domain(),
    }
}

impl UserBuckets {
    /// Full buckets of `burst`, which get `rate` more each second.
    pub(crate) fn new(rate: u32, burst: u32) -> UserBuckets {
        let full = TokenBucket::new(rate, burst);
        let buckets = Buckets { by_user: HashMap::new(), of_others: full, swept_at: Millis::ZERO };
        UserBuckets { full, buckets: LeafMutex::new(buckets) }
    }

    /// Takes `count` of what a user has; false if that is too much.
    pub(crate) fn try_take(&self, node: &Node, user: JidRef<'_>, count: usize) -> bool {
        self.take(bucket_of(node, user), u32::try_from(count).unwrap_or(u32::MAX), node.clock.now())
    }

    fn take(&self, user: &str, count: u32, now: Millis) -> bool {
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.by_user.get_mut(user) {
            return bucket.try_take(count, now);
        }
        if buckets.by_user.len() >= MAX_USERS && now.since(buckets.swept_at) >= SWEEP_MILLIS {
            buckets.swept_at = now;
            buckets.by_user.retain(|_, bucket| bucket.full_ms(now) > 0);
        }
        if buckets.by_user.len() >= MAX_USERS {
            return buckets.of_others.try_take(count, now);
        }
        buckets.by_user.entry(user.into()).or_insert(self.full).try_take(count, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_bucket_and_their_number_is_bounded() {
        let buckets = UserBuckets::new(1, 10);
        assert!(buckets.take("a", 10, Millis(1_000)) && !buckets.take("a", 1, Millis(1_000)));
        assert!(buckets.take("b", 4, Millis(1_000)) && buckets.take("a", 2, Millis(3_000)));
        for user in 0..MAX_USERS * 2 {
            buckets.take(&user.to_string(), 1, Millis(3_001));
        }
        assert_eq!(buckets.buckets.lock().by_user.len(), MAX_USERS);
        assert!(!buckets.take("further", 1, Millis(3_001)));
        assert!(buckets.take("further", 1, Millis(60_000)));
    }
}
