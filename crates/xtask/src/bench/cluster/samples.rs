//! Counters of the nodes and of NATS over time, to be read off between two moments.
//!
//! # Pitfalls
//!
//! A sample costs the nodes some CPU, so there is one every two seconds, and values between are interpolated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::super::cpu_timeline::monotonic_us;
use crate::cluster::read_page;

/// Distance of the samples.
const INTERVAL: Duration = Duration::from_secs(2);
/// Distance of the looks at the end.
const STEP: Duration = Duration::from_millis(50);

/// What the nodes and NATS have counted by a moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ClusterCounts {
    /// NATS messages that the nodes sent.
    pub(super) messages: f64,
    /// Envelopes in them, each with a stanza.
    pub(super) envelopes: f64,
    /// Bytes that NATS received from nodes.
    pub(super) bytes: f64,
}

impl ClusterCounts {
    /// Values of `a` and `b`, combined one by one.
    fn zip(a: Self, b: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            messages: with(a.messages, b.messages),
            envelopes: with(a.envelopes, b.envelopes),
            bytes: with(a.bytes, b.bytes),
        }
    }
}

/// Counts by a moment, in microseconds of the monotonic clock.
type TimedCounts = (u64, ClusterCounts);

/// Counts in the order of time.
pub(super) struct ClusterSamples(Vec<TimedCounts>);

impl ClusterSamples {
    /// What was counted between two moments.
    pub(super) fn between(&self, from: u64, to: u64) -> Result<ClusterCounts> {
        Ok(ClusterCounts::zip(self.at(to)?, self.at(from)?, |to, from| to - from))
    }

    fn at(&self, at: u64) -> Result<ClusterCounts> {
        let after = self.0.partition_point(|(sampled, _)| *sampled < at);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some(before), Some(after)) => {
                let share = (at - before.0) as f64 / (after.0 - before.0).max(1) as f64;
                Ok(ClusterCounts::zip(before.1, after.1, |before, after| before + share * (after - before)))
            }
            _ => bail!("no counters were sampled at that time"),
        }
    }
}

/// Takes samples in a thread until the end.
pub(super) struct ClusterTimeline {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<TimedCounts>>>>,
}

impl ClusterTimeline {
    /// Starts to sample the nodes with these HTTP ports, and NATS.
    pub(super) fn start(http: Vec<u16>, nats_monitor: u16) -> Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("counters".into()).spawn(move || {
            let mut samples = vec![sample(&http, nats_monitor)?];
            loop {
                let mut slept = Duration::ZERO;
                while slept < INTERVAL && !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(STEP);
                    slept += STEP;
                }
                samples.push(sample(&http, nats_monitor)?);
                if stopped.load(Ordering::Relaxed) {
                    return Ok(samples);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread.
    pub(super) fn finish(mut self) -> Result<ClusterSamples> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { bail!("the counters are no longer sampled") };
        let samples =
            thread.join().map_err(|_| anyhow::anyhow!("the thread that samples the counters failed"))?;
        samples.map(ClusterSamples)
    }
}

impl Drop for ClusterTimeline {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn sample(http: &[u16], nats_monitor: u16) -> Result<TimedCounts> {
    let mut counts = ClusterCounts::default();
    for port in http {
        let page = read_page(*port, "/metrics")?;
        counts.messages += metric(&page, "throng_cluster_messages_sent_total");
        counts.envelopes += metric(&page, "throng_cluster_envelopes_sent_total");
    }
    counts.bytes = nats_bytes(&read_page(nats_monitor, "/varz")?)?;
    Ok((monotonic_us(), counts))
}

/// A metric without labels; 0 if the page has none, as on a single node.
fn metric(page: &str, name: &str) -> f64 {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// Bytes that NATS has received, by its own count.
fn nats_bytes(answer: &str) -> Result<f64> {
    let (_, body) = answer.split_once("\r\n\r\n").context("NATS sent no HTTP answer")?;
    let values: serde_json::Value = serde_json::from_str(body).context("the state of NATS is not JSON")?;
    values["in_bytes"].as_f64().context("NATS does not report its bytes")
}

#[cfg(test)]
mod tests {
    use super::{ClusterCounts, ClusterSamples, metric, nats_bytes};

    #[test]
    fn counts_are_read_off_between_samples() {
        let counts = |messages, bytes| ClusterCounts { messages, envelopes: 2.0 * messages, bytes };
        let samples = ClusterSamples(vec![
            (1_000, counts(0.0, 50.0)),
            (2_000, counts(100.0, 50.0)),
            (4_000, counts(100.0, 250.0)),
        ]);
        assert_eq!(samples.between(1_500, 3_000).unwrap(), counts(50.0, 100.0));
        assert!(samples.between(500, 3_000).is_err());
        assert!(samples.between(1_500, 5_000).is_err());
    }

    #[test]
    fn metrics_and_bytes_are_found() {
        let page = "HTTP/1.0 200 OK\r\n\r\n# TYPE a counter\na_total 5\na_total_more 6\n";
        assert!((metric(page, "a_total") - 5.0).abs() < 1e-9);
        assert!(metric(page, "b_total").abs() < 1e-9);
        let varz =
            "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"in_bytes\": 12, \"out_bytes\": 30}";
        assert!((nats_bytes(varz).unwrap() - 12.0).abs() < 1e-9);
        assert!(nats_bytes("HTTP/1.0 404 Not Found\r\n\r\n{}").is_err());
    }
}
