//! Accounts and their credentials in one backend, everything else in another (`[auth]` in the configuration).
//!
//! An account has a row in both. The one of the *authentication backend* decides: whether the account exists, its
//! credentials and tokens, and whether it is disabled. The one of the *data backend* holds what belongs to the account,
//! and its id is the one that callers see; it is never disabled. Its credentials are a *link*, the revision of the other
//! row when the two were linked:
//!
//! ```text
//! 8 revision      or nothing: the first login links the rows
//! ```
//! A revision begins with a random number of 61 bits and rises with each password, so a link with a revision far away is that
//! of a former account.
//!
//! The two backends have no common transaction. An account is created first, and removed first, in the authentication
//! backend, which decides races. What an interruption leaves is completed later: a row that is missing in the data backend is
//! made at the next login or creation, and one of a former account is removed with all its data before the account of the
//! same name begins. The former account's subscriptions are then not cancelled.
//!
//! A login queries both backends at the same time, so it takes the time of two round trips. Before the proof nothing is written,
//! not even an address: an account without a row in the data backend has no id until then, and its first login reads once more.
//!
//! # Pitfalls
//!
//! An account that was in the data backend before the accounts were separate has credentials there. It is refused until they
//! are emptied.
//!
//! Ids of the two backends differ. The ids of an address never change, so an entry of the cache is never wrong about them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use base::lock::LeafMutex;
use jid::{Jid, JidRef};

use crate::logins::judge;
use crate::{
    AccountRecord, AccountSecrets, Accounts, AddressId, CreateOutcome, Login, LoginAttempt, Logins,
    NewAccount, Page, Paged, ProofFn, RemovedAccount, StoreError, StoreErrorKind, StoreFuture, Stores,
};

/// Passwords of an account; more cannot be set in its life.
const MAX_PASSWORDS: u64 = 1 << 24;

/// Accounts whose login may have begun. The cache is emptied when it is full; then a login reads once more.
const MAX_CACHED: usize = 65_536;

/// The link of a row that is about to be removed.
const FORMER: &[u8] = b"former";

/// The link of a row whose account was created in `[storage]` and is moved to the other backend. It is written by the
/// operator; see `docs/databases.md`.
const MOVED: &[u8] = b"moved";

/// Attempts to link two rows while others write them.
const MAX_ATTEMPTS: u32 = 6;

/// A bundle whose accounts, logins and tokens are those of `auth` and everything else that of `data`.
pub fn separate_auth(auth: Stores, data: Stores) -> Stores {
    let both = Arc::new(SeparateAuth { auth: auth.clone(), data: data.clone(), cache: LeafMutex::default() });
    Stores { accounts: both.clone(), logins: both, tokens: auth.tokens, ..data }
}

struct SeparateAuth {
    auth: Stores,
    data: Stores,
    /// By the id in the data backend.
    cache: LeafMutex<HashMap<AddressId, LinkedAccount>>,
}

/// What the first read of a login finds out for the second one.
#[derive(Clone, Copy)]
struct LinkedAccount {
    /// The id in the authentication backend.
    auth: AddressId,
    /// The revision in the data backend; `None` if the rows must still be linked.
    data_revision: Option<u64>,
}

/// Runs two calls at the same time.
async fn both<A, B>(
    mut one: StoreFuture<'_, A>,
    mut other: StoreFuture<'_, B>,
) -> (Result<A, StoreError>, Result<B, StoreError>) {
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none()
            && let Poll::Ready(result) = one.as_mut().poll(cx)
        {
            first = Some(result);
        }
        if second.is_none()
            && let Poll::Ready(result) = other.as_mut().poll(cx)
        {
            second = Some(result);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn link(revision: u64) -> [u8; 8] {
    revision.to_be_bytes()
}

/// Whether the row of the data backend belongs to an account whose credentials have this revision now.
fn is_linked(data: &AccountSecrets, revision: u64) -> bool {
    let linked_at = data.credentials.as_slice().try_into().map(u64::from_be_bytes);
    linked_at.is_ok_and(|at| revision.abs_diff(at) < MAX_PASSWORDS)
}

/// What the second read of a login needs of these rows.
fn linked(auth: &AccountSecrets, data: Option<&AccountSecrets>) -> LinkedAccount {
    let data = data.filter(|data| is_linked(data, auth.revision));
    LinkedAccount { auth: auth.id, data_revision: data.map(|data| data.revision) }
}

/// Whether the row of the data backend is that of an account with credentials of its own, from before the accounts were
/// separate. Its data are neither removed nor given to a client that registers its name.
fn has_own_credentials(data: &AccountSecrets) -> bool {
    let credentials = data.credentials.as_slice();
    !matches!(credentials, b"" | FORMER | MOVED) && credentials.len() != size_of::<u64>()
}

fn not_moved() -> StoreError {
    let message = "the account is in the database of [storage] and was not moved to that of [auth]";
    StoreError::new(StoreErrorKind::AlreadyExists, message)
}

fn unsettled() -> StoreError {
    StoreError::new(StoreErrorKind::Conflict, "the account is being created and removed at the same time")
}

impl SeparateAuth {
    fn cached(&self, account: AddressId) -> Option<LinkedAccount> {
        self.cache.lock().get(&account).copied()
    }

    fn remember(&self, account: AddressId, linked: LinkedAccount) {
        let cache = &mut *self.cache.lock();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(account, linked);
    }

    /// Combines the rows of an account.
    fn combine(&self, auth: Option<AccountSecrets>, data: Option<AccountSecrets>) -> Option<AccountSecrets> {
        let auth = auth?;
        let id = data.as_ref().map(|data| data.id);
        if let Some(id) = id {
            self.remember(id, linked(&auth, data.as_ref()));
        }
        Some(AccountSecrets { id: id.unwrap_or(AddressId::UNASSIGNED), ..auth })
    }

    /// Reads what the cache does not have. `None` if there is no such account.
    async fn look_up(&self, account: AddressId) -> Result<Option<LinkedAccount>, StoreError> {
        let Some(jid) = self.address(account).await? else { return Ok(None) };
        let (auth, data) =
            both(self.auth.logins.secrets(jid.as_ref()), self.data.logins.secrets(jid.as_ref())).await;
        let (Some(auth), data) = (auth?, data?) else { return Ok(None) };
        let found = linked(&auth, data.as_ref());
        self.remember(account, found);
        Ok(Some(found))
    }

    async fn address(&self, account: AddressId) -> Result<Option<Jid>, StoreError> {
        let found = self.data.addresses.resolve(&[account]).await?;
        Ok(found.into_iter().next().map(|(_, jid)| jid))
    }

    /// Makes the row of the data backend for an account whose credentials have this revision, or links it; returns its id
    /// and its revision. An account that was just created gets a row that is not linked only if it was moved.
    async fn link(
        &self,
        jid: &Jid,
        revision: u64,
        just_created: bool,
    ) -> Result<(AddressId, u64), StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.data.logins.secrets(jid.as_ref()).await? {
                Some(data) if is_linked(&data, revision) => return Ok((data.id, data.revision)),
                Some(data) if has_own_credentials(&data) => return Err(not_moved()),
                Some(data) if data.credentials.is_empty() && !just_created || data.credentials == MOVED => {
                    let old = &data.credentials;
                    self.data.accounts.upgrade_credentials(jid.as_ref(), old, &link(revision)).await?;
                }
                // Not a row that an interrupted creation has left: nothing would be lost with that one.
                Some(data) if data.credentials.is_empty() && self.has_data(data.id).await? => {
                    return Err(not_moved());
                }
                // Only if it is still that row: another node may have replaced it.
                Some(data) => {
                    let former = &data.credentials;
                    if self.data.accounts.upgrade_credentials(jid.as_ref(), former, FORMER).await? {
                        self.data.accounts.remove(jid.as_ref()).await?;
                    }
                }
                None => match self.data.accounts.create(jid, &link(revision)).await {
                    Err(error) if error.kind != StoreErrorKind::AlreadyExists => return Err(error),
                    Ok(_) | Err(_) => {}
                },
            }
        }
        Err(unsettled())
    }

    /// Whether a row of the data backend has a roster or messages.
    async fn has_data(&self, id: AddressId) -> Result<bool, StoreError> {
        Ok(self.data.offline.count(id).await? > 0 || !self.data.roster.get(id).await?.items.is_empty())
    }

    /// Whether a client must not register this account: its name has data of an account that was not moved yet, or whose
    /// password is missing in the authentication backend.
    async fn is_reserved(&self, data: Option<&AccountSecrets>) -> Result<bool, StoreError> {
        match data {
            Some(data) if data.credentials.is_empty() => self.has_data(data.id).await,
            Some(data) => Ok(data.credentials == MOVED || has_own_credentials(data)),
            None => Ok(false),
        }
    }

    /// Makes the row of the data backend for an account that was just created in the other.
    async fn complete(&self, jid: &Jid) -> Result<AddressId, StoreError> {
        let created = self.auth.logins.secrets(jid.as_ref()).await?.ok_or_else(unsettled)?;
        Ok(self.link(jid, created.revision, true).await?.0)
    }

    /// An account with its id in the data backend.
    async fn with_own_id(&self, record: AccountRecord) -> Result<AccountRecord, StoreError> {
        let id = self.data.addresses.intern(&record.jid).await?;
        Ok(AccountRecord { id, ..record })
    }

    /// The same for a page, whose cursor stays that of the authentication backend.
    async fn with_own_ids(&self, page: Paged<AccountRecord>) -> Result<Paged<AccountRecord>, StoreError> {
        let addresses: Vec<Jid> = page.items.iter().map(|record| record.jid.clone()).collect();
        let ids = self.data.addresses.intern_many(&addresses).await?;
        let items = page.items.into_iter().zip(ids).map(|(record, id)| AccountRecord { id, ..record });
        Ok(Paged { items: items.collect(), next: page.next })
    }
}

impl Logins for SeparateAuth {
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>> {
        // Both, whether the account exists or not, so that the work does not reveal it.
        let (auth, data) = (self.auth.logins.secrets(account), self.data.logins.secrets(account));
        Box::pin(async move {
            let (auth, data) = both(auth, data).await;
            Ok(self.combine(auth?, data?))
        })
    }

    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>> {
        Box::pin(async move {
            let linked = match self.cached(account) {
                Some(linked) => linked,
                None => match self.look_up(account).await? {
                    Some(linked) => linked,
                    None => return Ok(None),
                },
            };
            let proved = self.auth.logins.login(linked.auth, revision);
            let (proved, login) = match linked.data_revision {
                Some(revision) => both(proved, self.data.logins.login(account, revision)).await,
                None => (proved.await, Ok(None)),
            };
            let Some(proved) = proved? else { return Ok(None) };
            let login = match login? {
                Some(login) => Some(login),
                None => {
                    let Some(jid) = self.address(account).await? else { return Ok(None) };
                    let (id, data_revision) = self.link(&jid, revision, false).await?;
                    self.remember(
                        id,
                        LinkedAccount { auth: linked.auth, data_revision: Some(data_revision) },
                    );
                    self.data.logins.login(id, data_revision).await?
                }
            };
            Ok(login.map(|login| Login { disabled: proved.disabled, ..login }))
        })
    }

    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>> {
        let (jid, secrets) = (account.bare().to_jid(), self.secrets(account));
        Box::pin(async move {
            let secrets = secrets.await?;
            // For unknown accounts, too, so that the work does not reveal which accounts exist.
            let right = judge(proof, secrets.as_ref())?;
            let Some(mut secrets) = secrets else { return Ok(None) };
            let login = match right && !secrets.disabled {
                true => {
                    if secrets.id == AddressId::UNASSIGNED {
                        secrets.id = self.data.addresses.intern(&jid).await?;
                    }
                    Some(self.login(secrets.id, secrets.revision).await)
                }
                false => None,
            };
            Ok(Some(LoginAttempt { secrets, login }))
        })
    }
}

impl Accounts for SeparateAuth {
    fn create(&self, account: &Jid, credentials: &[u8]) -> StoreFuture<'_, AddressId> {
        let (jid, credentials) = (account.as_ref().bare().to_jid(), credentials.to_vec());
        Box::pin(async move {
            // Fails here, before anything is created, if the data backend does not work, too.
            let data = self.data.logins.secrets(jid.as_ref()).await?;
            // An existing account has data, too.
            if self.is_reserved(data.as_ref()).await? && !self.auth.accounts.exists(jid.as_ref()).await? {
                return Err(not_moved());
            }
            self.auth.accounts.create(&jid, &credentials).await?;
            self.complete(&jid).await
        })
    }

    fn create_bulk(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>> {
        Box::pin(async move {
            let addresses: Vec<Jid> = accounts.iter().map(|new| new.jid.as_ref().bare().to_jid()).collect();
            let unlinked: Arc<[u8]> = Arc::new([]);
            let rows = addresses
                .iter()
                .map(|jid| NewAccount { jid: jid.clone(), credentials: unlinked.clone() })
                .collect();
            let created = self.auth.accounts.create_bulk(accounts).await?;
            let rows = self.data.accounts.create_bulk(rows).await?;
            let mut outcomes = Vec::with_capacity(created.len());
            for ((created, row), jid) in created.into_iter().zip(rows).zip(&addresses) {
                outcomes.push(match (created, row) {
                    (CreateOutcome::New(_), CreateOutcome::New(id)) => CreateOutcome::New(id),
                    (CreateOutcome::New(_), CreateOutcome::Exists(_)) => {
                        match self.complete(jid).await {
                            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                                // Its login would fail, or be given data that may be another's.
                                self.auth.accounts.remove(jid.as_ref()).await?;
                                return Err(error);
                            }
                            completed => CreateOutcome::New(completed?),
                        }
                    }
                    (CreateOutcome::Exists(_), row) => CreateOutcome::Exists(row.id()),
                });
            }
            Ok(outcomes)
        })
    }

    fn remove(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<RemovedAccount>> {
        let jid = account.bare().to_jid();
        Box::pin(async move {
            let removed = self.auth.accounts.remove(jid.as_ref()).await?;
            match self.data.accounts.remove(jid.as_ref()).await? {
                // Also what an interrupted removal has left, so that its caller can repeat it.
                Some(data) => Ok(Some(data)),
                None if removed.is_some() => {
                    let id = self.data.addresses.intern(&jid).await?;
                    Ok(Some(RemovedAccount { id, contacts: Vec::new() }))
                }
                None => Ok(None),
            }
        })
    }

    fn set_credentials(&self, account: JidRef<'_>, credentials: &[u8]) -> StoreFuture<'_, bool> {
        self.auth.accounts.set_credentials(account, credentials)
    }

    fn upgrade_credentials(
        &self,
        account: JidRef<'_>,
        expected: &[u8],
        credentials: &[u8],
    ) -> StoreFuture<'_, bool> {
        self.auth.accounts.upgrade_credentials(account, expected, credentials)
    }

    fn set_disabled(&self, account: JidRef<'_>, disabled: bool) -> StoreFuture<'_, bool> {
        self.auth.accounts.set_disabled(account, disabled)
    }

    fn get(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountRecord>> {
        let found = self.auth.accounts.get(account);
        Box::pin(async move {
            match found.await? {
                Some(record) => self.with_own_id(record).await.map(Some),
                None => Ok(None),
            }
        })
    }

    fn list(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        let page = self.auth.accounts.list(domain, page);
        Box::pin(async move { self.with_own_ids(page.await?).await })
    }

    fn count(&self, domain: &str) -> StoreFuture<'_, u64> {
        self.auth.accounts.count(domain)
    }

    fn list_disabled(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        let page = self.auth.accounts.list_disabled(domain, page);
        Box::pin(async move { self.with_own_ids(page.await?).await })
    }

    fn count_disabled(&self, domain: &str) -> StoreFuture<'_, u64> {
        self.auth.accounts.count_disabled(domain)
    }

    fn exists(&self, account: JidRef<'_>) -> StoreFuture<'_, bool> {
        self.auth.accounts.exists(account)
    }
}
