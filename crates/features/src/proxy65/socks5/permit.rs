//! What users and services have in use, and the permits of active bytestreams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::clock::Millis;
use base::lock::LeafMutex;
use base::token_bucket::TokenBucket;

use super::table::ProxyState;

/// What one user or one service has in use.
pub(super) struct BytestreamUsage {
    bytestreams: AtomicU64,
    bucket: LeafMutex<(u32, TokenBucket)>,
}

impl BytestreamUsage {
    pub(super) fn new() -> BytestreamUsage {
        let bucket = LeafMutex::new((0, TokenBucket::unlimited()));
        BytestreamUsage { bytestreams: AtomicU64::new(0), bucket }
    }

    /// Sets the rate in bytes per second; the burst is one second. 0 is unlimited. An unchanged rate keeps its level.
    pub(super) fn set_rate(&self, rate: u32) {
        let mut bucket = self.bucket.lock();
        if bucket.0 != rate {
            *bucket = (rate, if rate == 0 { TokenBucket::unlimited() } else { TokenBucket::new(rate, rate) });
        }
    }

    /// Whether it has a bytestream, or its debt must be remembered for the next one.
    pub(super) fn is_needed(&self, now: Millis) -> bool {
        self.bytestreams.load(Relaxed) > 0 || self.bucket.lock().1.full_ms(now) > 0
    }

    pub(super) fn is_below(&self, limit: u32) -> bool {
        limit == 0 || self.bytestreams.load(Relaxed) < u64::from(limit)
    }
}

/// Permit of an active bytestream; dropping it releases its counts.
pub(super) struct BytestreamPermit {
    user: Arc<BytestreamUsage>,
    service: Arc<BytestreamUsage>,
    pub(super) idle_millis: u64,
    proxy: Arc<ProxyState>,
}

impl BytestreamPermit {
    /// Counts a bytestream. The caller has the lock of the table.
    pub(super) fn new(
        [user, service]: [Arc<BytestreamUsage>; 2],
        idle_millis: u64,
        proxy: Arc<ProxyState>,
    ) -> BytestreamPermit {
        for usage in [&user, &service] {
            usage.bytestreams.fetch_add(1, Relaxed);
        }
        BytestreamPermit { user, service, idle_millis, proxy }
    }

    /// Milliseconds until more bytes may be read.
    pub(super) fn delay(&self, now: Millis) -> u64 {
        let [user, service] =
            [&self.user, &self.service].map(|usage| usage.bucket.lock().1.millis_until(0, now));
        user.max(service)
    }

    /// Counts bytes that were read.
    pub(super) fn charge(&self, bytes: usize, now: Millis) {
        let charged = u32::try_from(bytes).unwrap_or(u32::MAX);
        for usage in [&self.user, &self.service] {
            usage.bucket.lock().1.charge(charged, now);
        }
    }
}

impl Drop for BytestreamPermit {
    fn drop(&mut self) {
        self.proxy.count_inactive();
        for usage in [&self.user, &self.service] {
            usage.bytestreams.fetch_sub(1, Relaxed);
        }
    }
}
