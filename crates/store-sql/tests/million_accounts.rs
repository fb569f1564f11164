//! The statements of a login, a message and a roster change read as much in a database of a million accounts as in a small
//! one: nothing that a user does grows with the number of users.
//!
//! PostgreSQL counts the pages that each table and its indexes were read for; MariaDB counts the rows. An index of a million
//! entries is one or two pages deeper than one of ten thousand.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
#[path = "support/large_database.rs"]
mod large_database;
mod support;

use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use sqlx::{ConnectOptions, Connection, Row};
use store::conformance::{jid, join_all};
use store::{OfflineMessage, Quota, RosterItem, RosterUpdate, Stores, Subscription};
use support::runtime;
use support::servers::{administer, new_database, open_url, patient, run_sql};
use test_databases::{Server, ServerKind};
use throng_store_sql::DatabaseOptions;

/// Users who log in, get a message or change their roster.
const USERS: u64 = 100;

/// A database with this number of accounts; returns its URL.
async fn filled(server: &Server, accounts: u64) -> String {
    let url = server.url(&new_database(server).await);
    // Makes the tables.
    open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap().close().await;
    for statement in large_database::fill(server.kind(), accounts) {
        run_sql(&url, &statement).await;
    }
    url
}

/// Accounts that are spread over all.
fn users(accounts: u64) -> impl Iterator<Item = u64> {
    (0..USERS).map(move |user| user * (accounts / USERS) + 7)
}

async fn log_in(stores: &Stores, accounts: u64) {
    for user in users(accounts) {
        let name = jid(&format!("user{user}@example.org"));
        let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
        let login = stores.logins.login(secrets.id, secrets.revision).await.unwrap().unwrap();
        assert_eq!(login.roster.len(), 2);
    }
}

async fn store_messages(stores: &Stores, accounts: u64) {
    for user in users(accounts) {
        let name = jid(&format!("user{user}@example.org"));
        let owner = stores.addresses.find(&name).await.unwrap().unwrap();
        let stanza = b"<message/>".to_vec();
        let message = OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza };
        stores.offline.append(vec![message], Quota::messages_only(100)).await.unwrap();
        assert!(stores.offline.count(owner).await.unwrap() > 0);
        assert!(stores.offline.remove_through(owner, u64::MAX >> 1).await.unwrap() > 0);
    }
}

async fn change_rosters(stores: &Stores, accounts: u64) {
    for user in users(accounts) {
        let owner = jid(&format!("user{user}@example.org"));
        let owner = stores.addresses.find(&owner).await.unwrap().unwrap();
        let contact = jid(&format!("user{}@example.org", user + 9));
        let mut item = RosterItem::new(contact.clone());
        item.subscription = Subscription::IN_ROSTER;
        let put = Box::new(move |_: Option<RosterItem>| RosterUpdate::Put(item));
        stores.roster.update(owner, &contact, put).await.unwrap();
        assert_eq!(stores.roster.get(owner).await.unwrap().items.len(), 3);
    }
}

/// What the server has read so far, and of that by reading whole tables.
async fn read_so_far(server: &Server, url: &str) -> (u64, u64) {
    match server.kind() {
        ServerKind::Postgres => {
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            // The counters of a connection are complete when it has ended.
            let others = "SELECT count(*) FROM pg_stat_activity \
                          WHERE datname = current_database() AND application_name = 'throng'";
            loop {
                let open: i64 = sqlx::query(others).fetch_one(&mut conn).await.unwrap().get(0);
                if open == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // One snapshot of the counters for each connection.
            let sql = "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint, \
                       (SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname IN \
                        ('address', 'account', 'username', 'roster', 'inbox', 'offline')) \
                       FROM pg_statio_user_tables WHERE relname IN \
                       ('address', 'account', 'username', 'roster', 'inbox', 'offline')";
            let row = sqlx::query(sql).fetch_one(&mut conn).await.unwrap();
            let counters = [row.get::<i64, _>(0), row.get::<i64, _>(1)].map(i64::unsigned_abs);
            conn.close().await.unwrap();
            counters.into()
        }
        ServerKind::MariaDb | ServerKind::MySql => {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            let sql = "SHOW GLOBAL STATUS LIKE 'Handler\\_read\\_%'";
            let rows = sqlx::raw_sql(sql).fetch_all(&mut conn).await.unwrap();
            let mut counters = (0, 0);
            for row in rows {
                let (name, value): (String, String) = (row.get(0), row.get(1));
                let value: u64 = value.parse().unwrap();
                counters.0 += value;
                if name.ends_with("_rnd_next") || name.ends_with("_read_first") {
                    counters.1 += value;
                }
            }
            conn.close().await.unwrap();
            counters
        }
    }
}

/// What the three kinds of work read, for all users.
async fn cost(server: &Server, accounts: u64) -> [(u64, u64); 3] {
    let url = filled(server, accounts).await;
    let mut costs = Vec::new();
    for work in ["login", "message", "roster"] {
        let before = read_so_far(server, &url).await;
        let options = DatabaseOptions { pool_size: 1, min_connections: 1, writers: 1, ..patient() };
        let database = open_url(&url, &options, Arc::new(ManualClock::new())).await.unwrap();
        let stores = database.stores();
        match work {
            "login" => log_in(&stores, accounts).await,
            "message" => store_messages(&stores, accounts).await,
            _ => change_rosters(&stores, accounts).await,
        }
        database.close().await;
        let after = read_so_far(server, &url).await;
        costs.push((after.0 - before.0, after.1 - before.1));
    }
    costs.try_into().unwrap()
}

/// PostgreSQL's would read tables at a time of its own.
async fn stop_maintenance(server: &Server) {
    if server.kind() == ServerKind::Postgres {
        administer(server, "ALTER SYSTEM SET autovacuum = off").await;
        administer(server, "SELECT pg_reload_conf()").await;
    }
}

fn nothing_grows(kind: ServerKind, large: u64) {
    // Of its own: MariaDB counts for the whole server.
    let server = &Server::start(kind);
    runtime().block_on(async {
        stop_maintenance(server).await;
        let small = cost(server, 10_000).await;
        let large = cost(server, large).await;
        for ((small, large), work) in small.into_iter().zip(large).zip(["login", "message", "roster"]) {
            // A round of the counters' own look-ups, and one or two pages more for each look-up in an index.
            let bound = small.0 * 2 + USERS;
            assert!(large.0 <= bound, "{kind:?}, {work}: {small:?} read at first, then {large:?}");
            assert!(large.1 <= small.1 + USERS, "{kind:?}, {work}: whole tables: {small:?}, then {large:?}");
        }
    });
}

#[test]
fn nothing_that_a_user_does_reads_more_in_a_million_accounts_on_postgresql() {
    nothing_grows(ServerKind::Postgres, 1_000_000);
}

#[test]
fn nothing_that_a_user_does_reads_more_in_many_accounts_on_mariadb() {
    nothing_grows(ServerKind::MariaDb, 200_000);
}

/// Logins of many users at the same time share statements, whose lists of values must not change their plans either.
#[test]
fn shared_statements_read_no_whole_table_in_many_accounts() {
    const ACCOUNTS: u64 = 100_000;
    for kind in [ServerKind::Postgres, ServerKind::MariaDb] {
        let server = &Server::start(kind);
        runtime().block_on(async {
            stop_maintenance(server).await;
            let url = filled(server, ACCOUNTS).await;
            let before = read_so_far(server, &url).await;
            let database = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
            let stores = database.stores();
            for _ in 0..10 {
                let names: Vec<_> =
                    users(ACCOUNTS).map(|user| jid(&format!("user{user}@example.org"))).collect();
                let secrets = names.iter().map(|name| stores.logins.secrets(name.as_ref())).collect();
                let found = join_all(secrets).await.into_iter().map(|found| found.unwrap().unwrap());
                let logins = found.map(|found| stores.logins.login(found.id, found.revision)).collect();
                join_all(logins).await.into_iter().for_each(|login| assert!(login.unwrap().is_some()));
            }
            database.close().await;
            let after = read_so_far(server, &url).await;
            // Thirty times less than one table.
            assert!(after.1 - before.1 < ACCOUNTS / 30, "{kind:?}: {before:?}, {after:?}");
        });
    }
}
