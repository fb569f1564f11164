//! Metrics of `/metrics` besides the engine's own counters, collected on each scrape.
//!
//! The names are documented in `docs/metrics.md`; `crates/e2e/tests/metrics` compares that page, the dashboard and
//! the alert rules with the output of a node.
//!
//! Long because it lists each metric with its help text, and they share the writer.
//!
//! # Pitfalls
//!
//! Collection runs inside a request, on a thread that serves streams: it must not wait or iterate over all sessions.

use std::fmt::Error;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use throng_core::domain_counters::DomainTotals;
use throng_core::metrics::{HistogramFamily, MICROSECOND};

use crate::proc_self::{self, ProcessStats};
use crate::reload::RunningNode;
use crate::{cluster_metrics, store_metrics};

/// Collects the metrics of a running node.
pub(crate) struct NodeCollector(pub(crate) Weak<RunningNode>);

impl std::fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Figures")
    }
}

impl Collector for NodeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(running) = self.0.upgrade() else { return Ok(()) };
        let mut page = MetricWriter(encoder);
        engine(&mut page, &running)?;
        connection_limits(&mut page, &running)?;
        http(&mut page, &running)?;
        running.services.metrics(&mut page)?;
        store_metrics::write(&mut page, &running)?;
        cluster_metrics::write(&mut page, &running)?;
        account_providers(&mut page, &running)?;
        runtime(&mut page, &running)?;
        process(&mut page, &running)
    }
}

/// Labels of a value.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Writes metric families.
pub(crate) struct MetricWriter<'a>(DescriptorEncoder<'a>);

impl MetricWriter<'_> {
    pub(crate) fn gauge(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: &[(Labels<'_>, f64)],
    ) -> Result<(), Error> {
        self.family(MetricType::Gauge, name, unit, help, values)
    }

    pub(crate) fn counter(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: &[(Labels<'_>, f64)],
    ) -> Result<(), Error> {
        self.family(MetricType::Counter, name, unit, help, values)
    }

    fn family(
        &mut self,
        kind: MetricType,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: &[(Labels<'_>, f64)],
    ) -> Result<(), Error> {
        let help = format!("{help}.");
        let mut metric = self.0.encode_descriptor(name, &help, unit.as_ref(), kind)?;
        let put = |encoder: &mut MetricEncoder<'_>, value: &f64| match kind {
            MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
            _ => encoder.encode_gauge(value),
        };
        for (labels, value) in values {
            // The encoding library writes braces around labels even where there are none.
            match labels.is_empty() {
                true => put(&mut metric, value)?,
                false => put(&mut metric.encode_family(labels)?, value)?,
            }
        }
        Ok(())
    }

    pub(crate) fn histograms(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        histograms: &HistogramFamily,
    ) -> Result<(), Error> {
        let help = format!("{help}.");
        histograms.encode(self.0.encode_descriptor(name, &help, unit.as_ref(), MetricType::Histogram)?)
    }
}

fn engine(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let node = &running.assembled.node;
    let one: Labels<'_> = &[];
    page.gauge("throng_connections", None, "Open client connections", &[(one, node.outboxes.len() as f64)])?;
    page.gauge(
        "throng_sessions",
        None,
        "Sessions (bound resources), including detached ones that can be resumed",
        &[(one, node.routing_table.sessions() as f64)],
    )?;
    page.gauge(
        "throng_accounts_online",
        None,
        "Accounts with at least one session",
        &[(one, node.routing_table.accounts() as f64)],
    )?;
    let accounts = running.accounts();
    let labels: Vec<[(&'static str, &str); 1]> =
        accounts.keys().map(|domain| [("domain", domain.as_str())]).collect();
    let values: Vec<(Labels<'_>, f64)> =
        labels.iter().zip(accounts.values()).map(|(labels, n)| (&labels[..], *n as f64)).collect();
    page.gauge("throng_accounts", None, "Accounts by domain, recounted within seconds of a change", &values)?;
    page.gauge("throng_domains", None, "Served domains", &[(one, node.hosts().len() as f64)])?;
    domains(page, &node.domain_totals())?;
    let [control, message, presence] = node.outboxes.measured_bytes().map(|bytes| bytes as f64);
    page.gauge(
        "throng_session_queue",
        Some(Unit::Bytes),
        "Bytes queued for clients, at most half a minute old",
        &[
            (&[("class", "control")], control),
            (&[("class", "message")], message),
            (&[("class", "presence")], presence),
        ],
    )?;
    page.gauge(
        "throng_backlog",
        Some(Unit::Bytes),
        "Undelivered bytes counted against limits.backlog_bytes",
        &[(one, node.backlog.bytes() as f64)],
    )?;
    let (sets, clients) = features::caps::cache::caps_cache(node).usage();
    page.gauge(
        "throng_caps_cache_entries",
        None,
        "Entity capabilities hashes whose features are cached",
        &[(one, sets as f64)],
    )?;
    page.gauge(
        "throng_caps_cache_sessions",
        None,
        "Sessions whose features come from the entity capabilities cache",
        &[(one, clients as f64)],
    )
}

/// Counters per domain, for a bounded number of domains.
fn domains(page: &mut MetricWriter<'_>, domains: &[(String, DomainTotals)]) -> Result<(), Error> {
    let labels: Vec<[(&'static str, &str); 1]> =
        domains.iter().map(|(domain, _)| [("domain", domain.as_str())]).collect();
    let of = |value: fn(&DomainTotals) -> u64| -> Vec<(Labels<'_>, f64)> {
        labels.iter().zip(domains).map(|(labels, (_, totals))| (&labels[..], value(totals) as f64)).collect()
    };
    page.gauge("throng_domain_sessions", None, "Sessions by domain", &of(|totals| totals.sessions))?;
    page.counter(
        "throng_domain_sessions_opened",
        None,
        "Sessions opened by domain",
        &of(|totals| totals.opened),
    )?;
    let mut stanzas: Vec<([(&'static str, &str); 3], f64)> = Vec::new();
    for (domain, totals) in domains {
        for (direction, counts) in ["in", "out"].into_iter().zip(totals.stanzas) {
            for (kind, count) in ["message", "presence", "iq"].into_iter().zip(counts) {
                let labels = [("domain", domain.as_str()), ("kind", kind), ("direction", direction)];
                stanzas.push((labels, count as f64));
            }
        }
    }
    let values: Vec<(Labels<'_>, f64)> = stanzas.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.counter(
        "throng_domain_stanzas",
        None,
        "Stanzas from and to clients by the domain of the client",
        &values,
    )
}

fn connection_limits(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let xmpp = running.xmpp_limiter.counts();
    page.gauge(
        "throng_connections_unauthenticated",
        None,
        "Connections that have no session yet",
        &[(&[], f64::from(xmpp.unauthenticated))],
    )?;
    let mut http = net::ConnectionCounts::default();
    for counts in running.http_listeners.iter().map(|listener_state| listener_state.limiter.counts()) {
        http.refused_full += counts.refused_full;
        http.refused_address += counts.refused_address;
        http.refused_rate += counts.refused_rate;
        http.delayed += counts.delayed;
    }
    let mut refused: Vec<([(&'static str, &str); 2], u64)> = Vec::new();
    for (listener, counts) in
        [("xmpp", xmpp), ("http", http)].into_iter().chain(running.services.connection_counts())
    {
        for (reason, count) in [
            ("full", counts.refused_full),
            ("address", counts.refused_address),
            ("rate", counts.refused_rate),
        ] {
            refused.push(([("listener", listener), ("reason", reason)], count));
        }
    }
    let values: Vec<(Labels<'_>, f64)> =
        refused.iter().map(|(labels, count)| (&labels[..], *count as f64)).collect();
    page.counter("throng_connections_refused", None, "Connections refused by a connection limit", &values)?;
    page.counter(
        "throng_connections_delayed",
        None,
        "Connections that waited in the kernel's backlog because of limits.accepted_connections_per_second",
        &[(&[("listener", "xmpp")], xmpp.delayed as f64), (&[("listener", "http")], http.delayed as f64)],
    )?;
    page.counter(
        "throng_listener_pauses",
        None,
        "Times a listener paused accepting because of limits.unauthenticated_connections",
        &[(&[], xmpp.pauses as f64)],
    )?;
    let mut kinds: Vec<(&str, f64)> = Vec::new();
    for listener_state in running.xmpp_listeners.iter().chain(&running.http_listeners) {
        let (kind, streams) =
            (listener_state.listen.kind.name(), listener_state.listener_config.open_streams() as f64);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += streams,
            None => kinds.push((kind, streams)),
        }
    }
    let labels: Vec<[(&'static str, &str); 1]> =
        kinds.iter().map(|(kind, _)| [("listener", *kind)]).collect();
    let values: Vec<(Labels<'_>, f64)> = labels.iter().zip(&kinds).map(|(l, (_, n))| (&l[..], *n)).collect();
    page.gauge("throng_listener_streams", None, "Open streams by kind of listener", &values)?;
    let [read, written] = net::tcp_bytes().map(|bytes| bytes as f64);
    page.counter(
        "throng_network",
        Some(Unit::Bytes),
        "Bytes read from and written to client sockets, without relayed bytestreams",
        &[(&[("direction", "in")], read), (&[("direction", "out")], written)],
    )
}

fn http(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let (http, bosh) = (running.web.http.counts(), running.web.bosh.counts());
    for (name, help, value) in [
        (
            "throng_http_connections",
            "Open HTTP connections, except WebSocket, console and API connections",
            http.connections as f64,
        ),
        (
            "throng_http_api_connections",
            "Open HTTP connections to the console, the chat and the API",
            running.web.hyper_connections() as f64,
        ),
        ("throng_bosh_sessions", "BOSH sessions, including those not logged in yet", bosh.sessions as f64),
        (
            "throng_bosh_held_requests",
            "BOSH requests held until there is something to send",
            bosh.held as f64,
        ),
    ] {
        page.gauge(name, None, help, &[(&[], value)])?;
    }
    for (name, help, value) in [
        ("throng_http_requests", "HTTP requests for BOSH and WebSocket", http.requests),
        (
            "throng_http_requests_refused",
            "HTTP requests refused: malformed, too large, or from an origin that is not allowed",
            http.refused,
        ),
        (
            "throng_http_timeouts",
            "HTTP connections closed because sending a request or reading a response took too long",
            http.timeouts,
        ),
        ("throng_http_upgraded", "HTTP connections upgraded to WebSocket", http.upgraded),
        (
            "throng_http_api_connections_opened",
            "HTTP connections opened to the console, the chat and the API",
            http.handed_over,
        ),
        ("throng_bosh_requests", "BOSH requests", bosh.requests),
        (
            "throng_bosh_retransmits",
            "BOSH requests that were retransmitted, usually after a lost connection",
            bosh.retransmits,
        ),
        (
            "throng_bosh_reordered",
            "BOSH requests received before one with a lower request id",
            bosh.reordered,
        ),
        ("throng_bosh_forwarded", "BOSH requests sent to the node of their session", bosh.forwarded),
        ("throng_bosh_unknown_session", "BOSH requests for sessions that do not exist", bosh.unknown_session),
        ("throng_bosh_sessions_created", "BOSH sessions created", bosh.created),
        ("throng_bosh_sessions_refused", "BOSH session creation requests refused", bosh.refused),
    ] {
        page.counter(name, None, help, &[(&[], value as f64)])?;
    }
    let labels: Vec<([(&'static str, &str); 1], f64)> =
        bosh.ended().map(|(reason, n)| ([("reason", reason)], n as f64)).collect();
    let values: Vec<(Labels<'_>, f64)> = labels.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.counter("throng_bosh_sessions_terminated", None, "BOSH sessions terminated, by reason", &values)
}

fn account_providers(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let metrics = &running.assembled.providers.metrics;
    let parts = metrics.all().map(|(name, one)| (name, one.latency.clone())).collect();
    page.histograms(
        "throng_account_provider_operation",
        Some(Unit::Seconds),
        "Duration of requests to account providers by operation, including the wait for a connection",
        &HistogramFamily::by("operation", parts, MICROSECOND),
    )?;
    let mut failures: Vec<([(&'static str, &str); 2], f64)> = Vec::new();
    for (name, one) in metrics.all() {
        let seen = one.failures().filter(|(_, count)| *count > 0);
        failures.extend(seen.map(|(kind, n)| ([("operation", name), ("kind", kind.name())], n as f64)));
    }
    if failures.is_empty() {
        failures.push(([("operation", "check_password"), ("kind", "timeout")], 0.0));
    }
    let values: Vec<(Labels<'_>, f64)> = failures.iter().map(|(labels, n)| (&labels[..], *n)).collect();
    page.counter(
        "throng_account_provider_failures",
        None,
        "Failed requests to account providers by operation and kind of error",
        &values,
    )
}

fn runtime(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let lag = running.lag.sweep_lag();
    page.gauge(
        "throng_sweep_lag",
        Some(Unit::Seconds),
        "Lateness of the last session sweep",
        &[(&[], lag.last.as_secs_f64())],
    )?;
    page.gauge(
        "throng_sweep_lag_max",
        Some(Unit::Seconds),
        "Largest lateness of a session sweep within the last minute",
        &[(&[], lag.worst.as_secs_f64())],
    )?;
    page.histograms(
        "throng_event_loop_lag",
        Some(Unit::Seconds),
        "Lateness of runtime probes scheduled ten times a second; up to a millisecond is timer resolution",
        &HistogramFamily::one(running.lag.scheduler_lag(), MICROSECOND),
    )?;
    let runtime = tokio::runtime::Handle::try_current().map(|handle| handle.metrics());
    let (tasks, queued, workers) =
        runtime.map_or((0, 0, 0), |m| (m.num_alive_tasks(), m.global_queue_depth(), m.num_workers()));
    page.gauge("throng_runtime_tasks", None, "Live tasks of the runtime", &[(&[], tasks as f64)])?;
    page.gauge(
        "throng_runtime_global_queue_depth",
        None,
        "Tasks in the global queue of the runtime",
        &[(&[], queued as f64)],
    )?;
    page.gauge("throng_runtime_workers", None, "Worker threads of the runtime", &[(&[], workers as f64)])?;
    let lines = running.log_buffer().counts();
    let labels = lines.map(|(level, _)| [("level", level)]);
    let values: Vec<(Labels<'_>, f64)> =
        labels.iter().zip(lines).map(|(l, (_, n))| (&l[..], n as f64)).collect();
    page.counter("throng_log_lines", None, "Log lines written", &values)
}

fn process(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let seen = ProcessStats::read();
    let version = running.assembled.node.version;
    page.gauge(
        "throng_build_info",
        None,
        "Version of the running program; always 1",
        &[(&[("version", version)], 1.0)],
    )?;
    page.gauge(
        "throng_certificate_expiry_timestamp",
        Some(Unit::Seconds),
        "Time at which the first certificate expires, in seconds since 1970; 0 without TLS",
        &[(&[], running.first_certificate_expiry() as f64)],
    )?;
    if let Some(space) = running.disk.usage() {
        for (name, help, value) in [
            (
                "throng_disk_free",
                "Bytes available to the node on the file system of its database",
                space.free,
            ),
            ("throng_disk_size", "Size of the file system of the database", space.size),
            ("throng_database_size", "Size of the database files", space.database),
        ] {
            page.gauge(name, Some(Unit::Bytes), help, &[(&[], value as f64)])?;
        }
    }
    page.gauge(
        "throng_ready",
        None,
        "Whether the node accepts clients: 1 or 0",
        &[(&[], f64::from(u8::from(running.is_ready())))],
    )?;
    let [anonymous, file, shared] = seen.resident_bytes.map(|bytes| bytes as f64);
    page.gauge(
        "throng_memory",
        Some(Unit::Bytes),
        "Resident memory by kind: anonymous (allocated), file (mapped files), shared (shared memory)",
        &[
            (&[("kind", "anonymous")], anonymous),
            (&[("kind", "file")], file),
            (&[("kind", "shared")], shared),
        ],
    )?;
    page.gauge(
        "process_resident_memory_bytes",
        None,
        "Resident memory size",
        &[(&[], proc_self::resident_bytes() as f64)],
    )?;
    page.gauge(
        "process_virtual_memory_bytes",
        None,
        "Virtual memory size",
        &[(&[], seen.virtual_bytes as f64)],
    )?;
    page.counter(
        "process_cpu_seconds",
        None,
        "Total user and system CPU time",
        &[(&[], proc_self::cpu_seconds())],
    )?;
    page.gauge(
        "process_start_time_seconds",
        None,
        "Start time of the process, in seconds since 1970",
        &[(&[], running.started() as f64)],
    )?;
    page.gauge("process_open_fds", None, "Open file descriptors", &[(&[], seen.open_files as f64)])?;
    page.gauge(
        "process_max_fds",
        None,
        "Maximum number of open file descriptors",
        &[(&[], seen.max_open_files as f64)],
    )?;
    page.gauge("process_threads", None, "Threads of the process", &[(&[], seen.threads as f64)])
}

/// Registers the collector of a node.
pub(crate) fn register(running: &Arc<RunningNode>) {
    let figures = NodeCollector(Arc::downgrade(running));
    running.assembled.registry.lock().register_collector(Box::new(figures));
}
