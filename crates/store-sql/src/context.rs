//! Context shared by all connections: dialect, statements, clock and counters.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Clock;
use base::count::{Histogram, LATENCY_BUCKETS_MICROS, SIZE_BUCKETS};
use tokio::sync::Notify;

use crate::dialect::Dialect;
use crate::tables::Statements;

pub(crate) struct SqlContext {
    pub(crate) dialect: Box<dyn Dialect>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Statements of any kind sent to the database.
    pub(crate) round_trips: AtomicU64,
    /// Transactions committed by the writer.
    pub(crate) commits: AtomicU64,
    /// Transactions that ran again after a conflict or a lost connection.
    pub(crate) write_retries: AtomicU64,
    /// Notified after each of them.
    pub(crate) committed: Notify,
    /// Duration of the writer's transactions from begin to commit, in microseconds.
    pub(crate) commit_time: Arc<Histogram>,
    /// Requests per transaction.
    pub(crate) commit_size: Arc<Histogram>,
    pub(crate) sql: Statements,
}

impl SqlContext {
    pub(crate) fn new(dialect: Box<dyn Dialect>, clock: Arc<dyn Clock>) -> Arc<SqlContext> {
        Arc::new(SqlContext {
            sql: Statements::new(dialect.as_ref()),
            dialect,
            clock,
            round_trips: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            write_retries: AtomicU64::new(0),
            committed: Notify::new(),
            commit_time: Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)),
            commit_size: Arc::new(Histogram::new(SIZE_BUCKETS)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::sqlite::SqliteDialect;
    use sqlx::Row;

    /// Limits what an unauthenticated client can make the database do: one row of one length, whatever exists.
    #[test]
    fn secrets_of_an_unknown_account_are_as_long_as_those_of_an_account_with_a_large_roster() {
        let context = SqlContext::new(Box::new(SqliteDialect), Arc::new(base::ManualClock::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut conn = crate::migrate::in_memory().await;
            let fill = "INSERT INTO address (id, jid) VALUES (1, 'juliet@a.org'), (2, 'nobody@a.org'), (3, 'a.org');
                        INSERT INTO account (id, domain, created_at, disabled, roster_version, credentials)
                        VALUES (1, 3, 0, 0, 0, randomblob(300));
                        WITH RECURSIVE n(n) AS (VALUES (3) UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
                        INSERT INTO roster (owner, contact, subscription, label) SELECT 1, n, 35, randomblob(9999) FROM n";
            sqlx::raw_sql(fill).execute(&mut conn).await.unwrap();
            let (_, text) = context.sql.logins.all_secrets().at_least(1);
            let mut lengths = Vec::new();
            for name in ["juliet@a.org", "nobody@a.org", "noname@a.org"] {
                let rows = sqlx::query(text).bind(name).fetch_all(&mut conn).await.unwrap();
                assert_eq!(rows.len(), 1, "{name}");
                lengths.push(rows[0].get::<String, _>(0).len());
            }
            assert_eq!(lengths, [lengths[0]; 3]);
            assert!(lengths[0] < 700, "{lengths:?}");
        });
    }

    /// Every statement finds its rows through a key, whatever the size of the tables.
    #[test]
    fn no_statement_reads_a_whole_table() {
        let context = SqlContext::new(Box::new(SqliteDialect), Arc::new(base::ManualClock::new()));
        let texts = context.sql.all();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut conn = crate::migrate::in_memory().await;
            for text in texts {
                let explain = format!("EXPLAIN QUERY PLAN {text}");
                let rows = sqlx::query(&explain).fetch_all(&mut conn).await.unwrap();
                let plan: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
                assert!(!plan.is_empty(), "{text}");
                // Fetching in key order needs no sorting either. Counted rows come from a key, too.
                let bad = plan.iter().any(|step| {
                    let listed = step.contains("CONSTANT ROW") || step.starts_with("SCAN found");
                    step.starts_with("SCAN") && !listed || step.contains("TEMP B-TREE FOR ORDER")
                });
                assert!(!bad, "{text}\n{plan:#?}");
            }
        });
    }
}
