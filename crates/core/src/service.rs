//! Services: addresses of their own that features provide, such as `proxy.example.com`.
//!
//! A feature declares a [`ServiceSpec`] and registers handlers; the engine does the rest. The service has an IQ table
//! with its own errors, answers service discovery, limits the rate of each sender, is counted in the metrics, and is an item
//! of its domain. Its address and the rate are options of the module, and follow a reload.
//!
//! Requests address the *service* (its domain), an *item* (`item@service`) or an *item's resource*
//! (`item@service/resource`); see [`crate::iq::IqTarget`]. A feature without a service may register requests to the
//! service: they are answered by every service of the domain that has no handler of its own for them.
//!
//! # Pitfalls
//!
//! A service receives stanzas from users of every domain of the node. A handler that serves only users of its own domain
//! compares the domain of the sender.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::StanzaCondition;
use stanza_rates::ServiceRates;

use crate::disco::{DiscoForm, DiscoIdentity, DiscoInfo};
use crate::effect::Effects;
use crate::feature::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
use crate::hooks::Flow;
use crate::host::{Host, HostError};
use crate::iq::{IqHandler, IqKey, IqTable, IqTarget};
use crate::node::Node;
use crate::shared_stanza::SharedStanza;

/// The option with the address of a service.
const ADDRESS_OPTION: &str = "address";
/// The option with the rate of one sender.
const RATE_OPTION: &str = "stanzas_per_second_per_sender";

/// Declaration of a service. Its feature also needs the options [`ServiceSpec::address_option`] and
/// [`ServiceSpec::rate_option`]; without the second one there is no limit.
#[derive(Debug)]
pub struct ServiceSpec {
    /// Its identity; the name is also that of the item in the domain's list.
    pub identity: DiscoIdentity,
}

impl ServiceSpec {
    /// The option `address` with its default, in which `{domain}` stands for the domain.
    pub const fn address_option(default: &'static str) -> OptionSpec {
        OptionSpec {
            key: ADDRESS_OPTION,
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed(default)),
            doc: "Address of the service; `{domain}` stands for the domain that offers it.",
        }
    }

    /// The option with the rate of one sender and its default.
    pub const fn rate_option(default: i64) -> OptionSpec {
        OptionSpec {
            key: RATE_OPTION,
            kind: OptionKind::Int(0, 1_000_000),
            default: OptionValue::Int(default),
            doc: "Stanzas per second that one account, or one other domain, may send to the service; the burst is ten \
                  seconds. Requests and messages above it are refused, presence is dropped. 0: unlimited.",
        }
    }
}

/// A message or presence for a service.
pub struct ServiceCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The host that offers the service.
    pub host: &'a Arc<Host>,
    /// The service.
    pub service: &'a Arc<Service>,
    /// The stanza.
    pub stanza: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The service, one of its items, or a resource of an item.
    pub to: JidRef<'a>,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// Handles messages or presence for a service; implemented by closures of the same signature. A refused stanza is
/// returned to its sender, except for errors.
pub trait ServiceHandler: Send + Sync {
    /// Handles a stanza. Must not block.
    fn handle(&self, ctx: &mut ServiceCtx<'_>) -> Flow;
}

impl<F> ServiceHandler for F
where
    F: Fn(&mut ServiceCtx<'_>) -> Flow + Send + Sync,
{
    fn handle(&self, ctx: &mut ServiceCtx<'_>) -> Flow {
        self(ctx)
    }
}

/// A service of a host.
pub struct Service {
    /// The feature that provides it, which is also its name in the metrics.
    pub feature: &'static str,
    /// Its address: a domain.
    pub jid: Jid,
    /// Human-readable name.
    pub name: &'static str,
    /// Its disco information.
    pub disco: DiscoInfo,
    pub(crate) iq: IqTable,
    pub(crate) message: Option<Arc<dyn ServiceHandler>>,
    pub(crate) presence: Option<Arc<dyn ServiceHandler>>,
    pub(crate) rates: ServiceRates,
    has_items: bool,
}

impl Service {
    /// Its address: a domain.
    pub fn address(&self) -> &str {
        self.jid.as_ref().as_str()
    }

    /// What an address at the service addresses.
    pub(crate) fn target(to: JidRef<'_>) -> IqTarget {
        match (to.local(), to.resource()) {
            // As for a server, a resource without a local part addresses the service itself.
            (None, _) => IqTarget::Service,
            (Some(_), None) => IqTarget::ServiceItem,
            (Some(_), Some(_)) => IqTarget::ServiceItemResource,
        }
    }

    /// The error for a stanza without a handler.
    pub(crate) fn unhandled(&self, target: IqTarget) -> StanzaCondition {
        if target != IqTarget::Service && !self.has_items {
            StanzaCondition::ItemNotFound
        } else {
            StanzaCondition::ServiceUnavailable
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({})", self.jid)
    }
}

/// Registrations of the services of a host that is being built.
#[derive(Default)]
pub(crate) struct ServiceRegistrations {
    services: Vec<ServiceRegistration>,
    /// Requests that features without a service register.
    common: Vec<IqRegistration>,
}

type IqRegistration = (IqKey, &'static str, Arc<dyn IqHandler>);

struct ServiceRegistration {
    spec: &'static ServiceSpec,
    feature: &'static str,
    jid: Jid,
    disco: Vec<&'static str>,
    iq: Vec<IqRegistration>,
    message: Option<Arc<dyn ServiceHandler>>,
    presence: Option<Arc<dyn ServiceHandler>>,
    rates: ServiceRates,
    forms: Vec<DiscoForm>,
}

/// What a feature registers for a service.
#[derive(Default)]
pub(crate) struct ServiceHandlers {
    pub(crate) message: Option<Arc<dyn ServiceHandler>>,
    pub(crate) presence: Option<Arc<dyn ServiceHandler>>,
    pub(crate) forms: Vec<DiscoForm>,
}

impl ServiceRegistrations {
    /// Adds the service of a feature, or its requests to all services. `iq` has only requests to services.
    pub(crate) fn add(
        &mut self,
        (feature, spec): (&'static str, Option<&'static ServiceSpec>),
        options: &FeatureOptions,
        domain: &str,
        disco: Vec<&'static str>,
        iq: Vec<IqRegistration>,
        handlers: ServiceHandlers,
    ) -> Result<(), HostError> {
        let Some(spec) = spec else {
            if handlers.message.is_some() || handlers.presence.is_some() || !handlers.forms.is_empty() {
                let problem = "registers handlers or forms of a service; declare it under `service`";
                return Err(HostError::Undeclared(feature, problem.to_owned()));
            }
            self.common.extend(iq);
            return Ok(());
        };
        let written = options.text(ADDRESS_OPTION);
        let jid =
            Jid::parse(&written.replace("{domain}", domain)).ok().filter(|jid| jid.as_ref().is_domain());
        let Some(jid) = jid else {
            return Err(HostError::InvalidServiceAddress(feature, written.to_owned()));
        };
        let ServiceHandlers { message, presence, forms } = handlers;
        let rates = ServiceRates::new(u32::try_from(options.int(RATE_OPTION)).unwrap_or(u32::MAX));
        let service = ServiceRegistration { spec, feature, jid, disco, iq, message, presence, rates, forms };
        self.services.push(service);
        Ok(())
    }

    /// Builds the services. `common_disco` is the feature variables of every service.
    pub(crate) fn build(self, common_disco: &[&'static str]) -> Result<Vec<Arc<Service>>, HostError> {
        let ServiceRegistrations { services, common } = self;
        services.into_iter().map(|one| one.build(&common, common_disco).map(Arc::new)).collect()
    }
}

impl ServiceRegistration {
    fn build(self, common: &[IqRegistration], common_disco: &[&'static str]) -> Result<Service, HostError> {
        let ServiceRegistration { spec, feature, jid, disco, iq: own, message, presence, rates, forms } =
            self;
        let items = [IqTarget::ServiceItem, IqTarget::ServiceItemResource];
        let has_items = own.iter().any(|(key, ..)| items.contains(&key.target));
        let mut iq = IqTable::default();
        for (key, owner, handler) in own {
            iq.add(key, owner, handler).map_err(|first| HostError::DuplicateIqHandler(first, owner))?;
        }
        for (key, owner, handler) in common {
            match iq.add(*key, owner, handler.clone()) {
                // The service answers this request in its own way.
                Err(first) if first == feature => {}
                other => other.map_err(|first| HostError::DuplicateIqHandler(first, owner))?,
            }
        }
        let mut features = [disco.as_slice(), common_disco].concat();
        features.sort_unstable();
        features.dedup();
        let disco =
            DiscoInfo { identities: vec![spec.identity.clone()], features, forms, ..DiscoInfo::default() };
        let name = spec.identity.name;
        Ok(Service { feature, jid, name, disco, iq, message, presence, rates, has_items })
    }
}
