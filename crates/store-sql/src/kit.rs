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
