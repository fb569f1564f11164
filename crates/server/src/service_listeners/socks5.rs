//! Listeners of kind `socks5-proxy`: the relay of the module `proxy65` (XEP-0065).
//!
//! The protocol and the relay are [`net::socks5`]; the feature in `features/src/proxy65/mod.rs` reaches them through
//! [`throng_core::bytestream_relay`].
//!
//! # Pitfalls
//!
//! A connection belongs to no domain before its activation, so of the options that apply before the activation the highest
//! value of all domains counts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use base::spawn::BoxFuture;
use base::{ActivationRefusal, BytestreamLimits};
use feature_api::feature::FeatureOptions;
use features::proxy65;
use jid::JidRef;
use net::AcceptedConnection;
use net::socks5::{BytestreamDestination, SWEEP_MILLIS, Socks5Outcome, Socks5Proxy};
use prometheus_client::registry::Unit;
use throng_core::bytestream_relay::{BytestreamRelay, SharedBytestreamRelay};
use throng_core::{Host, Node};

use super::{ServiceFrontend, ServiceListenerSpec};
use crate::metrics::{Labels, MetricWriter};

/// The module that announces the proxy.
const MODULE: &str = proxy65::FEATURE.name;

/// The kind of listener.
pub(super) static SERVICE_LISTENER: ServiceListenerSpec = ServiceListenerSpec {
    name: "socks5-proxy",
    purpose: "file transfer",
    module: MODULE,
    unavailable: "relay anything",
    spec: "XEP-0065",
    sweep_millis: SWEEP_MILLIS,
    start,
};

/// The relay of a node.
struct Socks5Frontend(Socks5Proxy);

fn start(node: &Node) -> Arc<dyn ServiceFrontend> {
    let frontend = Arc::new(Socks5Frontend(Socks5Proxy::new(node.clock.clone())));
    node.extensions.insert::<SharedBytestreamRelay>(frontend.clone());
    frontend
}

impl ServiceFrontend for Socks5Frontend {
    fn add_address(&self, address: SocketAddr) {
        self.0.add_address(address);
    }

    fn configure(&self, hosts: &[Arc<Host>]) {
        let mut options: Vec<_> = hosts.iter().filter_map(|host| host.options(MODULE)).collect();
        let defaults = FeatureOptions::defaults(proxy65::FEATURE.options);
        if options.is_empty() {
            options.push(&defaults);
        }
        let values = |key: &'static str| options.iter().map(move |options| options.int(key));
        // 0 means no limit.
        let limit = |key| values(key).min().filter(|lowest| *lowest == 0).or_else(|| values(key).max());
        let number = |value: Option<i64>| u32::try_from(value.unwrap_or(0)).unwrap_or(u32::MAX);
        self.0.set_activation_timeout(number(values("activation_timeout_seconds").max()));
        self.0.set_unactivated_limits(
            number(limit("unactivated_connections")),
            number(limit("unactivated_connections_per_address")),
        );
    }

    fn serve(&self, accepted: AcceptedConnection) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().serve(accepted))
    }

    fn sweep(&self) {
        self.0.sweep();
    }

    fn metrics(&self, page: &mut MetricWriter<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.counts();
        page.gauge("throng_bytestreams", None, "Active bytestreams", &[(&[], counts.active as f64)])?;
        page.gauge(
            "throng_bytestreams_waiting",
            None,
            "Bytestreams that wait for the second party or for their activation",
            &[(&[], counts.waiting as f64)],
        )?;
        page.counter(
            "throng_bytestreams_activated",
            None,
            "Bytestreams activated",
            &[(&[], counts.activated as f64)],
        )?;
        page.counter(
            "throng_bytestreams_relayed",
            Some(Unit::Bytes),
            "Bytes relayed by bytestreams",
            &[(&[], counts.bytes as f64)],
        )?;
        let labels = Socks5Outcome::ALL.map(|outcome| [("outcome", outcome.as_str())]);
        let values: Vec<(Labels<'_>, f64)> =
            labels.iter().zip(counts.ended).map(|(labels, n)| (&labels[..], n as f64)).collect();
        page.counter(
            "throng_bytestream_connections_ended",
            None,
            "Bytestreams and connections to the proxy that ended, by outcome",
            &values,
        )
    }
}

impl BytestreamRelay for Socks5Frontend {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.0.addresses()
    }

    fn activate(
        &self,
        destination: [u8; 20],
        service: &str,
        user: JidRef<'_>,
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal> {
        self.0.activate(BytestreamDestination::new(destination), (service, user.as_str()), limits)
    }
}
