//! A backend that counts: how long each operation takes, and which fail how. In front of any other backend.
//!
//! [`observe`] wraps a bundle; [`Operations`] has the figures. Time runs from the call to its answer, so it includes waiting
//! for a connection and for the writer's turn. An operation that its caller gives up counts as running until then and is
//! not timed.
//!
//! Left out: [`LastSeen::set`], which only notes. The trap: a new method of a need must be added to the list below, or the
//! compiler says so; the names in the list are label values, so renaming one breaks dashboards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Clock;
use base::count::{Histogram, MICROS, Snapshot};
use jid::{Jid, JidRef};

use crate::*;

/// Figures of all operations.
#[derive(Debug)]
pub struct Operations {
    all: Vec<Operation>,
    running: AtomicUsize,
}

/// Figures of one operation.
#[derive(Debug)]
pub struct Operation {
    /// Need and method, such as `roster.get`.
    pub name: &'static str,
    /// Microseconds from call to answer, failures included.
    pub time: Arc<Histogram>,
    failures: [AtomicU64; ErrorKind::ALL.len()],
}

impl Operations {
    fn new() -> Operations {
        let operation = |name: &&'static str| Operation {
            name,
            time: Arc::new(Histogram::new(MICROS)),
            failures: Default::default(),
        };
        Operations { all: NAMES.iter().map(operation).collect(), running: AtomicUsize::new(0) }
    }
    /// Each operation.
    pub fn all(&self) -> &[Operation] {
        &self.all
    }
    /// Operations that have not been answered yet.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
    /// The times of all operations together.
    pub fn times(&self) -> Snapshot {
        let mut all = Snapshot::default();
        self.all.iter().for_each(|operation| all.merge(&operation.time.snapshot()));
        all
    }
    /// Failures that are no answers: those other than `AlreadyExists` and `NotFound`.
    pub fn failed(&self) -> u64 {
        let bad = |kind: &ErrorKind| {
            !matches!(kind, ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::TooBroad)
        };
        let counts = self.all.iter().flat_map(Operation::failures);
        counts.filter(|(kind, _)| bad(kind)).map(|(_, count)| count).sum()
    }
}

impl Operation {
    /// Failures by kind.
    pub fn failures(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.into_iter().zip(&self.failures).map(|(kind, n)| (kind, n.load(Ordering::Relaxed)))
    }
    fn done<T>(&self, micros: u64, result: &Result<T, StoreError>) {
        self.time.record(micros);
        if let Err(error) = result
            && let Some(count) = self.failures.get(error.kind as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts down when the call is over, however it ends.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Observed {
    inner: Stores,
    clock: Arc<dyn Clock>,
    operations: Arc<Operations>,
}

/// Puts the counting in front of a bundle.
pub fn observe(inner: Stores, clock: Arc<dyn Clock>) -> (Stores, Arc<Operations>) {
    let operations = Arc::new(Operations::new());
    (Stores::of(Arc::new(Observed { inner, clock, operations: operations.clone() })), operations)
}

impl Observed {
    fn watch<'a, T: 'a>(&'a self, at: usize, call: Fut<'a, T>) -> Fut<'a, T> {
        let Some(operation) = self.operations.all.get(at) else { return call };
        let started = self.clock.micros();
        self.operations.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(&self.operations.running);
        Box::pin(async move {
            let result = call.await;
            operation.done(self.clock.micros().saturating_sub(started), &result);
            drop(running);
            result
        })
    }
}

/// The place of a name in [`NAMES`].
const fn place(name: &str) -> usize {
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

macro_rules! observed {
    ($($need:ident in $field:ident {
        $(fn $method:ident($($name:ident: $type:ty),*) -> $out:ty;)*
    } $({ $($rest:tt)* })?)*) => {
        /// All operations, as need and method.
        const NAMES: &[&str] = &[$($(concat!(stringify!($field), ".", stringify!($method)),)*)*];

        $(impl $need for Observed {
            $(fn $method(&self, $($name: $type),*) -> Fut<'_, $out> {
                const AT: usize = place(concat!(stringify!($field), ".", stringify!($method)));
                self.watch(AT, self.inner.$field.$method($($name),*))
            })*
            $($($rest)*)?
        })*
    };
}

observed! {
    Logins in logins {
        fn secrets(account: JidRef<'_>) -> Option<Secrets>;
        fn login(account: AddressId, revision: u64) -> Option<Login>;
        fn prove(account: JidRef<'_>, proof: ProofFn) -> Option<LoginAttempt>;
    }
    Accounts in accounts {
        fn create(account: &Jid, credentials: &[u8]) -> AddressId;
        fn create_bulk(accounts: Vec<NewAccount>) -> Vec<Created>;
        fn remove(account: JidRef<'_>) -> Option<Removed>;
        fn set_credentials(account: JidRef<'_>, credentials: &[u8]) -> bool;
        fn upgrade_credentials(account: JidRef<'_>, expected: &[u8], credentials: &[u8]) -> bool;
        fn set_disabled(account: JidRef<'_>, disabled: bool) -> bool;
        fn show(account: JidRef<'_>) -> Option<Account>;
        fn list(domain: &str, page: Page) -> Slice<Account>;
        fn count(domain: &str) -> u64;
        fn list_disabled(domain: &str, page: Page) -> Slice<Account>;
        fn count_disabled(domain: &str) -> u64;
        fn exists(account: JidRef<'_>) -> bool;
    }
    Roster in roster {
        fn get(owner: AddressId) -> RosterSnapshot;
        fn entry(owner: AddressId, contact: &Jid) -> RosterEntry;
        fn subscription(owner: JidRef<'_>, contact: JidRef<'_>) -> Subscription;
        fn size(owner: AddressId) -> RosterSize;
        fn change(owner: AddressId, contact: &Jid, change: ChangeFn) -> Changed;
        fn put_bulk(rosters: Vec<BulkRoster>) -> u64;
    }
    Offline in offline {
        fn append(messages: Vec<OfflineMessage>, quota: crate::Quota) -> Vec<Appended>;
        fn fetch(owner: AddressId, page: Page, now: u64) -> Slice<Waiting>;
        fn remove_through(owner: AddressId, seq: u64) -> u32;
        fn count(owner: AddressId) -> u32;
        fn expire(now: u64, limit: u32) -> u32;
    }
    Addresses in addresses {
        fn resolve(ids: &[AddressId]) -> Vec<(AddressId, Jid)>;
        fn number(address: &Jid) -> AddressId;
        fn numbers(addresses: &[Jid]) -> Vec<AddressId>;
        fn find(address: &Jid) -> Option<AddressId>;
    }
    Settings in settings {
        fn get(key: &str) -> Option<Vec<u8>>;
        fn put(key: &str, value: &[u8]) -> ();
        fn put_if_absent(key: &str, value: &[u8]) -> Vec<u8>;
    }
    Blocklists in blocklists {
        fn blocklist(owner: JidRef<'_>) -> Vec<Jid>;
        fn change_blocklist(owner: JidRef<'_>, add: Vec<Jid>, remove: Unblock, limit: u32) -> BlocklistOutcome;
    }
    Tokens in tokens {
        fn change_tokens(owner: JidRef<'_>, change: TokensFn) -> bool;
    }
    Private in private {
        fn get(owner: JidRef<'_>, key: &str) -> Option<Vec<u8>>;
        fn put(owner: JidRef<'_>, values: Vec<(String, Vec<u8>)>, limits: PrivateLimits) -> PutOutcome;
        fn remove(owner: JidRef<'_>, key: &str) -> bool;
    }
    Vcards in vcards {
        fn get(owner: JidRef<'_>) -> Option<Vec<u8>>;
        fn put(owner: JidRef<'_>, vcard: Option<Vec<u8>>, searchable: Searchable, photo: Option<PhotoHash>) -> bool;
    }
    Directory in directory {
        fn search(domain: &str, query: &Query, page: SearchPage) -> Found;
        fn count(domain: &str, query: &Query) -> u64;
        fn index(domain: &str, query: &Query, cursor: &str) -> u64;
    }
    LastSeen in last_seen {
        fn get(owner: JidRef<'_>) -> Option<Seen>;
    } {
        fn set(&self, owner: AddressId, seen: Seen) {
            self.inner.last_seen.set(owner, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    use crate::memory::Memory;

    fn now<T>(mut call: Fut<'_, T>) -> Result<T, StoreError> {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("the memory store waits"),
        }
    }

    #[test]
    fn every_operation_is_timed_under_its_own_name() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(NAMES.iter().enumerate().all(|(at, name)| place(name) == at));
        assert_eq!(place("roster.steal"), NAMES.len());
    }

    #[test]
    fn times_and_failures_are_counted_and_answers_pass_unchanged() {
        let clock = Arc::new(base::ManualClock::new());
        let (stores, operations) = observe(Stores::of(Arc::new(Memory::new(clock.clone()))), clock);
        let jid = Jid::parse("juliet@example.com").unwrap();
        let id = now(stores.accounts.create(&jid, b"x")).unwrap();
        let again = now(stores.accounts.create(&jid, b"x")).unwrap_err();
        assert_eq!(again.kind, ErrorKind::AlreadyExists);
        assert_eq!(now(stores.addresses.find(&jid)).unwrap(), Some(id));
        let create = operations.all().iter().find(|o| o.name == "accounts.create").unwrap();
        assert_eq!(create.time.snapshot().count(), 2);
        let failures: Vec<_> = create.failures().filter(|(_, n)| *n > 0).collect();
        assert_eq!(failures, [(ErrorKind::AlreadyExists, 1)]);
        assert_eq!((operations.times().count(), operations.running(), operations.failed()), (3, 0, 0));
        let waits = stores.accounts.show(jid.as_ref());
        assert_eq!(operations.running(), 1);
        drop(waits);
        assert_eq!((operations.running(), operations.times().count()), (0, 3));
    }
}
