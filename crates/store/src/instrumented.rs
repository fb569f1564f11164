//! Instrumented backend: wraps any backend and measures the latency and the failures of each operation.
//!
//! [`instrument`] wraps a bundle; [`StoreMetrics`] holds the metrics. Latency runs from the call to its result, so it
//! includes waiting for a connection and for the writer. An operation cancelled by its caller counts as in flight until
//! then and is not timed.
//!
//! Not implemented: [`LastSeen::set`](crate::LastSeen::set), which only queues a write.
//!
//! # Pitfalls
//!
//! The names of fields and methods are label values, so renaming one breaks dashboards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Clock;
use base::count::{Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS};

use crate::observed::{StoreObserver, observe};
use crate::{OPERATIONS, StoreError, StoreErrorKind, StoreFuture, Stores};

/// Metrics of all operations.
#[derive(Debug)]
pub struct StoreMetrics {
    /// By name.
    all: Vec<OperationMetrics>,
    in_flight: AtomicUsize,
}

/// Metrics of one operation.
#[derive(Debug)]
pub struct OperationMetrics {
    /// Field and method, such as `roster.get`.
    pub name: &'static str,
    /// Microseconds from call to result, failures included.
    pub latency: Arc<Histogram>,
    failures: [AtomicU64; StoreErrorKind::ALL.len()],
}

impl StoreMetrics {
    fn new() -> StoreMetrics {
        let operation = |name: &&'static str| OperationMetrics {
            name,
            latency: Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)),
            failures: Default::default(),
        };
        let mut all: Vec<OperationMetrics> = OPERATIONS.iter().copied().flatten().map(operation).collect();
        all.sort_unstable_by_key(|operation| operation.name);
        StoreMetrics { all, in_flight: AtomicUsize::new(0) }
    }

    fn find(&self, name: &str) -> Option<&OperationMetrics> {
        let at = self.all.binary_search_by_key(&name, |operation| operation.name).ok()?;
        self.all.get(at)
    }

    /// The metrics of each operation.
    pub fn all(&self) -> &[OperationMetrics] {
        &self.all
    }

    /// Number of operations in progress.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Latency of all operations together.
    pub fn latency(&self) -> HistogramSnapshot {
        let mut all = HistogramSnapshot::default();
        self.all.iter().for_each(|operation| all.merge(&operation.latency.snapshot()));
        all
    }

    /// Number of failures other than `AlreadyExists` and `NotFound`, which are regular results.
    pub fn failure_count(&self) -> u64 {
        let bad = |kind: &StoreErrorKind| {
            !matches!(
                kind,
                StoreErrorKind::AlreadyExists | StoreErrorKind::NotFound | StoreErrorKind::TooBroad
            )
        };
        let counts = self.all.iter().flat_map(OperationMetrics::failures);
        counts.filter(|(kind, _)| bad(kind)).map(|(_, count)| count).sum()
    }
}

impl OperationMetrics {
    /// Failures by kind.
    pub fn failures(&self) -> impl Iterator<Item = (StoreErrorKind, u64)> + '_ {
        StoreErrorKind::ALL.into_iter().zip(&self.failures).map(|(kind, n)| (kind, n.load(Ordering::Relaxed)))
    }

    fn record<T>(&self, micros: u64, result: &Result<T, StoreError>) {
        self.latency.record(micros);
        if let Err(error) = result
            && let Some(count) = self.failures.get(error.kind as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Decrements the number of operations in flight when dropped.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Measures operations.
struct OperationTimer {
    clock: Arc<dyn Clock>,
    metrics: Arc<StoreMetrics>,
}

/// Wraps a bundle.
pub fn instrument(inner: Stores, clock: Arc<dyn Clock>) -> (Stores, Arc<StoreMetrics>) {
    let metrics = Arc::new(StoreMetrics::new());
    (observe(inner, Arc::new(OperationTimer { clock, metrics: metrics.clone() })), metrics)
}

impl StoreObserver for OperationTimer {
    fn call<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce() -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let Some(operation) = self.metrics.find(operation) else { return call() };
        let started = self.clock.now_micros();
        self.metrics.in_flight.fetch_add(1, Ordering::Relaxed);
        let running = InFlightGuard(&self.metrics.in_flight);
        let call = call();
        Box::pin(async move {
            let result = call.await;
            operation.record(self.clock.now_micros().saturating_sub(started), &result);
            drop(running);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use jid::Jid;
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut call: StoreFuture<'_, T>) -> Result<T, StoreError> {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("the memory store waits"),
        }
    }

    #[test]
    fn every_operation_is_timed_under_its_own_name() {
        let metrics = StoreMetrics::new();
        let names: std::collections::BTreeSet<_> = metrics.all().iter().map(|one| one.name).collect();
        assert_eq!(names.len(), metrics.all().len());
        assert!(names.iter().all(|name| metrics.find(name).is_some_and(|found| found.name == *name)));
        assert!(names.contains("logins.prove") && names.contains("last_seen.get"));
        assert!(metrics.find("roster.steal").is_none() && metrics.find("last_seen.set").is_none());
    }

    #[test]
    fn latency_and_failures_are_counted_and_results_pass_unchanged() {
        let clock = Arc::new(base::ManualClock::new());
        let (stores, operations) =
            instrument(Stores::from_backend(Arc::new(MemoryStore::new(clock.clone()))), clock);
        let jid = Jid::parse("juliet@example.com").unwrap();
        let id = now(stores.accounts.create(&jid, b"x")).unwrap();
        let again = now(stores.accounts.create(&jid, b"x")).unwrap_err();
        assert_eq!(again.kind, StoreErrorKind::AlreadyExists);
        assert_eq!(now(stores.addresses.find(&jid)).unwrap(), Some(id));
        let create = operations.all().iter().find(|o| o.name == "accounts.create").unwrap();
        assert_eq!(create.latency.snapshot().count(), 2);
        let failures: Vec<_> = create.failures().filter(|(_, n)| *n > 0).collect();
        assert_eq!(failures, [(StoreErrorKind::AlreadyExists, 1)]);
        assert_eq!(
            (operations.latency().count(), operations.in_flight(), operations.failure_count()),
            (3, 0, 0)
        );
        let waits = stores.accounts.get(jid.as_ref());
        assert_eq!(operations.in_flight(), 1);
        drop(waits);
        assert_eq!((operations.in_flight(), operations.latency().count()), (0, 3));
    }
}
