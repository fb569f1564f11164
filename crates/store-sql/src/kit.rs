//! What every connection carries: the dialect, the statements in its words, the clock and the counters.
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Clock;
use base::count::{Histogram, MICROS, SIZES};

use crate::dialect::Dialect;
use crate::tables::{
    accounts, addresses, blocklists, directory, last_seen, logins, offline, private, roster, settings,
    tokens, vcards,
};

pub(crate) struct Kit {
    pub(crate) dialect: Box<dyn Dialect>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Statements sent to the database, of any kind.
    pub(crate) round_trips: AtomicU64,
    /// Transactions committed by the writer.
    pub(crate) commits: AtomicU64,
    /// Microseconds of the writer's transactions, from beginning to commit.
    pub(crate) commit_time: Arc<Histogram>,
    /// Requests that shared a transaction.
    pub(crate) commit_size: Arc<Histogram>,
    pub(crate) accounts: accounts::Texts,
    pub(crate) addresses: addresses::Texts,
    pub(crate) logins: logins::Texts,
    pub(crate) offline: offline::Texts,
    pub(crate) roster: roster::Texts,
    pub(crate) settings: settings::Texts,
    pub(crate) blocklists: blocklists::Texts,
    pub(crate) directory: directory::Texts,
    pub(crate) last_seen: last_seen::Texts,
    pub(crate) private: private::Texts,
    pub(crate) tokens: tokens::Texts,
    pub(crate) vcards: vcards::Texts,
}

impl Kit {
    pub(crate) fn new(dialect: Box<dyn Dialect>, clock: Arc<dyn Clock>) -> Arc<Kit> {
        let d = dialect.as_ref();
        Arc::new(Kit {
            accounts: accounts::Texts::new(d),
            addresses: addresses::Texts::new(d),
            logins: logins::Texts::new(d),
            offline: offline::Texts::new(d),
            roster: roster::Texts::new(d),
            settings: settings::Texts::new(d),
            blocklists: blocklists::Texts::new(d),
            directory: directory::Texts::new(d),
            last_seen: last_seen::Texts::new(d),
            private: private::Texts::new(d),
            tokens: tokens::Texts::new(d),
            vcards: vcards::Texts::new(d),
            dialect,
            clock,
            round_trips: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            commit_time: Arc::new(Histogram::new(MICROS)),
            commit_size: Arc::new(Histogram::new(SIZES)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::sqlite::SqliteDialect;
    use sqlx::Row;

    /// What an unauthenticated client can make the database do: one row of one length, whatever there is.
    #[test]
    fn secrets_of_nobody_are_as_long_as_those_of_an_account_with_a_large_roster() {
        let kit = Kit::new(Box::new(SqliteDialect), Arc::new(base::ManualClock::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut line = crate::migrate::in_memory().await;
            let fill = "INSERT INTO address (id, jid) VALUES (1, 'juliet@a.org'), (2, 'nobody@a.org'), (3, 'a.org');
                        INSERT INTO account (id, domain, created_at, disabled, roster_version, credentials)
                        VALUES (1, 3, 0, 0, 0, randomblob(300));
                        WITH RECURSIVE n(n) AS (VALUES (3) UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
                        INSERT INTO roster (owner, contact, subscription, label) SELECT 1, n, 35, randomblob(9999) FROM n";
            sqlx::raw_sql(fill).execute(&mut line).await.unwrap();
            let (_, text) = kit.logins.all_secrets().holding(1);
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
        let kit = Kit::new(Box::new(SqliteDialect), Arc::new(base::ManualClock::new()));
        let texts = [
            kit.accounts.all(),
            kit.addresses.all(),
            kit.logins.all(),
            kit.offline.all(),
            kit.roster.all(),
            kit.settings.all(),
            kit.blocklists.all(),
            kit.directory.all(),
            kit.last_seen.all(),
            kit.private.all(),
            kit.tokens.all(),
            kit.vcards.all(),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut line = crate::migrate::in_memory().await;
            for text in texts.concat() {
                let explain = format!("EXPLAIN QUERY PLAN {text}");
                let rows = sqlx::query(&explain).fetch_all(&mut line).await.unwrap();
                let plan: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
                assert!(!plan.is_empty(), "{text}");
                // Fetching in the order of the key needs no sorting either. What is counted comes from a key, too.
                let bad = plan.iter().any(|step| {
                    let listed = step.contains("CONSTANT ROW") || step.starts_with("SCAN found");
                    step.starts_with("SCAN") && !listed || step.contains("TEMP B-TREE FOR ORDER")
                });
                assert!(!bad, "{text}\n{plan:#?}");
            }
        });
    }
}
