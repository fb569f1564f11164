//! Plans of the statements of logins, messages and rosters on PostgreSQL, compared with golden files.
//!
//! The plans are those for any values (`plan_cache_mode = force_generic_plan`), in a database of 20 000 accounts whose
//! statistics are complete, so they are the same each time. In the empty database no statement reads a whole table either: a
//! server keeps such a plan while the table grows. A major version of the server has a file of its own; for one
//! without a file the test only checks that no statement reads a whole table. When a plan changes, the failing test
//! writes the new file and reports where it is, and the change must be looked at before the file is stored.

#[path = "../tests/support/large_database.rs"]
mod large_database;

use std::path::Path;
use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Row};
use test_databases::{Server, ServerKind};

use crate::context::SqlContext;
use crate::dialect::postgres::{INDEX_PLAN_SETTINGS, PostgresDialect};
use crate::tables::{Statements, TableStatements};
use crate::test_spawner::HandleSpawner;
use crate::{DatabaseOptions, SqlStores};

const ACCOUNTS: u64 = 20_000;

/// The highest number of a placeholder.
fn placeholders(text: &str) -> usize {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.split('$').skip(1).filter_map(|part| digits(part).parse().ok()).max().unwrap_or(0)
}

/// The plan of a statement, a line for each step.
async fn plan(conn: &mut PgConnection, text: &str) -> Vec<String> {
    sqlx::raw_sql(&format!("PREPARE planned AS {text}")).execute(&mut *conn).await.unwrap();
    let values = vec!["NULL"; placeholders(text)].join(", ");
    let call = if values.is_empty() { "planned".to_owned() } else { format!("planned({values})") };
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE {call}");
    let rows = sqlx::raw_sql(&explain).fetch_all(&mut *conn).await.unwrap();
    sqlx::raw_sql("DEALLOCATE planned").execute(&mut *conn).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

#[test]
fn statements_of_logins_messages_and_rosters_have_their_golden_plans() {
    let server = Server::start(ServerKind::Postgres);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = server.default_url();
        let spawner = HandleSpawner(tokio::runtime::Handle::current());
        let clock = Arc::new(base::ManualClock::new());
        // Makes the tables.
        let options = DatabaseOptions::default();
        SqlStores::open(&url, &options, clock.clone(), &spawner).await.unwrap().close().await;
        let connect: PgConnectOptions = url.parse().unwrap();
        let mut conn = connect.connect().await.unwrap();
        // As the connections of the program are set up.
        let setup = format!(
            "SET plan_cache_mode = force_generic_plan; SET default_transaction_isolation = 'read committed'\
             {INDEX_PLAN_SETTINGS}"
        );
        sqlx::raw_sql(&setup).execute(&mut conn).await.unwrap();
        let context = SqlContext::new(Box::new(PostgresDialect), clock);
        // Plans made now are kept while the tables grow.
        plans(&mut conn, &context.sql, usize::MAX).await;
        for statement in large_database::fill(ServerKind::Postgres, ACCOUNTS) {
            sqlx::raw_sql(&statement).execute(&mut conn).await.unwrap();
        }
        // The plan of 64 values is that of one with more constants.
        let plans = plans(&mut conn, &context.sql, 63).await;
        let version: String =
            sqlx::query("SHOW server_version_num").fetch_one(&mut conn).await.unwrap().get(0);
        conn.close().await.unwrap();
        compare(&plans, version.parse::<u32>().unwrap() / 10_000);
    });
}

/// The plans of all statements with at most this number of values. None reads a whole table.
async fn plans(conn: &mut PgConnection, sql: &Statements, max_values: usize) -> String {
    let groups = [
        ("address_dictionary", sql.address_dictionary.all()),
        ("account_kv", sql.account_kv.all()),
        ("blocklists", sql.blocklists.all()),
        ("last_seen", sql.last_seen.all()),
        ("logins", sql.logins.all()),
        ("offline", sql.offline.all()),
        ("roster", sql.roster.all()),
        ("subscription_sets", sql.subscription_sets.all()),
        ("tokens", sql.tokens.all()),
        ("vcards", sql.vcards.all()),
    ];
    let mut plans = String::new();
    for (group, texts) in groups {
        plans += &format!("-- {group}\n");
        for text in texts.into_iter().filter(|text| placeholders(text) <= max_values) {
            let steps = plan(conn, text).await;
            let reads_all = ["Seq Scan on", "Hash Join", "Hash Right Join", "Hash Left Join", "Merge"];
            let is_bad = |step: &String| reads_all.iter().any(|bad| step.contains(bad));
            assert!(!steps.iter().any(is_bad), "{text}\n{steps:#?}");
            plans += &format!("{text}\n    {}\n", steps.join("\n    "));
        }
    }
    plans
}

/// Compares the plans with the golden file of this version.
fn compare(plans: &str, version: u32) {
    let name = format!("postgres-{version}-plans.txt");
    let golden = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(&name));
    if version != GOLDEN_VERSION && golden.is_err() {
        return;
    }
    if golden.unwrap_or_default() != plans {
        let new = std::env::temp_dir().join(&name);
        std::fs::write(&new, plans).unwrap();
        panic!("golden/{name} should be {}:\n{plans}", new.display());
    }
}

/// That of Debian 12, which must have a file.
const GOLDEN_VERSION: u32 = 15;
