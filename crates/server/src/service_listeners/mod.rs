//! Listeners of modules with a protocol of their own, such as the SOCKS5 proxy of `proxy65`.
//!
//! All follows from the [`ListenerSpec`]s that the features declare ([`feature_api::listener`]): kinds in the configuration,
//! binding, accepting, connection limits, deadlines, reloads, metrics, warnings of `throng check` and the compliance report.
//! Nothing here knows a feature.
//!
//! # Pitfalls
//!
//! A handler exists without a listener too, so that its module can answer requests and its metrics do not disappear. Its
//! connections belong to no domain, so they have the connection limits of the node.

mod tcp_io;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use feature_api::Feature;
use feature_api::listener::{
    ListenerConnection, ListenerDeadlines, ListenerHandler, ListenerMetric, ListenerMetricKind, ListenerSpec,
    SWEEP_MILLIS,
};
use net::{AcceptedConnection, ConnectionCounts, ConnectionLimiter, Listener, ListenerKind};
use prometheus_client::registry::Unit;
use throng_core::{Host, Node};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use self::tcp_io::TcpIo;
use crate::assemble;
use crate::config::{ListenConfig, NodeConfig};
use crate::metrics::{Labels, MetricWriter};

/// All declared kinds with their features, in the order of the registry.
fn declared() -> impl Iterator<Item = (&'static Feature, &'static ListenerSpec)> {
    features::registry::ALL.iter().flat_map(|feature| feature.listeners.iter().map(|spec| (*feature, *spec)))
}

/// A kind of listener of a running node.
#[derive(Clone)]
struct StartedService {
    spec: &'static ListenerSpec,
    handler: Arc<dyn ListenerHandler>,
    deadlines: ListenerDeadlines,
    limiter: ConnectionLimiter,
}

/// All kinds of listeners of a running node.
pub(crate) struct ServiceListeners(Vec<StartedService>);

impl ServiceListeners {
    /// Creates all handlers.
    pub(crate) fn start(node: &Node, config: &NodeConfig) -> ServiceListeners {
        let start = |(_, spec): (_, &'static ListenerSpec)| StartedService {
            spec,
            handler: (spec.start)(node),
            deadlines: ListenerDeadlines::new(node.clock.clone()),
            limiter: ConnectionLimiter::default(),
        };
        let started = ServiceListeners(declared().map(start).collect());
        started.configure(&node.hosts(), config);
        started
    }

    /// Applies a configuration to new connections.
    pub(crate) fn configure(&self, hosts: &[Arc<Host>], config: &NodeConfig) {
        for service in &self.0 {
            let mut limits = assemble::connection_limits(&config.limits);
            if service.spec.limits_unauthenticated {
                limits.unauthenticated = 0;
            }
            service.limiter.set_limits(limits);
            service.handler.configure(hosts);
        }
    }

    fn of_kind(&self, kind: ListenerKind) -> Option<&StartedService> {
        self.0.iter().find(|service| kind == ListenerKind::Service(service.spec.kind))
    }

    /// Binds a listener; `None` if it does not belong to a service.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub(crate) fn bind(&self, listen: &ListenConfig) -> Result<Option<Listener>> {
        let Some(service) = self.of_kind(listen.kind) else { return Ok(None) };
        let listener = Listener::bind(listen.kind, listen.address, service.limiter.clone(), |_| {})?;
        service.handler.add_address(listener.config().local_address);
        Ok(Some(listener))
    }

    /// Starts to accept connections of a listener, and returns the task.
    pub(crate) fn accept(&self, listener: Listener, runtime: &Handle) -> Option<JoinHandle<()>> {
        let service = self.of_kind(listener.config().kind)?.clone();
        Some(runtime.spawn(accept_loop(service, listener, runtime.clone())))
    }

    /// Starts the sweep, and returns its task.
    pub(crate) fn sweep(&self, runtime: &Handle) -> JoinHandle<()> {
        runtime.spawn(sweep_loop(self.0.clone()))
    }

    /// Kinds and their connections.
    pub(crate) fn connection_counts(&self) -> impl Iterator<Item = (&'static str, ConnectionCounts)> {
        self.0.iter().map(|service| (service.spec.kind, service.limiter.counts()))
    }

    /// Writes the metrics of all services.
    pub(crate) fn metrics(&self, page: &mut MetricWriter<'_>) -> Result<(), fmt::Error> {
        let metrics = self.0.iter().flat_map(|service| service.handler.metrics());
        metrics.into_iter().try_for_each(|metric| write_metric(page, &metric))
    }
}

fn write_metric(page: &mut MetricWriter<'_>, metric: &ListenerMetric) -> Result<(), fmt::Error> {
    let ListenerMetric { kind, name, unit, help, values } = metric;
    let unit = (!unit.is_empty()).then(|| Unit::Other((*unit).to_owned()));
    let values: Vec<(Labels<'_>, f64)> =
        values.iter().map(|(label, value)| (label.as_slice(), *value as f64)).collect();
    match kind {
        ListenerMetricKind::Counter => page.counter(name, unit, help, &values),
        ListenerMetricKind::Gauge => page.gauge(name, unit, help, &values),
    }
}

async fn accept_loop(service: StartedService, listener: Listener, runtime: Handle) {
    loop {
        let AcceptedConnection { socket, peer, permit, .. } = listener.accept().await;
        let (io, deadline) = (Box::new(TcpIo(socket)), service.deadlines.add());
        let handler = service.handler.clone();
        // A panic of the handler must not end this loop.
        runtime.spawn(async move { handler.serve(ListenerConnection { io, peer, permit, deadline }).await });
    }
}

async fn sweep_loop(services: Vec<StartedService>) {
    let mut tick = tokio::time::interval(Duration::from_millis(SWEEP_MILLIS));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for service in &services {
            service.deadlines.sweep();
            service.handler.sweep();
        }
    }
}

/// The kind with this name in the configuration.
pub(crate) fn kind(name: &str) -> Option<ListenerKind> {
    declared().find(|(_, spec)| spec.kind == name).map(|(_, spec)| ListenerKind::Service(spec.kind))
}

/// Names of all kinds.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    declared().map(|(_, spec)| spec.kind)
}

/// The usual port of a kind.
pub(crate) fn port(kind: &str) -> Option<u16> {
    declared().find(|(_, spec)| spec.kind == kind).map(|(_, spec)| spec.port)
}

/// What a kind serves, for the startup message.
pub(crate) fn purpose(kind: &str) -> &'static str {
    declared().find(|(_, spec)| spec.kind == kind).map_or("", |(_, spec)| spec.purpose)
}

fn has_listener(config: &NodeConfig, spec: &ListenerSpec) -> bool {
    config.listen.iter().any(|listen| listen.kind == ListenerKind::Service(spec.kind))
}

/// The missing listener of a specification, as a sentence without an end.
pub(crate) fn missing_listener(config: &NodeConfig, spec: &str) -> Option<String> {
    let implements = |feature: &Feature| feature.specs.iter().any(|declared| declared.name == spec);
    let mut listeners = declared().filter(|(feature, _)| implements(feature)).map(|(_, spec)| spec);
    let missing = listeners.find(|spec| !has_listener(config, spec))?;
    Some(format!("no [[listen]] of kind {}", missing.kind))
}

/// Listeners without their module, and modules without their listener, as sentences.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    declared().filter_map(|(feature, spec)| warning(config, feature, spec)).collect()
}

fn warning(config: &NodeConfig, feature: &Feature, spec: &ListenerSpec) -> Option<String> {
    let ListenerSpec { kind, unavailable, .. } = spec;
    let module = feature.name;
    let is_on = |domain: &&String| {
        let enabled = features::registry::enable(&config.modules_of(domain)).unwrap_or_default();
        enabled.iter().any(|enabled| enabled.feature.name == module)
    };
    let domain = config.hosts.iter().find(is_on);
    match (has_listener(config, spec), domain) {
        (true, None) => Some(format!(
            "a [[listen]] of kind {kind} is of no use without the module {module}; enable it under [modules]"
        )),
        (false, Some(domain)) => Some(format!(
            "the module {module} of {domain} cannot {unavailable} without a listener; add a [[listen]] of kind {kind}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::ManualClock;
    use base::spawn::BoxFuture;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    /// Panics at the first connection before it returns a future, and closes the others.
    #[derive(Default)]
    struct PanicsAtFirst(AtomicBool);

    impl ListenerHandler for PanicsAtFirst {
        fn serve(&self, connection: ListenerConnection) -> BoxFuture<'static, ()> {
            assert!(self.0.swap(true, Relaxed), "the panic of this test");
            Box::pin(async move { drop(connection) })
        }
    }

    #[tokio::test]
    async fn a_listener_accepts_connections_after_a_panic_of_its_handler() {
        let Some((_, spec)) = declared().next() else { panic!("no kind") };
        let service = StartedService {
            spec,
            handler: Arc::new(PanicsAtFirst::default()),
            deadlines: ListenerDeadlines::new(Arc::new(ManualClock::new())),
            limiter: ConnectionLimiter::default(),
        };
        let kind = ListenerKind::Service(spec.kind);
        let address = ([127, 0, 0, 1], 0).into();
        let listener = Listener::bind(kind, address, service.limiter.clone(), |_| {}).unwrap();
        let address = listener.config().local_address;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept_loop(service, listener, Handle::current()));
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        }
        assert!(accepting.try_join_next().is_none());
    }

    /// The parts of the program that derive from a declaration assume this.
    #[test]
    fn each_kind_has_a_name_of_its_own() {
        for (at, (_, spec)) in declared().enumerate() {
            let taken = ["c2s", "c2s-tls", "s2s", "s2s-tls", "component", "http", "https"];
            let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(spec.kind.bytes().all(known) && !taken.contains(&spec.kind), "{}", spec.kind);
            assert!(names().take(at).all(|other| other != spec.kind), "{}", spec.kind);
            assert!(spec.purpose.len() <= 14 && spec.port > 0, "{}", spec.kind);
            assert_eq!(kind(spec.kind), Some(ListenerKind::Service(spec.kind)));
        }
    }

    #[test]
    fn a_listener_and_its_module_need_each_other() {
        for (feature, ListenerSpec { kind, unavailable, .. }) in declared() {
            let module = feature.name;
            let listen = format!("[[listen]]\nkind = '{kind}'\naddress = '127.0.0.1:7777'\n");
            let on = format!("[modules]\n{module} = true\n");
            let config = |text: &str| NodeConfig::from_text(text).unwrap();
            assert_eq!(warnings(&config(&format!("{listen}{on}"))), [""; 0]);
            assert_eq!(
                warnings(&config(&listen)),
                [format!(
                    "a [[listen]] of kind {kind} is of no use without the module {module}; enable it under [modules]"
                )]
            );
            assert_eq!(
                warnings(&config(&on)),
                [format!(
                    "the module {module} of localhost cannot {unavailable} without a listener; add a [[listen]] of kind {kind}"
                )]
            );
            for spec in feature.specs {
                assert_eq!(missing_listener(&config(&listen), spec.name), None);
                let missing = format!("no [[listen]] of kind {kind}");
                assert_eq!(missing_listener(&config(&on), spec.name), Some(missing));
            }
        }
        assert_eq!(warnings(&NodeConfig::from_text("").unwrap()), [""; 0]);
    }
}
