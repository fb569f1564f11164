//! The SQL provider on a table in memory: the conformance suite, and rows that are no accounts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use account_providers::limiter::RequestLimits;
use account_providers::sql::{
    ForeignRow, ForeignTable, NewPasswordHash, SqlAccounts, SqlSettings, SqlStatement,
};
use base::lock::LeafMutex;
use base::spawn::{BoxFuture, Spawner};
use base::{ManualClock, Secret};
use environment::account_provider::conformance::{
    ProviderCase, ProviderFixture, ProviderSource, SourceFault,
};
use environment::account_provider::{
    AccountProvider, PasswordCheck, ProviderError, ProviderErrorKind, ScramParameters,
};
use jid::Jid;
use support::block_on;
use throng_account_providers as account_providers;

/// Runs jobs at once.
struct InlineSpawner;

impl Spawner for InlineSpawner {
    fn spawn(&self, _what: &'static str, _task: BoxFuture<'static, ()>) {
        panic!("the provider has no tasks");
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

#[derive(Default)]
struct Table {
    /// Hash and disabled flag by address.
    rows: LeafMutex<BTreeMap<String, (String, bool)>>,
    fault: LeafMutex<Option<SourceFault>>,
    /// Sent instead of what is right.
    instead: LeafMutex<Option<Vec<ForeignRow>>>,
}

fn insert() -> SqlStatement {
    SqlStatement::parse("INSERT INTO users VALUES (:address, :password)", true).unwrap()
}

fn update() -> SqlStatement {
    SqlStatement::parse("UPDATE users SET hash = :password WHERE address = :address", true).unwrap()
}

fn delete() -> SqlStatement {
    SqlStatement::parse("DELETE FROM users WHERE address = :address", false).unwrap()
}

impl Table {
    fn failure(&self) -> Option<Result<(), ProviderError>> {
        let fault = (*self.fault.lock())?;
        let failed = |kind| Some(Err(ProviderError::new(kind, "as the test wants it")));
        match fault {
            SourceFault::Dead => failed(ProviderErrorKind::Unavailable),
            SourceFault::Garbage | SourceFault::Cut => failed(ProviderErrorKind::InvalidResponse),
            // Never answers.
            SourceFault::Silent => Some(Ok(())),
        }
    }

    /// Fails or waits without an end if there is a fault.
    async fn check(failure: Option<Result<(), ProviderError>>) -> Result<(), ProviderError> {
        match failure {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => std::future::pending().await,
        }
    }

    fn write(&self, statement: &SqlStatement, values: &[String]) -> Result<u64, ProviderError> {
        let mut rows = self.rows.lock();
        match values {
            [address, hash] if *statement == insert() => {
                if rows.contains_key(address) {
                    return Err(ProviderError::new(ProviderErrorKind::AlreadyExists, "a key exists"));
                }
                rows.insert(address.clone(), (hash.clone(), false));
                Ok(1)
            }
            [hash, address] if *statement == update() => Ok(rows.get_mut(address).map_or(0, |row| {
                row.0.clone_from(hash);
                1
            })),
            [address] if *statement == delete() => Ok(rows.remove(address).map_or(0, |_| 1)),
            _ => panic!("{statement:?} {values:?}"),
        }
    }
}

impl ForeignTable for Table {
    fn rows(
        &self,
        _statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<ForeignRow>, ProviderError>> {
        Box::pin(async move {
            Table::check(self.failure()).await?;
            let [user, domain] = values.as_slice() else { panic!("{values:?}") };
            if let Some(instead) = self.instead.lock().clone() {
                return Ok(instead);
            }
            let rows = self.rows.lock();
            let found = rows.get(&format!("{user}@{domain}"));
            let row =
                |(hash, disabled): &(String, bool)| vec![Some(hash.clone()), Some(disabled.to_string())];
            Ok(found.map(row).into_iter().collect())
        })
    }

    fn execute(
        &self,
        statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<u64, ProviderError>> {
        let statement = statement.clone();
        Box::pin(async move {
            Table::check(self.failure()).await?;
            self.write(&statement, &values)
        })
    }
}

struct TableSource {
    table: Arc<Table>,
    clock: Arc<ManualClock>,
    provider: Arc<SqlAccounts>,
}

fn settings() -> SqlSettings {
    let find = "SELECT hash, disabled FROM users WHERE name = :user AND domain = :domain";
    SqlSettings {
        find: SqlStatement::parse(find, false).unwrap(),
        create: Some(insert()),
        set_password: Some(update()),
        remove: Some(delete()),
        new_passwords: NewPasswordHash::ScramSha256,
        scram: None,
        hashes_in_progress: 4,
        cache: Duration::from_secs(60),
        limits: RequestLimits { deadline: Duration::from_millis(700), ..RequestLimits::default() },
    }
}

impl TableSource {
    fn new() -> TableSource {
        TableSource::with(settings(), Arc::new(InlineSpawner))
    }

    fn with(settings: SqlSettings, spawner: Arc<dyn Spawner>) -> TableSource {
        let (table, clock) = (Arc::new(Table::default()), Arc::new(ManualClock::new()));
        let provider = SqlAccounts::new(settings, table.clone(), spawner, clock.clone());
        TableSource { table, clock, provider: Arc::new(provider) }
    }
}

impl ProviderSource for TableSource {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.provider.clone()
    }

    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()> {
        // The lowest cost, for speed.
        let hash = bcrypt::hash_with_salt(password, 4, base::id::random_bytes::<16>()).unwrap();
        self.table.rows.lock().insert(account.to_string(), (hash.to_string(), false));
        Box::pin(async {})
    }

    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        self.table.rows.lock().get_mut(account.as_str()).unwrap().1 = true;
        Box::pin(async { true })
    }

    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool> {
        *self.table.fault.lock() = fault;
        Box::pin(async { true })
    }

    fn expire_caches(&self) -> BoxFuture<'_, ()> {
        self.clock.advance(60_000);
        Box::pin(async {})
    }
}

struct InMemory;

impl ProviderFixture for InMemory {
    fn run(case: ProviderCase) {
        block_on(async { case(Arc::new(TableSource::new())).await });
    }
}

environment::account_provider_conformance!(crate::InMemory);

#[tokio::test]
async fn rows_that_cannot_be_right_never_authenticate() {
    let source = TableSource::new();
    let romeo = Jid::parse("romeo@example.net").unwrap();
    let hash = || Some(bcrypt::hash_with_salt("0rchard", 4, [7; 16]).unwrap().to_string());
    for (rows, expected) in [
        (vec![], Ok(PasswordCheck::Invalid)),
        (vec![vec![None]], Ok(PasswordCheck::Invalid)),
        (vec![vec![Some("!".to_owned())]], Ok(PasswordCheck::Invalid)),
        (vec![vec![Some("*LK*".to_owned())]], Ok(PasswordCheck::Invalid)),
        (vec![vec![]], Err(ProviderErrorKind::InvalidResponse)),
        (vec![vec![Some(String::new())]], Err(ProviderErrorKind::InvalidResponse)),
        (vec![vec![Some("0rchard".to_owned())]], Err(ProviderErrorKind::InvalidResponse)),
        (vec![vec![hash()], vec![hash()]], Err(ProviderErrorKind::InvalidResponse)),
    ] {
        *source.table.instead.lock() = Some(rows.clone());
        let checked = source.provider.check_password(romeo.as_ref(), Secret::from("0rchard")).await;
        assert_eq!(checked.map_err(|error| error.kind), expected, "{rows:?}");
    }
    for (disabled, expected) in
        [(None, false), (Some("0"), false), (Some("F"), false), (Some("1"), true), (Some("t"), true)]
    {
        *source.table.instead.lock() = Some(vec![vec![hash(), disabled.map(str::to_owned)]]);
        let found = source.provider.find(romeo.as_ref()).await.unwrap().unwrap();
        assert_eq!(found.disabled, expected, "{disabled:?}");
        assert!(found.credentials.is_none(), "bcrypt has no SCRAM keys");
    }
}

#[tokio::test]
async fn a_row_of_another_name_is_ignored() {
    let source = TableSource::new();
    let hash = || Some(bcrypt::hash_with_salt("0rchard", 4, [7; 16]).unwrap().to_string());
    let row = |name: &str| vec![hash(), None, Some(name.to_owned())];
    let check = async |rows: Vec<ForeignRow>| {
        *source.table.instead.lock() = Some(rows);
        source.expire_caches().await;
        let jose = Jid::parse("jose@example.net").unwrap();
        let checked = source.provider.check_password(jose.as_ref(), Secret::from("0rchard")).await.unwrap();
        matches!(checked, PasswordCheck::Valid(_))
    };
    for own in ["jose", "Jose", "jose@example.net"] {
        assert!(check(vec![row(own)]).await, "{own}");
        assert!(check(vec![row("jos\u{e9}"), row(own)]).await, "{own}");
    }
    for other in ["jos\u{e9}", "jose ", "", "jose@other.example", "@"] {
        assert!(!check(vec![row(other)]).await, "{other}");
    }
    assert!(!check(vec![vec![hash(), None, None]]).await);
}

#[tokio::test]
async fn a_change_concerns_one_row_even_if_the_table_has_no_unique_key() {
    let source = TableSource::new();
    let jose = Jid::parse("jose@example.net").unwrap();
    source.put(&jose, "0rchard").await;
    let before = source.table.rows.lock().clone();
    let row = |name: &str| vec![Some("!".to_owned()), None, Some(name.to_owned())];
    let set = || source.provider.set_password(jose.as_ref(), Secret::from("m0nument"));
    // What a statement for `jose` changes in a database that compares without accents.
    *source.table.instead.lock() = Some(vec![row("jos\u{e9}"), row("jose")]);
    assert_eq!(set().await.unwrap_err().kind, ProviderErrorKind::InvalidResponse);
    let removed = source.provider.remove(jose.as_ref()).await;
    assert_eq!(removed.unwrap_err().kind, ProviderErrorKind::InvalidResponse);
    *source.table.instead.lock() = Some(vec![row("jos\u{e9}")]);
    assert_eq!(set().await.unwrap_err().kind, ProviderErrorKind::NotFound);
    assert_eq!(*source.table.rows.lock(), before);
    *source.table.instead.lock() = Some(vec![row("jose")]);
    set().await.unwrap();
    assert_ne!(*source.table.rows.lock(), before);
    // The database would insert a second row.
    source.table.rows.lock().clear();
    for name in ["jose", "jos\u{e9}"] {
        *source.table.instead.lock() = Some(vec![row(name)]);
        let created = source.provider.create(jose.as_ref(), Secret::from("0rchard")).await;
        assert_eq!(created.unwrap_err().kind, ProviderErrorKind::AlreadyExists);
    }
    assert!(source.table.rows.lock().is_empty());
}

#[tokio::test]
async fn scram_keys_of_the_column_are_provided_where_that_is_declared() {
    let declared = SqlSettings { scram: Some(sasl::ScramHash::Sha256), create: None, ..settings() };
    let source = TableSource::with(declared, Arc::new(InlineSpawner));
    assert_eq!(source.provider.scram_parameters(), None);
    let stored = NewPasswordHash::ScramSha256.hash("0rchard").unwrap();
    source.table.rows.lock().insert("romeo@example.net".to_owned(), (stored, false));
    let romeo = Jid::parse("romeo@example.net").unwrap();
    let found = source.provider.find(romeo.as_ref()).await.unwrap().unwrap();
    let keys = sasl::Credentials::decode(&found.credentials.unwrap().0).unwrap();
    assert!(keys.sha256.is_some() && keys.verify_password("0rchard"));
    let capabilities = source.provider.capabilities();
    assert!(capabilities.scram == ["SCRAM-SHA-256"] && !capabilities.create);
    let parameters = ScramParameters { salt_bytes: sasl::SALT_BYTES, iterations: sasl::DEFAULT_ITERATIONS };
    assert_eq!(source.provider.scram_parameters(), Some(parameters));
    // Another account must not change what a client receives for missing ones.
    let other = "SCRAM-SHA-256$4096:c2FsdA==$V6dHJjdyOMJiQQxRMHyHRSHZRJRUoSd9fWXkU+AjMjE=:V6dHJjdyOMJiQQxRMHyHRSHZRJRUoSd9fWXkU+AjMjE=";
    source.table.rows.lock().insert("juliet@example.net".to_owned(), (other.to_owned(), false));
    let juliet = Jid::parse("juliet@example.net").unwrap();
    assert!(source.provider.find(juliet.as_ref()).await.unwrap().unwrap().credentials.is_some());
    assert_eq!(source.provider.scram_parameters(), Some(parameters));
}

/// Keeps jobs until a test runs them.
#[derive(Default)]
struct HeldJobs(LeafMutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Spawner for HeldJobs {
    fn spawn(&self, _what: &'static str, _task: BoxFuture<'static, ()>) {
        panic!("the provider has no tasks");
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().push(job);
    }
}

#[tokio::test]
async fn hashes_of_logins_that_were_given_up_count_until_they_are_done() {
    let jobs = Arc::new(HeldJobs::default());
    let limits = RequestLimits { deadline: Duration::from_millis(20), ..RequestLimits::default() };
    let source = TableSource::with(SqlSettings { hashes_in_progress: 2, limits, ..settings() }, jobs.clone());
    let romeo = Jid::parse("romeo@example.net").unwrap();
    source.put(&romeo, "0rchard").await;
    let check = || source.provider.check_password(romeo.as_ref(), Secret::from("0rchard"));
    for _ in 0..3 {
        let results = tokio::join!(check(), check(), check());
        for result in [results.0, results.1, results.2] {
            assert_eq!(result.unwrap_err().kind, ProviderErrorKind::Timeout);
        }
    }
    let held = std::mem::take(&mut *jobs.0.lock());
    assert_eq!(held.len(), 2, "the others would take memory and time, too");
    held.into_iter().for_each(|job| job());
    assert_eq!(check().await.unwrap_err().kind, ProviderErrorKind::Timeout);
    assert_eq!(jobs.0.lock().len(), 1);
}
