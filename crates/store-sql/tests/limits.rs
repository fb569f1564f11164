//! Guarantees beyond the results: numbers of statements and transactions, deadlines and bounded queues.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]
mod support;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::Poll;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use store::conformance::{account, jid, join_all};
use store::{
    AddressId, AppendOutcome, BulkItem, BulkRoster, LastActivity, NewAccount, OfflineMessage, Page,
    RosterItem, RosterUpdate, RosterUpdateOutcome, SearchPageRequest, Seek, StoreError, StoreErrorKind,
    StoreFuture, Stores, Subscription, UserQuery,
};
use support::{TempDir, open, runtime};
use throng_store_sql::DatabaseOptions;
use tokio::runtime::Handle;

/// Another program that locks the database for writing until it is released.
struct Holder(SqliteConnection);

impl Holder {
    async fn take(file: &Path) -> Holder {
        let mut conn = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut conn).await.unwrap();
        Holder(conn)
    }

    async fn let_go(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.unwrap();
        self.0.close().await.unwrap();
    }
}

const MANY: store::Quota = store::Quota::messages_only(1_000_000);

fn message(owner: store::AddressId, text: &str) -> OfflineMessage {
    OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: text.as_bytes().to_vec() }
}

/// Two terms: the longer one matches every account and the other none, so a scan finds nothing and skips every
/// account.
#[test]
fn a_search_that_skips_too_many_rows_ends_at_the_step_limit() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        account(&stores, "ann").await;
        let fill = |from: u32, to: u32| {
            format!(
                "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to}) \
                 INSERT INTO profile SELECT 1000000 + i, (SELECT domain FROM username LIMIT 1), \
                 'u' || i, 'common name', 'common', 'name', '', '', '', '', '', '', '' FROM n"
            )
        };
        let mut conn = SqliteConnectOptions::new().filename(directory.file()).connect().await.unwrap();
        sqlx::raw_sql(&fill(1, 20_000)).execute(&mut conn).await.unwrap();
        let both =
            UserQuery { name: Some("common name".into()), email: Some("x".into()), ..UserQuery::default() };
        let first = || SearchPageRequest { seek: Seek::First, limit: 50 };
        let found = stores.user_search.search("example.org", &both, first()).await.unwrap();
        assert!(found.users.is_empty(), "what fits the budget is answered");
        sqlx::raw_sql(&fill(20_001, 160_000)).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        let refused = stores.user_search.search("example.org", &both, first()).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::TooBroad);
        let refused = stores.user_search.count("example.org", &both).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::TooBroad);
        // The connections are as good as before, and their next statement has no budget.
        for _ in 0..20 {
            let one = UserQuery { user: Some("ann".into()), ..UserQuery::default() };
            assert_eq!(stores.user_search.search("example.org", &one, first()).await.unwrap().users.len(), 1);
        }
        let one = UserQuery { name: Some("common".into()), ..UserQuery::default() };
        assert_eq!(
            stores.user_search.count("example.org", &one).await.unwrap(),
            10_000,
            "one term is a short walk"
        );
        database.close().await;
    });
}

#[test]
fn a_login_is_two_statements() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let mut items = Vec::new();
        for n in 0..400 {
            let contact = stores.addresses.intern(&jid(&format!("c{n}@example.com"))).await.unwrap();
            let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
            items.push(BulkItem { contact, name: Some("x".into()), groups: vec![], subscription });
        }
        stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
        stores.offline.append(vec![message(ann, "x"); 9], store::Quota::messages_only(100)).await.unwrap();
        let name = jid("ann@example.org");
        let blocked = vec![jid("eve@example.com"), jid("example.net")];
        let none = store::Unblock::These(vec![]);
        stores.blocklists.update_blocklist(name.as_ref(), blocked.clone(), none, 9).await.unwrap();
        stores
            .tokens
            .update_tokens(name.as_ref(), None, Box::new(|_| Some(b"token".to_vec())))
            .await
            .unwrap();
        for round in 0..3 {
            let before = database.round_trips();
            let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
            assert_eq!((secrets.id, &secrets.tokens[..]), (ann, &b"token"[..]));
            assert_eq!(database.round_trips() - before, 1, "round {round}");
            let login = stores.logins.login(ann, secrets.revision).await.unwrap().unwrap();
            assert_eq!((login.roster.len(), login.offline_messages), (400, 9));
            assert_eq!(store::blocklists::decode(&login.blocklist).unwrap(), blocked);
            assert_eq!(database.round_trips() - before, 2, "round {round}");
        }
        let before = database.round_trips();
        assert!(stores.logins.secrets(jid("nobody@example.org").as_ref()).await.unwrap().is_none());
        assert_eq!(database.round_trips() - before, 1);
        database.close().await;
    });
}

#[test]
fn many_logins_share_statements() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        account(&stores, "ann").await;
        let ann = jid("ann@example.org");
        let before = database.round_trips();
        let mut ids = Vec::new();
        for secrets in join_all((0..640).map(|_| stores.logins.secrets(ann.as_ref())).collect()).await {
            let secrets = secrets.unwrap().unwrap();
            ids.push((secrets.id, secrets.revision));
        }
        for login in
            join_all(ids.into_iter().map(|(id, revision)| stores.logins.login(id, revision)).collect()).await
        {
            assert!(login.unwrap().is_some());
        }
        let statements = database.round_trips() - before;
        assert!(statements <= 128, "{statements} statements for 640 logins");
        for (right, most) in [(false, 64), (true, 128)] {
            let before = database.round_trips();
            let prove = || stores.logins.prove(ann.as_ref(), Box::new(move |_| right));
            for attempt in join_all((0..640).map(|_| prove()).collect()).await {
                assert_eq!(attempt.unwrap().unwrap().login.is_some(), right);
            }
            let statements = database.round_trips() - before;
            assert!(statements <= most, "{statements} statements for 640 proofs");
        }
        database.close().await;
    });
}

#[test]
fn many_writes_share_transactions() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let before = database.commits();
        let appends = (0..1000).map(|n| {
            stores.offline.append(vec![message(ann, &n.to_string())], store::Quota::messages_only(5000))
        });
        for answer in join_all(appends.collect()).await {
            assert!(matches!(answer.unwrap()[..], [AppendOutcome::Stored { .. }]));
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
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let writing = stores.offline.append(vec![message(ann, "x")], store::Quota::messages_only(10));
        let name = jid("ann@example.org");
        assert!(stores.logins.secrets(name.as_ref()).await.unwrap().is_some());
        assert!(stores.accounts.exists(name.as_ref()).await.unwrap());
        holder.let_go().await;
        writing.await.unwrap();
        database.close().await;
    });
}

#[test]
fn writes_fail_when_the_database_stays_held() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options =
            DatabaseOptions { busy_timeout: Duration::from_millis(20), ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let error = stores
            .offline
            .append(vec![message(ann, "lost")], store::Quota::messages_only(10))
            .await
            .unwrap_err();
        assert_eq!((error.kind, error.retryable), (StoreErrorKind::Conflict, true), "{error}");
        let error = stores.accounts.create(&jid("bob@example.org"), b"").await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
        holder.let_go().await;
        stores.offline.append(vec![message(ann, "kept")], store::Quota::messages_only(10)).await.unwrap();
        let waiting = stores.offline.fetch(ann, Page::first(9), 0).await.unwrap().items;
        assert_eq!(waiting.len(), 1, "what failed was not stored");
        database.close().await;
    });
}

#[test]
fn a_write_that_missed_its_deadline_is_not_executed_later() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options =
            DatabaseOptions { write_deadline: Duration::from_millis(500), ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        // The first one is stuck in the database, the others wait after it; all miss their deadline.
        let first = stores.accounts.set_disabled(jid("ann@example.org").as_ref(), true);
        let mut calls = vec![first];
        calls.push(stores.accounts.set_credentials(jid("ann@example.org").as_ref(), b"late"));
        for result in join_all(calls).await {
            assert_eq!(result.unwrap_err().kind, StoreErrorKind::Timeout);
        }
        let error = stores
            .offline
            .append(vec![message(ann, "late")], store::Quota::messages_only(10))
            .await
            .unwrap_err();
        assert_eq!((error.kind, error.retryable), (StoreErrorKind::Timeout, true));
        holder.let_go().await;
        // The first write that succeeds shows that the writer has passed the others.
        while stores.server_kv.put("x", b"").await.is_err() {}
        assert_eq!(stores.offline.count(ann).await.unwrap(), 0);
        database.close().await;
    });
}

/// A change that stops the writer inside its transaction: the receiver reports that it is there, the sender lets it
/// continue.
fn stop(
    stores: &Stores,
    owner: AddressId,
) -> (StoreFuture<'_, RosterUpdateOutcome>, Receiver<()>, SyncSender<()>) {
    let ((there, entered), (go, gate)) = (sync_channel(1), sync_channel(1));
    let decide = move |_| {
        there.send(()).unwrap();
        gate.recv().unwrap();
        RosterUpdate::Keep
    };
    (stores.roster.update(owner, &jid("eve@example.com"), Box::new(decide)), entered, go)
}

/// Whether it is done already. A deadline counts from the first poll.
async fn look<T>(call: &mut StoreFuture<'_, T>) -> Poll<Result<T, StoreError>> {
    std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await
}

/// The reported result is what was done, also when the deadline passes while the transaction is open.
#[test]
fn failed_writes_are_not_stored_and_stored_writes_do_not_fail() {
    let directory = TempDir::new();
    runtime().block_on(async {
        // Short of what a busy disk takes for the account and the first change, it would pass too early.
        let deadline = Duration::from_secs(1);
        let options = DatabaseOptions { write_deadline: deadline, ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        // While the first change holds the writer, a message and a second change are queued after it.
        let (first, first_there, first_go) = stop(&stores, ann);
        first_there.recv().unwrap();
        let mut early = stores.offline.append(vec![message(ann, "early")], store::Quota::messages_only(10));
        let (second, second_there, second_go) = stop(&stores, ann);
        first_go.send(()).unwrap();
        // At this point the early message is written, but not committed. The late one is not in its group.
        second_there.recv().unwrap();
        let mut late = stores.offline.append(vec![message(ann, "late")], store::Quota::messages_only(10));
        assert!(look(&mut early).await.is_pending() && look(&mut late).await.is_pending());
        tokio::time::sleep(deadline * 2).await;
        let early_result = look(&mut early).await;
        assert!(
            early_result.is_pending(),
            "it may still be kept, so no caller may see a failure: {early_result:?}"
        );
        assert_eq!(late.await.unwrap_err().kind, StoreErrorKind::Timeout);
        second_go.send(()).unwrap();
        assert!(matches!(early.await.unwrap()[..], [AppendOutcome::Stored { .. }]));
        first.await.unwrap();
        second.await.unwrap();
        let waiting = stores.offline.fetch(ann, Page::first(9), 0).await.unwrap().items;
        let texts: Vec<&[u8]> = waiting.iter().map(|waiting| &waiting.stanza[..]).collect();
        assert_eq!(texts, [b"early"]);
        database.close().await;
    });
}

/// Many writes against a deadline that passes in the middle of the work: a write reported as successful is found
/// once, a write reported as failed is not found.
#[test]
fn every_write_under_overload_has_a_definite_result() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options =
            DatabaseOptions { write_deadline: Duration::from_millis(12), ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let patient = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let ann = account(&patient.stores(), "ann").await;
        let (mut confirmed, mut failed) = (Vec::new(), 0);
        for round in 0..10 {
            let appends: Vec<_> = (0..1000)
                .map(|n| {
                    let (stores, text) = (stores.clone(), format!("{round}.{n}"));
                    Handle::current().spawn(async move {
                        let answer = stores
                            .offline
                            .append(vec![message(ann, &text)], store::Quota::messages_only(u32::MAX))
                            .await;
                        (text, answer)
                    })
                })
                .collect();
            for append in appends {
                match append.await.unwrap() {
                    (text, Ok(_)) => confirmed.push(text),
                    (_, Err(error)) => {
                        assert_eq!(error.kind, StoreErrorKind::Timeout);
                        failed += 1;
                    }
                }
            }
        }
        // Every request accepted before the deadlines is done by then: the writer works in order.
        while stores.server_kv.put("x", b"").await.is_err() {}
        let waiting = stores.offline.fetch(ann, Page::first(u32::MAX), 0).await.unwrap().items;
        let mut stored: Vec<String> =
            waiting.into_iter().map(|waiting| String::from_utf8(waiting.stanza).unwrap()).collect();
        stored.sort_unstable();
        confirmed.sort_unstable();
        assert!(
            stored == confirmed,
            "{failed} failed, {} did not, {} were kept",
            confirmed.len(),
            stored.len()
        );
        database.close().await;
        patient.close().await;
    });
}

#[test]
fn a_full_queue_refuses_immediately() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options = DatabaseOptions { max_queued: 4, ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        account(&stores, "ann").await;
        let holder = Holder::take(&directory.file()).await;
        let name = jid("ann@example.org");
        // The queue is drained into the waiting transaction, and then it fills; none of these waits.
        let mut calls: Vec<_> = Vec::new();
        let refused = loop {
            let mut call = stores.accounts.set_disabled(name.as_ref(), false);
            let now = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
            match now {
                Poll::Ready(result) => break result.unwrap_err(),
                Poll::Pending => calls.push(call),
            }
            assert!(calls.len() < 1000);
            tokio::task::yield_now().await;
        };
        assert_eq!((refused.kind, refused.retryable), (StoreErrorKind::Overloaded, true));
        holder.let_go().await;
        for result in join_all(calls).await {
            assert!(result.unwrap(), "what was accepted is done");
        }
        database.close().await;
    });
}

#[test]
fn queued_bytes_are_bounded() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options = DatabaseOptions { max_queued_bytes: 100_000, ..DatabaseOptions::default() };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let large = "x".repeat(60_000);
        let calls = (0..10)
            .map(|_| stores.offline.append(vec![message(ann, &large)], store::Quota::messages_only(100)));
        let results = join_all(calls.collect()).await;
        let refused = results.iter().filter_map(|result| result.as_ref().err()).map(|error| error.kind);
        let refused: Vec<StoreErrorKind> = refused.collect();
        assert!(
            !refused.is_empty() && refused.iter().all(|kind| *kind == StoreErrorKind::Overloaded),
            "{refused:?}"
        );
        assert!(results[0].is_ok());
        // All of it is released, so that a request larger than the limit may run alone.
        let huge = "x".repeat(150_000);
        stores.offline.append(vec![message(ann, &huge)], store::Quota::messages_only(100)).await.unwrap();
        database.close().await;
    });
}

#[test]
fn a_closed_database_has_written_everything_and_refuses_writes() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let calls: Vec<_> = (0..100)
            .map(|n| {
                stores.offline.append(vec![message(ann, &n.to_string())], store::Quota::messages_only(1000))
            })
            .collect();
        database.close().await;
        for answer in join_all(calls).await {
            assert!(
                matches!(answer.unwrap()[..], [AppendOutcome::Stored { .. }]),
                "it waited before the end"
            );
        }
        let error = stores
            .offline
            .append(vec![message(ann, "x")], store::Quota::messages_only(10))
            .await
            .unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        let error = stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert_eq!(stores.offline.count(ann).await.unwrap_err().kind, StoreErrorKind::Unavailable);
        let files: Vec<_> =
            std::fs::read_dir(&directory.0).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["throng.db"], "the journal is folded in");

        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        assert_eq!(database.stores().offline.count(ann).await.unwrap(), 100);
        database.close().await;
    });
}

#[test]
fn a_damaged_account_affects_no_other() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let (ann, bob) = (account(&stores, "ann").await, account(&stores, "bob").await);
        for (owner, contact) in [(ann, bob), (bob, ann)] {
            let item = BulkItem { contact, name: None, groups: vec![], subscription: Subscription(35) };
            stores.roster.put_bulk(vec![BulkRoster { owner, items: vec![item] }]).await.unwrap();
        }
        let mut conn = SqliteConnectOptions::new().filename(directory.file()).connect().await.unwrap();
        let sql = format!("UPDATE roster SET label = x'07' WHERE owner = {}", ann.get());
        sqlx::raw_sql(&sql).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();

        let mut revisions = Vec::new();
        for name in ["ann@example.org", "bob@example.org"] {
            revisions.push(stores.logins.secrets(jid(name).as_ref()).await.unwrap().unwrap().revision);
        }
        let one = |n: usize| stores.logins.login([ann, bob][n % 2], revisions[n % 2]);
        let logins = join_all((0..40).map(one).collect()).await;
        for (n, login) in logins.into_iter().enumerate() {
            match login {
                Ok(login) => assert_eq!((login.unwrap().roster[0].contact, n % 2), (ann, 1)),
                Err(error) => {
                    assert_eq!((error.kind, error.retryable, n % 2), (StoreErrorKind::Corrupt, false, 0))
                }
            }
        }
        database.close().await;
    });
}

#[test]
fn many_logouts_share_few_writes() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options = DatabaseOptions {
            last_seen_flush_interval: Duration::from_secs(600),
            ..DatabaseOptions::default()
        };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let names: Vec<_> = (0..5000).map(|n| jid(&format!("u{n}@example.org"))).collect();
        let new = names.iter().map(|jid| NewAccount { jid: jid.clone(), credentials: [0u8; 1].into() });
        let ids = stores.accounts.create_bulk(new.collect()).await.unwrap();
        let before = database.commits();
        for at in 0..5 {
            for id in &ids {
                stores.last_seen.set(id.id(), LastActivity { at, status: Some("gone".into()) });
            }
        }
        assert_eq!(database.commits(), before, "nobody waited for the disk");
        // Entries of removed accounts are not written.
        stores.accounts.remove(names[7].as_ref()).await.unwrap();
        database.close().await;
        let commits = database.commits() - before;
        assert!(commits <= 30, "{commits} transactions for 25000 logouts");

        let options = DatabaseOptions { last_seen_flush_interval: Duration::from_millis(10), ..options };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        for (n, name) in names.iter().enumerate() {
            let seen = stores.last_seen.get(name.as_ref()).await.unwrap();
            let expected = (n != 7).then(|| LastActivity { at: 4, status: Some("gone".into()) });
            assert_eq!(seen, expected, "an orderly end loses nothing");
        }
        // Without a close, too, it goes to the disk after a moment.
        stores.last_seen.set(ids[0].id(), LastActivity { at: 9, status: None });
        let mut conn = SqliteConnectOptions::new().filename(directory.file()).connect().await.unwrap();
        let sql = format!("SELECT 1 FROM last_seen WHERE owner = {} AND at = 9", ids[0].id().get());
        while sqlx::query(&sql).fetch_all(&mut conn).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(stores.last_seen.get(names[0].as_ref()).await.unwrap().unwrap().at, 9);
        conn.close().await.unwrap();
        database.close().await;
    });
}

#[test]
fn failed_logout_writes_are_retried() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let options = DatabaseOptions {
            last_seen_flush_interval: Duration::from_millis(5),
            busy_timeout: Duration::from_millis(5),
            ..DatabaseOptions::default()
        };
        let database = open(&directory.file(), &options).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let name = jid("ann@example.org");
        let holder = Holder::take(&directory.file()).await;
        stores.last_seen.set(ann, LastActivity { at: 1, status: None });
        // Long enough for several attempts; whatever their number, it must be there at the end.
        for _ in 0..20 {
            assert_eq!(stores.last_seen.get(name.as_ref()).await.unwrap().unwrap().at, 1);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        holder.let_go().await;
        database.close().await;
        let database = open(&directory.file(), &options).await.unwrap();
        assert_eq!(database.stores().last_seen.get(name.as_ref()).await.unwrap().unwrap().at, 1);
        database.close().await;
    });
}

/// A row that is damaged fails the requests that need it, and no others of its transaction.
#[test]
fn a_damaged_row_fails_only_its_own_requests() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let contact = jid("bob@example.com");
        let add = |name: &'static str| {
            move |before: Option<RosterItem>| {
                let mut item = before.unwrap_or_else(|| RosterItem::new(jid("bob@example.com")));
                (item.subscription, item.name) = (Subscription::IN_ROSTER, Some(name.to_owned()));
                RosterUpdate::Put(item)
            }
        };
        let mut owners = Vec::new();
        for name in ["ann", "damaged", "eve"] {
            let owner = account(&stores, name).await;
            stores.roster.update(owner, &contact, Box::new(add("first"))).await.unwrap();
            stores.offline.append(vec![message(owner, "first")], MANY).await.unwrap();
            owners.push(owner);
        }
        let mut conn = SqliteConnectOptions::new().filename(directory.file()).connect().await.unwrap();
        let damaged = owners[1].get();
        let damage = format!(
            "UPDATE roster SET subscription = 255 WHERE owner = {damaged}; \
             UPDATE inbox SET waiting = -1 WHERE owner = {damaged}"
        );
        sqlx::raw_sql(&damage).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        // Meanwhile the requests are queued, so that they share a transaction.
        let holder = Holder::take(&directory.file()).await;
        let appends = owners.iter().map(|owner| stores.offline.append(vec![message(*owner, "second")], MANY));
        let updates =
            owners.iter().map(|owner| stores.roster.update(*owner, &contact, Box::new(add("second"))));
        let (appended, updated, ()) =
            tokio::join!(join_all(appends.collect()), join_all(updates.collect()), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                holder.let_go().await;
            });
        for (n, (appended, updated)) in appended.into_iter().zip(updated).enumerate() {
            if n == 1 {
                assert_eq!(appended.unwrap_err().kind, StoreErrorKind::Corrupt);
                assert_eq!(updated.unwrap_err().kind, StoreErrorKind::Corrupt);
            } else {
                assert!(matches!(appended.unwrap()[..], [AppendOutcome::Stored { .. }]), "request {n}");
                assert_eq!(updated.unwrap().after.unwrap().name.as_deref(), Some("second"), "request {n}");
            }
        }
        database.close().await;
    });
}
