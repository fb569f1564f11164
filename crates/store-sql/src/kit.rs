//! What every connection carries: the dialect, the statements in its words, the clock and the counters.
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Clock;

use crate::dialect::Dialect;
use crate::tables::{accounts, addresses, logins, offline, roster, settings};

pub(crate) struct Kit {
    pub(crate) dialect: Box<dyn Dialect>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Statements sent to the database, of any kind.
    pub(crate) round_trips: AtomicU64,
    /// Transactions committed by the writer.
    pub(crate) commits: AtomicU64,
    pub(crate) accounts: accounts::Texts,
    pub(crate) addresses: addresses::Texts,
    pub(crate) logins: logins::Texts,
    pub(crate) offline: offline::Texts,
    pub(crate) roster: roster::Texts,
    pub(crate) settings: settings::Texts,
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
            dialect,
            clock,
            round_trips: AtomicU64::new(0),
            commits: AtomicU64::new(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::sqlite::SqliteDialect;
    use sqlx::{ConnectOptions, Row};

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
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let memory = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true);
            let mut line = memory.connect().await.unwrap();
            for step in crate::migrate::SQLITE {
                sqlx::raw_sql(step.sql).execute(&mut line).await.unwrap();
            }
            for text in texts.concat() {
                let explain = format!("EXPLAIN QUERY PLAN {text}");
                let rows = sqlx::query(&explain).fetch_all(&mut line).await.unwrap();
                let plan: Vec<&str> = rows.iter().map(|row| row.get(3)).collect();
                assert!(!plan.is_empty(), "{text}");
                // Fetching in the order of the key needs no sorting either.
                let bad = plan
                    .iter()
                    .any(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE FOR ORDER"));
                assert!(!bad, "{text}\n{plan:#?}");
            }
        });
    }
}
