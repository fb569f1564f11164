//! `throng status`: a node's figures, once. The same figures as one JSON object feed `throng top`.
//!
//! The trap: bytes in queues are summed
//! over all connections, which locks each of them once; so only who asks pays for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::count::{Histogram, MICROS};
use net::GateCounts;
use parking_lot::Mutex;
use serde_json::{Value, json};
use throng_core::metrics::Tally;

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
    let metrics = &node.metrics;
    let mut failures: BTreeMap<&str, u64> = BTreeMap::new();
    for ([_, reason], count) in metrics.login_failures.all() {
        *failures.entry(reason).or_default() += count;
    }
    failures.retain(|_, count| *count > 0);
    let database = running.wired.database.figures();
    let pool = database.pools.iter().find(|pool| pool.name == "read");
    let wait = pool.map(|pool| pool.wait.snapshot()).unwrap_or_default();
    let waiting = database.writes_waiting + database.logins_waiting;
    let mut streams: BTreeMap<&str, usize> = BTreeMap::new();
    for door in &running.doors {
        *streams.entry(door.listen.kind.name()).or_default() += door.port.streams();
    }
    json!({
        "version": node.version,
        "up_seconds": node.seconds(),
        "accounts": running.accounts().values().sum::<u64>(),
        "domains": node.hosts().iter().map(|h| h.domain().to_owned()).collect::<Vec<_>>().join(", "),
        "connections": node.links.len(),
        "half_open": gate.half_open,
        "streams": streams,
        "sessions": node.table.sessions(),
        "accounts_online": node.table.accounts(),
        "logins": metrics.logins.sum(),
        "login_failures": metrics.login_failures.sum(),
        "logins_by_mechanism": seen(&metrics.logins),
        "login_failures_by_reason": failures,
        "messages_in": messages_in,
        "messages_out": messages_out,
        "presence_in": presence_in,
        "presence_out": presence_out,
        "iq_in": iq_in,
        "iq_out": iq_out,
        "queued_bytes": node.links.queued_bytes(),
        "offline_stored": metrics.offline_stored.get(),
        "offline_delivered": metrics.offline_delivered.get(),
        "waited": metrics.waited.get(),
        "sent_back": metrics.bounced.sum(),
        "presence_dropped": metrics.dropped.get(["presence", "queue-full"]),
        "queue_full": metrics.queue_full.get(["message"]),
        "limited": seen(&metrics.limited),
        "connections_refused": refused(&gate).into_iter().collect::<BTreeMap<_, _>>(),
        "stream_errors": seen(&metrics.stream_errors),
        "lag_ms": millis(lag.last),
        "lag_max_ms": millis(lag.worst),
        "database_round_trips": running.wired.database.round_trips(),
        "database_commits": running.wired.database.commits(),
        "database_waiting": waiting + pool.map_or(0, |pool| pool.waiting),
        "pool_size": pool.map_or(0, |pool| pool.size),
        "pool_used": pool.map_or(0, |pool| pool.used),
        "pool_waits": wait.count(),
        "pool_wait_seconds": wait.sum as f64 / 1e6,
        "sessions_by_transport": seen(&metrics.sessions),
        "cpu_seconds": crate::process::cpu_seconds(),
        "memory_bytes": crate::process::resident(),
    })
}

/// Refused connections by reason.
pub(crate) fn refused(gate: &GateCounts) -> [(&'static str, u64); 3] {
    [("full", gate.refused_full), ("address", gate.refused_address), ("rate", gate.refused_rate)]
}

/// The counts of a label that are not zero.
fn seen(tally: &Tally<1>) -> BTreeMap<&'static str, u64> {
    tally.all().into_iter().filter(|(_, count)| *count > 0).map(|([label], count)| (label, count)).collect()
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}

/// How late the node's own work is: the sweep is due once a second, and whatever keeps the worker threads busy delays it.
pub(crate) struct Vitals {
    late: Mutex<Late>,
    probes: Arc<Histogram>,
}

impl Default for Vitals {
    fn default() -> Vitals {
        Vitals { late: Mutex::default(), probes: Arc::new(Histogram::new(MICROS)) }
    }
}

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
        let mut late = self.late.lock();
        let at = late.next;
        late.next = (at + 1) % MINUTE;
        match late.spans.get_mut(at) {
            Some(slot) => *slot = span,
            None => late.spans.push(span),
        }
    }
    /// Notes how late a probe was.
    pub(crate) fn probed(&self, span: Duration) {
        self.probes.record(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }
    /// Microseconds that probes were late.
    pub(crate) fn probes(&self) -> &Arc<Histogram> {
        &self.probes
    }
    /// What was noted.
    pub(crate) fn lag(&self) -> Lag {
        let late = self.late.lock();
        let last = late.spans.get((late.next + MINUTE - 1) % MINUTE).copied().unwrap_or_default();
        Lag { last, worst: late.spans.iter().max().copied().unwrap_or_default() }
    }
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
}
