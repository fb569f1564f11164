//! Metric families: counters by label, and histograms, in the form that the registry prints.
//!
//! The families of `prometheus-client` can only be read as text, and its histograms have a lock each. The
//! console and `throng top` show the same numbers as `/metrics`, so both are implemented here.
//!
//! # Pitfalls
//!
//! Label values are deliberately `'static`. Client input must never become a label value, or a client could
//! fill the memory and the operator's database with series.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::count::{Counter, Histogram};
use base::lock::{RankedRwLock, rank};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Atomic;

/// A striped counter, for [`prometheus_client::metrics::counter::Counter`].
#[derive(Debug, Default)]
pub struct StripedAtomic(Counter);

impl Atomic<u64> for StripedAtomic {
    /// The previous value is unknown; returns 0.
    fn inc(&self) -> u64 {
        self.inc_by(1)
    }

    fn inc_by(&self, n: u64) -> u64 {
        self.0.add(n);
        0
    }

    fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A counter that every stanza increments.
pub type StripedCounter = prometheus_client::metrics::counter::Counter<u64, StripedAtomic>;

/// Counters by `N` labels. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct CountFamily<const N: usize> {
    labels: [&'static str; N],
    gauge: bool,
    counts: Arc<RankedRwLock<BTreeMap<[&'static str; N], AtomicU64>, { rank::METRIC_LABELS }>>,
}

impl<const N: usize> CountFamily<N> {
    /// Counters that only grow. Those of `known` are printed as zero from the start, so that their first
    /// increase is visible.
    pub fn counter(labels: [&'static str; N], known: &[[&'static str; N]]) -> CountFamily<N> {
        let counts = known.iter().map(|values| (*values, AtomicU64::new(0))).collect();
        CountFamily { labels, gauge: false, counts: Arc::new(RankedRwLock::new(counts)) }
    }

    /// Gauges, which rise and fall.
    pub fn gauge(labels: [&'static str; N], known: &[[&'static str; N]]) -> CountFamily<N> {
        CountFamily { gauge: true, ..CountFamily::counter(labels, known) }
    }

    /// Increments a counter.
    pub fn inc(&self, values: [&'static str; N]) {
        self.add(values, 1);
    }

    /// Adds to a counter.
    pub fn add(&self, values: [&'static str; N], n: u64) {
        if let Some(count) = self.counts.read().get(&values) {
            count.fetch_add(n, Ordering::Relaxed);
            return;
        }
        self.counts.write().entry(values).or_default().fetch_add(n, Ordering::Relaxed);
    }

    /// Decrements a gauge.
    pub fn dec(&self, values: [&'static str; N]) {
        self.add(values, u64::MAX);
    }

    /// The value for these labels.
    pub fn get(&self, values: [&'static str; N]) -> u64 {
        self.counts.read().get(&values).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.counts.read().values().fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::Relaxed)))
    }

    /// All values, in the order of their labels.
    pub fn all(&self) -> Vec<([&'static str; N], u64)> {
        let counts = self.counts.read();
        counts.iter().map(|(values, count)| (*values, count.load(Ordering::Relaxed))).collect()
    }
}

impl<const N: usize> EncodeMetric for CountFamily<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        for (values, count) in self.all() {
            let labels: Vec<(&str, &str)> = self.labels.into_iter().zip(values).collect();
            let mut one = encoder.encode_family(&labels)?;
            if self.gauge {
                one.encode_gauge(&count)?;
            } else {
                one.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        if self.gauge { MetricType::Gauge } else { MetricType::Counter }
    }
}

/// Names and values of labels.
type LabelPairs = Vec<(&'static str, &'static str)>;

/// Histograms by their labels, or one without labels.
#[derive(Clone, Debug)]
pub struct HistogramFamily {
    parts: Vec<(LabelPairs, Arc<Histogram>)>,
    /// The printed value of one unit of the histogram.
    scale: f64,
}

/// A microsecond in seconds.
pub const MICROSECOND: f64 = 1e-6;

impl HistogramFamily {
    /// A single histogram.
    pub fn one(histogram: &Arc<Histogram>, scale: f64) -> HistogramFamily {
        HistogramFamily { parts: vec![(Vec::new(), histogram.clone())], scale }
    }

    /// Histograms by the values of a label.
    pub fn by(
        label: &'static str,
        parts: Vec<(&'static str, Arc<Histogram>)>,
        scale: f64,
    ) -> HistogramFamily {
        HistogramFamily::by_all([label], parts.into_iter().map(|(value, one)| ([value], one)), scale)
    }

    /// Histograms by the values of several labels.
    pub fn by_all<const N: usize>(
        labels: [&'static str; N],
        parts: impl IntoIterator<Item = ([&'static str; N], Arc<Histogram>)>,
        scale: f64,
    ) -> HistogramFamily {
        let with_labels = |(values, one): ([&'static str; N], Arc<Histogram>)| {
            (labels.into_iter().zip(values).collect(), one)
        };
        HistogramFamily { parts: parts.into_iter().map(with_labels).collect(), scale }
    }

    fn write(&self, encoder: &mut MetricEncoder<'_>, histogram: &Histogram) -> Result<(), Error> {
        let seen = histogram.snapshot();
        let bounds = seen.bounds.iter().map(|bound| round_to_decimal(*bound as f64 * self.scale));
        let buckets: Vec<(f64, u64)> =
            bounds.chain([f64::INFINITY]).zip(seen.counts.iter().copied()).collect();
        let sum = round_to_decimal(seen.sum as f64 * self.scale);
        encoder.encode_histogram::<NoLabelSet>(sum, seen.count(), &buckets, None)
    }
}

/// Rounds away binary fractions: 0.0001 instead of 0.00009999999999999999.
fn round_to_decimal(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

impl EncodeMetric for HistogramFamily {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        for (labels, histogram) in &self.parts {
            if labels.is_empty() {
                self.write(&mut encoder, histogram)?;
            } else {
                self.write(&mut encoder.encode_family(labels)?, histogram)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::count::LATENCY_BUCKETS_MICROS;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::{Registry, Unit};

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn labels_are_counted_and_known_ones_are_printed_from_the_start() {
        let family = CountFamily::counter(["mechanism", "reason"], &[["PLAIN", "not-authorized"]]);
        let mut registry = Registry::default();
        registry.register("failures", "Failed logins", family.clone());
        assert!(
            text(&registry).contains("failures_total{mechanism=\"PLAIN\",reason=\"not-authorized\"} 0\n")
        );
        family.inc(["EXTERNAL", "aborted"]);
        family.add(["PLAIN", "not-authorized"], 3);
        assert!(text(&registry).contains("failures_total{mechanism=\"EXTERNAL\",reason=\"aborted\"} 1\n"));
        assert_eq!((family.sum(), family.get(["PLAIN", "not-authorized"])), (4, 3));
        let gauge = CountFamily::gauge(["transport"], &[]);
        registry.register("sessions", "Sessions", gauge.clone());
        gauge.add(["tcp"], 2);
        gauge.dec(["tcp"]);
        assert!(text(&registry).contains("# TYPE sessions gauge\nsessions{transport=\"tcp\"} 1\n"));
    }

    #[test]
    fn a_histogram_is_printed_in_seconds_with_all_buckets() {
        let histogram = Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS));
        [70, 90, 20_000_000].into_iter().for_each(|micros| histogram.record(micros));
        let mut registry = Registry::default();
        let by = HistogramFamily::by("class", vec![("message", histogram)], MICROSECOND);
        registry.register_with_unit("delivery", "Delivery", Unit::Seconds, by);
        let text = text(&registry);
        for line in [
            "# TYPE delivery_seconds histogram",
            "# UNIT delivery_seconds seconds",
            "delivery_seconds_bucket{le=\"0.00005\",class=\"message\"} 0",
            "delivery_seconds_bucket{le=\"0.0001\",class=\"message\"} 2",
            "delivery_seconds_bucket{le=\"10.0\",class=\"message\"} 2",
            "delivery_seconds_bucket{le=\"+Inf\",class=\"message\"} 3",
            "delivery_seconds_count{class=\"message\"} 3",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} is missing:\n{text}");
        }
    }
}
