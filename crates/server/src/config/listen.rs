//! `[[listen]]`, `[auth]` and `[tls]`: listeners, login mechanisms and certificates.

use std::net::SocketAddr;
use std::path::PathBuf;

use net::ListenerKind;
use sasl::MechanismSet;
use streams::{AuthPolicy, TlsPolicy};

use super::reader::ConfigSection;
use crate::service_listeners;

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenConfig {
    pub(crate) kind: ListenerKind,
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsPolicy,
    pub(crate) allow_plain_without_tls: bool,
    /// Every connection begins with a PROXY header.
    pub(crate) proxy_protocol: bool,
}

impl ListenConfig {
    /// Whether it serves HTTP.
    pub(crate) fn is_http(&self) -> bool {
        matches!(self.kind, ListenerKind::Http | ListenerKind::Https)
    }
}

/// Certificate and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificates: Vec<net::tls::CertificateFiles>,
    pub(crate) client_authorities: Option<PathBuf>,
}

/// Every mechanism but ANONYMOUS.
pub(super) fn default_auth() -> AuthPolicy {
    let mechanisms = sasl::Mechanism::ALL.into_iter().fold(MechanismSet::EMPTY, MechanismSet::with);
    AuthPolicy { mechanisms, allow_anonymous: false }
}

/// Reads `mechanisms` and `allow_anonymous` of a section; missing ones are those of `otherwise`.
pub(super) fn auth(section: &mut ConfigSection, otherwise: AuthPolicy) -> AuthPolicy {
    let allow_anonymous = section.bool("allow_anonymous").unwrap_or(otherwise.allow_anonymous);
    let Some(names) = section.texts("mechanisms") else { return AuthPolicy { allow_anonymous, ..otherwise } };
    let mut mechanisms = MechanismSet::EMPTY;
    for (number, name) in names.into_iter().enumerate() {
        match sasl::Mechanism::from_name(&name) {
            Some(mechanism) => mechanisms = mechanisms.with(mechanism),
            None => {
                let near =
                    features::registry::did_you_mean(&name, sasl::Mechanism::ALL.iter().map(|m| m.name()));
                let setting = section.key_in_section("mechanisms");
                let fault = format!("\"{name}\" in {setting} is not known{near}");
                section.fault_at("mechanisms", number, fault);
            }
        }
    }
    AuthPolicy { mechanisms, allow_anonymous }
}

pub(super) fn listeners(root: &mut ConfigSection) -> Vec<ListenConfig> {
    let at = |kind, address| ListenConfig {
        kind,
        address,
        tls: default_tls_policy(kind, address),
        allow_plain_without_tls: false,
        proxy_protocol: false,
    };
    let Some(list) = root.sections("listen") else {
        return vec![
            at(ListenerKind::C2s, SocketAddr::from(([0, 0, 0, 0], 5222))),
            at(ListenerKind::C2sTls, SocketAddr::from(([0, 0, 0, 0], 5223))),
            at(ListenerKind::Http, SocketAddr::from(([127, 0, 0, 1], 5280))),
        ];
    };
    list.into_iter().filter_map(listener).collect()
}

/// The TLS policy of a listener without one. Listeners of modules have none.
/// Nothing can eavesdrop between a browser and HTTP on the same machine.
fn default_tls_policy(kind: ListenerKind, address: SocketAddr) -> TlsPolicy {
    if matches!(kind, ListenerKind::Service(_)) {
        TlsPolicy::Off
    } else if kind == ListenerKind::Http && address.ip().is_loopback() {
        TlsPolicy::Optional
    } else {
        TlsPolicy::Required
    }
}

/// All values of `kind`, as the end of a sentence.
fn kinds() -> String {
    let mut names: Vec<&str> =
        ["c2s", "c2s-tls", "http", "https"].into_iter().chain(service_listeners::names()).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

fn listener(mut section: ConfigSection) -> Option<ListenConfig> {
    let kind = match section.text("kind").as_deref() {
        Some("c2s") => Some(ListenerKind::C2s),
        Some("c2s-tls") => Some(ListenerKind::C2sTls),
        Some("http") => Some(ListenerKind::Http),
        Some("https") => Some(ListenerKind::Https),
        Some(other @ ("s2s" | "component")) => {
            section.fault(
                "kind",
                format!("listeners of kind \"{other}\" are not supported by this version; remove this one"),
            );
            None
        }
        Some(other) => {
            let service = service_listeners::kind(other);
            if service.is_none() {
                section.fault("kind", format!("[[listen]] kind must be {}, not \"{other}\"", kinds()));
            }
            service
        }
        None => {
            section.fault("kind", format!("[[listen]] requires a kind: {}", kinds()));
            None
        }
    };
    let address = section.text("address");
    let parsed: Option<SocketAddr> = address.as_deref().and_then(|a| a.parse().ok());
    let port = kind.and_then(|kind| service_listeners::port(kind.name())).unwrap_or(5222);
    match (&address, parsed) {
        (None, _) => {
            section.fault("address", format!("[[listen]] requires an address, such as \"0.0.0.0:{port}\""));
        }
        (Some(text), None) => section.fault(
            "address",
            format!("\"{text}\" is not a valid address; write one such as \"0.0.0.0:{port}\""),
        ),
        _ => {}
    }
    let words = [TlsPolicy::Required, TlsPolicy::Optional, TlsPolicy::Off];
    let written = section.choice("tls", &["required", "optional", "off"]).map(|n| words[n]);
    match (kind, written) {
        (Some(ListenerKind::C2sTls), Some(TlsPolicy::Off)) => {
            section.fault(
                "tls",
                "a c2s-tls listener always uses TLS; use kind = \"c2s\" for a listener without",
            );
        }
        (Some(ListenerKind::Service(name)), Some(TlsPolicy::Required | TlsPolicy::Optional)) => {
            section.fault("tls", format!("a {name} listener has no TLS; remove the key"));
        }
        (Some(ListenerKind::Https), Some(TlsPolicy::Off | TlsPolicy::Optional)) => {
            section.fault(
                "tls",
                "an https listener always uses TLS; use kind = \"http\" for a listener without",
            );
        }
        _ => {}
    }
    let allow_plain_without_tls = section.bool("allow_plain_without_tls").unwrap_or(false);
    let proxy_protocol = section.bool("proxy_protocol").unwrap_or(false);
    if proxy_protocol && let Some(ListenerKind::Service(name)) = kind {
        section.fault("proxy_protocol", format!("a {name} listener reads no PROXY header; remove the key"));
    }
    section.finish();
    let (kind, address) = (kind?, parsed?);
    let tls = written.unwrap_or_else(|| default_tls_policy(kind, address));
    Some(ListenConfig { kind, address, tls, allow_plain_without_tls, proxy_protocol })
}

pub(super) fn tls(mut section: ConfigSection) -> TlsFiles {
    let mut certificates = Vec::new();
    for mut one in section.sections("certificates").unwrap_or_default() {
        match (one.text("certificate"), one.text("key")) {
            (Some(certificate), Some(key)) => {
                certificates
                    .push(net::tls::CertificateFiles { certificate: certificate.into(), key: key.into() });
            }
            _ => one.faults.at(&one.here(), "[[tls.certificates]] requires both certificate and key"),
        }
        one.finish();
    }
    let client_authorities = section.text("client_authorities").map(PathBuf::from);
    section.finish();
    TlsFiles { certificates, client_authorities }
}
