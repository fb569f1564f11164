//! Listeners of services with a protocol of their own, such as the SOCKS5 proxy of the module `proxy65`.
//!
//! A kind of listener is one [`ServiceListenerSpec`] in [`SERVICE_LISTENERS`] and one file of this folder, which implements
//! [`ServiceFrontend`]. Everything else follows from the entry: the configuration, binding, accepting, connection limits,
//! the sweep, reloads, warnings of `throng check`, the compliance report and the metrics of refused connections.
//!
//! # Pitfalls
//!
//! A frontend exists without a listener too, so that its module can answer requests and its metrics do not disappear. Its
//! connections belong to no domain, so they have the connection limits of the node.

mod socks5;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::spawn::BoxFuture;
use net::{
    AcceptedConnection, ConnectionCounts, ConnectionLimiter, ConnectionLimits, Listener, ListenerKind,
};
use throng_core::{Host, Node};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::assemble;
use crate::config::{ListenConfig, NodeConfig};
use crate::metrics::MetricWriter;

/// All kinds, in the order of the documentation.
static SERVICE_LISTENERS: &[&ServiceListenerSpec] = &[&socks5::SERVICE_LISTENER];

/// Declaration of a kind of listener.
pub(crate) struct ServiceListenerSpec {
    /// Value of `kind` in `[[listen]]`, and label in metrics.
    name: &'static str,
    /// What it serves, for the startup message; at most 14 characters.
    purpose: &'static str,
    /// The module that it serves.
    module: &'static str,
    /// What the module cannot do without a listener, as the end of a sentence.
    unavailable: &'static str,
    /// The specification that requires it.
    spec: &'static str,
    /// Milliseconds between two calls of [`ServiceFrontend::sweep`].
    sweep_millis: u64,
    /// Creates the frontend and provides it to the module in `node.extensions`.
    start: fn(&Node) -> Arc<dyn ServiceFrontend>,
}

/// Connections of one kind of listener.
pub(crate) trait ServiceFrontend: Send + Sync {
    /// Adds the address of a listener.
    fn add_address(&self, address: SocketAddr);

    /// Applies the options of the module to new connections; called at the start and after each reload.
    fn configure(&self, hosts: &[Arc<Host>]);

    /// Serves a connection to its end.
    fn serve(&self, accepted: AcceptedConnection) -> BoxFuture<'static, ()>;

    /// Checks deadlines.
    fn sweep(&self);

    /// Writes the metrics of the service.
    fn metrics(&self, page: &mut MetricWriter<'_>) -> Result<(), fmt::Error>;
}

/// A kind of listener of a running node.
struct StartedService {
    spec: &'static ServiceListenerSpec,
    frontend: Arc<dyn ServiceFrontend>,
    limiter: ConnectionLimiter,
}

/// All kinds of listeners of a running node.
pub(crate) struct ServiceListeners(Vec<StartedService>);

impl ServiceListeners {
    /// Creates all frontends.
    pub(crate) fn start(node: &Node, config: &NodeConfig) -> ServiceListeners {
        let start = |spec: &'static ServiceListenerSpec| StartedService {
            spec,
            frontend: (spec.start)(node),
            limiter: ConnectionLimiter::default(),
        };
        let started = ServiceListeners(SERVICE_LISTENERS.iter().copied().map(start).collect());
        started.configure(&node.hosts(), config);
        started
    }

    /// Applies a configuration to new connections.
    pub(crate) fn configure(&self, hosts: &[Arc<Host>], config: &NodeConfig) {
        // 0, because a frontend refuses connections itself where a listener of clients would pause.
        let limits = ConnectionLimits { unauthenticated: 0, ..assemble::connection_limits(&config.limits) };
        for service in &self.0 {
            service.limiter.set_limits(limits);
            service.frontend.configure(hosts);
        }
    }

    fn of_kind(&self, kind: ListenerKind) -> Option<&StartedService> {
        self.0.iter().find(|service| kind == ListenerKind::Service(service.spec.name))
    }

    /// Binds a listener; `None` if it does not belong to a service.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub(crate) fn bind(&self, listen: &ListenConfig) -> Result<Option<Listener>> {
        let Some(service) = self.of_kind(listen.kind) else { return Ok(None) };
        let listener = Listener::bind(listen.kind, listen.address, service.limiter.clone(), |_| {})?;
        service.frontend.add_address(listener.config().local_address);
        Ok(Some(listener))
    }

    /// Starts to accept connections of a listener, and returns the task.
    pub(crate) fn accept(&self, listener: Listener, runtime: &Handle) -> Option<JoinHandle<()>> {
        let frontend = self.of_kind(listener.config().kind)?.frontend.clone();
        Some(runtime.spawn(accept_loop(frontend, listener, runtime.clone())))
    }

    /// Starts the sweeps, and returns their tasks.
    pub(crate) fn sweep(&self, runtime: &Handle) -> Vec<JoinHandle<()>> {
        let start = |service: &StartedService| {
            runtime.spawn(sweep_loop(service.frontend.clone(), service.spec.sweep_millis))
        };
        self.0.iter().map(start).collect()
    }

    /// Kinds and their connections.
    pub(crate) fn connection_counts(&self) -> impl Iterator<Item = (&'static str, ConnectionCounts)> {
        self.0.iter().map(|service| (service.spec.name, service.limiter.counts()))
    }

    /// Writes the metrics of all services.
    pub(crate) fn metrics(&self, page: &mut MetricWriter<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|service| service.frontend.metrics(page))
    }
}

async fn accept_loop(frontend: Arc<dyn ServiceFrontend>, listener: Listener, runtime: Handle) {
    loop {
        runtime.spawn(frontend.serve(listener.accept().await));
    }
}

async fn sweep_loop(frontend: Arc<dyn ServiceFrontend>, interval_millis: u64) {
    let mut tick = tokio::time::interval(Duration::from_millis(interval_millis));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        frontend.sweep();
    }
}

/// The kind with this name in the configuration.
pub(crate) fn kind(name: &str) -> Option<ListenerKind> {
    SERVICE_LISTENERS.iter().find(|spec| spec.name == name).map(|spec| ListenerKind::Service(spec.name))
}

/// Names of all kinds.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SERVICE_LISTENERS.iter().map(|spec| spec.name)
}

/// What a kind serves, for the startup message.
pub(crate) fn purpose(name: &str) -> &'static str {
    SERVICE_LISTENERS.iter().find(|spec| spec.name == name).map_or("", |spec| spec.purpose)
}

fn has_listener(config: &NodeConfig, spec: &ServiceListenerSpec) -> bool {
    config.listen.iter().any(|listen| listen.kind == ListenerKind::Service(spec.name))
}

/// The missing listener of a specification, as a sentence without an end.
pub(crate) fn missing_listener(config: &NodeConfig, spec: &str) -> Option<String> {
    let missing = SERVICE_LISTENERS.iter().find(|one| one.spec == spec && !has_listener(config, one))?;
    Some(format!("no [[listen]] of kind {}", missing.name))
}

/// Listeners without their module, and modules without their listener, as sentences.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    SERVICE_LISTENERS.iter().filter_map(|spec| warning(config, spec)).collect()
}

fn warning(config: &NodeConfig, spec: &ServiceListenerSpec) -> Option<String> {
    let ServiceListenerSpec { name, module, unavailable, .. } = spec;
    let is_on = |domain: &&String| {
        let enabled = features::registry::enable(&config.modules_of(domain)).unwrap_or_default();
        enabled.iter().any(|enabled| enabled.feature.name == *module)
    };
    let domain = config.hosts.iter().find(is_on);
    match (has_listener(config, spec), domain) {
        (true, None) => Some(format!(
            "a [[listen]] of kind {name} is of no use without the module {module}; enable it under [modules]"
        )),
        (false, Some(domain)) => Some(format!(
            "the module {module} of {domain} cannot {unavailable} without a listener; add a [[listen]] of kind {name}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of the program that derive from a declaration assume this.
    #[test]
    fn each_kind_has_a_name_of_its_own_and_an_existing_module() {
        for (at, spec) in SERVICE_LISTENERS.iter().enumerate() {
            let taken = ["c2s", "c2s-tls", "s2s", "s2s-tls", "component", "http", "https"];
            assert!(!taken.contains(&spec.name), "{}", spec.name);
            assert!(SERVICE_LISTENERS[..at].iter().all(|other| other.name != spec.name), "{}", spec.name);
            let module = features::registry::ALL.iter().find(|feature| feature.name == spec.module);
            let module = module.unwrap_or_else(|| panic!("{} serves no module", spec.name));
            assert!(module.specs.iter().any(|declared| declared.name == spec.spec), "{}", spec.spec);
            assert!(spec.purpose.len() <= 14 && spec.sweep_millis > 0, "{}", spec.name);
        }
    }

    #[test]
    fn a_listener_and_its_module_need_each_other() {
        for ServiceListenerSpec { name, module, unavailable, spec, .. } in SERVICE_LISTENERS {
            let listen = format!("[[listen]]\nkind = '{name}'\naddress = '127.0.0.1:7777'\n");
            let on = format!("[modules]\n{module} = true\n");
            let config = |text: &str| NodeConfig::from_text(text).unwrap();
            assert_eq!(warnings(&config(&format!("{listen}{on}"))), [""; 0]);
            assert_eq!(missing_listener(&config(&listen), spec), None);
            assert_eq!(
                warnings(&config(&listen)),
                [format!(
                    "a [[listen]] of kind {name} is of no use without the module {module}; enable it under [modules]"
                )]
            );
            assert_eq!(
                warnings(&config(&on)),
                [format!(
                    "the module {module} of localhost cannot {unavailable} without a listener; add a [[listen]] of kind {name}"
                )]
            );
            assert_eq!(missing_listener(&config(&on), spec), Some(format!("no [[listen]] of kind {name}")));
        }
        assert_eq!(warnings(&NodeConfig::from_text("").unwrap()), [""; 0]);
    }
}
