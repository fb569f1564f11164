//! What callers are promised beside the results: statements, transactions, deadlines and bounded queues.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]
mod support;

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use store::conformance::{account, all, jid};
use store::{Appended, BulkItem, BulkRoster, ErrorKind, OfflineMessage, Page, Subscription};
use support::{Directory, open, runtime};
use throng_store_sql::Options;

/// Another program that holds the database for writing until it is told to let go.
struct Holder(SqliteConnection);

impl Holder {
    async fn take(file: &Path) -> Holder {
        let mut line = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut line).await.unwrap();
        Holder(line)
    }

    async fn let_go(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.unwrap();
        self.0.close().await.unwrap();
    }
}

fn message(owner: store::AddressId, text: &str) -> OfflineMessage {
    OfflineMessage { owner, stored_at: 1, expires: None, stanza: text.as_bytes().to_vec() }
}

#[test]
fn a_login_is_one_statement() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let mut items = Vec::new();
        for n in 0..500 {
            let contact = stores.addresses.number(&jid(&format!("c{n}@example.com"))).await.unwrap();
            let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
            items.push(BulkItem { contact, name: Some("x".into()), groups: vec![], subscription });
        }
        stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
        stores.offline.append(vec![message(ann, "x"); 9], 100).await.unwrap();
        for round in 0..3 {
            let before = database.round_trips();
            let login = stores.logins.login(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
            assert_eq!((login.roster.len(), login.offline), (500, 9));
            assert_eq!(database.round_trips() - before, 1, "round {round}");
        }
        let before = database.round_trips();
        assert!(stores.logins.login(jid("nobody@example.org").as_ref()).await.unwrap().is_none());
        assert_eq!(database.round_trips() - before, 1);
        database.close().await;
    });
}

#[test]
fn many_logins_share_statements() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        account(&stores, "ann").await;
        let ann = jid("ann@example.org");
        let before = database.round_trips();
        for login in all((0..640).map(|_| stores.logins.login(ann.as_ref())).collect()).await {
            assert!(login.unwrap().is_some());
        }
        let statements = database.round_trips() - before;
        assert!(statements <= 64, "{statements} statements for 640 logins");
        database.close().await;
    });
}

#[test]
fn many_writes_share_transactions() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let before = database.commits();
        let appends = (0..1000).map(|n| stores.offline.append(vec![message(ann, &n.to_string())], 5000));
        for answer in all(appends.collect()).await {
            assert!(matches!(answer.unwrap()[..], [Appended::Stored { .. }]));
        }
        let commits = database.commits() - before;
        assert!(commits <= 100, "{commits} transactions for 1000 messages");
        let waiting = stores.offline.fetch(ann, Page::first(2000), 0).await.unwrap().items;
        let texts: Vec<String> = waiting.into_iter().map(|w| String::from_utf8(w.stanza).unwrap()).collect();
        assert_eq!(texts, (0..1000).map(|n| n.to_string()).collect::<Vec<_>>(), "in the order of the calls");
        database.close().await;
    });
}

#[test]
fn reads_go_on_while_the_database_is_held() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let writing = stores.offline.append(vec![message(ann, "x")], 10);
        let name = jid("ann@example.org");
        assert!(stores.logins.login(name.as_ref()).await.unwrap().is_some());
        assert!(stores.accounts.exists(name.as_ref()).await.unwrap());
        holder.let_go().await;
        writing.await.unwrap();
        database.close().await;
    });
}

#[test]
fn writes_fail_when_the_database_stays_held() {
    let directory = Directory::new();
    runtime().block_on(async {
        let options = Options { lock_wait: Duration::from_millis(20), ..Options::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let error = stores.offline.append(vec![message(ann, "lost")], 10).await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ErrorKind::Conflict, true), "{error}");
        let error = stores.accounts.create(&jid("bob@example.org"), b"").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
        holder.let_go().await;
        stores.offline.append(vec![message(ann, "kept")], 10).await.unwrap();
        let waiting = stores.offline.fetch(ann, Page::first(9), 0).await.unwrap().items;
        assert_eq!(waiting.len(), 1, "what failed was not stored");
        database.close().await;
    });
}

#[test]
fn a_write_that_missed_its_turn_is_not_done_later() {
    let directory = Directory::new();
    runtime().block_on(async {
        let options = Options { write_deadline: Duration::from_millis(100), ..Options::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        // The first one is stuck in the database, the others wait behind it; all miss their deadline.
        let first = stores.accounts.set_disabled(jid("ann@example.org").as_ref(), true);
        let mut calls = vec![first];
        calls.push(stores.accounts.set_credentials(jid("ann@example.org").as_ref(), b"late"));
        for result in all(calls).await {
            assert_eq!(result.unwrap_err().kind, ErrorKind::Timeout);
        }
        let error = stores.offline.append(vec![message(ann, "late")], 10).await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ErrorKind::Timeout, true));
        holder.let_go().await;
        // The first write that gets through shows that the writer has passed the others.
        while stores.settings.put("x", b"").await.is_err() {}
        assert_eq!(stores.offline.count(ann).await.unwrap(), 0);
        database.close().await;
    });
}

#[test]
fn a_full_queue_refuses_at_once() {
    let directory = Directory::new();
    runtime().block_on(async {
        let options = Options { queue: 4, ..Options::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let name = jid("ann@example.org");
        // The queue is drained into the transaction that waits, and then it fills; none of these waits.
        let mut calls: Vec<_> = Vec::new();
        let refused = loop {
            let mut call = stores.accounts.set_disabled(name.as_ref(), false);
            let now = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
            match now {
                std::task::Poll::Ready(result) => break result.unwrap_err(),
                std::task::Poll::Pending => calls.push(call),
            }
            assert!(calls.len() < 1000);
            tokio::task::yield_now().await;
        };
        assert_eq!((refused.kind, refused.retry), (ErrorKind::Overloaded, true));
        holder.let_go().await;
        for result in all(calls).await {
            assert!(result.unwrap(), "what was accepted is done");
        }
        database.close().await;
    });
}

#[test]
fn waiting_bytes_are_bounded() {
    let directory = Directory::new();
    runtime().block_on(async {
        let options = Options { queue_bytes: 100_000, ..Options::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let large = "x".repeat(60_000);
        let calls = (0..10).map(|_| stores.offline.append(vec![message(ann, &large)], 100));
        let results = all(calls.collect()).await;
        let refused = results.iter().filter_map(|result| result.as_ref().err()).map(|error| error.kind);
        let refused: Vec<ErrorKind> = refused.collect();
        assert!(
            !refused.is_empty() && refused.iter().all(|kind| *kind == ErrorKind::Overloaded),
            "{refused:?}"
        );
        assert!(results[0].is_ok());
        // All of it is given back, so that one larger than the allowance may go alone.
        let huge = "x".repeat(150_000);
        stores.offline.append(vec![message(ann, &huge)], 100).await.unwrap();
        database.close().await;
    });
}

#[test]
fn a_closed_database_has_written_everything_and_says_so() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let calls: Vec<_> =
            (0..100).map(|n| stores.offline.append(vec![message(ann, &n.to_string())], 1000)).collect();
        database.close().await;
        for answer in all(calls).await {
            assert!(matches!(answer.unwrap()[..], [Appended::Stored { .. }]), "it waited before the end");
        }
        let error = stores.offline.append(vec![message(ann, "x")], 10).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        let error = stores.logins.login(jid("ann@example.org").as_ref()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(stores.offline.count(ann).await.unwrap_err().kind, ErrorKind::Unavailable);
        let files: Vec<_> =
            std::fs::read_dir(&directory.0).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["throng.db"], "the journal is folded in");

        let database = open(&directory.file(), &Options::default()).await.unwrap();
        assert_eq!(database.stores().offline.count(ann).await.unwrap(), 100);
        database.close().await;
    });
}

#[test]
fn a_damaged_account_hurts_nobody_else() {
    let directory = Directory::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &Options::default()).await.unwrap();
        let stores = database.stores();
        let (ann, bob) = (account(&stores, "ann").await, account(&stores, "bob").await);
        for (owner, contact) in [(ann, bob), (bob, ann)] {
            let item = BulkItem { contact, name: None, groups: vec![], subscription: Subscription(35) };
            stores.roster.put_bulk(vec![BulkRoster { owner, items: vec![item] }]).await.unwrap();
        }
        let mut line = SqliteConnectOptions::new().filename(directory.file()).connect().await.unwrap();
        let sql = format!("UPDATE roster SET label = x'07' WHERE owner = {}", ann.get());
        sqlx::raw_sql(&sql).execute(&mut line).await.unwrap();
        line.close().await.unwrap();

        let names: Vec<_> = (0..40).map(|n| jid(["ann@example.org", "bob@example.org"][n % 2])).collect();
        let logins = all(names.iter().map(|name| stores.logins.login(name.as_ref())).collect()).await;
        for (n, login) in logins.into_iter().enumerate() {
            match login {
                Ok(login) => assert_eq!((login.unwrap().id, n % 2), (bob, 1)),
                Err(error) => assert_eq!((error.kind, error.retry, n % 2), (ErrorKind::Corrupt, false, 0)),
            }
        }
        database.close().await;
    });
}
