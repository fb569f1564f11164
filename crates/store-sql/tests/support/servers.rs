//! Databases on real servers: one server of each kind per test program, and a database for each test.
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, each using a part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy sees helpers outside of #[test] as ordinary code; the output of a failed test names its server"
)]

use std::sync::{Arc, OnceLock};

use base::{Clock, ManualClock};
use sqlx::{ConnectOptions, Connection};
use store::StoreError;
use store::conformance::{Backend, Case, Fixture};
use test_databases::{Server, ServerKind, ServerSetup};
use throng_store_sql::{DatabaseOptions, SqlStores};
use tokio::runtime::Handle;

use super::{SqliteTestSpawner, runtime};

/// The server that the tests of this program share.
pub fn shared_server(kind: ServerKind) -> &'static Server {
    static SERVERS: [OnceLock<Server>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
    SERVERS[kind as usize].get_or_init(|| Server::start(kind))
}

/// Runs a test on the shared server of each kind.
pub fn on_each_server(test: impl AsyncFn(&'static Server)) {
    for kind in ServerKind::ALL {
        run_on(shared_server(kind), &test);
    }
}

/// Runs a test on a server of its own of each kind.
pub fn on_own_servers(setup: &ServerSetup, test: impl AsyncFn(&Server)) {
    for kind in ServerKind::ALL {
        run_on(&Server::start_with(kind, setup), &test);
    }
}

fn run_on<'a>(server: &'a Server, test: &impl AsyncFn(&'a Server)) {
    // Shown if the test fails.
    println!("on {:?}:", server.kind());
    runtime().block_on(test(server));
}

/// Runs statements in the administrative database of a server.
pub async fn administer(server: &Server, sql: &str) {
    run_sql(&server.admin_url(), sql).await;
}

/// Runs statements in a database.
pub async fn run_sql(url: &str, sql: &str) {
    match url.starts_with("postgres") {
        true => {
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
            conn.close().await.unwrap();
        }
        false => {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
            conn.close().await.unwrap();
        }
    }
}

/// The only column, of texts, of all rows of a query.
pub async fn query_texts(url: &str, sql: &str) -> Vec<String> {
    match url.starts_with("postgres") {
        true => {
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            sqlx::query_scalar(sql).fetch_all(&mut conn).await.unwrap()
        }
        false => {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            sqlx::query_scalar(sql).fetch_all(&mut conn).await.unwrap()
        }
    }
}

/// A new, empty database; returns its name.
pub async fn new_database(server: &Server) -> String {
    let name = server.unused_database();
    administer(server, &format!("CREATE DATABASE {name}")).await;
    name
}

pub async fn open_url(
    url: &str,
    options: &DatabaseOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<SqlStores>, StoreError> {
    SqlStores::open(url, options, clock, &SqliteTestSpawner(Handle::current())).await
}

fn run_case(kind: ServerKind, case: Case) {
    let server = shared_server(kind);
    runtime().block_on(async {
        let name = new_database(server).await;
        let clock = Arc::new(ManualClock::new());
        let database = open_url(&server.url(&name), &patient(), clock.clone()).await.unwrap();
        case(Fixture { stores: database.stores(), clock }).await;
        database.close().await;
        administer(server, &format!("DROP DATABASE {name}")).await;
    });
}

/// A fresh PostgreSQL database for each case.
pub struct PostgresBackend;

impl Backend for PostgresBackend {
    fn run(case: Case) {
        run_case(ServerKind::Postgres, case);
    }
}

/// A fresh MariaDB database for each case.
pub struct MariaDbBackend;

impl Backend for MariaDbBackend {
    fn run(case: Case) {
        run_case(ServerKind::MariaDb, case);
    }
}

/// A fresh MySQL database for each case.
pub struct MySqlBackend;

impl Backend for MySqlBackend {
    fn run(case: Case) {
        run_case(ServerKind::MySql, case);
    }
}

/// Options under which no call misses its deadline, however slow the machine is.
pub fn patient() -> DatabaseOptions {
    let minutes = std::time::Duration::from_secs(300);
    DatabaseOptions {
        read_deadline: minutes,
        write_deadline: minutes,
        connect_timeout: minutes,
        ..DatabaseOptions::default()
    }
}
