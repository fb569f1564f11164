//! `cargo xtask bench databases`: Throng on SQLite, PostgreSQL and MariaDB, and beside ejabberd on the same PostgreSQL.
//!
//! * **Logins** (SCRAM-SHA-1, from connect to roster result, 64 at a time) on the three databases, whose nodes take turns:
//!   rate, CPU of the node, and CPU of the database server beside it, which for SQLite is in that of the node.
//! * **Writes**: the same nodes with offline messages and roster changes of clients (`client_writes.rs`), and the writers of
//!   the storage alone, without XMPP (`writers.rs`), also with 5 ms of delay to the database.
//! * **Bulk**: time of `throng account bulk` on PostgreSQL, with 50 contacts an account.
//! * **ejabberd**: logins, offline messages and roster changes of Throng and ejabberd, each in a database of its own of one
//!   PostgreSQL server, taking turns.
//!
//! Servers are Debian's, started by `test-databases` in folders and on ports of their own, and set to what their
//! documentation recommends ([`ServerSetup::measured`]). They and SQLite call `fsync` at each commit. CPU of a database server
//! is that of all its processes. Accounts have SCRAM keys of 4096 rounds and mutual contacts in a ring.
//!
//! Not measured: TLS to the database, a database on another machine, MySQL.
//!
//! # Pitfalls
//!
//! Clients, node and database share the cores, so rates are those of all three together; CPU is measured for each.

mod bulk;
mod client_writes;
mod ejabberd;
mod logins;
mod nodes;
mod writers;

use std::process::Command;

use anyhow::{Result, ensure};
use test_databases::ServerSetup;

use super::report::BenchReport;
use super::server_under_test::BenchOptions;

/// The flags of `bench databases`.
#[derive(clap::Args, Clone)]
pub(crate) struct DatabaseBenchArgs {
    #[command(flatten)]
    options: BenchOptions,
    /// Measure these only.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<DatabasePart>,
    /// Accounts of the logins and of the recipients of messages.
    #[arg(long, default_value_t = 10_000)]
    accounts: usize,
    /// Accounts of the part `bulk`; with --quick 50 000.
    #[arg(long)]
    bulk_accounts: Option<usize>,
    /// Profile with which cargo builds the program that measures the writers.
    #[arg(long, default_value = super::PROFILE)]
    writers_profile: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum DatabasePart {
    Logins,
    Writes,
    Bulk,
    Ejabberd,
}

/// Logins of a wave.
const WAVE: usize = 2_000;
/// Logins at a time.
const CONCURRENT_LOGINS: usize = 64;
/// Contacts of each account but in the part `bulk`.
const CONTACTS_PER_ACCOUNT: usize = 3;

impl DatabaseBenchArgs {
    fn wants(&self, part: DatabasePart) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Logins of a wave.
    fn wave(&self) -> usize {
        if self.options.quick { WAVE / 4 } else { WAVE }.min(self.accounts)
    }
}

/// Measures and reports.
pub(crate) fn run(args: &DatabaseBenchArgs, report: &mut BenchReport) -> Result<()> {
    ensure!(args.options.target.is_none(), "bench databases starts its servers; omit --target");
    ensure!(
        args.accounts >= 4 * client_writes::ROSTER_USERS,
        "--accounts must be at least {}",
        4 * client_writes::ROSTER_USERS
    );
    let setup = crate::tidy::root().join("crates/test-databases/setup.sh");
    let status = Command::new("sh").arg(setup).status()?;
    ensure!(status.success(), "test-databases/setup.sh ended with {status}");
    if args.wants(DatabasePart::Logins) || args.wants(DatabasePart::Writes) {
        let nodes = nodes::start_all(args)?;
        if args.wants(DatabasePart::Logins) {
            logins::measure(args, &nodes, report)?;
        }
        if args.wants(DatabasePart::Writes) {
            client_writes::measure(args, &nodes, report)?;
        }
    }
    if args.wants(DatabasePart::Writes) {
        writers::measure(args, report)?;
    }
    if args.wants(DatabasePart::Ejabberd) {
        ejabberd::measure(args, report)?;
    }
    if args.wants(DatabasePart::Bulk) {
        bulk::measure(args, report)?;
    }
    Ok(())
}

/// Starts a database server for measurements.
fn start_database(kind: test_databases::ServerKind) -> test_databases::Server {
    test_databases::Server::start_with(kind, &ServerSetup::measured(kind))
}
