//! Instrumented backend: wraps any backend and measures the latency and the failures of each operation.
//!
//! [`instrument`] wraps a bundle; [`StoreMetrics`] holds the metrics. Latency runs from the call to its result, so it
//! includes waiting for a connection and for the writer. An operation cancelled by its caller counts as in flight until
//! then and is not timed.
//!
//! Not implemented: [`LastSeen::set`], which only queues a write.
//!
//! # Pitfalls
//!
//! The names in the list below are label values, so renaming one breaks dashboards. A new trait method must be added to
//! the list; the compiler reports a missing one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Clock;
use base::count::{Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS};
use jid::{Jid, JidRef};

use crate::*;

/// Metrics of all operations.
#[derive(Debug)]
pub struct StoreMetrics {
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
        StoreMetrics { all: NAMES.iter().map(operation).collect(), in_flight: AtomicUsize::new(0) }
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

struct InstrumentedStores {
    inner: Stores,
    clock: Arc<dyn Clock>,
    operations: Arc<StoreMetrics>,
}

/// Wraps a bundle.
pub fn instrument(inner: Stores, clock: Arc<dyn Clock>) -> (Stores, Arc<StoreMetrics>) {
    let operations = Arc::new(StoreMetrics::new());
    (
        Stores::from_backend(Arc::new(InstrumentedStores { inner, clock, operations: operations.clone() })),
        operations,
    )
}

impl InstrumentedStores {
    fn timed<'a, T: 'a>(&'a self, at: usize, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        let Some(operation) = self.operations.all.get(at) else { return call };
        let started = self.clock.now_micros();
        self.operations.in_flight.fetch_add(1, Ordering::Relaxed);
        let running = InFlightGuard(&self.operations.in_flight);
        Box::pin(async move {
            let result = call.await;
            operation.record(self.clock.now_micros().saturating_sub(started), &result);
            drop(running);
            result
        })
    }
}

/// Index of a name in [`NAMES`].
const fn operation_index(name: &str) -> usize {
    let mut at = 0;
    while at < NAMES.len() {
        let (a, b) = (NAMES[at].as_bytes(), name.as_bytes());
        let mut same = a.len() == b.len();
        let mut i = 0;
        while same && i < a.len() {
            same = a[i] == b[i];
            i += 1;
        }
        if same {
            return at;
        }
        at += 1;
    }
    at
}

macro_rules! instrumented {
    ($($need:ident in $field:ident {
        $(fn $method:ident($($name:ident: $type:ty),*) -> $out:ty;)*
    } $({ $($rest:tt)* })?)*) => {
        /// All operations as field and method.
        const NAMES: &[&str] = &[$($(concat!(stringify!($field), ".", stringify!($method)),)*)*];

        $(impl $need for InstrumentedStores {
            $(fn $method(&self, $($name: $type),*) -> StoreFuture<'_, $out> {
                const AT: usize = operation_index(concat!(stringify!($field), ".", stringify!($method)));
                self.timed(AT, self.inner.$field.$method($($name),*))
            })*
            $($($rest)*)?
        })*
    };
}

instrumented! {
    Logins in logins {
        fn secrets(account: JidRef<'_>) -> Option<AccountSecrets>;
        fn login(account: AddressId, revision: u64) -> Option<Login>;
        fn prove(account: JidRef<'_>, proof: ProofFn) -> Option<LoginAttempt>;
    }
    Accounts in accounts {
        fn create(account: &Jid, credentials: &[u8]) -> AddressId;
        fn create_bulk(accounts: Vec<NewAccount>) -> Vec<CreateOutcome>;
        fn remove(account: JidRef<'_>) -> Option<RemovedAccount>;
        fn set_credentials(account: JidRef<'_>, credentials: &[u8]) -> bool;
        fn upgrade_credentials(account: JidRef<'_>, expected: &[u8], credentials: &[u8]) -> bool;
        fn set_disabled(account: JidRef<'_>, disabled: bool) -> bool;
        fn get(account: JidRef<'_>) -> Option<AccountRecord>;
        fn list(domain: &str, page: Page) -> Paged<AccountRecord>;
        fn count(domain: &str) -> u64;
        fn list_disabled(domain: &str, page: Page) -> Paged<AccountRecord>;
        fn count_disabled(domain: &str) -> u64;
        fn exists(account: JidRef<'_>) -> bool;
    }
    Roster in roster {
        fn get(owner: AddressId) -> RosterSnapshot;
        fn entry(owner: AddressId, contact: &Jid) -> RosterEntry;
        fn subscription(owner: JidRef<'_>, contact: JidRef<'_>) -> Subscription;
        fn size(owner: AddressId) -> RosterSize;
        fn update(owner: AddressId, contact: &Jid, change: RosterUpdateFn) -> RosterUpdateOutcome;
        fn put_bulk(rosters: Vec<BulkRoster>) -> u64;
    }
    Offline in offline {
        fn append(messages: Vec<OfflineMessage>, quota: crate::Quota) -> Vec<AppendOutcome>;
        fn fetch(owner: AddressId, page: Page, now: u64) -> Paged<StoredMessage>;
        fn remove_range(owner: AddressId, first: u64, last: u64) -> u32;
        fn count(owner: AddressId) -> u32;
        fn expire(now: u64, limit: u32) -> u32;
    }
    AddressDictionary in addresses {
        fn resolve(ids: &[AddressId]) -> Vec<(AddressId, Jid)>;
        fn intern(address: &Jid) -> AddressId;
        fn intern_many(addresses: &[Jid]) -> Vec<AddressId>;
        fn find(address: &Jid) -> Option<AddressId>;
    }
    ServerKv in server_kv {
        fn get(key: &str) -> Option<Vec<u8>>;
        fn put(key: &str, value: &[u8]) -> ();
        fn put_if_absent(key: &str, value: &[u8]) -> Vec<u8>;
    }
    Blocklists in blocklists {
        fn blocklist(owner: JidRef<'_>) -> Vec<Jid>;
        fn update_blocklist(owner: JidRef<'_>, add: Vec<Jid>, remove: Unblock, limit: u32) -> BlocklistOutcome;
    }
    LoginTokens in tokens {
        fn update_tokens(owner: JidRef<'_>, revision: Option<u64>, change: TokensUpdateFn) -> TokensUpdateOutcome;
    }
    AccountKv in account_kv {
        fn get(owner: JidRef<'_>, key: &str) -> Option<Vec<u8>>;
        fn put(owner: JidRef<'_>, values: Vec<(String, Vec<u8>)>, limits: AccountKvLimits) -> PutOutcome;
        fn remove(owner: JidRef<'_>, key: &str) -> bool;
    }
    Vcards in vcards {
        fn get(owner: JidRef<'_>) -> Option<Vec<u8>>;
        fn put(owner: JidRef<'_>, vcard: Option<Vec<u8>>, searchable: SearchableProfile, photo: Option<PhotoHash>) -> bool;
    }
    UserSearch in user_search {
        fn search(domain: &str, query: &UserQuery, page: SearchPageRequest) -> UserSearchPage;
        fn count(domain: &str, query: &UserQuery) -> u64;
        fn index(domain: &str, query: &UserQuery, cursor: &str) -> u64;
    }
    LastSeen in last_seen {
        fn get(owner: JidRef<'_>) -> Option<LastActivity>;
    } {
        fn set(&self, owner: AddressId, seen: LastActivity) {
            self.inner.last_seen.set(owner, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut call: StoreFuture<'_, T>) -> Result<T, StoreError> {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("the memory store waits"),
        }
    }

    #[test]
    fn every_operation_is_timed_under_its_own_name() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(NAMES.iter().enumerate().all(|(at, name)| operation_index(name) == at));
        assert_eq!(operation_index("roster.steal"), NAMES.len());
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
