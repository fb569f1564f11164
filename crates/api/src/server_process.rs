//! What only the program knows of itself: its readiness, its figures, its log, its configuration.

use std::net::IpAddr;
use std::sync::Arc;

use base::BoxFuture;
use base::count::HistogramSnapshot;
use throng_core::feature::Feature;

use crate::log::LogBuffer;

/// The process around the engine.
pub trait ServerProcess: Send + Sync {
    /// Whether it takes clients.
    fn ready(&self) -> bool;
    /// All metrics in the OpenMetrics text format 1.0, with `# EOF`.
    ///
    /// # Errors
    /// When a value cannot be written, which is a fault of ours.
    fn metrics(&self) -> Result<String, std::fmt::Error>;
    /// The figures of `throng status --json`.
    fn status_json(&self) -> serde_json::Value;
    /// Where clients find BOSH and WebSocket: link relations of XEP-0156 and addresses. `host` is what the client asked
    /// for, with a port if it has one; `secure`: over TLS.
    fn connection_alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        let _ = (host, secure);
        Vec::new()
    }
    /// Whether the configuration lets this address, which is not this machine's, read `/metrics`.
    fn may_scrape(&self, address: IpAddr) -> bool {
        let _ = address;
        false
    }
    /// What the overview is sampled from. Cheap enough for every other second.
    fn node_stats(&self) -> NodeStats;
    /// Disk, database and certificates, as they were found last.
    fn resources(&self) -> ResourceStatus {
        ResourceStatus::default()
    }
    /// The last lines of the log.
    fn log(&self) -> Arc<LogBuffer>;
    /// Every module that this program has, in registry order.
    fn modules(&self) -> &'static [&'static Feature];
    /// The domain of those who name none.
    fn default_domain(&self) -> String;
    /// Seconds since 1970 at which the process started.
    fn started(&self) -> u64;
    /// Takes over the configuration as it is now, all or nothing. The error is a text for people, a mistake a line.
    fn reload(&self) -> BoxFuture<'static, Result<Reloaded, String>>;
}

/// What the process measures. Counters grow from its start.
#[derive(Clone, Debug, Default)]
pub struct NodeStats {
    /// Time on CPUs, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Microseconds that probes of the runtime were late.
    pub event_loop_lag: HistogramSnapshot,
    /// Microseconds of storage operations.
    pub store_latency: HistogramSnapshot,
    /// Storage operations that failed.
    pub store_failed: u64,
    /// Storage operations that run or wait now.
    pub store_in_flight: u64,
    /// Microseconds that storage operations waited for a connection to the database.
    pub pool_wait: HistogramSnapshot,
    /// Connections that have no session yet.
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

/// What runs out slowly.
#[derive(Clone, Debug, Default)]
pub struct ResourceStatus {
    /// Bytes that may still be written where the database is; nothing if that is not known.
    pub disk_free_bytes: Option<u64>,
    /// Bytes of that file system.
    pub disk_size_bytes: Option<u64>,
    /// Bytes of the database.
    pub database_bytes: Option<u64>,
    /// Certificates that are shown to clients, the first to expire first.
    pub certificates: Vec<CertificateStatus>,
}

/// A certificate.
#[derive(Clone, Debug, Default)]
pub struct CertificateStatus {
    /// The names that it is good for.
    pub names: Vec<String>,
    /// Seconds since 1970 at which it expires.
    pub not_after: u64,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reloaded {
    /// The same for a person, line by line.
    pub lines: Vec<String>,
    /// What holds now.
    pub applied: Vec<String>,
    /// What will hold after a restart.
    pub restart: Vec<String>,
    /// What the operator should look at.
    pub warnings: Vec<String>,
}
