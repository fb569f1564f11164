//! `throng account bulk` on PostgreSQL: accounts with 50 contacts each.
//!
//! The budget of ten minutes is for a million accounts, and less in proportion.

use anyhow::Result;
use test_databases::ServerKind;

use super::super::report::BenchReport;
use super::super::server_under_test::PreparedServer;
use super::nodes::{requirements, storage};
use super::{DatabaseBenchArgs, start_database};

const ACCOUNTS: usize = 1_000_000;
const QUICK_ACCOUNTS: usize = 50_000;
const CONTACTS: usize = 50;
/// Seconds for [`ACCOUNTS`], at most.
const TIME_BUDGET_S: f64 = 600.0;

/// Measures and reports.
pub(super) fn measure(args: &DatabaseBenchArgs, report: &mut BenchReport) -> Result<()> {
    let usual = if args.options.quick { QUICK_ACCOUNTS } else { ACCOUNTS };
    let accounts = args.bulk_accounts.unwrap_or(usual);
    let server = start_database(ServerKind::Postgres);
    let storage = storage(Some((&server, server.default_url())));
    let prepared = PreparedServer::new(&args.options, &requirements(accounts, CONTACTS), &storage)?;
    let seconds = prepared.filling.as_secs_f64();
    report.info("databases.bulk.postgres.accounts", accounts as f64, "accounts");
    let budget = TIME_BUDGET_S * accounts as f64 / ACCOUNTS as f64;
    report.check("databases.bulk.postgres.time", seconds, "s", budget);
    Ok(())
}
