//! The listener of kind `socks5-proxy`: options of all domains, connections and metrics.
//!
//! # Pitfalls
//!
//! A connection belongs to no domain before its activation, so of the options that apply before the activation the highest
//! value of all domains counts.

use std::net::SocketAddr;
use std::sync::Arc;

use base::spawn::BoxFuture;
use feature_api::feature::FeatureOptions;
use feature_api::listener::{ListenerConnection, ListenerHandler, ListenerMetric, ListenerSpec};
use throng_core::{Host, Node};

use super::FEATURE;
use super::socks5::{Socks5Outcome, Socks5Proxy};

pub(super) const LISTENER: ListenerSpec = ListenerSpec {
    kind: "socks5-proxy",
    port: 7777,
    purpose: "file transfer",
    unavailable: "relay anything",
    doc: "SOCKS5 connections of both parties of a transfer.",
    limits_unauthenticated: true,
    start,
};

/// Creates the proxy of a node, which requests find among the node's extensions.
fn start(node: &Node) -> Arc<dyn ListenerHandler> {
    let proxy = Socks5Proxy::new(node.clock.clone());
    node.extensions.insert(proxy.clone());
    Arc::new(proxy)
}

impl ListenerHandler for Socks5Proxy {
    fn serve(&self, connection: ListenerConnection) -> BoxFuture<'static, ()> {
        Box::pin(self.clone().serve_connection(connection))
    }

    fn add_address(&self, address: SocketAddr) {
        self.add_listener(address);
    }

    fn configure(&self, hosts: &[Arc<Host>]) {
        let mut options: Vec<_> = hosts.iter().filter_map(|host| host.options(FEATURE.name)).collect();
        let defaults = FeatureOptions::defaults(FEATURE.options);
        if options.is_empty() {
            options.push(&defaults);
        }
        let values = |key: &'static str| options.iter().map(move |options| options.int(key));
        // 0 means no limit.
        let limit = |key| values(key).min().filter(|lowest| *lowest == 0).or_else(|| values(key).max());
        let number = |value: Option<i64>| u32::try_from(value.unwrap_or(0)).unwrap_or(u32::MAX);
        self.set_activation_timeout(number(values("activation_timeout_seconds").max()));
        self.set_unactivated_limits(
            number(limit("unactivated_connections")),
            number(limit("unactivated_connections_per_address")),
        );
    }

    fn sweep(&self) {
        self.remove_unused_rates();
    }

    fn metrics(&self) -> Vec<ListenerMetric> {
        let counts = self.counts();
        let ended = Socks5Outcome::ALL.iter().zip(counts.ended).map(|(outcome, n)| (outcome.as_str(), n));
        vec![
            ListenerMetric::gauge("throng_bytestreams", "Active bytestreams", counts.active as u64),
            ListenerMetric::gauge(
                "throng_bytestreams_waiting",
                "Bytestreams that wait for the second party or for their activation",
                counts.waiting as u64,
            ),
            ListenerMetric::counter(
                "throng_bytestreams_activated",
                "Bytestreams activated",
                counts.activated,
            ),
            ListenerMetric {
                unit: "bytes",
                ..ListenerMetric::counter(
                    "throng_bytestreams_relayed",
                    "Bytes relayed by bytestreams",
                    counts.bytes,
                )
            },
            ListenerMetric::labelled_counter(
                "throng_bytestream_connections_ended",
                "Bytestreams and connections to the proxy that ended, by outcome",
                "outcome",
                ended,
            ),
        ]
    }
}
