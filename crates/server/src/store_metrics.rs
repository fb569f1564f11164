//! Metrics of the databases: operations of the storage traits, and pools, queues and transactions of each database.
//!
//! The label `database` is the section of the configuration that names the database, `storage` or `auth`.

use std::fmt::Error;

use prometheus_client::registry::Unit;
use store_sql::{DatabaseStats, PoolStats, SqlStores};
use throng_core::metrics::{HistogramFamily, MICROSECOND};

use crate::metrics::{Labels, MetricWriter};
use crate::reload::RunningNode;

/// A database, and its statistics at this scrape.
struct ScrapedDatabase<'a> {
    name: &'static str,
    database: &'a SqlStores,
    stats: DatabaseStats,
}

/// The label that names the database.
const LABEL: &str = "database";

pub(crate) fn write(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    operations(page, running)?;
    let databases = &running.assembled.databases;
    let all: Vec<ScrapedDatabase<'_>> =
        [("storage", Some(&databases.data)), ("auth", databases.auth.as_ref())]
            .into_iter()
            .filter_map(|(name, database)| {
                database.map(|database| ScrapedDatabase { name, database, stats: database.stats() })
            })
            .collect();
    transactions(page, &all)?;
    queues(page, &all)?;
    pools(page, &all)
}

fn operations(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let operations = &running.assembled.store_metrics;
    let parts = operations.all().iter().map(|one| (one.name, one.latency.clone())).collect();
    page.histograms(
        "throng_store_operation",
        Some(Unit::Seconds),
        "Duration of storage operations by method, including time in queues",
        &HistogramFamily::by("operation", parts, MICROSECOND),
    )?;
    let mut failures: Vec<([(&'static str, &str); 2], f64)> = Vec::new();
    for one in operations.all() {
        let seen = one.failures().filter(|(_, count)| *count > 0);
        failures.extend(seen.map(|(kind, n)| ([("operation", one.name), ("kind", kind.name())], n as f64)));
    }
    if failures.is_empty() {
        failures.push(([("operation", "logins.login"), ("kind", "timeout")], 0.0));
    }
    let values: Vec<(Labels<'_>, f64)> = failures.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.counter(
        "throng_store_failures",
        None,
        "Failed storage operations by method and kind of error",
        &values,
    )?;
    page.gauge(
        "throng_store_operations_in_flight",
        None,
        "Storage operations in progress, queued or running",
        &[(&[], operations.in_flight() as f64)],
    )
}

fn transactions(page: &mut MetricWriter<'_>, all: &[ScrapedDatabase<'_>]) -> Result<(), Error> {
    let labels: Vec<[(&'static str, &str); 1]> = all.iter().map(|one| [(LABEL, one.name)]).collect();
    let values = |number: fn(&SqlStores) -> u64| -> Vec<(Labels<'_>, f64)> {
        labels.iter().zip(all).map(|(labels, one)| (&labels[..], number(one.database) as f64)).collect()
    };
    page.counter(
        "throng_store_round_trips",
        None,
        "Statements sent to the database",
        &values(SqlStores::round_trips),
    )?;
    page.counter("throng_store_commits", None, "Transactions committed", &values(SqlStores::commits))?;
    page.counter(
        "throng_store_write_retries",
        None,
        "Write transactions that ran again after a conflict or a lost connection",
        &values(SqlStores::write_retries),
    )?;
    let time = all.iter().map(|one| (one.name, one.stats.commit_time.clone())).collect();
    page.histograms(
        "throng_store_commit",
        Some(Unit::Seconds),
        "Duration of write transactions, from begin to commit",
        &HistogramFamily::by(LABEL, time, MICROSECOND),
    )?;
    let size = all.iter().map(|one| (one.name, one.stats.commit_size.clone())).collect();
    page.histograms(
        "throng_store_commit_requests",
        None,
        "Write requests committed in one transaction",
        &HistogramFamily::by(LABEL, size, 1.0),
    )
}

fn queues(page: &mut MetricWriter<'_>, all: &[ScrapedDatabase<'_>]) -> Result<(), Error> {
    let mut labels: Vec<([(&'static str, &str); 2], f64)> = Vec::new();
    for ScrapedDatabase { name, stats, .. } in all {
        let depths =
            [("writes", stats.writes_waiting), ("logins", stats.logins_waiting), ("reads", stats.reads)];
        labels.extend(depths.map(|(queue, depth)| ([(LABEL, *name), ("queue", queue)], depth as f64)));
    }
    let values: Vec<(Labels<'_>, f64)> = labels.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.gauge("throng_store_queue_depth", None, "Requests queued for the database, by queue", &values)?;
    let bytes: Vec<([(&'static str, &str); 1], f64)> =
        all.iter().map(|one| ([(LABEL, one.name)], one.stats.write_bytes as f64)).collect();
    let values: Vec<(Labels<'_>, f64)> = bytes.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.gauge(
        "throng_store_write_queue",
        Some(Unit::Bytes),
        "Bytes of writes queued for the database",
        &values,
    )
}

fn pools(page: &mut MetricWriter<'_>, all: &[ScrapedDatabase<'_>]) -> Result<(), Error> {
    let pools: Vec<(&'static str, &PoolStats)> =
        all.iter().flat_map(|one| one.stats.pools.iter().map(|pool| (one.name, pool))).collect();
    page.histograms(
        "throng_store_pool_wait",
        Some(Unit::Seconds),
        "Time spent waiting for a database connection, by pool",
        &HistogramFamily::by_all(
            [LABEL, "pool"],
            pools.iter().map(|(database, pool)| ([*database, pool.name], pool.wait.clone())),
            MICROSECOND,
        ),
    )?;
    let labels: Vec<[(&'static str, &str); 2]> =
        pools.iter().map(|(database, pool)| [(LABEL, *database), ("pool", pool.name)]).collect();
    let values = |number: fn(&PoolStats) -> f64| -> Vec<(Labels<'_>, f64)> {
        labels.iter().zip(&pools).map(|(labels, (_, pool))| (&labels[..], number(pool))).collect()
    };
    // Several gauges: a sum over states would add capacity, use and demand.
    page.gauge(
        "throng_store_pool_connections_max",
        None,
        "Maximum number of database connections, by pool",
        &values(|pool| pool.size as f64),
    )?;
    page.gauge(
        "throng_store_pool_connections_in_use",
        None,
        "Database connections in use, by pool",
        &values(|pool| pool.in_use as f64),
    )?;
    page.gauge(
        "throng_store_pool_requests_waiting",
        None,
        "Requests waiting for a database connection, by pool",
        &values(|pool| pool.waiting as f64),
    )?;
    page.gauge(
        "throng_store_pool_connections_min",
        None,
        "Number of database connections that stay open while they are idle, by pool",
        &values(|pool| pool.min as f64),
    )?;
    page.gauge(
        "throng_store_pool_connections_idle",
        None,
        "Open database connections that are not in use, by pool",
        &values(|pool| pool.idle as f64),
    )?;
    page.gauge(
        "throng_store_pool_circuit_open",
        None,
        "1 if the last attempt to connect to the database failed, by pool",
        &values(|pool| f64::from(u8::from(pool.circuit_open))),
    )?;
    page.counter(
        "throng_store_pool_connect_failures",
        None,
        "Failed attempts to connect to the database, by pool",
        &values(|pool| pool.connect_failures as f64),
    )
}
