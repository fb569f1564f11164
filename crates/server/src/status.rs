//! `throng status`: a node's figures, once. The same figures as one JSON object feed `throng top`.
//!
//! Left out: waits for the database's connections; the pool does not count them. The trap: bytes in queues are summed
//! over all connections, which locks each of them once; so only who asks pays for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use net::GateCounts;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::admin::{self, Request};
use crate::config::Config;
use crate::reload::Running;
use crate::{out, runtime};

/// Asks the running node and prints its figures.
pub(crate) fn command(config: Option<&Path>, json: bool) -> Result<()> {
    let config = Config::load(config)?;
    runtime::start()?.block_on(async {
        let socket = config.socket();
        let mut stream = admin::connect(&socket).await.with_context(|| {
            format!("no node is running on {}; start one with: throng serve", socket.display())
        })?;
        let answer = admin::ask(&mut stream, &Request::Status).await?;
        let figures = answer.status.unwrap_or_default();
        if json {
            out::line(&figures.to_string());
            return Ok(());
        }
        for (key, value) in figures.as_object().into_iter().flatten() {
            match value {
                Value::Object(parts) => {
                    for (part, value) in parts {
                        out::line(&format!("{:<32}{value}", format!("{} {part}", key.replace('_', " "))));
                    }
                }
                Value::String(text) => out::line(&format!("{:<32}{text}", key.replace('_', " "))),
                value => out::line(&format!("{:<32}{value}", key.replace('_', " "))),
            }
        }
        Ok(())
    })
}

/// The figures of a node.
pub(crate) fn figures(running: &Arc<Running>) -> Value {
    let node = &running.wired.node;
    let [[messages_in, presence_in, iq_in], [messages_out, presence_out, iq_out]] = node.metrics.stanzas();
    let (gate, lag) = (running.gate.counts(), running.vitals.lag());
    let counters = counters(running);
    let by = |name: &str| {
        let of = counters.iter().filter_map(|((n, label), value)| (n == name).then_some((label, *value)));
        of.collect::<Vec<_>>()
    };
    // Mechanisms are written in capitals, conditions of failure are not.
    let (good, bad): (Vec<_>, Vec<_>) =
        by("throng_logins_total").into_iter().partition(|(label, _)| label.starts_with(char::is_uppercase));
    let sum = |list: &[(&String, u64)]| list.iter().map(|(_, value)| value).sum::<u64>();
    let object = |list: &[(&String, u64)]| -> BTreeMap<String, u64> {
        list.iter().map(|(label, value)| ((*label).clone(), *value)).collect()
    };
    let mut streams: BTreeMap<&str, usize> = BTreeMap::new();
    for door in &running.doors {
        *streams.entry(door.listen.kind.name()).or_default() += door.port.streams();
    }
    json!({
        "version": node.version,
        "up_seconds": node.seconds(),
        "domains": node.hosts().iter().map(|h| h.domain().to_owned()).collect::<Vec<_>>().join(", "),
        "connections": node.links.len(),
        "half_open": gate.half_open,
        "streams": streams,
        "sessions": node.table.sessions(),
        "accounts_online": node.table.accounts(),
        "logins": sum(&good),
        "login_failures": sum(&bad),
        "logins_by_mechanism": object(&good),
        "login_failures_by_reason": object(&bad),
        "messages_in": messages_in,
        "messages_out": messages_out,
        "presence_in": presence_in,
        "presence_out": presence_out,
        "iq_in": iq_in,
        "iq_out": iq_out,
        "queued_bytes": node.links.queued_bytes(),
        "offline_stored": node.metrics.offline_stored.get(),
        "offline_delivered": node.metrics.offline_delivered.get(),
        "waited": node.metrics.waited.get(),
        "sent_back": node.metrics.bounced.get(),
        "presence_dropped": node.metrics.shed_presence.get(),
        "queue_full": node.metrics.queue_full.get(),
        "limited": object(&by("throng_limited_total")),
        "connections_refused": refused(&gate).into_iter().collect::<BTreeMap<_, _>>(),
        "stream_errors": object(&by("throng_stream_errors_total")),
        "lag_ms": millis(lag.last),
        "lag_max_ms": millis(lag.worst),
        "database_round_trips": running.wired.database.round_trips(),
        "database_commits": running.wired.database.commits(),
        "cpu_seconds": cpu_seconds(),
        "memory_bytes": resident(),
    })
}

/// Refused connections by reason.
pub(crate) fn refused(gate: &GateCounts) -> [(&'static str, u64); 3] {
    [("full", gate.refused_full), ("address", gate.refused_address), ("rate", gate.refused_rate)]
}

/// Counters that have a label, by name and the label's value. They are taken from what `/metrics` prints: families
/// cannot be walked otherwise, and it is a few kilobytes.
fn counters(running: &Running) -> BTreeMap<(String, String), u64> {
    let mut text = String::new();
    let _ = prometheus_client::encoding::text::encode(&mut text, &running.wired.registry.lock());
    text.lines().filter_map(counter).collect()
}

/// `name_total{label="value"} 3`
fn counter(line: &str) -> Option<((String, String), u64)> {
    let (name, rest) = line.split_once("{")?;
    let (label, value) = rest.split_once("} ")?;
    let (_, label) = label.split_once("=\"")?;
    let label = label.strip_suffix('"').filter(|label| !label.contains('"'))?;
    Some(((name.to_owned(), label.to_owned()), value.trim().parse().ok()?))
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

/// How late the node's own work is: the sweep is due once a second, and whatever keeps the worker threads busy delays it.
#[derive(Default)]
pub(crate) struct Vitals(Mutex<Late>);

#[derive(Default)]
struct Late {
    /// The last minute, one for each second.
    spans: Vec<Duration>,
    next: usize,
}

/// Lateness of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// Of the last one.
    pub(crate) last: Duration,
    /// The most of a minute.
    pub(crate) worst: Duration,
}

const MINUTE: usize = 60;

impl Vitals {
    /// Notes how late a sweep was.
    pub(crate) fn late(&self, span: Duration) {
        let mut late = self.0.lock();
        let at = late.next;
        late.next = (at + 1) % MINUTE;
        match late.spans.get_mut(at) {
            Some(slot) => *slot = span,
            None => late.spans.push(span),
        }
    }
    /// What was noted.
    pub(crate) fn lag(&self) -> Lag {
        let late = self.0.lock();
        let last = late.spans.get((late.next + MINUTE - 1) % MINUTE).copied().unwrap_or_default();
        Lag { last, worst: late.spans.iter().max().copied().unwrap_or_default() }
    }
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()));
    pages.unwrap_or(0) * 4096
}

/// Time that this process has had on CPUs; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_a_minute_is_forgotten_after_it() {
        let vitals = Vitals::default();
        assert_eq!(vitals.lag(), Lag::default());
        let ms = Duration::from_millis;
        vitals.late(ms(50));
        vitals.late(ms(3));
        assert_eq!(vitals.lag(), Lag { last: ms(3), worst: ms(50) });
        for _ in 0..59 {
            vitals.late(ms(1));
        }
        assert_eq!(vitals.lag(), Lag { last: ms(1), worst: ms(3) });
    }

    #[test]
    fn counters_are_read_with_their_label() {
        let key = ("throng_logins_total".to_owned(), "SCRAM-SHA-1".to_owned());
        assert_eq!(counter("throng_logins_total{reason=\"SCRAM-SHA-1\"} 7"), Some((key, 7)));
        for line in
            ["throng_bounced_total 3", "# HELP x{y", "a{kind=\"x\",direction=\"in\"} 3", "a{b=\"c\"} x"]
        {
            assert_eq!(counter(line), None, "{line}");
        }
    }
}
