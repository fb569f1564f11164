//! The memory store behind a counter of calls and a switch that makes it fail.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jid::{Jid, JidRef};
use parking_lot::Mutex;
use store::directory::{Found, Query, SearchPage};
use store::{
    Account, Accounts, AddressId, Addresses, Appended, BlocklistOutcome, Blocklists, BulkRoster, ChangeFn,
    Changed, Created, Directory, ErrorKind, Fut, LastSeen, Login, LoginAttempt, Logins, NewAccount, Offline,
    OfflineMessage, Page, PhotoHash, Private, PrivateLimits, ProofFn, PutOutcome, Removed, Roster,
    RosterEntry, RosterSize, RosterSnapshot, Searchable, Secrets, Seen, Settings, Slice, StoreError, Stores,
    Subscription, Tokens, TokensFn, Unblock, Vcards, Waiting,
};

/// A store whose calls are counted.
pub struct Counted {
    inner: Stores,
    calls: Mutex<Vec<&'static str>>,
    failing: AtomicBool,
    between: Mutex<Option<Act>>,
}

type Act = Box<dyn FnOnce(&Stores) + Send>;

impl Counted {
    /// Counts the calls to `inner`.
    pub fn new(inner: Stores) -> Arc<Counted> {
        Arc::new(Counted {
            inner,
            calls: Mutex::default(),
            failing: AtomicBool::new(false),
            between: Mutex::default(),
        })
    }
    /// The names of the calls since the last time, as `need.method`.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock())
    }
    /// From now on every call fails with `Unavailable`, or none does.
    pub fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }
    /// Does this once, between the next login's proof and what is read after it.
    pub fn after_proof(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        *self.between.lock() = Some(Box::new(act));
    }
    fn act(&self) {
        let act = self.between.lock().take();
        if let Some(act) = act {
            act(&self.inner);
        }
    }
    fn call<'a, T: Send + 'a>(&'a self, name: &'static str, call: impl FnOnce() -> Fut<'a, T>) -> Fut<'a, T> {
        self.calls.lock().push(name);
        if self.failing.load(Ordering::Relaxed) {
            let error = StoreError::new(ErrorKind::Unavailable, "the test switched the store off");
            return Box::pin(std::future::ready(Err(error)));
        }
        call()
    }
}

macro_rules! counted {
    ($($trait:ident in $field:ident { $($method:ident($($arg:ident: $ty:ty),*) -> $out:ty;)* })*) => {$(
        impl $trait for Counted {
            $(fn $method(&self, $($arg: $ty),*) -> Fut<'_, $out> {
                self.call(concat!(stringify!($field), ".", stringify!($method)), || self.inner.$field.$method($($arg),*))
            })*
        }
    )*};
}

counted! {
    Accounts in accounts {
        create(account: &Jid, credentials: &[u8]) -> AddressId;
        create_bulk(accounts: Vec<NewAccount>) -> Vec<Created>;
        remove(account: JidRef<'_>) -> Option<Removed>;
        set_credentials(account: JidRef<'_>, credentials: &[u8]) -> bool;
        upgrade_credentials(account: JidRef<'_>, expected: &[u8], credentials: &[u8]) -> bool;
        set_disabled(account: JidRef<'_>, disabled: bool) -> bool;
        show(account: JidRef<'_>) -> Option<Account>;
        list(domain: &str, page: Page) -> Slice<Account>;
        count(domain: &str) -> u64;
        list_disabled(domain: &str, page: Page) -> Slice<Account>;
        count_disabled(domain: &str) -> u64;
        exists(account: JidRef<'_>) -> bool;
    }
    Roster in roster {
        get(owner: AddressId) -> RosterSnapshot;
        entry(owner: AddressId, contact: &Jid) -> RosterEntry;
        subscription(owner: JidRef<'_>, contact: JidRef<'_>) -> Subscription;
        size(owner: AddressId) -> RosterSize;
        change(owner: AddressId, contact: &Jid, change: ChangeFn) -> Changed;
        put_bulk(rosters: Vec<BulkRoster>) -> u64;
    }
    Offline in offline {
        append(messages: Vec<OfflineMessage>, quota: store::Quota) -> Vec<Appended>;
        fetch(owner: AddressId, page: Page, now: u64) -> Slice<Waiting>;
        remove_through(owner: AddressId, seq: u64) -> u32;
        count(owner: AddressId) -> u32;
        expire(now: u64, limit: u32) -> u32;
    }
    Addresses in addresses {
        resolve(ids: &[AddressId]) -> Vec<(AddressId, Jid)>;
        number(address: &Jid) -> AddressId;
        numbers(addresses: &[Jid]) -> Vec<AddressId>;
        find(address: &Jid) -> Option<AddressId>;
    }
    Settings in settings {
        get(key: &str) -> Option<Vec<u8>>;
        put(key: &str, value: &[u8]) -> ();
        put_if_absent(key: &str, value: &[u8]) -> Vec<u8>;
    }
    Blocklists in blocklists {
        blocklist(owner: JidRef<'_>) -> Vec<Jid>;
        change_blocklist(owner: JidRef<'_>, add: Vec<Jid>, remove: Unblock, limit: u32) -> BlocklistOutcome;
    }
    Tokens in tokens { change_tokens(owner: JidRef<'_>, change: TokensFn) -> bool; }
    Private in private {
        get(owner: JidRef<'_>, key: &str) -> Option<Vec<u8>>;
        put(owner: JidRef<'_>, values: Vec<(String, Vec<u8>)>, limits: PrivateLimits) -> PutOutcome;
        remove(owner: JidRef<'_>, key: &str) -> bool;
    }
    Vcards in vcards {
        get(owner: JidRef<'_>) -> Option<Vec<u8>>;
        put(owner: JidRef<'_>, vcard: Option<Vec<u8>>, searchable: Searchable, photo: Option<PhotoHash>) -> bool;
    }
    Directory in directory {
        search(domain: &str, query: &Query, page: SearchPage) -> Found;
        count(domain: &str, query: &Query) -> u64;
        index(domain: &str, query: &Query, cursor: &str) -> u64;
    }
}

impl Logins for Counted {
    fn secrets(&self, account: JidRef<'_>) -> Fut<'_, Option<Secrets>> {
        self.call("logins.secrets", || self.inner.logins.secrets(account))
    }
    fn login(&self, account: AddressId, revision: u64) -> Fut<'_, Option<Login>> {
        self.act();
        self.call("logins.login", || self.inner.logins.login(account, revision))
    }
    /// Counted as what is read: the rest only once the proof was right and the account is open.
    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> Fut<'_, Option<LoginAttempt>> {
        let (between, inner) = (self.between.lock().take(), self.inner.clone());
        let proof: ProofFn = Box::new(move |secrets| {
            let right = proof(secrets);
            if let Some(act) = between.filter(|_| right) {
                act(&inner);
            }
            right
        });
        let call = self.call("logins.secrets", || self.inner.logins.prove(account, proof));
        Box::pin(async move {
            let attempt = call.await?;
            if attempt.as_ref().is_some_and(|attempt| attempt.login.is_some()) {
                self.calls.lock().push("logins.login");
            }
            Ok(attempt)
        })
    }
}

impl LastSeen for Counted {
    fn set(&self, owner: AddressId, seen: Seen) {
        self.calls.lock().push("last_seen.set");
        self.inner.last_seen.set(owner, seen);
    }
    fn get(&self, owner: JidRef<'_>) -> Fut<'_, Option<Seen>> {
        self.call("last_seen.get", || self.inner.last_seen.get(owner))
    }
}
