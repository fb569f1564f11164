//! Listeners of kind `socks5-proxy`: the relay of the module `proxy65` (XEP-0065).
//!
//! The protocol and the relay are [`net::socks5`]; the feature in `features/src/proxy65/mod.rs` reaches them through
//! [`throng_core::bytestream_relay`].
//!
//! # Pitfalls
//!
//! A connection belongs to no domain before its activation, so connections have the limits of the node, and the longest
//! pairing time of all domains applies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::clock::Clock;
use jid::JidRef;
use net::socks5::{ActivationRefusal, BytestreamDestination, BytestreamLimits, Socks5Proxy};
use net::{ConnectionLimiter, ConnectionLimits, Listener, ListenerKind};
use throng_core::bytestream_relay::{BytestreamRelay, RelayLimits, RelayRefusal, SharedBytestreamRelay};
use throng_core::{Host, Node};

use crate::assemble;
use crate::config::NodeConfig;

/// The module that announces the proxy.
pub(crate) const MODULE: &str = "proxy65";
/// Pause between two sweeps, the granularity of rates.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

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
        // Nobody authenticates here: clients that only connect must not pause the listener.
        let limits = ConnectionLimits { unauthenticated: 0, ..assemble::connection_limits(&config.limits) };
        self.limiter.set_limits(limits);
        let of = |host: &Arc<Host>| host.options(MODULE).map(|options| options.int("pairing_seconds"));
        if let Some(seconds) = hosts.iter().filter_map(of).max() {
            self.proxy.set_pairing_seconds(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
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
        let accepted = listener.accept().await;
        runtime.spawn(frontend.proxy.clone().serve(accepted.socket, accepted.permit));
    }
}

/// Wakes connections whose deadline has passed or whose rate permits more.
pub(crate) async fn sweep(frontend: Arc<Socks5Frontend>) {
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
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
        limits: &RelayLimits,
    ) -> Result<(), RelayRefusal> {
        let limits = BytestreamLimits {
            sessions_per_user: limits.sessions_per_user,
            sessions: limits.sessions,
            bytes_per_second_per_user: limits.bytes_per_second_per_user,
            bytes_per_second: limits.bytes_per_second,
            idle_seconds: limits.idle_seconds,
        };
        let done =
            self.proxy.activate(BytestreamDestination::new(destination), (service, user.as_str()), &limits);
        done.map_err(|refusal| match refusal {
            ActivationRefusal::NotConnected => RelayRefusal::NotConnected,
            ActivationRefusal::OneParty => RelayRefusal::OneParty,
            ActivationRefusal::UserLimit | ActivationRefusal::ServiceLimit => RelayRefusal::TooMany,
        })
    }
}
