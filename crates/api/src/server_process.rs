//! Interface to the process around the engine: readiness, metrics, log and configuration.

use std::net::IpAddr;
use std::sync::Arc;

use base::BoxFuture;
use base::count::HistogramSnapshot;
use feature_api::feature::Feature;

use crate::log::LogBuffer;

/// The process around the engine.
pub trait ServerProcess: Send + Sync {
    /// Whether it accepts clients.
    fn ready(&self) -> bool;
    /// All metrics in the OpenMetrics text format 1.0, with `# EOF`.
    ///
    /// # Errors
    /// When a value cannot be written, which is a bug.
    fn metrics(&self) -> Result<String, std::fmt::Error>;
    /// The values of `throng status --json`.
    fn status_json(&self) -> serde_json::Value;
    /// Discovery of BOSH and WebSocket: link relations of XEP-0156 and addresses. `host` is the host of the request,
    /// with its port if any; `secure`: over TLS.
    fn connection_alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        let _ = (host, secure);
        Vec::new()
    }

    /// Whether the configuration lets this non-local address read `/metrics`.
    fn may_scrape(&self, address: IpAddr) -> bool {
        let _ = address;
        false
    }

    /// Sources of the overview. Cheap enough for every other second.
    fn node_stats(&self) -> NodeStats;
    /// Disk, database and certificates, as they were last checked.
    fn resources(&self) -> ResourceStatus {
        ResourceStatus::default()
    }

    /// The last lines of the log.
    fn log(&self) -> Arc<LogBuffer>;
    /// Every compiled-in module, in registry order.
    fn modules(&self) -> &'static [&'static Feature];
    /// The default domain.
    fn default_domain(&self) -> String;
    /// Start time of the process in seconds since 1970.
    fn started(&self) -> u64;
    /// Reloads the configuration, all or nothing. The error is a text for people, one mistake per line.
    fn reload(&self) -> BoxFuture<'static, Result<Reloaded, String>>;
}

/// Measurements of the process. Counters start with the process.
#[derive(Clone, Debug, Default)]
pub struct NodeStats {
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Delay of runtime probes in microseconds.
    pub event_loop_lag: HistogramSnapshot,
    /// Duration of storage operations in microseconds.
    pub store_latency: HistogramSnapshot,
    /// Storage operations that failed.
    pub store_failed: u64,
    /// Storage operations that run or wait.
    pub store_in_flight: u64,
    /// Wait of storage operations for a database connection, in microseconds.
    pub pool_wait: HistogramSnapshot,
    /// Connections without a session.
    pub unauthenticated_connections: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Errors in the log.
    pub log_errors: u64,
    /// Warnings in the log.
    pub log_warnings: u64,
}

/// Resources that run out slowly.
#[derive(Clone, Debug, Default)]
pub struct ResourceStatus {
    /// Bytes available to the node on the database's file system; `None` if unknown.
    pub disk_free_bytes: Option<u64>,
    /// Size of that file system in bytes.
    pub disk_size_bytes: Option<u64>,
    /// Size of the database in bytes.
    pub database_bytes: Option<u64>,
    /// Certificates presented to clients, the first to expire first.
    pub certificates: Vec<CertificateStatus>,
}

/// A certificate.
#[derive(Clone, Debug, Default)]
pub struct CertificateStatus {
    /// The names that it is valid for.
    pub names: Vec<String>,
    /// Expiry in seconds since 1970.
    pub not_after: u64,
}

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reloaded {
    /// A summary for people, line by line.
    pub lines: Vec<String>,
    /// Changes in effect.
    pub applied: Vec<String>,
    /// Changes that need a restart.
    pub restart: Vec<String>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}
