//! Store wrapper that counts calls and can be made to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock::LeafMutex;
use jid::{Jid, JidRef};
use store::user_search::{SearchPageRequest, UserQuery, UserSearchPage};
use store::{
    AccountKv, AccountKvLimits, AccountRecord, AccountSecrets, Accounts, AddressDictionary, AddressId,
    AppendOutcome, BlocklistOutcome, Blocklists, BulkRoster, CreateOutcome, LastActivity, LastSeen, Login,
    LoginAttempt, LoginTokens, Logins, NewAccount, Offline, OfflineMessage, Page, Paged, PhotoHash, ProofFn,
    PutOutcome, RemovedAccount, Roster, RosterEntry, RosterSize, RosterSnapshot, RosterUpdateFn,
    RosterUpdateOutcome, SearchableProfile, ServerKv, StoreError, StoreErrorKind, StoreFuture, StoredMessage,
    Stores, Subscription, TokensUpdateFn, TokensUpdateOutcome, Unblock, UserSearch, Vcards,
};

/// Store whose calls are counted.
pub struct CountingStore {
    inner: Stores,
    calls: LeafMutex<Vec<&'static str>>,
    failing: AtomicBool,
    between: LeafMutex<Option<Act>>,
    before_tokens: LeafMutex<Option<Act>>,
    proofs_late: AtomicBool,
    late_proofs: LeafMutex<Vec<ProofFn>>,
}

type Act = Box<dyn FnOnce(&Stores) + Send>;

impl CountingStore {
    /// Wraps `inner`.
    pub fn new(inner: Stores) -> Arc<CountingStore> {
        Arc::new(CountingStore {
            inner,
            calls: LeafMutex::default(),
            failing: AtomicBool::new(false),
            between: LeafMutex::default(),
            before_tokens: LeafMutex::default(),
            proofs_late: AtomicBool::new(false),
            late_proofs: LeafMutex::default(),
        })
    }

    /// Returns and clears the names of the calls since the last time, as `need.method`.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock())
    }

    /// Makes every call fail with `Unavailable`, or none.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Runs `act` once, between the proof of the next login and the reads after it.
    pub fn after_proof(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        *self.between.lock() = Some(Box::new(act));
    }

    /// Runs `act` once, before the next update of tokens.
    pub fn before_tokens(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        *self.before_tokens.lock() = Some(Box::new(act));
    }

    /// Makes every proof miss its deadline, or none. The closures are kept until the store is dropped.
    pub fn set_proofs_late(&self, late: bool) {
        self.proofs_late.store(late, Ordering::Relaxed);
    }

    fn act(&self, act: &LeafMutex<Option<Act>>) {
        let act = act.lock().take();
        if let Some(act) = act {
            act(&self.inner);
        }
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce() -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        self.calls.lock().push(name);
        if self.failing.load(Ordering::Relaxed) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "the test switched the store off");
            return Box::pin(std::future::ready(Err(error)));
        }
        call()
    }
}

macro_rules! counting_store {
    ($($trait:ident in $field:ident { $($method:ident($($arg:ident: $ty:ty),*) -> $out:ty;)* })*) => {$(
        impl $trait for CountingStore {
            $(fn $method(&self, $($arg: $ty),*) -> StoreFuture<'_, $out> {
                self.call(concat!(stringify!($field), ".", stringify!($method)), || self.inner.$field.$method($($arg),*))
            })*
        }
    )*};
}

counting_store! {
    Accounts in accounts {
        create(account: &Jid, credentials: &[u8]) -> AddressId;
        create_bulk(accounts: Vec<NewAccount>) -> Vec<CreateOutcome>;
        remove(account: JidRef<'_>) -> Option<RemovedAccount>;
        set_credentials(account: JidRef<'_>, credentials: &[u8]) -> bool;
        upgrade_credentials(account: JidRef<'_>, expected: &[u8], credentials: &[u8]) -> bool;
        set_disabled(account: JidRef<'_>, disabled: bool) -> bool;
        get(account: JidRef<'_>) -> Option<AccountRecord>;
        list(domain: &str, page: Page) -> Paged<AccountRecord>;
        count(domain: &str) -> u64;
        list_disabled(domain: &str, page: Page) -> Paged<AccountRecord>;
        count_disabled(domain: &str) -> u64;
        exists(account: JidRef<'_>) -> bool;
    }
    Roster in roster {
        get(owner: AddressId) -> RosterSnapshot;
        entry(owner: AddressId, contact: &Jid) -> RosterEntry;
        subscription(owner: JidRef<'_>, contact: JidRef<'_>) -> Subscription;
        size(owner: AddressId) -> RosterSize;
        update(owner: AddressId, contact: &Jid, change: RosterUpdateFn) -> RosterUpdateOutcome;
        put_bulk(rosters: Vec<BulkRoster>) -> u64;
    }
    Offline in offline {
        append(messages: Vec<OfflineMessage>, quota: store::Quota) -> Vec<AppendOutcome>;
        fetch(owner: AddressId, page: Page, now: u64) -> Paged<StoredMessage>;
        remove_range(owner: AddressId, first: u64, last: u64) -> u32;
        count(owner: AddressId) -> u32;
        expire(now: u64, limit: u32) -> u32;
    }
    AddressDictionary in addresses {
        resolve(ids: &[AddressId]) -> Vec<(AddressId, Jid)>;
        intern(address: &Jid) -> AddressId;
        intern_many(addresses: &[Jid]) -> Vec<AddressId>;
        find(address: &Jid) -> Option<AddressId>;
    }
    ServerKv in server_kv {
        get(key: &str) -> Option<Vec<u8>>;
        put(key: &str, value: &[u8]) -> ();
        put_if_absent(key: &str, value: &[u8]) -> Vec<u8>;
    }
    Blocklists in blocklists {
        blocklist(owner: JidRef<'_>) -> Vec<Jid>;
        update_blocklist(owner: JidRef<'_>, add: Vec<Jid>, remove: Unblock, limit: u32) -> BlocklistOutcome;
    }
    AccountKv in account_kv {
        get(owner: JidRef<'_>, key: &str) -> Option<Vec<u8>>;
        put(owner: JidRef<'_>, values: Vec<(String, Vec<u8>)>, limits: AccountKvLimits) -> PutOutcome;
        remove(owner: JidRef<'_>, key: &str) -> bool;
    }
    Vcards in vcards {
        get(owner: JidRef<'_>) -> Option<Vec<u8>>;
        put(owner: JidRef<'_>, vcard: Option<Vec<u8>>, searchable: SearchableProfile, photo: Option<PhotoHash>) -> bool;
    }
    UserSearch in user_search {
        search(domain: &str, query: &UserQuery, page: SearchPageRequest) -> UserSearchPage;
        count(domain: &str, query: &UserQuery) -> u64;
        index(domain: &str, query: &UserQuery, cursor: &str) -> u64;
    }
}

impl Logins for CountingStore {
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>> {
        self.call("logins.secrets", || self.inner.logins.secrets(account))
    }

    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>> {
        self.act(&self.between);
        self.call("logins.login", || self.inner.logins.login(account, revision))
    }

    /// Counted as separate reads: the rest only if the proof is correct and the account enabled.
    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>> {
        if self.proofs_late.load(Ordering::Relaxed) {
            self.late_proofs.lock().push(proof);
            let error = StoreError::new(StoreErrorKind::Timeout, "the test made the proof late");
            return self.call("logins.secrets", || Box::pin(std::future::ready(Err(error))));
        }
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

impl LoginTokens for CountingStore {
    fn update_tokens(
        &self,
        owner: JidRef<'_>,
        revision: Option<u64>,
        change: TokensUpdateFn,
    ) -> StoreFuture<'_, TokensUpdateOutcome> {
        self.act(&self.before_tokens);
        self.call("tokens.update_tokens", || self.inner.tokens.update_tokens(owner, revision, change))
    }
}

impl LastSeen for CountingStore {
    fn set(&self, owner: AddressId, seen: LastActivity) {
        self.calls.lock().push("last_seen.set");
        self.inner.last_seen.set(owner, seen);
    }

    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<LastActivity>> {
        self.call("last_seen.get", || self.inner.last_seen.get(owner))
    }
}
