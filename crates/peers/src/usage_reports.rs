//! Usage reports between nodes ([`cluster::UsageReports`]), and that of the rates which sessions had spent.
//!
//! ```text
//! octets  field     recipients: none
//! 1       kind      [`cluster::UsageKind`]; an unknown one is ignored
//! n       content   that of the kind
//! ```
//!
//! A report is sent once ([`EnvelopeClass::BestEffort`]): after a broken connection it would be late, and an envelope
//! that is kept takes room that stanzas need.

use std::sync::{Arc, Weak};

use base::Millis;
use cluster::{Envelope, EnvelopeClass, UsageKind, UsageReport, UsageReporter, UsageReports};
use throng_core::Node;
use throng_core::session::{SpentRates, SpentReport, SpentReports};

use crate::ClusteredNode;
use crate::envelope_kinds::USAGE_REPORT;

/// Reports the rates that sessions of a node had spent.
struct SpentRateReporter {
    reports: Arc<SpentReports>,
    node: Weak<Node>,
}

impl UsageReporter for SpentRateReporter {
    fn kind(&self) -> UsageKind {
        UsageKind::SpentRates
    }

    fn take_report(&self) -> UsageReport {
        let now = self.node.upgrade().map_or(0, |node| node.seconds());
        let (octets, dropped) = self.reports.take(now);
        UsageReport { octets, dropped }
    }

    fn on_report(&self, octets: &[u8]) -> bool {
        let (Some(reports), Some(node)) = (SpentReport::decode(octets), self.node.upgrade()) else {
            return false;
        };
        reports.iter().for_each(|report| add_spent_rates(&node, report));
        true
    }
}

/// Adds what sessions of an account had spent on another node. A session that has just started here would have started with
/// less.
fn add_spent_rates(node: &Node, report: &SpentReport) {
    let now = node.seconds();
    let spent = SpentRates::with_missing(node.limits().session_rates(false), &report.missing, now);
    let account = node.routing_table.find_by_id(report.hash, report.account);
    for session in account.iter().flat_map(|account| account.sessions()) {
        session.rates(|rates| rates.charge_late_report(&spent, now));
    }
    node.account_rates.keep(report.account, spent, now);
}

/// From now on, the nodes of a cluster learn what sessions of an account had spent elsewhere. Must be called once, before
/// sessions begin.
pub fn share_spent_rates(node: &Arc<Node>) {
    if node.is_single() || node.extensions.get::<SpentReports>().is_some() {
        return;
    }
    let all = node.extensions.get_or_default::<UsageReports>();
    node.extensions.insert(SpentReports::new(all.schedule().clone()));
    if let Some(reports) = node.extensions.get::<SpentReports>() {
        all.register(Arc::new(SpentRateReporter { reports, node: Arc::downgrade(node) }));
    }
}

/// Sends to all other nodes what was collected for them, if a report is due: see [`base::ReportSchedule::poll_due`].
pub fn send_usage_reports(node: &Arc<Node>) {
    send_reports(node, node.clock.now());
}

/// As [`send_usage_reports`], without waiting until a report is due: the node is about to leave the cluster.
pub fn send_last_usage_reports(node: &Arc<Node>) {
    send_reports(node, Millis::NEVER);
}

fn send_reports(node: &Arc<Node>, now: Millis) {
    let Some(reports) = node.extensions.get::<UsageReports>() else { return };
    if !reports.schedule().begin(now) {
        return;
    }
    for reporter in reports.reporters() {
        let kind = reporter.kind();
        let UsageReport { octets, dropped } = reporter.take_report();
        node.metrics.cluster_usage_dropped.add([kind.as_str()], dropped);
        if octets.is_empty() {
            continue;
        }
        let octets = [&[kind as u8], &octets[..]].concat();
        let own = node.cluster.node();
        let envelope = Envelope::new(USAGE_REPORT, EnvelopeClass::BestEffort, own, Vec::new(), octets);
        node.metrics.cluster_usage_reports.inc([kind.as_str()]);
        for refused in node.cluster.broadcast(envelope).refused {
            tracing::debug!(kind = kind.as_str(), %refused, "a usage report was not sent to a node");
        }
    }
}

impl ClusteredNode<'_> {
    /// Another node has sent a report. False if it is none.
    pub(super) fn on_usage_report(&self, envelope: &Envelope) -> bool {
        let reports = self.extensions.get_or_default::<UsageReports>();
        envelope.recipients.is_empty() && reports.on_report(&envelope.bytes)
    }
}
