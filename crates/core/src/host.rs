//! A virtual host: its domain, its frozen hook chains, its IQ table and what it says of itself.
//!
//! A reload builds a new host and puts it behind the old one ([`Host::current`]): whoever holds a host, accounts with
//! connected resources above all, finds the newest from there with one load, and nothing on the stanza path has a lock.
//!
//! The trap: a chain that waits goes on at an index, so it must go on with the host that it began with.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jid::Jid;

use crate::command::Commands;
use crate::disco::{DiscoInfo, DiscoNode};
use crate::domain_counters::DomainCounters;
use crate::feature::{Feature, FeatureBuilder, FeatureOptions, HostRegistrations};
use crate::feature_state::FeatureState;
use crate::hooks::{Chain, Hooks};
use crate::iq::IqTable;
use crate::limits::NodeLimits;
use crate::session::{Session, StreamManagementConfig};
use crate::shared_stanza::SharedStanza;
use crate::stream_elements::StreamElements;

/// A virtual host.
pub struct Host {
    /// Its domain as an address.
    pub jid: Jid,
    /// Its hook chains.
    pub hooks: Hooks,
    /// Its request handlers.
    pub iq: IqTable,
    /// Its commands.
    pub commands: Commands,
    /// What the domain says of itself (XEP-0030).
    pub disco_server: DiscoInfo,
    /// What its accounts say of themselves.
    pub disco_account: DiscoInfo,
    /// Elements for `<stream:features/>` after authentication, besides those of negotiation.
    pub stream_features: Vec<u8>,
    /// The same without XEP-0198's own, for a stream that is acknowledged already: what is offered is what still applies
    /// (XEP-0388 section 4), and xmpp.js 0.14 takes up at once whatever is offered.
    pub managed_stream_features: Vec<u8>,
    /// Elements for `<stream:features/>` before authentication.
    pub pre_auth_stream_features: Vec<u8>,
    /// Nodes that features answer for.
    pub disco_nodes: Vec<Arc<dyn DiscoNode>>,
    /// Elements that are no stanzas, and their owners.
    pub elements: StreamElements,
    /// Makes the question for a sign of life from a silent client.
    pub keep_alive_ping: Option<KeepAlivePing>,
    /// What may be agreed on with clients about acknowledgement; nothing if the feature is off.
    pub stream_management: Option<StreamManagementConfig>,
    /// Says what software a client is.
    pub client_software: Option<ClientSoftware>,
    /// Marks a message that reaches another resource or the store later than it was sent.
    pub add_delay: Option<AddDelay>,
    /// A feature stores messages that nobody took.
    pub stores_offline_messages: bool,
    /// Requests to a full address are delivered whether or not their sender may see its presence.
    pub iq_without_subscription: bool,
    /// What its clients send and get, and how many of them there are.
    pub domain_counters: Arc<DomainCounters>,
    /// Names of the features that are on, in registry order.
    pub features: Vec<&'static str>,
    /// The host that took the place of this one.
    successor: OnceLock<Arc<Host>>,
    options: BTreeMap<&'static str, FeatureOptions>,
}

/// Makes the question for a sign of life from a silent client.
pub type KeepAlivePing = fn(&Session) -> Option<SharedStanza>;

/// Says what software a client is, in a few words or as a URI, if it said so.
pub type ClientSoftware = fn(&Session) -> Option<String>;

/// Makes a message with the time, in milliseconds since 1970, at which this domain first sent it.
pub type AddDelay = fn(&SharedStanza, &str, u64) -> Option<SharedStanza>;

/// A feature that is on, with its options.
pub struct EnabledFeature {
    /// The declaration.
    pub feature: &'static Feature,
    /// Complete options.
    pub options: FeatureOptions,
}

/// Why a host cannot be built. Each is one sentence with the mend.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HostError {
    /// Two features want the same request.
    #[error("{0} and {1} both answer the same request; switch one of them off under [modules]")]
    DuplicateIqHandler(&'static str, &'static str),
    /// Two features have a command of the same name or node.
    #[error("{0} and {1} both have the command {2}; switch one of them off under [modules]")]
    DuplicateCommand(&'static str, &'static str, &'static str),
    /// A feature registered a request or a command that it did not declare, or the other way round.
    #[error("{0} does not register the requests or commands that it declares")]
    Undeclared(&'static str),
    /// A needed feature is off.
    #[error("{0} needs {1}; switch {1} on or {0} off under [modules]")]
    MissingDependency(&'static str, &'static str),
    /// The domain is no address.
    #[error("\"{0}\" is not a domain")]
    InvalidDomain(String),
}

impl Host {
    /// Builds a host from its features, in registry order.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn build(domain: &str, enabled: &[EnabledFeature], limits: &NodeLimits) -> Result<Host, HostError> {
        Host::build_with(domain, enabled, limits, &FeatureState::default())
    }

    /// The same, with the state that earlier hosts of the domain left.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn build_with(
        domain: &str,
        enabled: &[EnabledFeature],
        limits: &NodeLimits,
        kept: &FeatureState,
    ) -> Result<Host, HostError> {
        let jid = Jid::parse(domain).ok().filter(|j| j.as_ref().is_domain());
        let jid = jid.ok_or_else(|| HostError::InvalidDomain(domain.to_owned()))?;
        let mut parts = HostRegistrations::default();
        let mut features = Vec::new();
        let mut options_of = BTreeMap::new();
        let (mut stream_features, mut managed_features) = (Vec::new(), Vec::new());
        let mut early_features = Vec::new();
        for EnabledFeature { feature, options } in enabled {
            if let Some(missing) =
                feature.needs.iter().find(|n| !enabled.iter().any(|e| e.feature.name == **n))
            {
                return Err(HostError::MissingDependency(feature.name, missing));
            }
            let (before, commands) = (parts.iq.len(), parts.commands.len());
            (feature.build)(&mut FeatureBuilder {
                owner: feature.name,
                options,
                domain: jid.as_ref().as_str(),
                limits,
                feature_state: kept,
                parts: &mut parts,
            });
            let mut registered: Vec<_> =
                parts.iq[before..].iter().map(|(key, ..)| format!("{key:?}")).collect();
            let mut declared: Vec<_> = feature.iq.iter().map(|key| format!("{key:?}")).collect();
            registered.sort();
            declared.sort();
            let mut named: Vec<_> = parts.commands[commands..].iter().map(|e| e.command.name).collect();
            let mut promised: Vec<_> = feature.commands.iter().map(|c| c.name).collect();
            named.sort_unstable();
            promised.sort_unstable();
            if registered != declared || named != promised {
                return Err(HostError::Undeclared(feature.name));
            }
            for element in feature.pre_auth_stream_features {
                early_features.extend_from_slice(element.as_bytes());
            }
            early_features.append(&mut parts.pre_auth_stream_features);
            for element in feature.stream_features {
                stream_features.extend_from_slice(element.as_bytes());
                if !element.starts_with("<sm ") {
                    managed_features.extend_from_slice(element.as_bytes());
                }
            }
            features.push(feature.name);
            options_of.insert(feature.name, options.clone());
        }
        let mut iq = IqTable::default();
        for (key, owner, handler) in parts.iq {
            iq.add(key, owner, handler).map_err(|first| HostError::DuplicateIqHandler(first, owner))?;
        }
        let mut commands = Commands::default();
        for entry in parts.commands {
            let (owner, name) = (entry.owner, entry.command.name);
            commands.add(entry).map_err(|first| HostError::DuplicateCommand(first, owner, name))?;
        }
        let hooks = Hooks {
            outgoing: Chain::freeze(parts.outgoing),
            incoming: Chain::freeze(parts.incoming),
            deliver: Chain::freeze(parts.deliver),
            delivered: Chain::freeze(parts.delivered),
            undelivered: Chain::freeze(parts.undelivered),
            opened: Chain::freeze(parts.opened),
            available: Chain::freeze(parts.available),
            closing: Chain::freeze(parts.closing),
            removed: Chain::freeze(parts.removed),
            created: Chain::freeze(parts.created),
        };
        let (mut disco_server, disco_account) =
            DiscoInfo::of(enabled.iter().map(|e| e.feature), &mut parts.disco);
        for announce in enabled.iter().flat_map(|e| e.feature.derived_stream_features) {
            let announced = announce(&disco_server);
            stream_features.extend_from_slice(&announced.element);
            managed_features.extend_from_slice(&announced.element);
            disco_server.alias_nodes.push(announced.node);
        }
        let traffic = kept.domain_counters(jid.as_ref().as_str());
        Ok(Host {
            jid,
            domain_counters: traffic,
            hooks,
            iq,
            commands,
            disco_server,
            disco_account,
            stream_features,
            managed_stream_features: managed_features,
            pre_auth_stream_features: early_features,
            disco_nodes: parts.disco.nodes,
            elements: parts.elements,
            keep_alive_ping: parts.keep_alive_ping,
            stream_management: parts.stream_management,
            add_delay: parts.add_delay,
            client_software: parts.client_software,
            stores_offline_messages: parts.stores_offline_messages,
            iq_without_subscription: parts.iq_without_subscription,
            features,
            options: options_of,
            successor: OnceLock::new(),
        })
    }

    /// The newest host of this domain: itself until a reload put another in its place.
    pub fn current(self: &Arc<Self>) -> &Arc<Host> {
        let mut host = self;
        while let Some(next) = host.successor.get() {
            host = next;
        }
        host
    }

    /// Puts another host in the place of this one. A host that was itself replaced is not taken: the way to the newest
    /// must have an end.
    pub(crate) fn replace_with(&self, next: &Arc<Host>) {
        if next.successor.get().is_none() && !std::ptr::eq(self, Arc::as_ptr(next)) {
            let _ = self.successor.set(next.clone());
        }
    }

    /// The options of a feature that is on, for what the stream does itself.
    pub fn options(&self, feature: &str) -> Option<&FeatureOptions> {
        self.options.get(feature)
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        self.jid.as_ref().as_str()
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({})", self.jid)
    }
}

/// Hosts by domain.
pub type Hosts = BTreeMap<String, Arc<Host>>;
