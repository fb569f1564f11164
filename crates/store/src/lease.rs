//! Leases over the key-value storage of the server: one node at a time does what the key names.
//!
//! A node takes a lease with a conditional write, renews it, and releases it at the end.
//!
//! Clocks of different nodes are not compared. A lease has expired for a node that has seen the same record for longer than it
//! lasts ([`LeaseTerms`]). The holder must stop when it could not renew the lease for as long, counted from before its last
//! write, so it stops before another node takes over.
//!
//! ```text
//! 8 fencing number, 8 number of renewals; then the name of the holder, which is empty when the lease is released
//! ```
//!
//! # Pitfalls
//!
//! What the holder has sent to the database before it stopped, or what a process that was suspended sends once more, can arrive
//! after another node has begun: a statement that must not be applied then compares the fencing number.

use std::sync::Arc;
use std::task::{Context, Poll};

use base::clock::Clock;
use base::spawn::BoxFuture;

use crate::{ServerKv, StoreError};

/// Time after which a lease that is not renewed expires, unless its terms are others.
pub const LEASE_SECONDS: u32 = LeaseTerms::DEFAULT.seconds;

/// Times of a lease. All nodes must use the same for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Seconds after which one that is not renewed expires.
    pub seconds: u32,
    /// Seconds after which it is renewed.
    pub renew_seconds: u32,
}

impl LeaseTerms {
    /// For work that may begin again half a minute late.
    pub const DEFAULT: LeaseTerms = LeaseTerms { seconds: 30, renew_seconds: 10 };
}

/// The stored value of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseRecord {
    /// Rises each time a node takes the lease.
    fence: u64,
    /// Rises with each renewal, so that others see it.
    renewals: u64,
    holder: Option<Box<str>>,
}

impl LeaseRecord {
    fn encode(&self) -> Vec<u8> {
        let holder = self.holder.as_deref().unwrap_or_default();
        let mut octets = Vec::with_capacity(16 + holder.len());
        octets.extend(self.fence.to_be_bytes());
        octets.extend(self.renewals.to_be_bytes());
        octets.extend(holder.as_bytes());
        octets
    }

    fn decode(octets: &[u8]) -> Option<LeaseRecord> {
        let (fence, rest) = octets.split_first_chunk()?;
        let (renewals, holder) = rest.split_first_chunk()?;
        let holder = Some(std::str::from_utf8(holder).ok()?).filter(|name| !name.is_empty()).map(Box::from);
        let (fence, renewals) = (u64::from_be_bytes(*fence), u64::from_be_bytes(*renewals));
        Some(LeaseRecord { fence, renewals, holder })
    }
}

/// Where a lease is stored, and the node that takes it.
#[derive(Clone)]
pub struct LeaseSlot {
    /// The storage.
    pub store: Arc<dyn ServerKv>,
    /// The node's clock.
    pub clock: Arc<dyn Clock>,
    /// Key of the record.
    pub key: String,
    /// Name of the node, unique in the cluster and not empty.
    pub node: Box<str>,
    /// Its times.
    pub terms: LeaseTerms,
}

impl LeaseSlot {
    /// Replaces a record that this node has written. False if another node has taken the lease.
    async fn replace(self, before: LeaseRecord, after: LeaseRecord) -> Result<bool, StoreError> {
        let octets = after.encode();
        if self.store.compare_and_set(&self.key, Some(&before.encode()), &octets).await? {
            return Ok(true);
        }
        // An earlier renewal may have been written although it was reported as failed.
        let Some(stored) = self.store.get(&self.key).await? else { return Ok(false) };
        let is_own = |stored: LeaseRecord| stored.fence == after.fence && stored.holder == Some(self.node);
        Ok(LeaseRecord::decode(&stored).is_some_and(is_own)
            && self.store.compare_and_set(&self.key, Some(&stored), &octets).await?)
    }
}

/// A lease that another node held when this node last read it.
#[derive(Clone, Debug)]
pub struct ObservedLease {
    octets: Vec<u8>,
    /// Second of this node's clock at which it was first seen.
    since: u32,
}

impl ObservedLease {
    /// Second of this node's clock at which the present record was first seen.
    pub fn since(&self) -> u32 {
        self.since
    }

    /// Whether it has not been renewed for so long that its holder has stopped.
    pub fn is_expired(&self, now: u32, terms: LeaseTerms) -> bool {
        now.saturating_sub(self.since) > terms.seconds
    }
}

/// Result of an attempt to take a lease.
pub enum LeaseAttempt {
    /// It was taken.
    Taken(Lease),
    /// Another node holds it: pass this to the next attempt.
    Held(ObservedLease),
    /// Another node held it at the last attempt and has released it since: its work is done.
    Released,
}

/// A renewal that is being written.
struct Renewal {
    record: LeaseRecord,
    begun_at: u32,
    result: BoxFuture<'static, Result<bool, StoreError>>,
}

/// A lease that this node holds.
pub struct Lease {
    slot: LeaseSlot,
    record: LeaseRecord,
    /// Second of the node's clock before the record was written.
    written_at: u32,
    /// When it is renewed next.
    renew_at: u32,
    /// Number of renewals that were begun.
    renewals: u64,
    renewal: Option<Renewal>,
    /// Of the last renewal, if it failed.
    error: Option<StoreError>,
}

/// Why a lease was lost.
#[derive(Debug)]
pub enum LeaseLoss {
    /// Another node has taken it.
    Taken,
    /// It could not be renewed in time: the last error, or none if the storage did not answer.
    Expired(Option<StoreError>),
}

impl std::fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LeaseLoss::Taken => f.write_str("another node has taken it"),
            LeaseLoss::Expired(None) => f.write_str("the storage did not answer in time"),
            LeaseLoss::Expired(Some(error)) => write!(f, "it could not be renewed: {error}"),
        }
    }
}

impl Lease {
    /// Takes a lease of which the process holds its name alone: one that a former process of this name has left is taken at once.
    /// `None` if another node was faster.
    ///
    /// # Errors
    /// As those of [`Lease::take`].
    pub async fn take_own(slot: LeaseSlot) -> Result<Option<Lease>, StoreError> {
        let stored = slot.store.get(&slot.key).await?;
        Lease::write(slot, stored).await
    }

    /// Takes a lease if it is free or has expired.
    ///
    /// # Errors
    /// Those of the store. The lease may have been taken then; it expires.
    pub async fn take(slot: LeaseSlot, observed: Option<ObservedLease>) -> Result<LeaseAttempt, StoreError> {
        let stored = slot.store.get(&slot.key).await?;
        let now = slot.clock.now_seconds();
        let record = stored.as_deref().and_then(LeaseRecord::decode);
        if record.as_ref().is_some_and(|record| record.holder.is_some()) {
            let octets = stored.clone().unwrap_or_default();
            let same = observed.filter(|observed| observed.octets == octets);
            let observed = ObservedLease { octets, since: same.map_or(now, |observed| observed.since) };
            if !observed.is_expired(now, slot.terms) {
                return Ok(LeaseAttempt::Held(observed));
            }
        } else if observed.is_some() {
            return Ok(LeaseAttempt::Released);
        }
        Ok(match Lease::write(slot, stored).await? {
            Some(lease) => LeaseAttempt::Taken(lease),
            // Another node was faster. Its record is read at the next attempt.
            None => LeaseAttempt::Held(ObservedLease { octets: Vec::new(), since: now }),
        })
    }

    /// Replaces the record that was read; `None` if it has changed.
    async fn write(slot: LeaseSlot, stored: Option<Vec<u8>>) -> Result<Option<Lease>, StoreError> {
        let now = slot.clock.now_seconds();
        let fence = stored.as_deref().and_then(LeaseRecord::decode).map_or(0, |record| record.fence);
        let record =
            LeaseRecord { fence: fence.saturating_add(1), renewals: 0, holder: Some(slot.node.clone()) };
        if !slot.store.compare_and_set(&slot.key, stored.as_deref(), &record.encode()).await? {
            return Ok(None);
        }
        let renew_at = now.saturating_add(slot.terms.renew_seconds);
        Ok(Some(Lease { slot, record, written_at: now, renew_at, renewals: 0, renewal: None, error: None }))
    }

    /// Reads a lease without taking it; `None` if nobody holds it. `before` is the result of the last call.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn observe(
        slot: &LeaseSlot,
        before: Option<ObservedLease>,
    ) -> Result<Option<ObservedLease>, StoreError> {
        let Some(octets) = slot.store.get(&slot.key).await? else { return Ok(None) };
        let now = slot.clock.now_seconds();
        if LeaseRecord::decode(&octets).is_none_or(|record| record.holder.is_none()) {
            return Ok(None);
        }
        let same = before.filter(|before| before.octets == octets);
        Ok(Some(same.unwrap_or(ObservedLease { octets, since: now })))
    }

    /// Whether a record says that this node holds the lease with this fencing number.
    pub fn is_held_by(stored: &[u8], node: &str, fence: u64) -> bool {
        LeaseRecord::decode(stored)
            .is_some_and(|record| record.fence == fence && record.holder.as_deref() == Some(node))
    }

    /// The fencing number.
    pub fn fence(&self) -> u64 {
        self.record.fence
    }

    /// Second of the node's clock at which it expires unless it is renewed.
    pub fn expires_at(&self) -> u32 {
        self.written_at.saturating_add(self.slot.terms.seconds)
    }

    /// Renews the lease at once. False if another node has taken it. A lease that has expired is valid again after that.
    ///
    /// # Errors
    /// Those of the store: the lease expires, unless it is renewed later.
    pub async fn renew(&mut self) -> Result<bool, StoreError> {
        let begun_at = self.slot.clock.now_seconds();
        self.renewals += 1;
        let record = LeaseRecord { renewals: self.renewals, ..self.record.clone() };
        let renewed = self.slot.clone().replace(self.record.clone(), record.clone()).await?;
        if renewed {
            (self.record, self.written_at) = (record, begun_at);
            self.renew_at = begun_at.saturating_add(self.slot.terms.renew_seconds);
        }
        Ok(renewed)
    }

    /// Whether it is time to renew it.
    pub fn is_due(&self) -> bool {
        self.slot.clock.now_seconds() >= self.renew_at
    }

    /// Renews the lease when it is due; ready when it is lost. Must be polled once a second.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LeaseLoss> {
        let now = self.slot.clock.now_seconds();
        if self.renewal.is_none() && now >= self.renew_at {
            self.begin_renewal(now);
        }
        if let Some(renewal) = &mut self.renewal
            && let Poll::Ready(result) = renewal.result.as_mut().poll(cx)
        {
            match (self.renewal.take(), result) {
                (Some(Renewal { record, begun_at, .. }), Ok(true)) => {
                    (self.record, self.written_at) = (record, begun_at);
                    self.renew_at = begun_at.saturating_add(self.slot.terms.renew_seconds);
                    self.error = None;
                }
                (_, Ok(false)) => return Poll::Ready(LeaseLoss::Taken),
                (_, Err(error)) => self.error = Some(error),
                (None, Ok(true)) => {}
            }
        }
        let expired = now >= self.expires_at();
        if expired { Poll::Ready(LeaseLoss::Expired(self.error.take())) } else { Poll::Pending }
    }

    fn begin_renewal(&mut self, now: u32) {
        self.renewals += 1;
        // The next attempt, if this one fails.
        self.renew_at = now.saturating_add(1);
        let record = LeaseRecord { renewals: self.renewals, ..self.record.clone() };
        let result = Box::pin(self.slot.clone().replace(self.record.clone(), record.clone()));
        self.renewal = Some(Renewal { record, begun_at: now, result });
    }

    /// Releases the lease, so that the next node can take it.
    ///
    /// # Errors
    /// Those of the store: the lease expires.
    pub async fn release(mut self) -> Result<(), StoreError> {
        if let Some(Renewal { record, result, .. }) = self.renewal.take()
            && result.await?
        {
            self.record = record;
        }
        let released = LeaseRecord { holder: None, ..self.record.clone() };
        self.slot.replace(self.record, released).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;
    use std::task::Waker;

    /// The result of a future that never waits, as those of the memory store.
    fn ready<T>(future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    struct Nodes {
        clock: Arc<ManualClock>,
        store: Arc<dyn ServerKv>,
    }

    impl Nodes {
        fn new() -> Nodes {
            let clock = Arc::new(ManualClock::new());
            Nodes { store: crate::memory::stores(clock.clone()).server_kv, clock }
        }

        fn take(&self, node: &str, observed: Option<ObservedLease>) -> LeaseAttempt {
            let (store, clock, key) = (self.store.clone(), self.clock.clone(), "lease".to_owned());
            let slot = LeaseSlot { store, clock, key, node: node.into(), terms: LeaseTerms::DEFAULT };
            ready(Lease::take(slot, observed)).unwrap()
        }

        fn taken(&self, node: &str, observed: Option<ObservedLease>) -> Lease {
            match self.take(node, observed) {
                LeaseAttempt::Taken(lease) => lease,
                LeaseAttempt::Held(other) => panic!("held: {other:?}"),
                LeaseAttempt::Released => panic!("released"),
            }
        }

        fn held(&self, node: &str, observed: Option<ObservedLease>) -> ObservedLease {
            match self.take(node, observed) {
                LeaseAttempt::Held(observed) => observed,
                _ => panic!("not held"),
            }
        }
    }

    fn is_lost(lease: &mut Lease) -> bool {
        lease.poll_lost(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_anything_else_is_none() {
        for holder in [None, Some("node-1".into())] {
            let record = LeaseRecord { fence: 7, renewals: u64::MAX, holder };
            assert_eq!(LeaseRecord::decode(&record.encode()), Some(record));
        }
        for wrong in [&b""[..], &[0; 15], &[0xff; 17]] {
            assert_eq!(LeaseRecord::decode(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn one_node_holds_a_lease_and_the_fencing_number_rises() {
        let nodes = Nodes::new();
        let a = nodes.taken("a", None);
        let observed = nodes.held("b", None);
        ready(a.release()).unwrap();
        assert!(matches!(nodes.take("b", Some(observed)), LeaseAttempt::Released), "the other one has run");
        let b = nodes.taken("b", None);
        assert_eq!(b.fence(), 2);
    }

    #[test]
    fn a_lease_expires_for_its_holder_before_another_node_takes_it() {
        let nodes = Nodes::new();
        let mut a = nodes.taken("a", None);
        let mut observed = nodes.held("b", None);
        for _ in 0..LEASE_SECONDS {
            nodes.clock.advance(1_000);
            observed = nodes.held("b", Some(observed));
        }
        // Its clock is compared before anything is written.
        a.renew_at = u32::MAX;
        assert!(is_lost(&mut a));
        nodes.clock.advance(1_000);
        assert_eq!(nodes.taken("b", Some(observed)).fence(), 2);
    }

    #[test]
    fn a_renewed_lease_does_not_expire() {
        let nodes = Nodes::new();
        let mut a = nodes.taken("a", None);
        let mut observed = nodes.held("b", None);
        for _ in 0..5 * LEASE_SECONDS {
            nodes.clock.advance(1_000);
            assert!(!is_lost(&mut a));
            observed = nodes.held("b", Some(observed));
        }
        ready(a.release()).unwrap();
        assert!(matches!(nodes.take("b", Some(observed)), LeaseAttempt::Released));
    }

    #[test]
    fn a_holder_whose_lease_was_taken_learns_it_at_the_next_renewal_and_leaves_it_alone() {
        let nodes = Nodes::new();
        let mut a = nodes.taken("a", None);
        let observed = nodes.held("b", None);
        nodes.clock.advance(1_000 * u64::from(LEASE_SECONDS + 1));
        let b = nodes.taken("b", Some(observed));
        // As if its process had been suspended.
        a.written_at = nodes.clock.now_seconds();
        assert!(is_lost(&mut a));
        ready(a.release()).unwrap();
        nodes.held("a", None);
        ready(b.release()).unwrap();
        assert_eq!(nodes.taken("a", None).fence(), 3);
    }

    #[test]
    fn a_renewal_that_was_written_and_reported_as_failed_is_found() {
        let nodes = Nodes::new();
        let mut a = nodes.taken("a", None);
        let written = LeaseRecord { renewals: 1, ..a.record.clone() };
        assert!(ready(a.slot.clone().replace(a.record.clone(), written)).unwrap());
        a.renewals = 1;
        nodes.clock.advance(1_000 * u64::from(LeaseTerms::DEFAULT.renew_seconds));
        assert!(!is_lost(&mut a));
        assert_eq!(a.record.renewals, 2);
    }

    #[test]
    fn a_process_takes_the_lease_of_a_former_one_of_its_name_at_once() {
        let nodes = Nodes::new();
        let mut former = nodes.taken("a", None);
        let slot = former.slot.clone();
        let mut lease = ready(Lease::take_own(slot)).unwrap().unwrap();
        assert_eq!(lease.fence(), 2);
        assert!(!ready(former.renew()).unwrap(), "the former process learns it");
        assert!(ready(lease.renew()).unwrap());
        let stored = ready(nodes.store.get("lease")).unwrap().unwrap();
        assert!(Lease::is_held_by(&stored, "a", 2) && !Lease::is_held_by(&stored, "a", 1));
        nodes.held("b", None);
    }

    #[test]
    fn an_expired_lease_that_nobody_took_is_valid_after_its_renewal() {
        let nodes = Nodes::new();
        let mut lease = nodes.taken("a", None);
        nodes.clock.advance(1_000 * u64::from(LEASE_SECONDS));
        assert!(lease.is_due() && lease.expires_at() <= nodes.clock.now_seconds());
        assert!(ready(lease.renew()).unwrap());
        assert!(!lease.is_due() && !is_lost(&mut lease));
    }
}
