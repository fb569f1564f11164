//! Connections to real servers: encryption, sockets, how many stay open, and statements that were prepared before a
//! migration.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]
mod support;

use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use store::conformance::{account, jid, join_all, login};
use store::{StoreErrorKind, Stores, TokensUpdateOutcome};
use support::servers::{
    administer, new_database, on_each_server, on_own_servers, open_url, patient, run_sql,
};
use support::{TempDir, runtime};
use test_databases::{Proxy, Server, ServerKind, ServerSetup};
use throng_store_sql::{DatabaseOptions, DatabaseState, PoolStats, SqlStores, inspect};

async fn open(url: &str, options: &DatabaseOptions) -> Arc<SqlStores> {
    open_url(url, options, Arc::new(ManualClock::new())).await.unwrap()
}

/// A certificate for this name that signs itself, and its key.
fn certificate(name: &str) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    [made.cert.pem(), made.signing_key.serialize_pem()]
}

#[test]
fn an_encrypted_connection_requires_the_authority_and_the_name_of_the_server() {
    let directory = TempDir::new();
    let [own, other] = ["own.pem", "other.pem"].map(|name| directory.0.join(name));
    let certificate_and_key = certificate("127.0.0.1");
    std::fs::write(&own, &certificate_and_key[0]).unwrap();
    std::fs::write(&other, &certificate("127.0.0.1")[0]).unwrap();
    let setup = ServerSetup { certificate: Some(certificate_and_key), ..ServerSetup::default() };
    on_own_servers(&setup, async |server| {
        // The tested MySQL has OpenSSL 1.0.2, which has no cipher suite in common with rustls.
        if server.kind() == ServerKind::MySql {
            return;
        }
        // The server accepts no other connections, so what works below is encrypted.
        inspect(&server.default_url(), None).await.unwrap_err();
        let url = server.encrypted_url(&own);
        let other_name = url.replacen("@127.0.0.1:", "@localhost:", 1);
        assert_ne!(url, other_name);
        for wrong in [server.encrypted_url(&other), other_name] {
            let refused = inspect(&wrong, None).await.unwrap_err();
            assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
            assert!(refused.to_string().contains("cannot encrypt"), "{refused}");
        }
        assert_eq!(inspect(&url, None).await.unwrap(), DatabaseState::Missing);
        let database = open(&url, &patient()).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        login(&stores, &jid("ann@example.org")).await;
        database.close().await;
    });
}

#[test]
fn a_server_can_be_reached_over_its_socket() {
    on_each_server(async |server| {
        let found = inspect(&server.socket_url(), None).await.unwrap();
        assert_eq!(found, DatabaseState::Missing);
    });
}

/// Joined texts would be cut at this length.
#[test]
fn a_server_that_accepts_too_small_packets_is_refused_by_a_check_and_a_start() {
    let server = Server::start(ServerKind::MariaDb);
    runtime().block_on(async {
        administer(&server, "SET GLOBAL max_allowed_packet = 1048576").await;
        let url = server.default_url();
        let checked = inspect(&url, None).await.unwrap_err();
        let opened = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.err().unwrap();
        for refused in [checked, opened] {
            assert_eq!(refused.kind, StoreErrorKind::Setup, "{refused}");
            assert!(refused.to_string().contains("raise it in the server's configuration"), "{refused}");
        }
    });
}

fn reads(database: &SqlStores) -> PoolStats {
    database.stats().pools.into_iter().find(|pool| pool.name == "read").unwrap()
}

/// Reads that all run at the same time.
async fn read_concurrently(stores: &Stores) {
    let name = jid("ann@example.org");
    let found = join_all((0..20).map(|_| stores.accounts.exists(name.as_ref())).collect()).await;
    assert!(found.into_iter().all(|found| found.unwrap()));
}

async fn wait_until(mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), waiting).await.unwrap();
}

#[test]
fn the_minimum_of_connections_is_open_from_the_start_and_more_on_demand() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let options = DatabaseOptions { pool_size: 6, min_connections: 2, writers: 3, ..patient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let open_now: Vec<_> =
            database.stats().pools.iter().map(|pool| (pool.name, pool.min, pool.idle)).collect();
        assert_eq!(open_now, [("write", 3, 3), ("read", 2, 2), ("login", 1, 1)]);
        account(&database.stores(), "ann").await;
        // Without a delay two connections may serve all reads before a third is open.
        proxy.delay(Duration::from_millis(20));
        wait_until(async || {
            read_concurrently(&database.stores()).await;
            reads(&database).idle > 2
        })
        .await;
        assert!(reads(&database).idle <= 6);
        database.close().await;
    });
}

#[test]
fn idle_connections_are_closed_down_to_the_minimum_and_lost_ones_replaced() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let idle_timeout = Duration::from_millis(50);
        let options = DatabaseOptions { pool_size: 6, min_connections: 2, idle_timeout, ..patient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        read_concurrently(&stores).await;
        wait_until(async || reads(&database).idle == 2).await;
        // The reads that use them open others.
        proxy.cut();
        read_concurrently(&stores).await;
        wait_until(async || reads(&database).idle == 2).await;
        read_concurrently(&stores).await;
        database.close().await;
    });
}

/// The open connection suffices for everything, and stays open although it is idle for long between attempts to open others.
/// Afterwards no call needs another one.
#[test]
fn the_circuit_closes_when_the_server_accepts_connections_again() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let idle_timeout = Duration::from_millis(50);
        let options = DatabaseOptions { pool_size: 6, min_connections: 1, idle_timeout, ..patient() };
        let database = open(&server.url_through(proxy.address(), &name), &options).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        wait_until(async || reads(&database).idle == 1).await;
        proxy.refuse_new(true);
        proxy.delay(Duration::from_millis(20));
        wait_until(async || {
            read_concurrently(&stores).await;
            reads(&database).circuit_open
        })
        .await;
        proxy.refuse_new(false);
        wait_until(async || !reads(&database).circuit_open).await;
        database.close().await;
    });
}

/// Another node has migrated the schema: a server may refuse statements that were prepared for the former one.
#[test]
fn statements_that_were_prepared_before_a_migration_are_prepared_again() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        let options = DatabaseOptions { pool_size: 1, min_connections: 1, writers: 1, ..patient() };
        let database = open(&url, &options).await;
        let stores = database.stores();
        account(&stores, "ann").await;
        let ann = jid("ann@example.org");
        let use_statements = async |token: u8| {
            assert!(stores.accounts.exists(ann.as_ref()).await.unwrap());
            let put = Box::new(move |_: &[u8]| Some(vec![token]));
            let done = stores.tokens.update_tokens(ann.as_ref(), None, put).await.unwrap();
            assert_eq!(done, TokensUpdateOutcome::Applied);
            let found = stores.logins.secrets(ann.as_ref()).await.unwrap().unwrap();
            assert_eq!(found.tokens, [token]);
        };
        use_statements(1).await;
        // Both a read and a write select this column.
        run_sql(
            &url,
            match server.kind() {
                ServerKind::Postgres => "ALTER TABLE account ALTER COLUMN disabled TYPE integer",
                ServerKind::MariaDb | ServerKind::MySql => "ALTER TABLE account MODIFY disabled INT NOT NULL",
            },
        )
        .await;
        use_statements(2).await;
        database.close().await;
    });
}
