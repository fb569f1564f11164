//! An import changes only accounts that it has created, whatever happens between an interruption and the continuation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ManualClock;
use jid::Jid;
use sasl::Credentials;
use store::conformance::block_on_ready;
use store::{ServerKv, StoreError, StoreErrorKind, StoreFuture, Stores};
use throng_transfer::ImportError;
use throng_transfer::server_data::ServerDataSource;

use super::interrupted::{FailingSource, document, messages};
use super::support::{NOW, TemporaryFolder, accepts, run, secrets};

const USERS: u32 = 10;

fn clock_and_stores() -> (Arc<ManualClock>, Stores) {
    let clock = Arc::new(ManualClock::default());
    clock.set_unix_millis(NOW);
    let stores = store::memory::stores(clock.clone());
    (clock, stores)
}

fn register(stores: &Stores, jid: &str, password: &str) {
    let keys = Credentials::derive(password, 1, b"salt").unwrap().encode();
    block_on_ready(stores.accounts.create(&Jid::parse(jid).unwrap(), &keys)).unwrap();
}

fn contacts(stores: &Stores, jid: &str) -> usize {
    block_on_ready(stores.roster.get(secrets(stores, jid).id)).unwrap().items.len()
}

#[test]
fn an_account_that_a_user_registers_during_an_interruption_is_not_changed() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(USERS));
    let (clock, stores) = clock_and_stores();
    // It stops in the first pass, before any account is created.
    let mut source = FailingSource { inner: ServerDataSource::open(&path).unwrap(), left: 5 };
    assert!(matches!(run(&mut source, &stores), Err(ImportError::Source(_))));
    clock.set_unix_millis(NOW + 1_000);
    register(&stores, "u1@capulet.lit", "own");
    let (counts, reports) = run(&mut source, &stores).unwrap();
    assert_eq!(reports, ["u1@capulet.lit: the account was created by somebody else meanwhile"]);
    assert_eq!(counts.accounts, u64::from(USERS) - 1);
    assert!(accepts(&stores, "u1@capulet.lit", "own"));
    assert_eq!((contacts(&stores, "u1@capulet.lit"), messages(&stores)["u1@capulet.lit"]), (0, 0));
    assert_eq!((contacts(&stores, "u2@capulet.lit"), messages(&stores)["u2@capulet.lit"]), (1, 2));
}

#[test]
fn an_imported_account_that_was_removed_or_registered_again_is_not_taken_back() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(USERS));
    let (clock, stores) = clock_and_stores();
    // It stops in the second pass, after all accounts were created.
    let left = u64::from(4 * USERS) + 5;
    let mut source = FailingSource { inner: ServerDataSource::open(&path).unwrap(), left };
    assert!(matches!(run(&mut source, &stores), Err(ImportError::Source(_))));
    clock.set_unix_millis(NOW + 1_000);
    for jid in ["u1@capulet.lit", "u2@capulet.lit"] {
        block_on_ready(stores.accounts.remove(Jid::parse(jid).unwrap().as_ref())).unwrap();
    }
    register(&stores, "u1@capulet.lit", "own");
    let (counts, reports) = run(&mut source, &stores).unwrap();
    assert_eq!(
        reports,
        [
            "u1@capulet.lit: the account was created by somebody else meanwhile",
            "u2@capulet.lit: the account was removed after this import had created it",
            "test: 3 records belong to accounts that do not exist",
        ]
    );
    assert_eq!(counts.accounts, u64::from(USERS) - 2);
    assert!(accepts(&stores, "u1@capulet.lit", "own"));
    assert_eq!((contacts(&stores, "u1@capulet.lit"), messages(&stores)["u1@capulet.lit"]), (0, 0));
    assert!(!messages(&stores).contains_key("u2@capulet.lit"));
    assert_eq!((contacts(&stores, "u3@capulet.lit"), messages(&stores)["u3@capulet.lit"]), (1, 2));
}

/// Fails when accounts are listed, as if the process ended between their creation and that.
struct FailingList {
    inner: Arc<dyn ServerKv>,
    fails: AtomicBool,
}

impl ServerKv for FailingList {
    fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.inner.get(key)
    }

    fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()> {
        if key.starts_with("import accounts") && self.fails.swap(false, Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StoreError::new(StoreErrorKind::Unavailable, "lost"))));
        }
        self.inner.put(key, value)
    }

    fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>> {
        self.inner.put_if_absent(key, value)
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> StoreFuture<'_, bool> {
        self.inner.compare_and_set(key, expected, value)
    }
}

#[test]
fn accounts_that_were_created_and_not_listed_are_recognised_by_their_credentials() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(USERS));
    let (clock, stores) = clock_and_stores();
    let mut failing = stores.clone();
    let list = FailingList { inner: stores.server_kv.clone(), fails: AtomicBool::new(true) };
    failing.server_kv = Arc::new(list);
    let mut source = ServerDataSource::open(&path).unwrap();
    assert!(matches!(run(&mut source, &failing), Err(ImportError::Store(_))));
    clock.set_unix_millis(NOW + 1_000);
    // This user has set another password.
    let jid = Jid::parse("u1@capulet.lit").unwrap();
    let keys = Credentials::derive("own", 1, b"salt").unwrap().encode();
    block_on_ready(stores.accounts.set_credentials(jid.as_ref(), &keys)).unwrap();
    let (counts, reports) = run(&mut source, &stores).unwrap();
    assert_eq!(reports, ["u1@capulet.lit: the account was created by somebody else meanwhile"]);
    assert_eq!(counts.accounts, u64::from(USERS) - 1);
    assert!(accepts(&stores, "u1@capulet.lit", "own"));
    assert!((0..USERS).all(|user| {
        let jid = format!("u{user}@capulet.lit");
        messages(&stores)[&jid] == if user == 1 { 0 } else { 2 }
    }));
}
