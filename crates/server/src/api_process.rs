//! Implementation of [`api::ServerProcess`] by the running node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{CertificateStatus, NodeStats, Reloaded, ResourceStatus, ServerProcess};
use base::BoxFuture;
use base::count::HistogramSnapshot;
use feature_api::feature::Feature;

use crate::proc_self;
use crate::reload::RunningNode;

/// The process as the API sees it.
pub(crate) struct ApiProcess {
    pub(crate) running: Arc<RunningNode>,
}

impl ServerProcess for ApiProcess {
    fn ready(&self) -> bool {
        self.running.is_ready()
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.running.assembled.registry.lock())?;
        Ok(text)
    }

    fn status_json(&self) -> serde_json::Value {
        crate::status::status_json(&self.running)
    }

    fn node_stats(&self) -> NodeStats {
        let RunningNode { assembled, xmpp_limiter: limiter, lag, .. } = &*self.running;
        let mut pool_wait = HistogramSnapshot::default();
        assembled.databases.data.stats().pools.iter().for_each(|pool| pool_wait.merge(&pool.wait.snapshot()));
        let [bytes_in, bytes_out] = net::tcp_bytes();
        let [(_, log_errors), (_, log_warnings), ..] = self.running.log_buffer().counts();
        NodeStats {
            cpu_seconds: proc_self::cpu_seconds(),
            memory_bytes: proc_self::resident_bytes(),
            event_loop_lag: lag.scheduler_lag().snapshot(),
            store_latency: assembled.store_metrics.latency(),
            store_failed: assembled.store_metrics.failure_count(),
            store_in_flight: assembled.store_metrics.in_flight() as u64,
            pool_wait,
            unauthenticated_connections: u64::from(limiter.counts().unauthenticated),
            bytes_in,
            bytes_out,
            log_errors,
            log_warnings,
        }
    }

    fn resources(&self) -> ResourceStatus {
        let space = self.running.disk.usage();
        let all = self.running.certificates_in_use().into_iter();
        ResourceStatus {
            disk_free_bytes: space.map(|space| space.free),
            disk_size_bytes: space.map(|space| space.size),
            database_bytes: space.map(|space| space.database),
            certificates: all.map(|(names, not_after)| CertificateStatus { names, not_after }).collect(),
        }
    }

    fn may_scrape(&self, address: std::net::IpAddr) -> bool {
        self.running.web.may_scrape(address)
    }

    fn connection_alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        self.running.web.alternatives(host, secure)
    }

    fn log(&self) -> Arc<api::log::LogBuffer> {
        self.running.log_buffer().clone()
    }

    fn modules(&self) -> &'static [&'static Feature] {
        features::registry::ALL
    }

    fn default_domain(&self) -> String {
        self.running.default_domain()
    }

    fn started(&self) -> u64 {
        self.running.started()
    }

    fn reload(&self) -> BoxFuture<'static, Result<Reloaded, String>> {
        let running = self.running.clone();
        Box::pin(async move {
            let report = running.reload_in_background().await.map_err(|error| format!("{error:#}"))?;
            report.write_to_log();
            let lines = report.lines();
            let crate::reload::ReloadReport { applied, restart, warnings } = report;
            Ok(Reloaded { lines, applied, restart, warnings })
        })
    }
}

impl RunningNode {
    /// Whether the node should get clients. One that is cut off from the others still serves those that it has.
    pub(crate) fn is_ready(&self) -> bool {
        let cluster = self.assembled.nats.as_ref().and_then(|nats| nats.status().problem());
        self.ready.load(Ordering::Relaxed) && cluster.is_none()
    }

    /// Start time in seconds since 1970, as accurate as the wall clock.
    pub(crate) fn started(&self) -> u64 {
        let clock = &self.assembled.node.clock;
        proc_self::process_start_time(clock.unix_millis(), Duration::from_millis(clock.now().0))
    }
}
