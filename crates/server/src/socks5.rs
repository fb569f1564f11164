//! Listeners of kind `socks5-proxy`: the relay of the module `proxy65` (XEP-0065).
//!
//! The protocol and the relay are [`net::socks5`]; the feature in `features/src/proxy65/mod.rs` reaches them through
//! [`throng_core::bytestream_relay`].
//!
//! # Pitfalls
//!
//! A connection belongs to no domain before its activation, so connections have the limits of the node, and of the options
//! that apply before the activation the highest value of all domains counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::clock::Clock;
use base::{ActivationRefusal, BytestreamLimits};
use features::proxy65;
use jid::JidRef;
use net::socks5::{BytestreamDestination, SWEEP_MILLIS, Socks5Proxy};
use net::{ConnectionLimiter, ConnectionLimits, Listener, ListenerKind};
use throng_core::bytestream_relay::{BytestreamRelay, SharedBytestreamRelay};
use throng_core::feature::FeatureOptions;
use throng_core::{Host, Node};

use crate::assemble;
use crate::config::NodeConfig;

/// The module that announces the proxy.
pub(crate) const MODULE: &str = proxy65::FEATURE.name;

/// The relay of a node and its listeners.
pub(crate) struct Socks5Frontend {
    pub(crate) proxy: Socks5Proxy,
    pub(crate) limiter: ConnectionLimiter,
}

impl Socks5Frontend {
    /// Provides the relay to the features of a node.
    pub(crate) fn new(node: &Node, clock: Arc<dyn Clock>, config: &NodeConfig) -> Arc<Socks5Frontend> {
        let limiter = ConnectionLimiter::default();
        let frontend = Arc::new(Socks5Frontend { proxy: Socks5Proxy::new(clock), limiter });
        frontend.configure(&node.hosts(), config);
        node.extensions.insert::<SharedBytestreamRelay>(frontend.clone());
        frontend
    }

    /// Applies a configuration to new connections.
    pub(crate) fn configure(&self, hosts: &[Arc<Host>], config: &NodeConfig) {
        // `set_unactivated_limits` has this purpose, and refuses connections instead of pausing the listener.
        let limits = ConnectionLimits { unauthenticated: 0, ..assemble::connection_limits(&config.limits) };
        self.limiter.set_limits(limits);
        let mut options: Vec<_> = hosts.iter().filter_map(|host| host.options(MODULE)).collect();
        let defaults = FeatureOptions::defaults(proxy65::FEATURE.options);
        if options.is_empty() {
            options.push(&defaults);
        }
        let values = |key: &'static str| options.iter().map(move |options| options.int(key));
        // 0 means no limit.
        let limit = |key| values(key).min().filter(|lowest| *lowest == 0).or_else(|| values(key).max());
        let number = |value: Option<i64>| u32::try_from(value.unwrap_or(0)).unwrap_or(u32::MAX);
        self.proxy.set_activation_timeout(number(values("activation_timeout_seconds").max()));
        self.proxy.set_unactivated_limits(
            number(limit("unactivated_connections")),
            number(limit("unactivated_connections_per_address")),
        );
    }

    /// Binds a listener.
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<Listener> {
        let listener = Listener::bind(ListenerKind::Socks5Proxy, address, self.limiter.clone(), |_| {})?;
        self.proxy.add_address(listener.config().local_address);
        Ok(listener)
    }
}

/// Accepts connections of a listener.
pub(crate) async fn accept_loop(frontend: Arc<Socks5Frontend>, listener: Listener) {
    let runtime = tokio::runtime::Handle::current();
    loop {
        runtime.spawn(frontend.proxy.clone().serve(listener.accept().await));
    }
}

/// Wakes connections whose deadline has passed or whose rate permits more.
pub(crate) async fn sweep(frontend: Arc<Socks5Frontend>) {
    let mut tick = tokio::time::interval(Duration::from_millis(SWEEP_MILLIS));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        frontend.proxy.sweep();
    }
}

/// What is wrong with the listeners and the module together, as sentences.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    let listens = config.listen.iter().any(|listen| listen.kind == ListenerKind::Socks5Proxy);
    let on = |domain: &&String| {
        let enabled = features::registry::enable(&config.modules_of(domain)).unwrap_or_default();
        enabled.iter().any(|enabled| enabled.feature.name == MODULE)
    };
    let domains: Vec<&String> = config.hosts.iter().filter(on).collect();
    match (listens, domains.first()) {
        (true, None) => vec![format!(
            "a [[listen]] of kind {} is of no use without the module {MODULE}; enable it under [modules]",
            ListenerKind::Socks5Proxy.name()
        )],
        (false, Some(domain)) => vec![format!(
            "the module {MODULE} of {domain} cannot relay anything without a listener; add a [[listen]] of kind {}",
            ListenerKind::Socks5Proxy.name()
        )],
        _ => Vec::new(),
    }
}

impl BytestreamRelay for Socks5Frontend {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.proxy.addresses()
    }

    fn activate(
        &self,
        destination: [u8; 20],
        service: &str,
        user: JidRef<'_>,
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal> {
        self.proxy.activate(BytestreamDestination::new(destination), (service, user.as_str()), limits)
    }
}
