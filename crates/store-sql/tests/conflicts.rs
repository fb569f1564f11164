//! Transactions that the server aborts because they compete with others run again and are stored once, whichever error the
//! server reports.
//!
//! READ COMMITTED, which the node asks for, has no serialisation failures of its own on PostgreSQL; servers that speak its
//! protocol have. So a trigger raises the errors, a known number of times.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ManualClock;
use store::conformance::{account, jid, join_all};
use store::{AppendOutcome, OfflineMessage, Page, Quota, TokensUpdateOutcome};
use support::servers::{new_database, on_each_server, open_url, patient, run_sql};
use test_databases::{Server, ServerKind};
use throng_store_sql::SqlStores;

/// How often the server aborts a transaction before it commits.
const ABORTS: u64 = 3;

/// The errors of a server: a serialisation failure, a deadlock and a lock timeout.
fn errors(kind: ServerKind) -> &'static [&'static str] {
    match kind {
        ServerKind::Postgres => &["40001", "40P01", "55P03"],
        ServerKind::MariaDb | ServerKind::MySql => &["1213", "1205", "1020"],
    }
}

/// Lets each insertion of a message fail so often. The counter is not rolled back.
async fn provoke(server: &Server, name: &str, error: &str) {
    if server.kind() == ServerKind::Postgres {
        let sql = format!(
            "CREATE SEQUENCE aborts; CREATE FUNCTION provoke() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('aborts') <= {ABORTS} THEN RAISE SQLSTATE '{error}'; END IF; RETURN NULL; END $$; \
             CREATE TRIGGER provoke BEFORE INSERT ON offline FOR EACH STATEMENT EXECUTE FUNCTION provoke()"
        );
        return run_sql(&server.url(name), &sql).await;
    }
    let url = server.admin_url().replacen("/mysql?", &format!("/{name}?"), 1);
    let sql = "CREATE TABLE aborts (n INT) ENGINE = MyISAM; INSERT INTO aborts VALUES (0)";
    run_sql(&url, sql).await;
    let sql = format!(
        "CREATE TRIGGER provoke BEFORE INSERT ON offline FOR EACH ROW BEGIN UPDATE aborts SET n = n + 1; \
         IF (SELECT n FROM aborts) <= {ABORTS} THEN \
         SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {error}, MESSAGE_TEXT = 'aborted'; END IF; END"
    );
    run_sql(&url, &sql).await;
}

#[test]
fn a_transaction_that_the_server_aborts_runs_again_and_stores_a_message_once() {
    on_each_server(async |server| {
        for error in errors(server.kind()) {
            let name = new_database(server).await;
            let database =
                open_url(&server.url(&name), &patient(), Arc::new(ManualClock::new())).await.unwrap();
            let stores = database.stores();
            let owner = account(&stores, "ann").await;
            provoke(server, &name, error).await;
            let before = database.write_retries();
            let stanza = b"one".to_vec();
            let message = OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza };
            let done = stores.offline.append(vec![message], Quota::messages_only(100)).await.unwrap();
            assert!(matches!(done[..], [AppendOutcome::Stored { .. }]), "{error}: {done:?}");
            assert_eq!(database.write_retries() - before, ABORTS, "{error}");
            let page = stores.offline.fetch(owner, Page::first(100), 0).await.unwrap();
            assert_eq!(page.items.len(), 1, "{error}");
            database.close().await;
        }
    });
}

async fn open(url: &str) -> Arc<SqlStores> {
    open_url(url, &patient(), Arc::new(ManualClock::new())).await.unwrap()
}

/// A login token is consumed by one of the nodes that receive it at the same time, whichever writer of them has it (XEP-0484,
/// sections 3.5 and 3.6: rotation and invalidation decide in the transaction).
#[test]
fn nodes_that_change_the_same_login_tokens_at_once_agree_on_who_did() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        let nodes = [open(&url).await, open(&url).await];
        let stores = nodes.each_ref().map(SqlStores::stores);
        account(&stores[0], "ann").await;
        let ann = jid("ann@example.org");
        for _round in 0..20 {
            let put = Box::new(|_: &[u8]| Some(b"token".to_vec()));
            stores[0].tokens.update_tokens(ann.as_ref(), None, put).await.unwrap();
            let won = Arc::new(AtomicU64::new(0));
            let tries = (0..10).map(|n| {
                let won = won.clone();
                let take = move |before: &[u8]| {
                    (before == b"token").then(|| {
                        won.fetch_add(1, Ordering::Relaxed);
                        b"used".to_vec()
                    })
                };
                stores[n % 2].tokens.update_tokens(ann.as_ref(), None, Box::new(take))
            });
            let done = join_all(tries.collect()).await;
            assert!(done.into_iter().all(|done| done.unwrap() == TokensUpdateOutcome::Applied));
            assert_eq!(won.load(Ordering::Relaxed), 1);
        }
        for node in nodes {
            node.close().await;
        }
    });
}
