//! Accounts in a foreign table. The first column of the look-up is the hashed password; a second one, if there is one, disables
//! the account unless it is null, 0, empty or false. A third one is the user name or the address: a row of another name is
//! ignored.
//!
//! SCRAM is offered with the hash for which the column has keys, which the operator declares.
//!
//! # Pitfalls
//!
//! Looking up an account is one statement, whether or not the account exists, and a missing one costs the verification of a
//! decoy with the form and the cost of the last row that was read. In a table with several of them the time can still tell
//! accounts apart.
//!
//! Clients see the length of the salt and the number of iterations of SCRAM keys. Those of a missing account are those of the
//! first keys that were read, so an account with others is recognisable.
//!
//! Some databases, such as MySQL by default, compare texts without case, accents and trailing spaces. There the password of
//! `jose` would also log in to the account `josé`, unless the third column is selected. Their statements that write compare in
//! the same way: without a unique key, one for `jose` would change the row of `josé`, and an insertion would be a second row.

use std::sync::Arc;
use std::time::Duration;

use base::Secret;
use base::clock::Clock;
use base::lock::LeafMutex;
use base::spawn::{BoxFuture, Spawner};
use environment::account_provider::{
    AccountProvider, MAX_VERSION_BYTES, PasswordCheck, ProvidedAccount, ProvidedKeys, ProviderCapabilities,
    ProviderError, ProviderErrorKind, ProviderFuture, ScramParameters, check_new_password,
};
use jid::{Jid, JidRef};
use ring::digest;
use sasl::ScramHash;
use tokio::sync::{Semaphore, oneshot};

use super::password_hash::{NewPasswordHash, PasswordHash};
use super::statement::{SqlParameter, SqlStatement};
use crate::account_name::named_account;
use crate::limiter::{RequestLimiter, RequestLimits};
use crate::password_cache::PasswordCache;

/// A row: its columns as text, `None` for null.
pub type ForeignRow = Vec<Option<String>>;

/// Runs statements in the database of another program. The program implements it.
pub trait ForeignTable: Send + Sync {
    /// The rows of a query, at most two.
    fn rows(
        &self,
        statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<ForeignRow>, ProviderError>>;

    /// The number of rows that a statement changed. Fails with `AlreadyExists` if a key exists.
    fn execute(
        &self,
        statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<u64, ProviderError>>;
}

/// Settings of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlSettings {
    /// `SELECT password[, disabled[, name]] …`
    pub find: SqlStatement,
    /// `INSERT …`, if accounts may be created.
    pub create: Option<SqlStatement>,
    /// `UPDATE …`, if passwords may be changed.
    pub set_password: Option<SqlStatement>,
    /// `DELETE …`, if accounts may be removed.
    pub remove: Option<SqlStatement>,
    /// Form of new passwords.
    pub new_passwords: NewPasswordHash,
    /// The column has SCRAM keys for this hash.
    pub scram: Option<ScramHash>,
    /// Most hashes to compute at the same time, each of which takes a core and up to 256 MiB of memory.
    pub hashes_in_progress: usize,
    /// Time for which a right password is remembered.
    pub cache: Duration,
    /// Limits of requests.
    pub limits: RequestLimits,
}

/// Accounts in a foreign table.
pub struct SqlAccounts {
    settings: SqlSettings,
    table: Arc<dyn ForeignTable>,
    spawner: Arc<dyn Spawner>,
    cache: PasswordCache,
    limiter: RequestLimiter,
    /// Verified for accounts that do not exist.
    decoy: LeafMutex<PasswordHash>,
    /// Parameters of the first SCRAM keys that were read. Those of later rows must not change what a client receives for a
    /// missing account.
    scram: LeafMutex<Option<ScramParameters>>,
    /// Hashes that may be computed at the same time. The caller may be gone long before one is done.
    hashing: Arc<Semaphore>,
}

const SOURCE: &str = "the database of accounts";

impl SqlAccounts {
    /// Accounts of this table.
    pub fn new(
        settings: SqlSettings,
        table: Arc<dyn ForeignTable>,
        spawner: Arc<dyn Spawner>,
        clock: Arc<dyn Clock>,
    ) -> SqlAccounts {
        SqlAccounts {
            cache: PasswordCache::new(settings.cache, clock),
            limiter: RequestLimiter::new(settings.limits),
            decoy: LeafMutex::new(settings.new_passwords.decoy()),
            scram: LeafMutex::default(),
            hashing: Arc::new(Semaphore::new(settings.hashes_in_progress.clamp(1, Semaphore::MAX_PERMITS))),
            settings,
            table,
            spawner,
        }
    }

    /// The rows that the database finds for the account, those of other names included.
    async fn rows(&self, account: &Jid) -> Result<Vec<ForeignRow>, ProviderError> {
        let statement = &self.settings.find;
        self.table.rows(statement, values(statement, account, None)).await
    }

    /// The row of the account.
    async fn row(&self, account: &Jid) -> Result<Option<ForeignRow>, ProviderError> {
        let mut rows = self.rows(account).await?;
        rows.retain(|row| is_row_of(row, account));
        match (rows.pop(), rows.len()) {
            (row, 0) => Ok(row),
            _ => Err(invalid_row(account, "is not the only one")),
        }
    }

    /// Whether a change would concern the account and no other: the condition of a statement that writes finds what that of
    /// the look-up finds, whatever the names are.
    async fn may_change(&self, account: &Jid, none: ProviderErrorKind) -> Result<bool, ProviderError> {
        let rows = self.rows(account).await?;
        match rows.as_slice() {
            // The table may have no unique key.
            rows if none == ProviderErrorKind::AlreadyExists => Ok(rows.is_empty()),
            rows if !rows.iter().any(|row| is_row_of(row, account)) => Ok(false),
            [_] => Ok(true),
            _ => Err(invalid_row(account, "is not the only one that the database finds")),
        }
    }

    /// The hash of the account, and the account.
    async fn account(&self, account: &Jid) -> Result<Option<(PasswordHash, ProvidedAccount)>, ProviderError> {
        let Some(row) = self.row(account).await? else { return Ok(None) };
        let invalid = |what| invalid_row(account, what);
        let mut columns = row.into_iter();
        // An account without a password cannot log in.
        let text = columns.next().ok_or_else(|| invalid("has no columns"))?;
        let Some(text) = text.filter(|text| !is_locked(text)) else { return Ok(None) };
        let hash = PasswordHash::parse(&text)
            .ok_or_else(|| invalid("has a password hash whose form or cost is not supported"))?;
        let disabled = columns.next().flatten();
        let disabled =
            disabled.is_some_and(|value| !matches!(value.to_lowercase().as_str(), "" | "0" | "f" | "false"));
        let mut version = digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec();
        version.truncate(MAX_VERSION_BYTES);
        let keys = hash.credentials().filter(|_| self.settings.scram.is_some());
        if let Some(keys) = keys.and_then(|keys| keys.keys(self.settings.scram?)) {
            let parameters =
                ScramParameters { salt_bytes: keys.salt.len(), iterations: keys.iterations.get() };
            self.scram.lock().get_or_insert(parameters);
        }
        let credentials = keys.map(|keys| ProvidedKeys(keys.encode()));
        Ok(Some((hash, ProvidedAccount { disabled, credentials, version: Some(version) })))
    }

    /// Runs slow work on a thread for it.
    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ProviderError> {
        let lost =
            || ProviderError::new(ProviderErrorKind::Unavailable, "the hash of a password was not computed");
        let permit = self.hashing.clone().acquire_owned().await.map_err(|_| lost())?;
        let (sender, receiver) = oneshot::channel();
        self.spawner.spawn_blocking(
            "password",
            Box::new(move || {
                // The caller may be gone.
                if !sender.is_closed() {
                    let done = work();
                    drop(permit);
                    let _ = sender.send(done);
                }
            }),
        );
        receiver.await.map_err(|_| lost())
    }

    async fn check(&self, account: &Jid, password: &Secret) -> Result<PasswordCheck, ProviderError> {
        let found = self.account(account).await?;
        let (hash, provided) = match found {
            Some((hash, provided)) => {
                self.decoy.lock().clone_from(&hash);
                (hash, Some(provided))
            }
            None => (self.decoy.lock().clone(), None),
        };
        let password = password.clone();
        let verify = move || password.expose_str().is_ok_and(|password| hash.verify(password));
        let right = self.compute(verify).await?;
        Ok(match provided.filter(|_| right) {
            Some(provided) => PasswordCheck::Valid(provided),
            None => PasswordCheck::Invalid,
        })
    }

    /// Writes with a statement; the number of changed rows.
    async fn write(
        &self,
        statement: &SqlStatement,
        account: &Jid,
        password: Option<Secret>,
    ) -> Result<u64, ProviderError> {
        let refused = |text: String| ProviderError::new(ProviderErrorKind::PasswordRefused, text);
        let hashed = match password {
            None => None,
            Some(password) => {
                let form = self.settings.new_passwords;
                check_new_password(&password)?;
                let hash = move || match password.expose_str() {
                    Ok(password) => form.hash(password),
                    Err(_) => Err("the password is not valid text".to_owned()),
                };
                Some(self.compute(hash).await?.map_err(refused)?)
            }
        };
        self.table.execute(statement, values(statement, account, hashed.as_deref())).await
    }

    fn change(
        &self,
        statement: Option<&SqlStatement>,
        refused: &'static str,
        account: JidRef<'_>,
        password: Option<Secret>,
        none: ProviderErrorKind,
    ) -> ProviderFuture<'_, ()> {
        let Some(statement) = statement.cloned() else {
            return Box::pin(async move { Err(ProviderError::not_supported(self.name(), refused)) });
        };
        let account = account.bare().to_jid();
        Box::pin(async move {
            let _change = self.cache.begin_change(account.as_ref());
            let write = async {
                if !self.may_change(&account, none).await? {
                    return Ok(0);
                }
                self.write(&statement, &account, password).await
            };
            match self.limiter.run(SOURCE, account.domain(), write).await? {
                0 => Err(ProviderError::new(none, format!("{account}: no row was changed"))),
                _ => Ok(()),
            }
        })
    }
}

/// Whether the user name or the address in a row, if it has one, is that of the account.
fn is_row_of(row: &ForeignRow, account: &Jid) -> bool {
    let is_own = |name: &str| named_account(name, account.domain()).is_some_and(|named| named == *account);
    row.get(2).is_none_or(|name| name.as_deref().is_some_and(is_own))
}

/// Whether no password is right, as Django (`!`) and Unix (`!`, `*`) write it.
fn is_locked(hash: &str) -> bool {
    hash.starts_with(['!', '*'])
}

fn invalid_row(account: &Jid, what: &str) -> ProviderError {
    let text = format!("{SOURCE}: the row of {account} {what}");
    ProviderError::new(ProviderErrorKind::InvalidResponse, text)
}

fn values(statement: &SqlStatement, account: &Jid, password: Option<&str>) -> Vec<String> {
    let value = |parameter: &SqlParameter| match parameter {
        SqlParameter::User => account.local().unwrap_or_default().to_owned(),
        SqlParameter::Domain => account.domain().to_owned(),
        SqlParameter::Address => account.to_string(),
        SqlParameter::Password => password.unwrap_or_default().to_owned(),
    };
    statement.parameters().iter().map(value).collect()
}

impl AccountProvider for SqlAccounts {
    fn name(&self) -> &'static str {
        "a table of another program"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            passwords: true,
            tokens: false,
            lookup: true,
            scram: match self.settings.scram {
                None => &[],
                Some(ScramHash::Sha1) => &["SCRAM-SHA-1"],
                Some(ScramHash::Sha256) => &["SCRAM-SHA-256"],
                Some(ScramHash::Sha512) => &["SCRAM-SHA-512"],
            },
            versions: true,
            create: self.settings.create.is_some(),
            set_password: self.settings.set_password.is_some(),
            remove: self.settings.remove.is_some(),
        }
    }

    fn scram_parameters(&self) -> Option<ScramParameters> {
        *self.scram.lock()
    }

    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            let found = self.limiter.run(SOURCE, account.domain(), self.account(&account)).await?;
            Ok(found.map(|(_, provided)| provided))
        })
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            if password.is_empty() || password.expose().contains(&0) {
                return Ok(PasswordCheck::Invalid);
            }
            let check = Box::pin(self.limiter.run(SOURCE, account.domain(), self.check(&account, &password)));
            self.cache.get_or_check(account.as_ref(), &password, check).await
        })
    }

    fn create(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let statement = self.settings.create.as_ref();
        self.change(statement, "create accounts", account, Some(password), ProviderErrorKind::AlreadyExists)
    }

    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let statement = self.settings.set_password.as_ref();
        self.change(statement, "change passwords", account, Some(password), ProviderErrorKind::NotFound)
    }

    fn remove(&self, account: JidRef<'_>) -> ProviderFuture<'_, ()> {
        let statement = self.settings.remove.as_ref();
        self.change(statement, "remove accounts", account, None, ProviderErrorKind::NotFound)
    }
}
