//! The domains that routing knows, by kind, and the current host of each domain of accounts.
//!
//! A reload replaces the whole table: every look-up is one load, without a lock. Connected accounts hold the
//! [`CurrentHost`] of their domain, so a replaced host is freed when the last chain that started with it is done,
//! however many reloads a session outlives.
//!
//! Not implemented: a stream that provides a [`DomainRoute`]; components (XEP-0114) and other servers are kinds
//! that only routing knows.
//!
//! # Pitfalls
//!
//! Whether a contact is foreign is remembered in the roster view ([`crate::Contact::is_foreign`]). A session that
//! outlives the reload that adds or removes its contact's domain keeps the old value until the roster is read again.
//!
//! A [`HostGuard`] is cheap but pins a slot of its thread. Keep it for one stanza; clone the `Arc` for longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use base::lock::LeafMutex;
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use stanza::StanzaError;

use crate::host::{Host, Hosts};
use crate::service::Service;
use crate::shared_stanza::SharedStanza;

/// The host of an account at one moment.
pub type HostGuard = Guard<Arc<Host>>;

/// The newest host of a domain of accounts. All accounts of the domain share it.
pub struct CurrentHost(ArcSwap<Host>);

impl CurrentHost {
    /// The first host of a domain.
    pub fn new(host: Arc<Host>) -> Arc<CurrentHost> {
        Arc::new(CurrentHost(ArcSwap::new(host)))
    }

    /// The host, with one load.
    pub fn load(&self) -> HostGuard {
        self.0.load()
    }
}

impl std::fmt::Debug for CurrentHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CurrentHost({})", self.load().jid)
    }
}

/// Carries stanzas to a domain that this node does not serve itself.
pub trait DomainRoute: Send + Sync {
    /// Takes a stanza with complete addresses. Must not block.
    ///
    /// # Errors
    /// The error for the sender.
    fn send(&self, stanza: &SharedStanza, from: JidRef<'_>, to: JidRef<'_>) -> Result<(), StanzaError>;
}

/// What a domain is to routing.
#[derive(Clone)]
pub enum Domain {
    /// A virtual host: a domain of accounts.
    Accounts(Arc<Host>),
    /// The address of a service that a feature declares, with the host that offers it.
    Service(Arc<Host>, Arc<Service>),
    /// A connected component.
    Component(Arc<dyn DomainRoute>),
    /// Everything else: the route to other servers, if there is one.
    Remote(Option<Arc<dyn DomainRoute>>),
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Domain::Accounts(_) => "Accounts",
            Domain::Service(..) => "Service",
            Domain::Component(_) => "Component",
            Domain::Remote(_) => "Remote",
        })
    }
}

/// Reason for refusing the name of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    /// It is not a domain.
    #[error("the name of the component is not a valid domain")]
    InvalidDomain,
    /// It is a domain of accounts or the address of a service.
    #[error("the name of the component is a domain that this server serves itself")]
    DomainIsServed,
}

/// All domains of a node at one moment.
#[derive(Debug)]
pub struct DomainTable {
    local: HashMap<Box<str>, Domain>,
    served: BTreeMap<String, Arc<CurrentHost>>,
    remote: Domain,
}

impl DomainTable {
    /// The kind of a domain. A name that is neither served nor a component is remote.
    pub fn find(&self, domain: &str) -> &Domain {
        self.local.get(domain).unwrap_or(&self.remote)
    }

    /// The host of a domain of accounts.
    pub fn host(&self, domain: &str) -> Option<&Arc<Host>> {
        match self.find(domain) {
            Domain::Accounts(host) => Some(host),
            Domain::Service(..) | Domain::Component(_) | Domain::Remote(_) => None,
        }
    }

    /// Whether presence for this address is routed: its domain has no accounts of this server.
    pub(crate) fn is_foreign(&self, jid: JidRef<'_>) -> bool {
        !matches!(self.find(jid.domain()), Domain::Accounts(_))
    }

    /// Whether any domain without accounts can receive presence.
    pub(crate) fn has_presence_routes(&self) -> bool {
        let receives = |domain: &Domain| match domain {
            Domain::Service(_, service) => service.presence.is_some(),
            Domain::Component(_) | Domain::Remote(Some(_)) => true,
            Domain::Accounts(_) | Domain::Remote(None) => false,
        };
        receives(&self.remote) || self.local.values().any(receives)
    }

    /// All hosts, by domain.
    pub(crate) fn hosts(&self) -> Vec<Arc<Host>> {
        self.served.values().map(|current| Guard::into_inner(current.load())).collect()
    }
}

/// The domains of a node: the present table, and what it is made from.
pub(crate) struct Domains {
    table: ArcSwap<DomainTable>,
    sources: LeafMutex<DomainSources>,
}

/// What the table is made from; locked for changes only.
#[derive(Default)]
struct DomainSources {
    hosts: Hosts,
    /// Of every domain with connected accounts, removed domains included: a session may outlive its domain and
    /// find it again.
    current: HashMap<String, Weak<CurrentHost>>,
    /// Keeps the current hosts of served domains.
    served: BTreeMap<String, Arc<CurrentHost>>,
    components: BTreeMap<String, Arc<dyn DomainRoute>>,
    remote: Option<Arc<dyn DomainRoute>>,
}

impl Domains {
    pub(crate) fn new(hosts: Hosts) -> Domains {
        let mut sources = DomainSources::default();
        sources.replace_hosts(hosts);
        Domains { table: ArcSwap::from_pointee(sources.table()), sources: LeafMutex::new(sources) }
    }

    /// The present table, with one load.
    pub(crate) fn load(&self) -> Guard<Arc<DomainTable>> {
        self.table.load()
    }

    /// The shared cell of the host's domain, for an account. A domain that is not served keeps its cell for a later
    /// reload that serves it again.
    pub(crate) fn current_host(&self, host: &Arc<Host>) -> Arc<CurrentHost> {
        if let Some(served) = self.load().served.get(host.domain()) {
            return served.clone();
        }
        let mut sources = self.sources.lock();
        let current = sources.current.get(host.domain()).and_then(Weak::upgrade);
        current.unwrap_or_else(|| {
            let current = CurrentHost::new(host.clone());
            sources.current.insert(host.domain().to_owned(), Arc::downgrade(&current));
            current
        })
    }

    /// Replaces all hosts; returns the domains that are no longer served.
    pub(crate) fn set_hosts(&self, hosts: Hosts) -> Vec<String> {
        self.change(|sources| sources.replace_hosts(hosts))
    }

    /// Sets or removes the route of a component.
    ///
    /// # Errors
    /// See [`ComponentError`].
    pub(crate) fn set_component(
        &self,
        domain: &str,
        route: Option<Arc<dyn DomainRoute>>,
    ) -> Result<(), ComponentError> {
        let domain = Jid::parse(domain).ok().filter(|jid| jid.is_domain());
        let domain = domain.ok_or(ComponentError::InvalidDomain)?.domain().to_owned();
        self.change(|sources| {
            let Some(route) = route else {
                sources.components.remove(&domain);
                return Ok(());
            };
            if sources.serves(&domain) {
                return Err(ComponentError::DomainIsServed);
            }
            sources.components.insert(domain, route);
            Ok(())
        })
    }

    /// Sets or removes the route to other servers.
    pub(crate) fn set_remote(&self, route: Option<Arc<dyn DomainRoute>>) {
        self.change(|sources| sources.remote = route);
    }

    fn change<T>(&self, change: impl FnOnce(&mut DomainSources) -> T) -> T {
        let mut sources = self.sources.lock();
        let result = change(&mut sources);
        self.table.store(Arc::new(sources.table()));
        result
    }
}

impl DomainSources {
    fn replace_hosts(&mut self, hosts: Hosts) -> Vec<String> {
        let gone = self.hosts.keys().filter(|domain| !hosts.contains_key(*domain)).cloned().collect();
        self.served =
            hosts.iter().map(|(domain, host)| (domain.clone(), self.replace(domain, host))).collect();
        self.current.retain(|_, current| current.strong_count() > 0);
        self.hosts = hosts;
        gone
    }

    fn replace(&mut self, domain: &str, host: &Arc<Host>) -> Arc<CurrentHost> {
        if let Some(current) = self.current.get(domain).and_then(Weak::upgrade) {
            current.0.store(host.clone());
            return current;
        }
        let current = CurrentHost::new(host.clone());
        self.current.insert(domain.to_owned(), Arc::downgrade(&current));
        current
    }

    /// Whether a domain has accounts or is the address of a service.
    fn serves(&self, domain: &str) -> bool {
        let services = || self.hosts.values().flat_map(|host| &host.services);
        self.hosts.contains_key(domain) || services().any(|service| service.address() == domain)
    }

    /// Domains of accounts take precedence over services, and services over components: the configuration is
    /// checked, but a reload may add a domain that a component has.
    fn table(&self) -> DomainTable {
        let mut local: HashMap<Box<str>, Domain> = HashMap::new();
        for (domain, route) in &self.components {
            local.insert(domain.as_str().into(), Domain::Component(route.clone()));
        }
        for host in self.hosts.values().rev() {
            for service in &host.services {
                local.insert(service.address().into(), Domain::Service(host.clone(), service.clone()));
            }
        }
        for (domain, host) in &self.hosts {
            local.insert(domain.as_str().into(), Domain::Accounts(host.clone()));
        }
        DomainTable { local, served: self.served.clone(), remote: Domain::Remote(self.remote.clone()) }
    }
}

impl std::fmt::Debug for Domains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domains({})", self.table.load().local.len())
    }
}
