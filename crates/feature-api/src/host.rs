//! Assembly of a virtual host from its enabled features: chains, IQ table, disco information, services.
//!
//! Two features that provide the same part, and any difference between what a feature declares and what it registers, are
//! errors here, so the engine never meets such a conflict.

use std::collections::BTreeMap;

use declarations::{StreamFeature, StreamFeatures};
use jid::Jid;
use throng_core::Host;
use throng_core::account_provider::SharedAccountProvider;
use throng_core::hooks::{Chain, Hooks};
use throng_core::iq::{IqKey, IqTable};
use throng_core::limits::NodeLimits;

use crate::disco::HostDisco;
use crate::disco_declarations::disco_of;
use crate::feature::{DiscoFeature, Feature, FeatureBuilder, FeatureOptions, HostRegistrations};
use crate::feature_state::FeatureState;
use crate::http_route::HttpRoutes;
use crate::periodic_job::PeriodicJobs;
use crate::service::ServiceRegistrations;

/// Owner of the values that this crate keeps in a host.
const OWN_EXTENSIONS: &str = "the host";

/// An enabled feature with its options.
pub struct EnabledFeature {
    /// The declaration.
    pub feature: &'static Feature,
    /// Complete options.
    pub options: FeatureOptions,
}

/// Why a host cannot be built. Each is one sentence with the fix.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HostError {
    /// Two features declare the same request.
    #[error("{0} and {1} both handle the same request; disable one of them under [modules]")]
    DuplicateIqHandler(&'static str, &'static str),
    /// Two features provide what only one can provide, such as a command, an HTTP route or a periodic job: the features, and
    /// what it is.
    #[error("{0} and {1} both provide {2}; disable one of them under [modules]")]
    DuplicateProvider(&'static str, &'static str, String),
    /// Two features offer the same stream feature.
    #[error("{0} and {1} both offer the stream feature {2}; disable one of them under [modules]")]
    DuplicateStreamFeature(&'static str, &'static str, &'static str),
    /// A feature registered a request, command or service that it did not declare, or did not register one that it
    /// declared: the name of the feature, and what it does with the fix.
    #[error("the feature {0} {1}")]
    Undeclared(&'static str, String),
    /// A required feature is disabled.
    #[error("{0} requires {1}; enable {1} or disable {0} under [modules]")]
    MissingDependency(&'static str, &'static str),
    /// An option has a value that its feature refuses: the name of the feature, the key, the problem.
    #[error("modules.{0}: {1} {2}")]
    InvalidOption(&'static str, &'static str, String),
    /// The address of a service is not a domain.
    #[error(
        "modules.{0}: \"{1}\" is not a valid address of a service; write a domain such as \"{0}.{{domain}}\""
    )]
    InvalidServiceAddress(&'static str, String),
    /// Two services have the same address, or a service has the name of a domain of accounts: feature, domain,
    /// address, owner.
    #[error("modules.{0} of {1} cannot have the address {2}: {3}; set another address under [modules.{0}]")]
    ServiceAddressTaken(&'static str, String, String, String),
    /// The domain is not a valid address.
    #[error("\"{0}\" is not a valid domain")]
    InvalidDomain(String),
}

/// Builds a host from its features, in registry order.
///
/// # Errors
/// See [`HostError`].
pub fn build_host(domain: &str, enabled: &[EnabledFeature], limits: &NodeLimits) -> Result<Host, HostError> {
    build_host_with(domain, enabled, limits, &FeatureState::default(), None)
}

/// Like [`build_host`], with the state that earlier hosts of the domain share, and the provider of its accounts if their
/// passwords are not in the store.
///
/// # Errors
/// See [`HostError`].
pub fn build_host_with(
    domain: &str,
    enabled: &[EnabledFeature],
    limits: &NodeLimits,
    feature_state: &FeatureState,
    provider: Option<SharedAccountProvider>,
) -> Result<Host, HostError> {
    let jid = Jid::parse(domain).ok().filter(|j| j.as_ref().is_domain());
    let jid = jid.ok_or_else(|| HostError::InvalidDomain(domain.to_owned()))?;
    let mut parts = HostRegistrations::default();
    if let Some(provider) = provider {
        // The first value of all, so nothing else can have its type.
        let _ = parts.extensions.provide(OWN_EXTENSIONS, provider);
    }
    let mut features = Vec::new();
    let mut options_of = BTreeMap::new();
    let mut stream_features = StreamFeatures::default();
    let mut services = ServiceRegistrations::default();
    for EnabledFeature { feature, options } in enabled {
        if let Some(missing) = feature.needs.iter().find(|n| !enabled.iter().any(|e| e.feature.name == **n)) {
            return Err(HostError::MissingDependency(feature.name, missing));
        }
        let before = parts.iq.len();
        (feature.build)(&mut FeatureBuilder {
            owner: feature.name,
            feature,
            options,
            domain: jid.as_ref().as_str(),
            limits,
            feature_state,
            parts: &mut parts,
        });
        if let Some((key, problem)) = parts.invalid_option.take() {
            return Err(HostError::InvalidOption(feature.name, key, problem));
        }
        let requests: Vec<IqKey> = parts.iq[before..].iter().map(|(key, ..)| *key).collect();
        if let Some(difference) = undeclared(feature, &requests) {
            return Err(HostError::Undeclared(feature.name, difference));
        }
        if let Some(error) = parts.errors.pop() {
            return Err(error);
        }
        feature.declarations.iter().try_for_each(|one| one.check(feature, &parts.extensions))?;
        if let Some(difference) = crate::feature_check::undeclared_parts(feature, &parts) {
            return Err(HostError::Undeclared(feature.name, difference));
        }
        let of_services = parts.iq.extract_if(before.., |(key, ..)| key.target.is_of_service()).collect();
        services.add(
            (feature.name, feature.service),
            options,
            jid.as_ref().as_str(),
            if feature.service.is_some() { service_variables(feature) } else { Vec::new() },
            of_services,
            std::mem::take(&mut parts.service),
        )?;
        let registered = std::mem::take(&mut parts.stream_features);
        for offered in feature.stream_features.iter().cloned().chain(registered) {
            offer(&mut stream_features, offered, feature.name)?;
        }
        features.push(feature.name);
        options_of.insert(feature.name, options.clone());
    }
    crate::feature_check::duplicate_parts(&parts)?;
    let mut iq = IqTable::default();
    for (key, owner, handler) in parts.iq {
        iq.add(key, owner, handler).map_err(|first| HostError::DuplicateIqHandler(first, owner))?;
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
    let (mut server, account) = disco_of(enabled.iter().map(|e| e.feature), &mut parts.disco);
    for (owner, derive) in enabled
        .iter()
        .flat_map(|e| e.feature.derived_stream_features.iter().map(|derive| (e.feature.name, derive)))
    {
        let derived = derive(&server);
        offer(&mut stream_features, derived.feature, owner)?;
        server.alias_nodes.push(derived.node);
    }
    let common = enabled.iter().map(|e| e.feature).filter(|feature| feature.service.is_none());
    let services = services.build(&common.flat_map(service_variables).collect::<Vec<_>>())?;
    let disco = HostDisco { server, account, services: services.clone(), nodes: parts.disco.nodes };
    let mut extensions = parts.extensions;
    *extensions.get_or_default(OWN_EXTENSIONS) = disco;
    *extensions.get_or_default(OWN_EXTENSIONS) = HttpRoutes(parts.http_routes);
    *extensions.get_or_default(OWN_EXTENSIONS) = parts.elements;
    let shared = feature_state.periodic_job_states();
    let domain_counters = feature_state.domain_counters(jid.as_ref().as_str());
    Ok(Host {
        jid,
        domain_counters,
        hooks,
        iq,
        extensions,
        stream_features,
        stores_offline_messages: parts.stores_offline_messages,
        message_backup: parts.message_backup,
        iq_without_subscription: parts.iq_without_subscription,
        services: services.into_iter().map(|(service, _)| service).collect(),
        background: Some(Box::new(PeriodicJobs { jobs: parts.periodic_jobs, shared })),
        features,
        options: options_of,
    })
}

/// Feature variables that a feature declares for services.
fn service_variables(feature: &Feature) -> Vec<&'static str> {
    let of_service = |one: &DiscoFeature| match one {
        DiscoFeature::Service(var) => Some(*var),
        DiscoFeature::Server(_) | DiscoFeature::Account(_) => None,
    };
    feature.disco.iter().filter_map(of_service).collect()
}

/// How the registered requests differ from the declared ones, if they do.
fn undeclared(feature: &Feature, requests: &[IqKey]) -> Option<String> {
    let request = |key: &IqKey| {
        let ty = if key.set { "set" } else { "get" };
        format!(
            "<iq type='{ty}'> to {} with <{} xmlns='{}'/>",
            key.target.as_str(),
            key.name,
            key.ns.as_str()
        )
    };
    if let Some(key) = requests.iter().find(|key| !feature.iq.contains(key)) {
        Some(format!("registers a handler of {}; add its key to `iq` of the declaration", request(key)))
    } else if let Some(key) = feature.iq.iter().find(|key| !requests.contains(key)) {
        Some(format!("declares {} under `iq`; register a handler of it in `build`", request(key)))
    } else if requests.len() != feature.iq.len() {
        Some("declares or registers a request twice; remove one".to_owned())
    } else {
        None
    }
}

fn offer(set: &mut StreamFeatures, feature: StreamFeature, owner: &'static str) -> Result<(), HostError> {
    let name = feature.name;
    set.insert(feature, owner).map_err(|first| HostError::DuplicateStreamFeature(first, owner, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureBuilder;
    use throng_core::iq::{IqFlow, IqRequest, IqTarget};
    use throng_core::provided::{ClientSoftware, KeepAlivePing};
    use xml::Ns;

    const GET: IqKey = IqKey::get(IqTarget::Server, Ns::Ping, "ping");
    const SET: IqKey = IqKey::set(IqTarget::Account, Ns::Ping, "ping");
    const FIRST: Feature = Feature { name: "first", build: register_set_and_get, ..Feature::EMPTY };

    fn register_set_and_get(builder: &mut FeatureBuilder<'_>) {
        for key in [SET, GET] {
            builder.iq(key, |_: &mut IqRequest<'_>| IqFlow::empty());
        }
    }

    fn build(features: &[&'static Feature]) -> Result<Host, HostError> {
        let enabled: Vec<EnabledFeature> = features
            .iter()
            .map(|feature| EnabledFeature { feature, options: FeatureOptions::default() })
            .collect();
        build_host("example.com", &enabled, &NodeLimits::default())
    }

    #[test]
    fn requests_must_be_declared_in_any_order() {
        static DECLARED: Feature = Feature { iq: &[GET, SET], ..FIRST };
        static INCOMPLETE: Feature = Feature { iq: &[GET], ..FIRST };
        static TWICE: Feature = Feature { iq: &[GET, SET, GET], ..FIRST };
        static ONLY_DECLARED: Feature = Feature { name: "first", iq: &[GET], ..Feature::EMPTY };
        assert!(build(&[&DECLARED]).is_ok());
        let ping =
            |ty: &str, to: &str| format!("<iq type='{ty}'> to {to} with <ping xmlns='urn:xmpp:ping'/>");
        let (get, set) = (ping("get", "server"), ping("set", "account"));
        for (wrong, message) in [
            (&INCOMPLETE, format!("registers a handler of {set}; add its key to `iq` of the declaration")),
            (&ONLY_DECLARED, format!("declares {get} under `iq`; register a handler of it in `build`")),
            (&TWICE, "declares or registers a request twice; remove one".to_owned()),
        ] {
            let error = build(&[wrong]).unwrap_err();
            assert_eq!(error.to_string(), format!("the feature first {message}"));
        }
    }

    #[test]
    fn what_a_feature_provides_is_found_by_its_type_and_has_one_provider() {
        const PING: Feature = Feature {
            build: |builder: &mut FeatureBuilder<'_>| builder.provide(KeepAlivePing(|_| None)),
            ..Feature::EMPTY
        };
        static ONE: Feature = Feature { name: "one", ..PING };
        static TWO: Feature = Feature { name: "two", ..PING };
        static TWICE: Feature = Feature {
            name: "twice",
            build: |builder: &mut FeatureBuilder<'_>| {
                builder.provide(KeepAlivePing(|_| None));
                builder.provide(KeepAlivePing(|_| None));
            },
            ..Feature::EMPTY
        };
        let host = build(&[&ONE]).unwrap();
        assert!(host.extensions.get::<KeepAlivePing>().is_some());
        assert!(host.extensions.get::<ClientSoftware>().is_none());
        for (features, message) in [
            (
                vec![&ONE, &TWO],
                "one and two both provide the keep-alive ping; disable one of them under [modules]",
            ),
            (vec![&TWICE], "the feature twice provides the keep-alive ping twice; remove one"),
        ] {
            assert_eq!(build(&features).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_stream_feature_has_one_owner() {
        const VER: StreamFeature = StreamFeature::authenticated("ver", Ns::RosterVer);
        static ONE: Feature = Feature { name: "one", stream_features: &[VER], ..Feature::EMPTY };
        static TWO: Feature = Feature {
            name: "two",
            build: |builder: &mut FeatureBuilder<'_>| builder.stream_feature(VER),
            ..Feature::EMPTY
        };
        assert!(build(&[&ONE]).is_ok() && build(&[&TWO]).is_ok());
        let error = build(&[&ONE, &TWO]).unwrap_err();
        assert_eq!(error, HostError::DuplicateStreamFeature("one", "two", "ver"));
    }
}
