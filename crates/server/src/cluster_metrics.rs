//! Metrics of the connection to the cluster. A single node has them, too, so that dashboards need not distinguish.

use std::fmt::Error;

use cluster_nats::NatsStatus;
use prometheus_client::registry::Unit;

use crate::metrics::MetricWriter;
use crate::reload::RunningNode;

pub(crate) fn write(page: &mut MetricWriter<'_>, running: &RunningNode) -> Result<(), Error> {
    let single = || NatsStatus { members: 1, ..NatsStatus::default() };
    let status = running.assembled.nats.as_ref().map_or_else(single, |nats| nats.status());
    let flag = |value: bool| f64::from(u8::from(value));
    for (name, help, value) in [
        (
            "throng_cluster_connected",
            "Whether there is a connection to NATS: 1 or 0; 0 on a single node",
            flag(status.connected),
        ),
        (
            "throng_cluster_credentials_refused",
            "Whether NATS refuses the credentials of this node, or they have expired: 1 or 0",
            flag(status.refused),
        ),
        ("throng_cluster_members", "Nodes of the cluster, this one included", status.members as f64),
        ("throng_cluster_own_addresses", "Addresses with sessions on this node", status.own_claims as f64),
        (
            "throng_cluster_peer_addresses",
            "Addresses with sessions on each other node, added up",
            status.peer_claims as f64,
        ),
    ] {
        page.gauge(name, None, help, &[(&[], value)])?;
    }
    page.gauge(
        "throng_cluster_unsettled",
        Some(Unit::Bytes),
        "Envelopes for other nodes that are not safe there",
        &[(&[], status.kept_bytes as f64)],
    )?;
    let counts = status.statistics;
    for (name, help, value) in [
        ("throng_cluster_connections", "Connections to NATS that were made", status.connections),
        ("throng_cluster_envelopes_sent", "Envelopes accepted for other nodes", counts.envelopes_sent),
        ("throng_cluster_envelopes_received", "Envelopes of other nodes", counts.envelopes_received),
        (
            "throng_cluster_envelopes_returned",
            "Envelopes that returned because their node was gone",
            counts.undelivered,
        ),
        ("throng_cluster_messages_sent", "NATS messages sent, each with many envelopes", counts.frames_sent),
        ("throng_cluster_messages_received", "NATS messages of other members", counts.frames_received),
        (
            "throng_cluster_messages_ignored",
            "NATS messages that belong to no member, or to an earlier start of one",
            counts.ignored_frames,
        ),
        (
            "throng_cluster_messages_forged",
            "NATS messages without the code of the deployment's key",
            counts.forged_frames,
        ),
        (
            "throng_cluster_items_skipped",
            "Parts of NATS messages of kinds that only later versions know",
            counts.skipped_items,
        ),
        (
            "throng_cluster_claim_changes",
            "Changes of this node's addresses that were announced",
            counts.claim_changes,
        ),
        (
            "throng_cluster_digest_mismatches",
            "Times that another node's addresses differed from what was known of them",
            counts.digest_mismatches,
        ),
        (
            "throng_cluster_lost_nodes",
            "Nodes from which nothing was received for ten seconds",
            counts.lost_nodes,
        ),
        (
            "throng_cluster_unreadable_nodes",
            "Records of nodes with which this one cannot communicate: another version, or too many nodes",
            counts.unreadable_nodes,
        ),
    ] {
        page.counter(name, None, help, &[(&[], value as f64)])?;
    }
    Ok(())
}
