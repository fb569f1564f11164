//! `throng status`: prints a node's metrics once. `throng top` uses the same metrics as one JSON object.
//!
//! # Pitfalls
//!
//! Bytes in queues are summed over all connections, which locks each of them once; so they are computed on request
//! only.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::count::{Histogram, LATENCY_BUCKETS_MICROS};
use base::lock::LeafMutex;
use net::ConnectionCounts;
use serde_json::{Value, json};
use throng_core::metrics::CountFamily;

use crate::admin::{self, AdminRequest};
use crate::config::NodeConfig;
use crate::reload::RunningNode;
use crate::{output, runtime, units};

/// Prints the metrics of the running node.
pub(crate) fn command(config: Option<&Path>, json: bool) -> Result<()> {
    let config = NodeConfig::load(config)?;
    runtime::start()?.block_on(async {
        let mut stream = admin::connect_running(&config).await?;
        let answer = admin::send_request(&mut stream, &AdminRequest::Status).await?;
        let figures = answer.status.unwrap_or_default();
        if json {
            output::line(&figures.to_string());
            return Ok(());
        }
        format_table(&figures).iter().for_each(|line| output::line(line));
        Ok(())
    })
}

/// Formats the metrics for a person, one per line: the name, in a column as wide as the longest, and the value with
/// its unit.
fn format_table(figures: &Value) -> Vec<String> {
    let mut rows = Vec::new();
    for (key, value) in figures.as_object().into_iter().flatten() {
        match value {
            Value::Object(parts) => {
                rows.extend(parts.iter().map(|(part, value)| {
                    (format!("{} {part}", key.replace('_', " ")), format_value(key, value))
                }));
            }
            Value::Array(list) if key == "certificates" => {
                rows.extend(list.iter().flat_map(certificate_rows))
            }
            value => {
                // The unit follows the number.
                let units = ["_bytes", "_seconds", "_ms"];
                let name = units.iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(key);
                rows.push((name.replace('_', " "), format_value(key, value)));
            }
        }
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default() + 2;
    rows.into_iter().map(|(name, value)| format!("{name:<width$}{value}")).collect()
}

fn format_value(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            match key.rsplit('_').next() {
                Some("bytes") => units::bytes(number),
                Some("seconds") => units::span(number),
                Some("ms") => format!("{number} ms"),
                _ => units::whole(number),
            }
        }
        other => other.to_string(),
    }
}

fn certificate_rows(value: &Value) -> Vec<(String, String)> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let kind = if value["self_signed"] == true { "self-signed, for" } else { "for" };
    let names = value["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let until = value["not_after"].as_u64().unwrap_or_default();
    vec![
        ("certificate".to_owned(), text("file")),
        (
            "certificate details".to_owned(),
            format!("{kind} {}, until {}", names.collect::<Vec<_>>().join(", "), format_date(until)),
        ),
        ("certificate SHA-256".to_owned(), text("sha256")),
    ]
}

/// Formats the date of a time in seconds since 1970.
pub(crate) fn format_date(seconds: u64) -> String {
    let time = stanza::payload::datetime::format_utc(seconds.saturating_mul(1000), false);
    time.split('T').next().unwrap_or_default().to_owned()
}

/// The metrics of a node as JSON.
pub(crate) fn status_json(running: &Arc<RunningNode>) -> Value {
    let node = &running.assembled.node;
    let [[messages_in, presence_in, iq_in], [messages_out, presence_out, iq_out]] = node.metrics.stanzas();
    let (connections, lag) = (running.xmpp_limiter.counts(), running.lag.sweep_lag());
    let metrics = &node.metrics;
    let mut failures: BTreeMap<&str, u64> = BTreeMap::new();
    for ([_, reason], count) in metrics.login_failures.all() {
        *failures.entry(reason).or_default() += count;
    }
    failures.retain(|_, count| *count > 0);
    let database = running.assembled.databases.data.stats();
    let pool = database.pools.iter().find(|pool| pool.name == "read");
    let wait = pool.map(|pool| pool.wait.snapshot()).unwrap_or_default();
    let waiting = database.writes_waiting + database.logins_waiting;
    let mut streams: BTreeMap<&str, usize> = BTreeMap::new();
    for listener_state in &running.xmpp_listeners {
        *streams.entry(listener_state.listen.kind.name()).or_default() +=
            listener_state.listener_config.open_streams();
    }
    let mut figures = json!({
        "version": node.version,
        "up_seconds": node.seconds(),
        "accounts": running.accounts().values().sum::<u64>(),
        "domains": node.hosts().iter().map(|h| h.domain().to_owned()).collect::<Vec<_>>().join(", "),
        "connections": node.outboxes.len(),
        "unauthenticated_connections": connections.unauthenticated,
        "streams": streams,
        "sessions": node.routing_table.sessions(),
        "accounts_online": node.routing_table.accounts(),
        "logins": metrics.logins.sum(),
        "login_failures": metrics.login_failures.sum(),
        "logins_by_mechanism": nonzero(&metrics.logins),
        "login_failures_by_reason": failures,
        "messages_in": messages_in,
        "messages_out": messages_out,
        "presence_in": presence_in,
        "presence_out": presence_out,
        "iq_in": iq_in,
        "iq_out": iq_out,
        "queued_bytes": node.outboxes.queued_bytes(),
        "offline_stored": metrics.offline_stored.get(),
        "offline_delivered": metrics.offline_delivered.get(),
        "blocked_on_store": metrics.stanzas_blocked_on_store.get(),
        "sent_back": metrics.stanzas_bounced.sum(),
        "presence_dropped": metrics.stanzas_dropped.get(["presence", "queue-full"]),
        "queue_full": metrics.session_queue_full.get(["message"]),
        "rate_limited": nonzero(&metrics.rate_limited),
        "connections_refused": refused_by_reason(&connections).into_iter().collect::<BTreeMap<_, _>>(),
        "stream_errors": nonzero(&metrics.stream_errors),
        "sweep_lag_ms": millis(lag.last),
        "sweep_lag_max_ms": millis(lag.worst),
        "database_round_trips": running.assembled.databases.data.round_trips(),
        "database_commits": running.assembled.databases.data.commits(),
        "database_waiting": waiting + pool.map_or(0, |pool| pool.waiting),
        "pool_size": pool.map_or(0, |pool| pool.size),
        "pool_used": pool.map_or(0, |pool| pool.in_use),
        "pool_waits": wait.count(),
        "pool_wait_seconds": wait.sum as f64 / 1e6,
        "sessions_by_transport": nonzero(&metrics.sessions),
        "cpu_seconds": crate::proc_self::cpu_seconds(),
        "memory_bytes": crate::proc_self::resident_bytes(),
    });
    figures["certificates"] = running.shown_certificates().iter().map(certificate_json).collect();
    figures
}

fn certificate_json(one: &net::tls::CertificateSummary) -> Value {
    json!({
        "file": crate::accounts::absolute_path(&one.file),
        "names": one.names,
        "not_after": one.not_after,
        "sha256": one.sha256,
        "self_signed": one.is_self_signed,
    })
}

/// Refused connections by reason.
pub(crate) fn refused_by_reason(connections: &ConnectionCounts) -> [(&'static str, u64); 3] {
    [
        ("full", connections.refused_full),
        ("address", connections.refused_address),
        ("rate", connections.refused_rate),
    ]
}

/// The non-zero counts of a label.
fn nonzero(family: &CountFamily<1>) -> BTreeMap<&'static str, u64> {
    family.all().into_iter().filter(|(_, count)| *count > 0).map(|([label], count)| (label, count)).collect()
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

/// Delay of the node's own work: the sweep is due once a second, and busy worker threads delay it.
pub(crate) struct LagMonitor {
    sweeps: LeafMutex<SweepLagWindow>,
    scheduler_lag: Arc<Histogram>,
}

impl Default for LagMonitor {
    fn default() -> LagMonitor {
        LagMonitor {
            sweeps: LeafMutex::default(),
            scheduler_lag: Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)),
        }
    }
}

#[derive(Default)]
struct SweepLagWindow {
    /// Delays of the last minute, one per second.
    lags: Vec<Duration>,
    next: usize,
}

/// Delay of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepLag {
    /// Delay of the last sweep.
    pub(crate) last: Duration,
    /// Maximum of the last minute.
    pub(crate) worst: Duration,
}

const MINUTE: usize = 60;

impl LagMonitor {
    /// Records the delay of a sweep.
    pub(crate) fn record_sweep_lag(&self, span: Duration) {
        let mut late = self.sweeps.lock();
        let at = late.next;
        late.next = (at + 1) % MINUTE;
        match late.lags.get_mut(at) {
            Some(slot) => *slot = span,
            None => late.lags.push(span),
        }
    }

    /// Records the delay of a probe.
    pub(crate) fn record_scheduler_lag(&self, span: Duration) {
        self.scheduler_lag.record(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Delays of probes in microseconds.
    pub(crate) fn scheduler_lag(&self) -> &Arc<Histogram> {
        &self.scheduler_lag
    }

    /// The recorded delays.
    pub(crate) fn sweep_lag(&self) -> SweepLag {
        let late = self.sweeps.lock();
        let last = late.lags.get((late.next + MINUTE - 1) % MINUTE).copied().unwrap_or_default();
        SweepLag { last, worst: late.lags.iter().max().copied().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_in_one_column_with_their_units() {
        let figures = json!({
            "connections_refused": { "rate": 1234, "a-reason-that-is-longer-than-the-others": 3 },
            "domains": "a.org, b.org",
            "sweep_lag_ms": 0.4,
            "memory_bytes": 28_000_000,
            "queued_bytes": 0,
            "up_seconds": 93_600,
            "certificates": [{
                "file": "c.pem", "names": ["a.org"], "not_after": 1_829_520_000, "sha256": "AB:CD", "self_signed": true
            }],
        });
        let lines = format_table(&figures);
        let column = "connections refused a-reason-that-is-longer-than-the-others".len() + 2;
        for (name, value) in [
            ("connections refused rate", "1 234"),
            ("connections refused a-reason-that-is-longer-than-the-others", "3"),
            ("domains", "a.org, b.org"),
            ("sweep lag", "0.4 ms"),
            ("memory", "28 MB"),
            ("queued", "0 B"),
            ("up", "1 d 2 h"),
            ("certificate", "c.pem"),
            ("certificate details", "self-signed, for a.org, until 2027-12-23"),
            ("certificate SHA-256", "AB:CD"),
        ] {
            assert!(
                lines.contains(&format!("{name:<column$}{value}")),
                "{name} {value} is missing in {lines:#?}"
            );
        }
        assert_eq!(lines.len(), 10);
    }

    #[test]
    fn the_highest_lag_of_a_minute_expires_after_it() {
        let lag = LagMonitor::default();
        assert_eq!(lag.sweep_lag(), SweepLag::default());
        let ms = Duration::from_millis;
        lag.record_sweep_lag(ms(50));
        lag.record_sweep_lag(ms(3));
        assert_eq!(lag.sweep_lag(), SweepLag { last: ms(3), worst: ms(50) });
        for _ in 0..59 {
            lag.record_sweep_lag(ms(1));
        }
        assert_eq!(lag.sweep_lag(), SweepLag { last: ms(1), worst: ms(3) });
    }
}
