//! What the API asks of the program ([`api::Machine`]), answered by the running node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Certificate, Machine, Reloaded, Resources, Vitals};
use base::BoxFuture;
use base::count::Snapshot;
use throng_core::feature::Feature;

use crate::process;
use crate::reload::Running;

/// What the API asks.
pub(crate) struct Pages {
    pub(crate) running: Arc<Running>,
}

impl Machine for Pages {
    fn ready(&self) -> bool {
        self.running.is_ready()
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.running.wired.registry.lock())?;
        Ok(text)
    }

    fn figures(&self) -> serde_json::Value {
        crate::status::figures(&self.running)
    }

    fn vitals(&self) -> Vitals {
        let Running { wired, gate, vitals, .. } = &*self.running;
        let mut pool_wait = Snapshot::default();
        wired.database.figures().pools.iter().for_each(|pool| pool_wait.merge(&pool.wait.snapshot()));
        let [bytes_in, bytes_out] = net::traffic();
        let [(_, log_errors), (_, log_warnings), ..] = self.running.log().counts();
        Vitals {
            cpu_seconds: process::cpu_seconds(),
            memory_bytes: process::resident(),
            lag: vitals.probes().snapshot(),
            store: wired.operations.times(),
            store_failed: wired.operations.failed(),
            store_running: wired.operations.running() as u64,
            pool_wait,
            unauthenticated_connections: u64::from(gate.counts().unauthenticated),
            bytes_in,
            bytes_out,
            log_errors,
            log_warnings,
        }
    }

    fn resources(&self) -> Resources {
        let space = self.running.disk.space();
        let all = self.running.certificates_in_use().into_iter();
        Resources {
            disk_free_bytes: space.map(|space| space.free),
            disk_size_bytes: space.map(|space| space.size),
            database_bytes: space.map(|space| space.database),
            certificates: all.map(|(names, not_after)| Certificate { names, not_after }).collect(),
        }
    }

    fn may_scrape(&self, address: std::net::IpAddr) -> bool {
        self.running.web.may_scrape(address)
    }
    fn alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        self.running.web.alternatives(host, secure)
    }

    fn log(&self) -> Arc<api::log::Ring> {
        self.running.log().clone()
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
            let report = running.reload_later().await.map_err(|error| format!("{error:#}"))?;
            report.log();
            let lines = report.lines();
            let crate::reload::Report { applied, restart, warnings } = report;
            Ok(Reloaded { lines, applied, restart, warnings })
        })
    }
}

impl Running {
    /// Whether the node takes clients.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Seconds since 1970 at which the process started, as far as the clock on the wall stood right.
    pub(crate) fn started(&self) -> u64 {
        let clock = &self.wired.node.clock;
        process::started(clock.unix_millis(), Duration::from_millis(clock.now().0))
    }
}
