//! `GET /api/v1/overview`: the last hour of all nodes ([`cluster`]) or of one in one response, for the console and for
//! operators without a monitoring system.
//!
//! Every two seconds the program takes a sample ([`crate::Api::sample`]): gauges as they are, counters as rates per
//! second, histograms as percentiles of those two seconds. All series have the same length; the last value of each
//! was taken at `now`, the ones before it every `interval` seconds. `null` is a missed sample (the process was held
//! up) or a percentile without observations.
//!
//! With `since` only later samples are sent, so a page passes the `now` that it has and gets one value.
//!
//! The hour survives a restart of the process ([`persistence`]): the program saves and restores it, and the time
//! between is a gap.
//!
//! Not implemented: longer spans and more detail, for which there is `/metrics`.
//!
//! # Pitfalls
//!
//! Numbers are stored as `f32` (an hour of all series is 288 kB), so a gauge of billions has a precision of seven
//! digits.

pub(crate) mod cluster;
pub mod persistence;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use base::count::HistogramSnapshot;
use base::lock::LeafMutex;
use serde::Deserialize;
use serde_json::{Value, json};
use throng_core::Node;

use crate::auth::TokenScope;
use crate::extract::{QueryParams, node_selection};
use crate::nodes::{missing_schema, node_parameter};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::server_process::{NodeStats, ResourceStatus};
use crate::{Api, Problem, assets};

/// Seconds between two samples.
pub const INTERVAL: u64 = 2;
/// Number of samples: an hour.
pub const POINTS: usize = 1_800;

/// Name and unit of every series, in the order of [`values`].
pub const SERIES: [(&str, &str); 40] = [
    ("users_online", "accounts"),
    ("sessions", "sessions"),
    ("sessions_tcp", "sessions"),
    ("sessions_tls", "sessions"),
    ("sessions_websocket", "sessions"),
    ("sessions_bosh", "sessions"),
    ("sessions_detached", "sessions"),
    ("connections", "connections"),
    ("unauthenticated_connections", "connections"),
    ("logins", "1/s"),
    ("login_failures", "1/s"),
    ("messages_in", "1/s"),
    ("messages_out", "1/s"),
    ("presence_in", "1/s"),
    ("presence_out", "1/s"),
    ("iq_in", "1/s"),
    ("iq_out", "1/s"),
    ("delivery_p50", "seconds"),
    ("delivery_p99", "seconds"),
    ("cpu", "percent"),
    ("memory", "bytes"),
    ("bytes_in", "bytes/s"),
    ("bytes_out", "bytes/s"),
    ("queue_bytes", "bytes"),
    ("queue_control", "bytes"),
    ("queue_messages", "bytes"),
    ("queue_presence", "bytes"),
    ("drops", "1/s"),
    ("queue_full", "1/s"),
    ("bounces", "1/s"),
    ("offline_stored", "1/s"),
    ("offline_delivered", "1/s"),
    ("database_ops", "1/s"),
    ("database_failures", "1/s"),
    ("database_p99", "seconds"),
    ("pool_wait_p99", "seconds"),
    ("database_running", "operations"),
    ("lag", "seconds"),
    ("log_errors", "1/s"),
    ("log_warnings", "1/s"),
];

/// Readings of counters and histograms at one moment.
#[derive(Debug, Default)]
struct OverviewTotals {
    /// Time of the reading, in microseconds of the node's clock.
    at: u64,
    counters: [u64; 19],
    cpu_seconds: f64,
    delivery: HistogramSnapshot,
    store: HistogramSnapshot,
    pool_wait: HistogramSnapshot,
    lag: HistogramSnapshot,
}

impl OverviewTotals {
    fn collect(node: &Node, stats: &NodeStats) -> OverviewTotals {
        let metrics = &node.metrics;
        let [[messages_in, presence_in, iq_in], [messages_out, presence_out, iq_out]] = metrics.stanzas();
        OverviewTotals {
            at: node.clock.now_micros(),
            counters: [
                metrics.logins.sum(),
                metrics.login_failures.sum() + metrics.logins_throttled.sum(),
                messages_in,
                messages_out,
                presence_in,
                presence_out,
                iq_in,
                iq_out,
                stats.bytes_in,
                stats.bytes_out,
                metrics.stanzas_dropped.sum(),
                metrics.session_queue_full.sum(),
                metrics.stanzas_bounced.sum(),
                metrics.offline_stored.get(),
                metrics.offline_delivered.get(),
                stats.store_latency.count(),
                stats.store_failed,
                stats.log_errors,
                stats.log_warnings,
            ],
            cpu_seconds: stats.cpu_seconds,
            delivery: metrics.deliveries(),
            store: stats.store_latency.clone(),
            pool_wait: stats.pool_wait.clone(),
            lag: stats.event_loop_lag.clone(),
        }
    }
}

type SamplePoint = [f32; SERIES.len()];

/// The values of one sample, from two readings.
fn values(node: &Node, stats: &NodeStats, before: &OverviewTotals, now: &OverviewTotals) -> SamplePoint {
    let seconds = now.at.saturating_sub(before.at) as f64 / 1e6;
    let rate = |at: usize| {
        let grown = now.counters[at].saturating_sub(before.counters[at]) as f64;
        if seconds > 0.0 { grown / seconds } else { 0.0 }
    };
    // Seconds; `NaN` where nothing was measured.
    let share = |now: &HistogramSnapshot, before: &HistogramSnapshot, share: f64| {
        now.since(before).quantile(share).map_or(f64::NAN, |micros| micros / 1e6)
    };
    let cpu = if seconds > 0.0 { (now.cpu_seconds - before.cpu_seconds) / seconds * 100.0 } else { 0.0 };
    let by = |transport| node.metrics.sessions.get([transport]) as f64;
    let (sessions, connected) = (node.routing_table.sessions() as f64, node.metrics.sessions.sum() as f64);
    let [control, messages, presence] = node.outboxes.measured_bytes().map(|bytes| bytes as f64);
    [
        node.routing_table.accounts() as f64,
        sessions,
        by("tcp"),
        by("tls"),
        by("websocket"),
        by("bosh"),
        (sessions - connected).max(0.0),
        node.outboxes.len() as f64,
        stats.unauthenticated_connections as f64,
        rate(0),
        rate(1),
        rate(2),
        rate(3),
        rate(4),
        rate(5),
        rate(6),
        rate(7),
        share(&now.delivery, &before.delivery, 0.5),
        share(&now.delivery, &before.delivery, 0.99),
        cpu.max(0.0),
        stats.memory_bytes as f64,
        rate(8),
        rate(9),
        control + messages + presence,
        control,
        messages,
        presence,
        rate(10),
        rate(11),
        rate(12),
        rate(13),
        rate(14),
        rate(15),
        rate(16),
        share(&now.store, &before.store, 0.99),
        share(&now.pool_wait, &before.pool_wait, 0.99),
        stats.store_in_flight as f64,
        share(&now.lag, &before.lag, 1.0),
        rate(17),
        rate(18),
    ]
    .map(|value| value as f32)
}

/// The samples of the last hour.
#[derive(Debug, Default)]
pub(crate) struct OverviewHistory(LeafMutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    /// One ring buffer for each series; empty before the first sample.
    rings: Vec<Box<[f32]>>,
    /// Number of samples in the rings.
    len: usize,
    /// Index of the next sample.
    next: usize,
    /// Time of the last sample in seconds since 1970.
    last: u64,
    before: OverviewTotals,
}

impl HistoryState {
    /// Clears the rings.
    fn clear(&mut self) {
        self.rings = SERIES.map(|_| vec![f32::NAN; POINTS].into_boxed_slice()).into();
    }

    fn push(&mut self, point: SamplePoint) {
        if self.rings.is_empty() {
            self.clear();
        }
        for (ring, value) in self.rings.iter_mut().zip(point) {
            ring[self.next] = value;
        }
        self.next = (self.next + 1) % POINTS;
        self.len = (self.len + 1).min(POINTS);
    }

    /// Adds a sample taken at this second. Missed ones become gaps; a clock that jumped restarts the hour.
    fn add(&mut self, second: u64, point: SamplePoint) {
        let missed = second.saturating_sub(self.last) / INTERVAL;
        if self.len > 0 && (second < self.last || missed as usize > POINTS) {
            (self.len, self.next) = (0, 0);
        } else if self.len > 0 {
            if missed == 0 {
                return;
            }
            (1..missed).for_each(|_| self.push([f32::NAN; SERIES.len()]));
            self.last += missed * INTERVAL;
            return self.push(point);
        }
        self.last = second;
        self.push(point);
    }

    /// The values of a series after this second.
    fn after(&self, series: usize, since: u64) -> Vec<Value> {
        let wanted = (self.last.saturating_sub(since) / INTERVAL).min(self.len as u64) as usize;
        let Some(ring) = self.rings.get(series) else { return Vec::new() };
        let first = self.next + POINTS - wanted;
        (first..first + wanted).map(|at| number(ring[at % POINTS])).collect()
    }
}

impl OverviewHistory {
    /// Takes a sample.
    pub(crate) fn sample(&self, node: &Node, stats: &NodeStats) {
        node.outboxes.measure_queues();
        let now = OverviewTotals::collect(node, stats);
        let second = node.clock.unix_millis() / 1000;
        let before = std::mem::take(&mut self.0.lock().before);
        // The values are read under other locks, so not under this one.
        let point = (before.at != 0).then(|| values(node, stats, &before, &now));
        let mut state = self.0.lock();
        if let Some(point) = point {
            state.add(second, point);
        }
        state.before = now;
    }

    /// The last value of a series.
    pub(crate) fn latest(&self, name: &str) -> Option<f64> {
        let at = SERIES.iter().position(|(series, _)| *series == name)?;
        let state = self.0.lock();
        let value = *state.rings.get(at)?.get((state.next + POINTS - 1) % POINTS)?;
        value.is_finite().then(|| f64::from(value))
    }

    fn answer(&self, since: Option<u64>) -> Value {
        let state = self.0.lock();
        let hour = (POINTS as u64) * INTERVAL;
        let since = since.unwrap_or(0).max(state.last.saturating_sub(hour));
        let series: BTreeMap<&str, Vec<Value>> =
            SERIES.iter().enumerate().map(|(at, (name, _))| (*name, state.after(at, since))).collect();
        json!({ "now": state.last, "interval": INTERVAL, "series": series })
    }
}

/// At most six decimal places, and none for large numbers.
fn number(value: f32) -> Value {
    let value = f64::from(value);
    if !value.is_finite() {
        return Value::Null;
    }
    if value.fract() == 0.0 || value.abs() >= 1e6 {
        json!(value as i64)
    } else {
        json!((value * 1e6).round() / 1e6)
    }
}

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let since = json!({ "type": "integer", "minimum": 0 });
    vec![
        ApiOperation::new(Method::GET, "/overview", "overview", Access::Scoped(TokenScope::Read), overview)
            .summary("Metrics of all nodes, summed, or of one: current values and the last hour.")
            .query("node", node_parameter(), "Only this node.")
            .query("since", since, "Only samples after this time, in seconds since 1970.")
            .response(200, ResponseBody::Json("Overview"), "The metrics.")
            .problems(&[404]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let values = json!({ "type": "array", "items": { "type": ["number", "null"] } });
    let names: BTreeMap<&str, Value> = SERIES.iter().map(|(name, _)| (*name, values.clone())).collect();
    vec![(
        "Overview",
        json!({
            "type": "object",
            "required": ["now", "interval", "series", "units", "current", "resources", "nodes", "missing"],
            "properties": {
                "now": { "type": "integer", "description": "Time of the last sample of each series, in \
                 seconds since 1970." },
                "interval": { "type": "integer", "description": "Seconds between two samples." },
                "series": { "type": "object", "properties": names },
                "units": { "type": "object", "additionalProperties": { "type": "string" } },
                "current": { "type": "object", "description": "The output of `throng status --json`; \
                 of several nodes, their number and some sums." },
                "resources": resources(),
                "nodes": {
                    "type": "array", "items": { "type": "string" },
                    "description": "Nodes whose metrics these are.",
                },
                "missing": missing_schema(),
            },
        }),
    )]
}

fn resources() -> Value {
    let bytes = |what: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": what });
    let certificate = json!({
        "type": "object",
        "required": ["names", "not_after"],
        "properties": {
            "names": { "type": "array", "items": { "type": "string" }, "description": "Its domain names, at \
             most ten." },
            "not_after": { "type": "integer", "minimum": 0, "description": "Expiry in seconds since 1970." },
        },
    });
    json!({
        "type": "object",
        "required": ["disk_free_bytes", "disk_size_bytes", "database_bytes", "certificates"],
        "properties": {
            "disk_free_bytes": bytes("Free bytes on the file system of the database, updated every 30 \
             seconds."),
            "disk_size_bytes": bytes("Size of that file system in bytes."),
            "database_bytes": bytes("Size of the database files in bytes."),
            "certificates": {
                "type": "array", "items": certificate, "description": "In order of expiry; at most ten.",
            },
        },
    })
}

fn resource_json(found: ResourceStatus) -> Value {
    const MAX_LISTED: usize = 10;
    let certificates = found.certificates.iter().take(MAX_LISTED).map(|one| {
        let names: Vec<&String> = one.names.iter().take(MAX_LISTED).collect();
        json!({ "names": names, "not_after": one.not_after })
    });
    json!({
        "disk_free_bytes": found.disk_free_bytes,
        "disk_size_bytes": found.disk_size_bytes,
        "database_bytes": found.database_bytes,
        "certificates": certificates.collect::<Vec<_>>(),
    })
}

#[derive(Debug, Deserialize)]
struct OverviewQuery {
    node: Option<String>,
    since: Option<u64>,
}

/// The overview of this node.
pub(crate) fn overview_here(api: &Api, since: Option<u64>) -> Value {
    let mut answer = api.history.answer(since);
    answer["current"] = api.process.status_json();
    answer["current"]["ready"] = api.process.ready().into();
    answer["resources"] = resource_json(api.process.resources());
    answer
}

async fn overview(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    QueryParams(ask): QueryParams<OverviewQuery>,
) -> Result<Response, Problem> {
    let nodes = node_selection(&api, ask.node.as_deref())?;
    let mut answer = cluster::overview(&api, nodes, ask.since).await;
    answer["units"] = json!(SERIES.into_iter().collect::<BTreeMap<_, _>>());
    // An hour of a busy node is half a megabyte of digits.
    Ok(assets::json_response(&answer, &headers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::count::{Histogram, LATENCY_BUCKETS_MICROS};

    fn point(value: f32) -> SamplePoint {
        [value; SERIES.len()]
    }

    #[test]
    fn one_hour_is_retained_and_a_reader_gets_only_new_points() {
        let mut state = HistoryState::default();
        for n in 0..POINTS as u64 + 10 {
            state.add(1_000 + n * INTERVAL, point(n as f32));
        }
        let last = 1_000 + (POINTS as u64 + 9) * INTERVAL;
        assert_eq!((state.last, state.len), (last, POINTS));
        let all = state.after(0, 0);
        assert_eq!((all.len(), &all[0], &all[POINTS - 1]), (POINTS, &json!(10), &json!(POINTS + 9)));
        assert_eq!(state.after(0, last - INTERVAL), [json!(POINTS + 9)]);
        assert!(state.after(0, last).is_empty() && state.after(0, last + 100).is_empty());
        assert!(state.rings.iter().map(|ring| size_of_val(&**ring)).sum::<usize>() < 1 << 20);
    }

    /// The page with everything else is 135 kB, and must stay below 300.
    #[tokio::test]
    async fn the_compressed_history_of_a_busy_hour_is_small() {
        let history = OverviewHistory::default();
        let mut noise = fastrand::Rng::with_seed(1);
        for n in 0..POINTS as u64 {
            let point = std::array::from_fn(|at| {
                let value = f32::from(noise.u16(..));
                match SERIES[at].1 {
                    "seconds" => value / 1e7,
                    "1/s" | "percent" => (value / 20.0).round(),
                    "bytes" | "bytes/s" => value * 100.0,
                    _ => 9_000.0 + (value / 1_000.0).round(),
                }
            });
            history.0.lock().add(1_000 + n * INTERVAL, point);
        }
        let headers = HeaderMap::from_iter([(axum::http::header::ACCEPT_ENCODING, "gzip".parse().unwrap())]);
        let answer = assets::json_response(&history.answer(None), &headers);
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        assert!(bytes.len() < 160_000, "{}", bytes.len());
    }

    #[test]
    fn a_missed_interval_is_a_gap_and_a_clock_jump_restarts_the_history() {
        let mut state = HistoryState::default();
        state.add(100, point(1.0));
        state.add(101, point(9.0));
        state.add(106, point(2.0));
        assert_eq!(state.after(3, 0), [json!(1), Value::Null, Value::Null, json!(2)]);
        state.add(50, point(3.0));
        assert_eq!((state.after(3, 0), state.last), (vec![json!(3)], 50));
        state.add(1_000_000, point(4.0));
        assert_eq!(state.after(3, 0), [json!(4)]);
    }

    #[test]
    fn rates_and_percentiles_are_those_of_the_interval() {
        let engine = testkit::TestNode::new(&[]);
        let node = &engine.node;
        let time = Histogram::new(LATENCY_BUCKETS_MICROS);
        time.record(5_000_000);
        let first = NodeStats { store_latency: time.snapshot(), cpu_seconds: 10.0, ..NodeStats::default() };
        let before = OverviewTotals { at: 1_000_000, ..OverviewTotals::collect(node, &first) };
        (0..10).for_each(|_| time.record(900));
        node.metrics.logins.add(["PLAIN"], 8);
        node.metrics.sessions.add(["tls"], 3);
        let second = NodeStats {
            store_latency: time.snapshot(),
            cpu_seconds: 13.0,
            memory_bytes: 5,
            ..NodeStats::default()
        };
        let now = OverviewTotals { at: 3_000_000, ..OverviewTotals::collect(node, &second) };
        let values = values(node, &second, &before, &now);
        let get = |name: &str| values[SERIES.iter().position(|(n, _)| *n == name).unwrap()];
        assert_eq!([get("logins"), get("database_ops"), get("cpu"), get("memory")], [4.0, 5.0, 150.0, 5.0]);
        assert_eq!(get("sessions_tls"), 3.0);
        assert!((0.0005..=0.001).contains(&get("database_p99")), "{}", get("database_p99"));
        assert!(get("delivery_p99").is_nan());
    }

    /// The order of locks is checked: a sample reads shards of the routing table.
    #[test]
    fn a_second_sample_makes_a_point_and_reads_the_node_under_no_lock_of_the_history() {
        let engine = testkit::TestNode::new(&[]);
        let history = OverviewHistory::default();
        for expected in [0, 1, 2] {
            engine.advance(INTERVAL as u32);
            history.sample(&engine.node, &NodeStats::default());
            assert_eq!(history.0.lock().len, expected);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [number(0.0), number(1.234_567_8), number(2_600_000_000.0), number(f32::NAN)],
            [json!(0), json!(1.234568), json!(2_600_000_000_i64), Value::Null]
        );
    }
}
