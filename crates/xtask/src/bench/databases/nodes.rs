//! Nodes of Throng on SQLite, PostgreSQL and MariaDB, all running; one of them is measured at a time.

use anyhow::{Context as _, Result};
use test_databases::{Server, ServerKind};

use super::super::clients::ClientSecurity;
use super::super::server_under_test::{NodeStorage, PreparedServer, ServerRequirements, ServerUnderTest};
use super::{CONTACTS_PER_ACCOUNT, DatabaseBenchArgs, start_database};

/// Configuration of the nodes. The limit of roster changes does not spare loopback.
pub(super) const CONFIGURATION: &str =
    "\n[auth]\nscram_iterations = 4096\n\n[limits]\nroster_changes_per_minute = 0\n";

/// A running node.
pub(super) struct DatabaseNode {
    /// The name of the database in results.
    pub(super) name: &'static str,
    pub(super) node: ServerUnderTest,
    /// Declared last: the node ends before its database.
    _server: Option<Server>,
}

/// Starts a database server and a node for each kind.
pub(super) fn start_all(args: &DatabaseBenchArgs) -> Result<Vec<DatabaseNode>> {
    let kinds =
        [("sqlite", None), ("postgres", Some(ServerKind::Postgres)), ("mariadb", Some(ServerKind::MariaDb))];
    let start = |(name, kind): (&'static str, Option<ServerKind>)| {
        let server = kind.map(start_database);
        let node = start_node(args, server.as_ref().map(|server| (server, server.default_url())))
            .with_context(|| format!("Throng on {name}"))?;
        Ok(DatabaseNode { name, node, _server: server })
    };
    kinds.into_iter().map(start).collect()
}

/// Starts a node with its accounts in an empty database, or in SQLite.
pub(super) fn start_node(
    args: &DatabaseBenchArgs,
    database: Option<(&Server, String)>,
) -> Result<ServerUnderTest> {
    let need = requirements(args.accounts, CONTACTS_PER_ACCOUNT);
    let prepared = PreparedServer::new(&args.options, &need, &storage(database))?;
    ServerUnderTest::start(&args.options, &need, prepared)
}

/// Accounts with contacts, and plain TCP.
pub(super) fn requirements(accounts: usize, contacts_per_account: usize) -> ServerRequirements {
    ServerRequirements { accounts, contacts_per_account, security: ClientSecurity::None }
}

/// Storage of a node in a database, or in SQLite.
pub(super) fn storage(database: Option<(&Server, String)>) -> NodeStorage {
    let pid = database.as_ref().map(|(server, _)| server.process());
    NodeStorage { url: database.map(|(_, url)| url), pid, configuration: CONFIGURATION.to_owned() }
}
