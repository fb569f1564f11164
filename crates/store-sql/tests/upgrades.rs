//! Schemas on real servers: the migration of every released one, nodes that migrate together, and migrations that were
//! interrupted. Those of SQLite are in `open.rs`.
//!
//! A dump of each released schema is in `tests/dumps` and is never changed.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use sqlx::{ConnectOptions, Connection};
use store::conformance::join_all;
use support::servers::{
    new_database, on_each_server, open_url, patient, query_texts, run_sql, shared_server,
};
use support::{contents, runtime};
use test_databases::{Proxy, Server, ServerKind};
use throng_store_sql::{DatabaseState, SqlStores, inspect};
use tokio::runtime::Handle;

/// Every released schema, filled by a program of that version.
fn dumps(kind: ServerKind) -> &'static [&'static str] {
    match kind {
        ServerKind::Postgres => &[include_str!("dumps/postgres_0005.sql")],
        ServerKind::MariaDb | ServerKind::MySql => &[include_str!("dumps/mysql_0005.sql")],
    }
}

const MYSQL_START: &str = include_str!("../migrations/mysql/0005_start.sql");

const SCHEMA_TABLE: &str =
    "CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL)";

async fn open(url: &str) -> Arc<SqlStores> {
    open_url(url, &patient(), Arc::new(ManualClock::new())).await.unwrap()
}

/// All columns, indexes and options of the tables of a database.
async fn schema(url: &str) -> Vec<String> {
    let queries = match url.starts_with("postgres") {
        true => [
            "SELECT concat_ws(' ', table_name, column_name, data_type, collation_name, is_nullable, column_default, \
             identity_generation, identity_maximum) FROM information_schema.columns \
             WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position",
            "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname",
            "SELECT concat_ws(' ', relname, array_to_string(reloptions, ' ')) FROM pg_class \
             WHERE relnamespace = current_schema()::regnamespace ORDER BY relname",
        ],
        false => [
            "SELECT CONVERT(concat_ws(' ', table_name, column_name, column_type, is_nullable, column_default, extra) \
             USING utf8mb4) FROM information_schema.columns WHERE table_schema = database() \
             ORDER BY table_name, ordinal_position",
            "SELECT CONVERT(concat_ws(' ', table_name, index_name, seq_in_index, column_name, non_unique) USING utf8mb4) \
             FROM information_schema.statistics WHERE table_schema = database() \
             ORDER BY table_name, index_name, seq_in_index",
            "SELECT CONVERT(concat_ws(' ', table_name, engine, row_format) USING utf8mb4) \
             FROM information_schema.tables WHERE table_schema = database() ORDER BY table_name",
        ],
    };
    let mut all = Vec::new();
    for query in queries {
        all.extend(query_texts(url, query).await);
    }
    all
}

/// The schema of a new database.
async fn newest_schema(server: &Server) -> Vec<String> {
    let url = server.url(&new_database(server).await);
    open(&url).await.close().await;
    let newest = schema(&url).await;
    assert!(newest.len() > 60, "{newest:#?}");
    newest
}

#[test]
fn ten_nodes_that_start_together_migrate_every_released_schema() {
    on_each_server(async |server| {
        let newest = newest_schema(server).await;
        for dump in dumps(server.kind()) {
            let url = server.url(&new_database(server).await);
            run_sql(&url, dump).await;
            let nodes = join_all((0..10).map(|_| open(&url)).collect()).await;
            let migrated = inspect(&url, None).await.unwrap();
            assert!(matches!(migrated, DatabaseState::Schema { version, newest } if version == newest));
            contents::check(&nodes[0].stores()).await;
            join_all(nodes.iter().map(|node| node.close()).collect()).await;
            assert_eq!(schema(&url).await, newest);
        }
    });
}

/// Runs this while another connection holds the lock that keeps nodes from migrating at the same time. Versions that start
/// together must have the same one, so it never changes.
async fn with_migration_lock(server: &Server, url: &str, work: impl Future<Output = ()>) {
    match server.kind() {
        ServerKind::Postgres => {
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            let lock = "SELECT pg_advisory_lock(8390877713412350823)";
            sqlx::raw_sql(lock).execute(&mut conn).await.unwrap();
            work.await;
            conn.close().await.unwrap();
        }
        ServerKind::MariaDb | ServerKind::MySql => {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let mut conn = options.connect().await.unwrap();
            let lock = "SELECT get_lock(concat('throng.', sha2(database(), 224)), 604800)";
            sqlx::raw_sql(lock).execute(&mut conn).await.unwrap();
            work.await;
            conn.close().await.unwrap();
        }
    }
}

#[test]
fn nodes_wait_for_the_one_that_migrates() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        let mut nodes = Vec::new();
        with_migration_lock(server, &url, async {
            for _ in 0..10 {
                let url = url.clone();
                nodes.push(Handle::current().spawn(async move { open(&url).await }));
            }
            // On a slow machine they have not even begun, which shows less but is not wrong.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert!(nodes.iter().all(|node| !node.is_finished()));
            assert_eq!(inspect(&url, None).await.unwrap(), DatabaseState::Missing);
        })
        .await;
        for node in nodes {
            node.await.unwrap().close().await;
        }
        assert_eq!(schema(&url).await, newest_schema(server).await);
    });
}

/// PostgreSQL has done nothing then, and MySQL all of it but its record.
#[test]
fn a_migration_whose_connection_was_cut_is_repeated() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let through = server.url_through(proxy.address(), &name);
        proxy.cut_answer_to("write_batch");
        let cut = open_url(&through, &patient(), Arc::new(ManualClock::new())).await.err().unwrap();
        assert!(cut.to_string().contains("migration 0005_start failed"), "{cut}");
        assert_eq!(proxy.cuts(), 1);
        let database = open(&server.url(&name)).await;
        contents::fill(&database.stores()).await;
        database.close().await;
        assert_eq!(schema(&server.url(&name)).await, newest_schema(server).await);
    });
}

/// A server that is killed has done some of the statements, each of which commits in MySQL.
#[test]
fn a_migration_of_mysql_that_ended_after_any_statement_is_repeated() {
    let server = shared_server(ServerKind::MariaDb);
    let text: String = MYSQL_START.lines().filter(|line| !line.starts_with("--")).collect();
    let statements: Vec<&str> = text.split(';').filter(|statement| !statement.trim().is_empty()).collect();
    assert!(statements.len() > 10);
    runtime().block_on(async {
        let newest = newest_schema(server).await;
        for done in 0..=statements.len() {
            let url = server.url(&new_database(server).await);
            let sql = [&[SCHEMA_TABLE], &statements[..done]].concat().join(";\n");
            run_sql(&url, &sql).await;
            open(&url).await.close().await;
            assert_eq!(schema(&url).await, newest, "after {done} statements");
        }
    });
}

/// Writes a dump of each newest schema into `tests/dumps`, for [`dumps`]: `cargo test -p throng-store-sql --test upgrades -- \
/// --ignored`.
#[test]
#[ignore = "run by hand when a schema is released"]
fn dump() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for kind in [ServerKind::Postgres, ServerKind::MariaDb] {
        let server = shared_server(kind);
        let name = match kind {
            ServerKind::Postgres => "postgres",
            ServerKind::MariaDb | ServerKind::MySql => "mysql",
        };
        let (mut version, mut tables) = (0, format!("{SCHEMA_TABLE};\n\n"));
        let migrations = fs::read_dir(crate_folder.join("migrations").join(name)).unwrap();
        let mut migrations: Vec<PathBuf> = migrations.map(|entry| entry.unwrap().path()).collect();
        migrations.sort();
        for migration in migrations {
            tables += &fs::read_to_string(migration).unwrap();
            tables.push('\n');
        }
        let rows = runtime().block_on(async {
            let url = server.url(&new_database(server).await);
            let database = open(&url).await;
            contents::fill(&database.stores()).await;
            database.close().await;
            if let DatabaseState::Schema { newest, .. } = inspect(&url, None).await.unwrap() {
                version = newest;
            }
            rows(kind, &url).await
        });
        let mut file =
            fs::File::create_new(crate_folder.join(format!("tests/dumps/{name}_{version:04}.sql"))).unwrap();
        file.write_all((tables + &rows).as_bytes()).unwrap();
    }
}

/// Statements that insert all rows of a database.
async fn rows(kind: ServerKind, url: &str) -> String {
    let (schema, number, text, bytes) = match kind {
        ServerKind::Postgres => (
            "current_schema()",
            "coalesce({}::text, 'NULL')",
            "coalesce(quote_literal({}), 'NULL')",
            "coalesce(quote_literal('\\x' || encode({}, 'hex')), 'NULL')",
        ),
        ServerKind::MariaDb | ServerKind::MySql => (
            "database()",
            "coalesce(cast({} AS CHAR), 'NULL')",
            "quote({})",
            "coalesce(concat('x''', hex({}), ''''), 'NULL')",
        ),
    };
    let columns = query_texts(
        url,
        &format!(
            "SELECT concat(table_name, ' ', column_name, ' ', data_type) FROM information_schema.columns \
             WHERE table_schema = {schema} ORDER BY table_name, ordinal_position"
        ),
    )
    .await;
    let mut tables: Vec<(&str, Vec<String>)> = Vec::new();
    for column in &columns {
        let [table, name, data_type] = column.splitn(3, ' ').collect::<Vec<_>>()[..] else { continue };
        let literal = match data_type {
            "bigint" | "integer" | "int" => number,
            "text" => text,
            _ => bytes,
        };
        if tables.last().is_none_or(|(last, _)| *last != table) {
            tables.push((table, Vec::new()));
        }
        tables.last_mut().unwrap().1.push(literal.replace("{}", name));
    }
    let mut sql = String::new();
    for (table, literals) in tables {
        let select = format!("SELECT concat({}) FROM {table}", literals.join(", ', ', "));
        for row in query_texts(url, &select).await {
            writeln!(sql, "INSERT INTO {table} VALUES ({row});").unwrap();
        }
    }
    if kind == ServerKind::Postgres {
        sql += "SELECT setval(pg_get_serial_sequence('address', 'id'), max(id)) FROM address;\n";
    }
    sql
}
