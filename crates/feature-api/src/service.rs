//! Declarations and registrations of services; see [`throng_core::service`].

use std::collections::BTreeMap;
use std::sync::Arc;

use declarations::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
use jid::Jid;
use stanza_rates::ServiceRates;
use throng_core::Hosts;
use throng_core::iq::{IqHandler, IqKey, IqTable, IqTarget};
use throng_core::service::{Service, ServiceHandler, ServiceItemName};

use crate::disco::{DiscoForm, DiscoIdentity, DiscoInfo};
use crate::host::HostError;

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
            doc: "Stanzas per second that one account, or one other domain, may send to the service on one node; the \
                  burst is ten seconds. Requests and messages above it are refused, presence is dropped. 0: unlimited.",
        }
    }
}

/// The address of a service by the options of its feature; `None` if it is not valid.
pub fn service_address(options: &FeatureOptions, domain: &str) -> Option<Jid> {
    let written = options.text(ADDRESS_OPTION);
    Jid::parse(&written.replace("{domain}", domain)).ok().filter(|jid| jid.as_ref().is_domain())
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
    relayed_iq: Option<Arc<dyn ServiceHandler>>,
    item_name: Option<Arc<dyn ServiceItemName>>,
    rates: ServiceRates,
    forms: Vec<DiscoForm>,
}

/// What a feature registers for a service.
#[derive(Default)]
pub(crate) struct ServiceHandlers {
    pub(crate) message: Option<Arc<dyn ServiceHandler>>,
    pub(crate) presence: Option<Arc<dyn ServiceHandler>>,
    pub(crate) relayed_iq: Option<Arc<dyn ServiceHandler>>,
    pub(crate) item_name: Option<Arc<dyn ServiceItemName>>,
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
            let has_handlers = [&handlers.message, &handlers.presence, &handlers.relayed_iq]
                .into_iter()
                .any(Option::is_some);
            if has_handlers || handlers.item_name.is_some() || !handlers.forms.is_empty() {
                let problem = "registers handlers or forms of a service; declare it under `service`";
                return Err(HostError::Undeclared(feature, problem.to_owned()));
            }
            self.common.extend(iq);
            return Ok(());
        };
        let Some(jid) = service_address(options, domain) else {
            let written = options.text(ADDRESS_OPTION);
            return Err(HostError::InvalidServiceAddress(feature, written.to_owned()));
        };
        let ServiceHandlers { message, presence, relayed_iq, item_name, forms } = handlers;
        let rates = ServiceRates::new(u32::try_from(options.int(RATE_OPTION)).unwrap_or(u32::MAX));
        let service = ServiceRegistration {
            spec,
            feature,
            jid,
            disco,
            iq,
            message,
            presence,
            relayed_iq,
            item_name,
            rates,
            forms,
        };
        self.services.push(service);
        Ok(())
    }

    /// Builds the services, with their disco information. `common_disco` is the feature variables of every service.
    pub(crate) fn build(
        self,
        common_disco: &[&'static str],
    ) -> Result<Vec<(Arc<Service>, DiscoInfo)>, HostError> {
        let ServiceRegistrations { services, common } = self;
        services.into_iter().map(|one| one.build(&common, common_disco)).collect()
    }
}

impl ServiceRegistration {
    fn build(
        self,
        common: &[IqRegistration],
        common_disco: &[&'static str],
    ) -> Result<(Arc<Service>, DiscoInfo), HostError> {
        let ServiceRegistration {
            spec,
            feature,
            jid,
            disco,
            iq: own,
            message,
            presence,
            relayed_iq,
            item_name,
            rates,
            forms,
        } = self;
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
        let service =
            Service { feature, jid, name, iq, message, presence, relayed_iq, rates, has_items, item_name };
        Ok((Arc::new(service), disco))
    }
}

/// Checks that the addresses of all services differ from each other and from the domains of accounts.
///
/// # Errors
/// [`HostError::ServiceAddressTaken`].
pub fn check_service_addresses(hosts: &Hosts) -> Result<(), HostError> {
    let mut owners: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for host in hosts.values() {
        for service in &host.services {
            let address = service.address();
            let taken = if hosts.contains_key(address) {
                Some(format!("{address} is a domain of accounts"))
            } else {
                let first = owners.insert(address, (service.feature, host.domain()));
                first.map(|(feature, domain)| format!("modules.{feature} of {domain} has it"))
            };
            if let Some(why) = taken {
                return Err(HostError::ServiceAddressTaken(
                    service.feature,
                    host.domain().to_owned(),
                    address.to_owned(),
                    why,
                ));
            }
        }
    }
    Ok(())
}
