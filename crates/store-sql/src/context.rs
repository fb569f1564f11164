//! Context shared by all connections: dialect, statements, clock and counters.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Clock;
use base::count::{Histogram, LATENCY_BUCKETS_MICROS, SIZE_BUCKETS};

use crate::dialect::Dialect;
use crate::tables::{
    account_kv, accounts, address_dictionary, blocklists, last_seen, logins, offline, roster, server_kv,
    tokens, user_search, vcards,
};

pub(crate) struct SqlContext {
    pub(crate) dialect: Box<dyn Dialect>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Statements of any kind sent to the database.
    pub(crate) round_trips: AtomicU64,
    /// Transactions committed by the writer.
    pub(crate) commits: AtomicU64,
    /// Duration of the writer's transactions from begin to commit, in microseconds.
    pub(crate) commit_time: Arc<Histogram>,
    /// Requests per transaction.
    pub(crate) commit_size: Arc<Histogram>,
    pub(crate) accounts: accounts::AccountStatements,
    pub(crate) addresses: address_dictionary::AddressStatements,
    pub(crate) logins: logins::LoginStatements,
    pub(crate) offline: offline::OfflineStatements,
    pub(crate) roster: roster::RosterStatements,
    pub(crate) server_kv: server_kv::ServerKvStatements,
    pub(crate) blocklists: blocklists::BlocklistStatements,
    pub(crate) user_search: user_search::UserSearchStatements,
    pub(crate) last_seen: last_seen::LastSeenStatements,
    pub(crate) account_kv: account_kv::AccountKvStatements,
    pub(crate) tokens: tokens::TokenStatements,
    pub(crate) vcards: vcards::VcardStatements,
}

impl SqlContext {
    pub(crate) fn new(dialect: Box<dyn Dialect>, clock: Arc<dyn Clock>) -> Arc<SqlContext> {
        let d = dialect.as_ref();
        Arc::new(SqlContext {
            accounts: accounts::AccountStatements::new(d),
            addresses: address_dictionary::AddressStatements::new(d),
            logins: logins::LoginStatements::new(d),
            offline: offline::OfflineStatements::new(d),
            roster: roster::RosterStatements::new(d),
            server_kv: server_kv::ServerKvStatements::new(d),
            blocklists: blocklists::BlocklistStatements::new(d),
            user_search: user_search::UserSearchStatements::new(d),
            last_seen: last_seen::LastSeenStatements::new(d),
            account_kv: account_kv::AccountKvStatements::new(d),
            tokens: tokens::TokenStatements::new(d),
            vcards: vcards::VcardStatements::new(d),
            dialect,
            clock,
            round_trips: AtomicU64::new(0),
            commits: AtomicU64::new(0),
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
            let mut line = crate::migrate::in_memory().await;
            let fill = "INSERT INTO address (id, jid) VALUES (1, 'juliet@a.org'), (2, 'nobody@a.org'), (3, 'a.org');
                        INSERT INTO account (id, domain, created_at, disabled, roster_version, credentials)
                        VALUES (1, 3, 0, 0, 0, randomblob(300));
                        WITH RECURSIVE n(n) AS (VALUES (3) UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
                        INSERT INTO roster (owner, contact, subscription, label) SELECT 1, n, 35, randomblob(9999) FROM n";
            sqlx::raw_sql(fill).execute(&mut line).await.unwrap();
            let (_, text) = context.logins.all_secrets().at_least(1);
            let mut lengths = Vec::new();
            for name in ["juliet@a.org", "nobody@a.org", "noname@a.org"] {
                let rows = sqlx::query(text).bind(name).fetch_all(&mut line).await.unwrap();
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
        let texts = [
            context.accounts.all(),
            context.addresses.all(),
            context.logins.all(),
            context.offline.all(),
            context.roster.all(),
            context.server_kv.all(),
            context.blocklists.all(),
            context.user_search.all(),
            context.last_seen.all(),
            context.account_kv.all(),
            context.tokens.all(),
            context.vcards.all(),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut line = crate::migrate::in_memory().await;
            for text in texts.concat() {
                let explain = format!("EXPLAIN QUERY PLAN {text}");
                let rows = sqlx::query(&explain).fetch_all(&mut line).await.unwrap();
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
