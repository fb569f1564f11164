//! Test targets that mostly wait, which run in parallel with CPU-bound ones.
//!
//! A target that is not listed may measure, or fail if something else uses the CPU: it never runs in parallel with another
//! target that is not listed. A target that is added to the list must pass with other load on the machine, and must not share
//! a port, a folder or a server with any other; `test_databases` gives each process servers, ports and folders of its own.

/// A target that mostly waits.
struct WaitingTarget {
    /// Path of its main source file from the folder `crates`.
    source: &'static str,
    /// Its tests that run at the same time, if `RUST_TEST_THREADS` is not set.
    threads: u32,
    /// What it waits for.
    #[allow(dead_code, reason = "for the reader of the list")]
    waits_for: &'static str,
}

const fn waiting(source: &'static str, threads: u32, waits_for: &'static str) -> WaitingTarget {
    WaitingTarget { source, threads, waits_for }
}

/// They start in this order: the longest first, so that none of them is left alone at the end.
const WAITING_TARGETS: [WaitingTarget; 18] = [
    waiting(
        "e2e/tests/clients/main.rs",
        2,
        "steps of foreign clients and an interrupted network; they also compute",
    ),
    waiting("store-sql/tests/failures.rs", 6, "databases that fail and recover, and locks that expire"),
    waiting("e2e/tests/databases/main.rs", 6, "databases that fail and recover under a node"),
    waiting("cluster-nats/tests/nats_servers.rs", 6, "NATS servers that are lost, and records that expire"),
    waiting("store-sql/tests/mysql.rs", 6, "round trips to MySQL"),
    waiting("store-sql/tests/postgres.rs", 6, "round trips to PostgreSQL"),
    waiting("e2e/tests/moving/main.rs", 6, "the start and the end of Prosody and ejabberd"),
    waiting("cluster-nats/src/lib.rs", 6, "NATS servers, and records that expire"),
    waiting("store-sql/tests/separate_auth.rs", 6, "round trips to PostgreSQL and MariaDB"),
    waiting("store-sql/tests/servers.rs", 6, "databases that are killed, and slow connections"),
    waiting("cluster-nats/tests/permissions.rs", 6, "nodes that NATS refuses, until they report it"),
    waiting("e2e/tests/cluster/main.rs", 6, "nodes that are lost, until the others notice it"),
    waiting("cluster-nats/tests/faults.rs", 6, "NATS servers that are gone, and records that expire"),
    waiting("store-sql/tests/mariadb.rs", 6, "round trips to MariaDB"),
    waiting("store-sql/tests/million_accounts.rs", 2, "a million rows that a database writes"),
    waiting("store-sql/tests/connections.rs", 6, "connections that are unused for a time"),
    waiting("store-sql/tests/upgrades.rs", 6, "migrations in databases"),
    waiting("test-databases/src/lib.rs", 6, "servers that start"),
];

/// Position of a target in the list, and its number of threads; `None` if it is not listed.
pub(super) fn waiting_target(source: &str) -> Option<(usize, u32)> {
    let position = WAITING_TARGETS.iter().position(|target| target.source == source)?;
    WAITING_TARGETS.get(position).map(|target| (position, target.threads))
}

#[cfg(test)]
mod tests {
    use super::super::root;
    use super::*;

    #[test]
    fn each_listed_target_exists_once() {
        for (position, target) in WAITING_TARGETS.iter().enumerate() {
            let WaitingTarget { source, threads, .. } = target;
            assert!(
                root().join("crates").join(source).exists(),
                "{source} is not a target; remove it from the list"
            );
            assert_eq!(waiting_target(source), Some((position, *threads)), "{source} is listed twice");
        }
    }

    #[test]
    fn a_target_that_is_not_listed_does_not_wait() {
        assert_eq!(waiting_target("e2e/tests/load/main.rs"), None);
    }
}
