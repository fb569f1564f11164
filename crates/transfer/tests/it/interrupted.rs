//! Imports that stop and continue, imports that must change nothing, and accounts that exist already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::ManualClock;
use jid::Jid;
use store::conformance::block_on_ready;
use store::{
    AddressId, AppendOutcome, Offline, OfflineMessage, Page, Paged, Quota, StoreError, StoreErrorKind,
    StoreFuture, StoredMessage,
};
use throng_transfer::server_data::ServerDataSource;
use throng_transfer::{ImportError, SourceError, SourceRecord, TransferSource, import};

use super::support::{NOW, Reports, TemporaryFolder, accepts, exported, options, run, stores};

/// A source that fails once after a number of records.
pub(crate) struct FailingSource<S> {
    pub(crate) inner: S,
    pub(crate) left: u64,
}

impl<S: TransferSource> TransferSource for FailingSource<S> {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        if self.left == 0 {
            self.left = u64::MAX;
            return Err(SourceError::Database { place: "test".to_owned(), reason: "lost".to_owned() });
        }
        self.left -= 1;
        self.inner.next_record()
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.inner.rewind()
    }
}

/// Users with a contact and two equal messages each.
pub(crate) fn document(users: u32) -> String {
    let mut text = "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>".to_owned();
    for user in 0..users {
        text.push_str(&format!(
            "<user name='u{user}' password='p{user}'><query xmlns='jabber:iq:roster'>\
             <item jid='x@montague.lit' subscription='both'/></query><offline-messages>"
        ));
        let message = "<message xmlns='jabber:client' from='x@montague.lit' to='u@capulet.lit'><body>x</body></message>";
        text.push_str(&message.repeat(2));
        text.push_str("</offline-messages></user>");
    }
    text.push_str("</host></server-data>");
    text
}

pub(crate) fn messages(stores: &store::Stores) -> BTreeMap<String, u32> {
    let accounts = block_on_ready(stores.accounts.list("capulet.lit", store::Page::first(10_000))).unwrap();
    let count = |account: &store::AccountRecord| block_on_ready(stores.offline.count(account.id)).unwrap();
    accounts.items.iter().map(|account| (account.jid.as_str().to_owned(), count(account))).collect()
}

#[test]
fn an_import_continues_wherever_it_was_stopped_and_stores_nothing_twice() {
    const USERS: u32 = 700;
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(USERS));
    let complete = stores();
    run(&mut ServerDataSource::open(&path).unwrap(), &complete).unwrap();
    let expected = exported(&complete);
    // Each account has four records, in each of two passes.
    for left in [0, 1, 500, 2_799, 2_900, 3_800, 3_801, 4_900, 5_600] {
        let stores = stores();
        let mut source = FailingSource { inner: ServerDataSource::open(&path).unwrap(), left };
        assert!(matches!(run(&mut source, &stores), Err(ImportError::Source(_))), "{left}");
        let (_, reports) = run(&mut source, &stores).unwrap();
        assert_eq!(reports, Vec::<String>::new(), "{left}");
        assert_eq!(messages(&stores).len(), USERS as usize, "{left}");
        assert!(messages(&stores).values().all(|count| *count == 2), "{left}");
        // Salts are random only where they are derived again.
        assert_eq!(exported(&stores), expected, "{left}");
    }
}

/// Offline storage whose call fails after it has stored the first part of its messages, as when the connection or the process
/// is lost. One account's messages are stored from the first on.
struct FailingOffline {
    inner: Arc<dyn Offline>,
    calls_before: AtomicU32,
    part: usize,
}

impl Offline for FailingOffline {
    fn append(&self, mut messages: Vec<OfflineMessage>, quota: Quota) -> StoreFuture<'_, Vec<AppendOutcome>> {
        if self.calls_before.fetch_sub(1, Ordering::Relaxed) != 0 {
            return self.inner.append(messages, quota);
        }
        messages.truncate(self.part);
        block_on_ready(self.inner.append(messages, quota)).unwrap();
        Box::pin(std::future::ready(Err(StoreError::new(StoreErrorKind::Unavailable, "lost"))))
    }

    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>> {
        self.inner.fetch(owner, page, now)
    }

    fn remove_range(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32> {
        self.inner.remove_range(owner, first, last)
    }

    fn count(&self, owner: AddressId) -> StoreFuture<'_, u32> {
        self.inner.count(owner)
    }

    fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32> {
        self.inner.expire(now, limit)
    }
}

#[test]
fn messages_that_were_stored_after_the_checkpoint_are_not_stored_again() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(600));
    // A batch has 1 000 records, 666 or 667 of them messages, so batches end between two equal messages of one account.
    for (calls_before, part) in [(0, 0), (0, 1), (0, 333), (0, 1_000), (1, 1), (1, 2), (1, 1_000)] {
        let complete = stores();
        let mut failing = complete.clone();
        failing.offline = Arc::new(FailingOffline {
            inner: complete.offline.clone(),
            calls_before: AtomicU32::new(calls_before),
            part,
        });
        let mut source = ServerDataSource::open(&path).unwrap();
        assert!(matches!(run(&mut source, &failing), Err(ImportError::Store(_))));
        let (counts, _) = run(&mut source, &complete).unwrap();
        assert_eq!(counts.continued, calls_before > 0, "{calls_before} {part}");
        let wrong: Vec<_> = messages(&complete).into_iter().filter(|(_, count)| *count != 2).collect();
        assert_eq!(wrong, [], "{calls_before} {part}");
    }
}

#[test]
fn another_import_must_wait_until_the_first_is_finished() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(10));
    let stores = stores();
    let mut source = FailingSource { inner: ServerDataSource::open(&path).unwrap(), left: 5 };
    assert!(run(&mut source, &stores).is_err());
    let mut other = options(false);
    other.source = "other".to_owned();
    let mut reports = Reports::default();
    let refused = block_on_ready(import(&mut source, &stores, &other, &mut reports));
    assert!(matches!(refused, Err(ImportError::Unfinished(name)) if name == "test"));
    other.restart = true;
    block_on_ready(import(&mut source, &stores, &other, &mut reports)).unwrap();
    other.source = "third".to_owned();
    other.restart = false;
    block_on_ready(import(&mut source, &stores, &other, &mut reports)).unwrap();
}

#[test]
fn a_dry_run_counts_the_same_and_writes_nothing() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(20));
    let stores = stores();
    let before = exported(&stores);
    let mut source = ServerDataSource::open(&path).unwrap();
    let mut reports = Reports::default();
    let counted = block_on_ready(import(&mut source, &stores, &options(true), &mut reports)).unwrap();
    assert_eq!(exported(&stores), before);
    assert_eq!(block_on_ready(stores.server_kv.get("import")).unwrap(), None);
    let (written, _) = run(&mut source, &stores).unwrap();
    assert_eq!(counted, written);
    assert_eq!((written.accounts, written.contacts, written.offline), (20, 20, 40));
}

#[test]
fn accounts_that_exist_already_are_not_changed() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document(2));
    let clock = Arc::new(ManualClock::default());
    clock.set_unix_millis(NOW - 1);
    let stores = store::memory::stores(clock.clone());
    let jid = Jid::parse("u1@capulet.lit").unwrap();
    let keys = sasl::Credentials::derive("own", 1, b"salt").unwrap().encode();
    block_on_ready(stores.accounts.create(&jid, &keys)).unwrap();
    clock.set_unix_millis(NOW);
    let (counts, reports) = run(&mut ServerDataSource::open(&path).unwrap(), &stores).unwrap();
    assert_eq!((counts.accounts, counts.contacts, counts.offline), (1, 1, 2));
    assert_eq!(reports, ["u1@capulet.lit: the account exists already and was not changed"]);
    assert!(accepts(&stores, "u1@capulet.lit", "own") && accepts(&stores, "u0@capulet.lit", "p0"));
    assert_eq!(messages(&stores)["u1@capulet.lit"], 0);
}
