//! A server that fails under load, in each way that is named in `docs/databases.md`: what was acknowledged is in the
//! database afterwards, once and in order, and everything continues without a restart of the node.
//!
//! The counts of messages sent, acknowledged and found are printed: `cargo test --test failures -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "clippy sees helpers outside of #[test] as ordinary code; the counts are part of the result"
)]
mod support;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use base::ManualClock;
use store::conformance::{account, jid, login};
use store::{
    AddressId, AppendOutcome, OfflineMessage, Page, Quota, RosterItem, RosterUpdate, StoreErrorKind, Stores,
};
use support::load::{Load, LoadCounts};
use support::servers::{
    administer, new_database, on_each_server, on_own_servers, open_url, patient, run_sql,
};
use test_databases::{Proxy, Server, ServerKind, ServerSetup};
use throng_store_sql::{DatabaseOptions, SqlStores};

const SENDERS: usize = 8;

/// Writes are refused soon, so that a test need not wait for them.
fn impatient() -> DatabaseOptions {
    DatabaseOptions { write_deadline: Duration::from_millis(500), ..patient() }
}

async fn open(url: &str, options: &DatabaseOptions) -> Arc<SqlStores> {
    open_url(url, options, Arc::new(ManualClock::new())).await.unwrap()
}

fn report(server: &Server, what: &str, counts: LoadCounts) {
    println!("{:?}, {what}: {counts:?}", server.kind());
}

#[test]
fn a_full_disk_refuses_messages_serves_logins_and_loses_nothing() {
    let setup = ServerSetup { disk_megabytes: Some(400), ..ServerSetup::default() };
    on_own_servers(&setup, async |server| {
        let database = open(&server.default_url(), &impatient()).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        let load = Load::start(&stores, SENDERS, 3000).await;
        load.wait_for_acknowledged(50).await;
        tokio::task::block_in_place(|| server.fill_disk());
        // The server first uses the pages that it has reserved.
        load.wait_for_refused(3 * SENDERS as u64).await;
        login(&stores, &jid("ann@example.org")).await;
        // The server refuses the account, or creates it on pages that it had reserved. MySQL can also wait for free space
        // until the deadline.
        let created = stores.accounts.create(&jid("bob@example.org"), &[0; 5000]).await;
        if let Err(error) = created {
            let expected = matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Timeout);
            assert!(expected && error.retryable, "{error}");
        }
        tokio::task::block_in_place(|| server.free_disk());
        load.wait_for_acknowledged(50).await;
        report(server, "full disk", load.end(&stores).await);
        database.close().await;
    });
}

#[test]
fn a_server_that_becomes_read_only_and_writable_again_loses_nothing() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let url = server.url(&new_database(server).await);
        let database = open(&url, &impatient()).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        let load = Load::start(&stores, SENDERS, 300).await;
        load.wait_for_acknowledged(50).await;
        tokio::task::block_in_place(|| server.restart_read_only(true));
        load.wait_for_refused(3 * SENDERS as u64).await;
        login(&stores, &jid("ann@example.org")).await;
        tokio::task::block_in_place(|| server.restart_read_only(false));
        load.wait_for_acknowledged(50).await;
        report(server, "read-only", load.end(&stores).await);
        database.close().await;
    });
}

#[test]
fn a_server_that_is_killed_and_restarted_three_times_loses_nothing() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let url = server.url(&new_database(server).await);
        // Patient: every message is stored in the end.
        let database = open(&url, &patient()).await;
        let stores = database.stores();
        let load = Load::start(&stores, SENDERS, 300).await;
        for _ in 0..3 {
            load.wait_for_acknowledged(50).await;
            tokio::task::block_in_place(|| {
                server.kill();
                server.run();
            });
        }
        load.wait_for_acknowledged(50).await;
        let counts = load.end(&stores).await;
        assert_eq!((counts.acknowledged, counts.found), (counts.sent, counts.sent));
        report(server, "killed", counts);
        database.close().await;
    });
}

#[test]
fn a_server_that_cannot_be_reached_for_a_while_loses_nothing() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name), &impatient()).await;
        let stores = database.stores();
        let load = Load::start(&stores, SENDERS, 300).await;
        for _ in 0..3 {
            load.wait_for_acknowledged(50).await;
            proxy.refuse(true);
            load.wait_for_refused(SENDERS as u64).await;
            proxy.refuse(false);
        }
        load.wait_for_acknowledged(50).await;
        report(server, "unreachable", load.end(&stores).await);
        database.close().await;
    });
}

#[test]
fn connections_that_break_all_the_time_lose_nothing() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        // Patient: every message is stored in the end, although its connection breaks.
        let database = open(&server.url_through(proxy.address(), &name), &patient()).await;
        let stores = database.stores();
        let load = Load::start(&stores, SENDERS, 300).await;
        for _ in 0..30 {
            load.wait_for_acknowledged(5).await;
            proxy.cut();
        }
        load.wait_for_acknowledged(50).await;
        let counts = load.end(&stores).await;
        assert_eq!((counts.acknowledged, counts.found), (counts.sent, counts.sent));
        report(server, "cut", counts);
        database.close().await;
    });
}

/// Answers take 100 ms: messages are stored, in larger groups, and none is refused.
#[test]
fn a_slow_server_stores_everything() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name), &patient()).await;
        let stores = database.stores();
        let load = Load::start(&stores, SENDERS, 300).await;
        load.wait_for_acknowledged(50).await;
        proxy.delay(Duration::from_millis(100));
        load.wait_for_acknowledged(50).await;
        proxy.delay(Duration::ZERO);
        load.wait_for_acknowledged(50).await;
        let counts = load.end(&stores).await;
        assert_eq!((counts.acknowledged, counts.found), (counts.sent, counts.sent));
        report(server, "slow", counts);
        database.close().await;
    });
}

const MANY: Quota = Quota::messages_only(1_000_000);

fn message(owner: AddressId, text: &str) -> Vec<OfflineMessage> {
    vec![OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: text.as_bytes().to_vec() }]
}

async fn stored(stores: &Stores, owner: AddressId) -> Vec<String> {
    let page = stores.offline.fetch(owner, Page::first(100), 0).await.unwrap();
    page.items.into_iter().map(|message| String::from_utf8(message.stanza).unwrap()).collect()
}

/// The server has committed, the node does not get the answer and cannot connect until all deadlines have passed.
#[test]
fn a_write_whose_commit_has_no_answer_is_not_reported_as_failed_however_long_the_server_is_gone() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let options = DatabaseOptions { writers: 1, ..impatient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        // With its end, because READ COMMITTED is in other texts.
        proxy.cut_answer_and_refuse(match server.kind() {
            ServerKind::Postgres => "COMMIT\0",
            ServerKind::MariaDb | ServerKind::MySql => "COMMIT",
        });
        let mut open = stores.offline.append(message(ann, "open"), MANY);
        while proxy.cuts() == 0 {
            let now = std::future::poll_fn(|cx| Poll::Ready(open.as_mut().poll(cx))).await;
            assert!(now.is_pending());
            tokio::task::yield_now().await;
        }
        // Others miss their deadlines while the outcome is open.
        for _ in 0..3 {
            let late = stores.offline.append(message(ann, "late"), MANY).await.unwrap_err();
            assert_eq!(late.kind, StoreErrorKind::Timeout, "{late}");
        }
        proxy.refuse(false);
        let done = open.await;
        assert!(matches!(done.unwrap()[..], [AppendOutcome::Stored { .. }]));
        stores.offline.append(message(ann, "after"), MANY).await.unwrap();
        assert_eq!(stored(&stores, ann).await, ["open", "after"]);
        database.close().await;
    });
}

/// A failover: the connection breaks during the commit, and what the node reaches then is read-only.
#[test]
fn a_write_whose_commit_has_no_answer_is_decided_although_the_server_is_read_only() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let max_standby_lag = Duration::from_secs(2);
        let options = DatabaseOptions { writers: 1, max_standby_lag, ..impatient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        // With its end, because READ COMMITTED is in other texts.
        let commit = match server.kind() {
            ServerKind::Postgres => "COMMIT\0",
            ServerKind::MariaDb | ServerKind::MySql => "COMMIT",
        };
        for (text, is_committed) in [("lost", false), ("stored", true)] {
            // Over a connection that is set up, and after the restart.
            while stores.offline.append(message(ann, "before"), MANY).await.is_err() {}
            let cuts = proxy.cuts();
            match is_committed {
                true => proxy.cut_answer_and_refuse(commit),
                false => proxy.cut_request_and_refuse(commit),
            }
            let mut open = stores.offline.append(message(ann, text), MANY);
            while proxy.cuts() == cuts {
                let now = std::future::poll_fn(|cx| Poll::Ready(open.as_mut().poll(cx))).await;
                assert!(now.is_pending());
                tokio::task::yield_now().await;
            }
            tokio::task::block_in_place(|| server.restart_read_only(true));
            proxy.refuse(false);
            let done = tokio::time::timeout(Duration::from_secs(60), open).await.expect("a decision");
            match done {
                Ok(outcomes) => {
                    assert!(is_committed && matches!(outcomes[..], [AppendOutcome::Stored { .. }]))
                }
                Err(error) => {
                    assert!(!is_committed && error.kind == StoreErrorKind::InDoubt, "{text}: {error}");
                }
            }
            tokio::task::block_in_place(|| server.restart_read_only(false));
        }
        while stores.offline.append(message(ann, "after"), MANY).await.is_err() {}
        assert_eq!(stored(&stores, ann).await, ["before", "before", "stored", "after"]);
        database.close().await;
    });
}

/// Makes the server refuse writes of connections that begin from now on, and on MariaDB and MySQL of all, or accept them again.
async fn set_read_only(server: &Server, name: &str, is_read_only: bool) {
    let value = if is_read_only { "on" } else { "off" };
    let sql = match server.kind() {
        ServerKind::Postgres => format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}"),
        ServerKind::MariaDb | ServerKind::MySql => format!("SET GLOBAL read_only = {value}"),
    };
    administer(server, &sql).await;
}

/// Commits the last transaction of the only writer for it, although the server is read-only, as replication does.
async fn apply_commit(server: &Server, name: &str, seconds_before_commit: u32) {
    let mark = "UPDATE write_batch SET batch = batch + 1";
    let wait = seconds_before_commit;
    match server.kind() {
        ServerKind::Postgres => {
            let sql = format!("BEGIN READ WRITE; {mark}; SELECT pg_sleep({wait}); COMMIT");
            run_sql(&server.url(name), &sql).await;
        }
        ServerKind::MariaDb | ServerKind::MySql => {
            let sql = format!("USE {name}; START TRANSACTION; {mark}; DO sleep({wait}); COMMIT");
            administer(server, &sql).await;
        }
    }
}

/// The end of a request that commits, because READ COMMITTED is in other texts.
fn commit_text(server: &Server) -> &'static str {
    match server.kind() {
        ServerKind::Postgres => "COMMIT\0",
        ServerKind::MariaDb | ServerKind::MySql => "COMMIT",
    }
}

/// Waits until the node has looked so often in vain for a transaction whose commit has no answer.
async fn wait_for_probes(database: &SqlStores, count: u64) {
    let before = database.write_retries();
    while database.write_retries() < before + count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A failover: no server for longer than all deadlines, and then a standby that applies the commit a moment later.
#[test]
fn a_write_that_a_standby_shows_late_is_not_reported_as_failed_however_long_the_server_was_gone() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let options = DatabaseOptions { writers: 1, ..impatient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        stores.offline.append(message(ann, "before"), MANY).await.unwrap();
        proxy.cut_request_and_refuse(commit_text(server));
        let owned = stores.clone();
        let open = tokio::spawn(async move { owned.offline.append(message(ann, "late"), MANY).await });
        // Each takes a deadline, because no server is there.
        wait_for_probes(&database, 4).await;
        set_read_only(server, &name, true).await;
        proxy.refuse(false);
        wait_for_probes(&database, 6).await;
        assert!(!open.is_finished());
        apply_commit(server, &name, 0).await;
        let done = tokio::time::timeout(Duration::from_secs(50), open).await.expect("a decision");
        assert!(matches!(done.unwrap().unwrap()[..], [AppendOutcome::Stored { .. }]));
        set_read_only(server, &name, false).await;
        database.close().await;
    });
}

/// The server refuses the lock, is gone, and accepts writes when it is there again: the answer is that of the lock.
#[test]
fn a_server_that_accepts_writes_again_is_asked_with_the_lock() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        // Short, so that only the lock makes it wait.
        let max_standby_lag = Duration::from_millis(1500);
        let options = DatabaseOptions { writers: 1, max_standby_lag, ..impatient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        stores.offline.append(message(ann, "before"), MANY).await.unwrap();
        set_read_only(server, &name, false).await;
        proxy.cut_request_and_refuse(commit_text(server));
        let owned = stores.clone();
        let open = tokio::spawn(async move { owned.offline.append(message(ann, "late"), MANY).await });
        wait_for_probes(&database, 3).await;
        set_read_only(server, &name, true).await;
        proxy.refuse(false);
        wait_for_probes(&database, 2).await;
        proxy.refuse(true);
        wait_for_probes(&database, 4).await;
        set_read_only(server, &name, false).await;
        let committed = apply_commit(server, &name, 5);
        let reached = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            proxy.refuse(false);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(!open.is_finished(), "the transaction has not ended");
        };
        tokio::join!(committed, reached);
        let done = tokio::time::timeout(Duration::from_secs(50), open).await.expect("a decision");
        assert!(matches!(done.unwrap().unwrap()[..], [AppendOutcome::Stored { .. }]));
        database.close().await;
    });
}

/// A server that becomes read-only between the last statement and COMMIT answers that with an error, and has rolled back.
#[test]
fn a_commit_that_is_answered_with_an_error_is_not_in_doubt() {
    on_own_servers(&ServerSetup::default(), async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let deadline = Duration::from_secs(5);
        let options = DatabaseOptions { writers: 1, write_deadline: deadline, ..patient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        stores.offline.append(message(ann, "first"), MANY).await.unwrap();
        let before = proxy.round_trips();
        stores.offline.append(message(ann, "second"), MANY).await.unwrap();
        let usual = proxy.round_trips() - before;
        let owned = stores.clone();
        let refused = move || {
            let owned = owned.clone();
            tokio::spawn(async move { owned.offline.append(message(ann, "refused"), MANY).await })
        };
        let done = match server.kind() {
            ServerKind::Postgres => {
                // It has no state that refuses a commit only; a deferred trigger does.
                let trigger = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                    RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$; \
                    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON offline DEFERRABLE INITIALLY DEFERRED \
                    FOR EACH ROW EXECUTE FUNCTION refuse()";
                run_sql(&server.url(&name), trigger).await;
                set_read_only(server, &name, true).await;
                refused()
            }
            ServerKind::MariaDb | ServerKind::MySql => {
                proxy.delay(Duration::from_millis(500));
                let before = proxy.round_trips();
                let done = refused();
                while proxy.round_trips() < before + usual - 1 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                set_read_only(server, &name, true).await;
                proxy.delay(Duration::ZERO);
                done
            }
        };
        let done = tokio::time::timeout(4 * deadline, done).await.expect("an answer without further looks");
        let error = done.unwrap().unwrap_err();
        println!("{:?}: {error:?}", server.kind());
        assert!(error.retryable && error.kind != StoreErrorKind::InDoubt, "{error}");
        if server.kind() == ServerKind::Postgres {
            let sql = "BEGIN READ WRITE; DROP TRIGGER refuse ON offline; COMMIT";
            run_sql(&server.url(&name), sql).await;
        }
        set_read_only(server, &name, false).await;
        while stores.offline.append(message(ann, "after"), MANY).await.is_err() {}
        assert_eq!(stored(&stores, ann).await, ["first", "second", "after"]);
        database.close().await;
    });
}

/// Nothing closes the connection, and nothing answers: not the 31 seconds that a statement may take, but the deadline.
#[test]
fn a_write_that_has_begun_fails_at_the_deadline_although_its_statement_has_no_answer() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        // Long enough for a new connection on a busy machine, which the last write needs.
        let write_deadline = Duration::from_secs(5);
        let options = DatabaseOptions { writers: 1, write_deadline, ..patient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        stores.offline.append(message(ann, "before"), MANY).await.unwrap();
        proxy.strand();
        let lost = stores.offline.append(message(ann, "lost"), MANY);
        let lost = tokio::time::timeout(Duration::from_secs(20), lost).await.unwrap().unwrap_err();
        assert!(lost.retryable, "{lost}");
        stores.offline.append(message(ann, "after"), MANY).await.unwrap();
        database.close().await;
        // Not over the connections of reads, which have no answer either.
        let database = open(&server.url(&name), &impatient()).await;
        assert_eq!(stored(&database.stores(), ann).await, ["before", "after"]);
        database.close().await;
    });
}

/// As after a loss of power or of a route while a transaction is open: its node is gone, and the server has to notice.
#[test]
fn the_locks_of_a_node_that_is_gone_are_released() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Arc::new(Proxy::start(server.address()));
        let second = Duration::from_secs(1);
        let patient = DatabaseOptions { statement_timeout: second, ..patient() };
        let database = open(&server.url(&name), &patient).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let options = DatabaseOptions { statement_timeout: second, writers: 1, ..impatient() };
        let gone = open(&server.url_through(proxy.address(), &name), &options).await;
        let stranded = proxy.clone();
        let decide = Box::new(move |_: Option<RosterItem>| {
            // The account is locked here.
            stranded.strand();
            RosterUpdate::Put(RosterItem::new(jid("bob@example.com")))
        });
        gone.stores().roster.update(ann, &jid("bob@example.com"), decide).await.unwrap_err();
        let append = stores.offline.append(message(ann, "after"), MANY);
        tokio::time::timeout(Duration::from_secs(240), append).await.unwrap().unwrap();
        database.close().await;
    });
}

/// Otherwise a node that ends would be killed while it waits, with what its other tasks have to write.
#[test]
fn a_database_is_closed_soon_although_its_server_is_gone() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let deadline = Duration::from_millis(500);
        let options = DatabaseOptions { read_deadline: deadline, ..impatient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        proxy.refuse(true);
        let ann = AddressId::new(1).unwrap();
        // A hundred transactions, each with the deadline of a write.
        let seen = store::LastActivity { at: 1, status: None };
        for number in 1..51_200 {
            stores.last_seen.set(AddressId::new(number).unwrap(), seen.clone());
        }
        let name = jid("ann@example.org");
        let (secrets, count) = tokio::join!(stores.logins.secrets(name.as_ref()), stores.offline.count(ann));
        assert!(secrets.unwrap_err().retryable && count.unwrap_err().retryable);
        tokio::time::timeout(Duration::from_secs(40), database.close()).await.unwrap();
    });
}
