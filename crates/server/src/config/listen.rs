//! `[[listen]]`, `[auth]` and `[tls]`: where clients come in, and how.

use std::net::SocketAddr;
use std::path::PathBuf;

use net::Kind;
use sasl::MechanismSet;
use streams::{Auth, TlsPolicy};

use super::reader::Section;

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsPolicy,
    pub(crate) allow_plain_without_tls: bool,
    /// Every connection begins with a PROXY header.
    pub(crate) proxy_protocol: bool,
}

impl Listen {
    /// Whether it is for HTTP.
    pub(crate) fn is_http(&self) -> bool {
        matches!(self.kind, Kind::Http | Kind::Https)
    }
}

/// Certificate and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) certificates: Vec<net::tls::Files>,
    pub(crate) client_authorities: Option<PathBuf>,
}

/// Every mechanism but ANONYMOUS.
pub(super) fn default_auth() -> Auth {
    let mechanisms = sasl::Mechanism::ALL.into_iter().fold(MechanismSet::EMPTY, MechanismSet::with);
    Auth { mechanisms, allow_anonymous: false }
}

/// `mechanisms` and `allow_anonymous` of a section, over what holds without them.
pub(super) fn auth(section: &mut Section, otherwise: Auth) -> Auth {
    let allow_anonymous = section.bool("allow_anonymous").unwrap_or(otherwise.allow_anonymous);
    let Some(names) = section.texts("mechanisms") else { return Auth { allow_anonymous, ..otherwise } };
    let mut mechanisms = MechanismSet::EMPTY;
    for (number, name) in names.into_iter().enumerate() {
        match sasl::Mechanism::from_name(&name) {
            Some(mechanism) => mechanisms = mechanisms.with(mechanism),
            None => {
                let near = features::registry::nearest(&name, sasl::Mechanism::ALL.iter().map(|m| m.name()));
                let place = section.place("mechanisms");
                let fault = format!("\"{name}\" in {place} is not known{near}");
                section.fault_at("mechanisms", number, fault);
            }
        }
    }
    Auth { mechanisms, allow_anonymous }
}

pub(super) fn listeners(root: &mut Section) -> Vec<Listen> {
    let at = |kind, address| Listen {
        kind,
        address,
        tls: usual(kind, address),
        allow_plain_without_tls: false,
        proxy_protocol: false,
    };
    let Some(list) = root.sections("listen") else {
        return vec![
            at(Kind::C2s, SocketAddr::from(([0, 0, 0, 0], 5222))),
            at(Kind::C2sTls, SocketAddr::from(([0, 0, 0, 0], 5223))),
            at(Kind::Http, SocketAddr::from(([127, 0, 0, 1], 5280))),
        ];
    };
    list.into_iter().filter_map(listener).collect()
}

/// The TLS policy of a listener that names none. Nobody listens between a browser and HTTP on this very machine.
fn usual(kind: Kind, address: SocketAddr) -> TlsPolicy {
    if kind == Kind::Http && address.ip().is_loopback() { TlsPolicy::Optional } else { TlsPolicy::Required }
}

fn listener(mut section: Section) -> Option<Listen> {
    let kind = match section.text("kind").as_deref() {
        Some("c2s") => Some(Kind::C2s),
        Some("c2s-tls") => Some(Kind::C2sTls),
        Some("http") => Some(Kind::Http),
        Some("https") => Some(Kind::Https),
        Some(other @ ("s2s" | "component")) => {
            section.fault(
                "kind",
                format!("listeners of the kind \"{other}\" are not supported by this version; remove it"),
            );
            None
        }
        Some(other) => {
            section.fault("kind", format!("[[listen]] kind is c2s, c2s-tls, http or https, not \"{other}\""));
            None
        }
        None => {
            section.fault("kind", "[[listen]] needs a kind: c2s, c2s-tls, http or https");
            None
        }
    };
    let address = section.text("address");
    let parsed: Option<SocketAddr> = address.as_deref().and_then(|a| a.parse().ok());
    match (&address, parsed) {
        (None, _) => section.fault("address", "[[listen]] needs an address, such as \"0.0.0.0:5222\""),
        (Some(text), None) => {
            section.fault("address", format!("\"{text}\" is not an address such as \"0.0.0.0:5222\""))
        }
        _ => {}
    }
    let words = [TlsPolicy::Required, TlsPolicy::Optional, TlsPolicy::Off];
    let written = section.choice("tls", &["required", "optional", "off"]).map(|n| words[n]);
    match (kind, written) {
        (Some(Kind::C2sTls), Some(TlsPolicy::Off)) => {
            section.fault("tls", "a c2s-tls listener has TLS always; use kind = \"c2s\" for one without");
        }
        (Some(Kind::Https), Some(TlsPolicy::Off | TlsPolicy::Optional)) => {
            section.fault("tls", "an https listener has TLS always; use kind = \"http\" for one without");
        }
        _ => {}
    }
    let allow_plain_without_tls = section.bool("allow_plain_without_tls").unwrap_or(false);
    let proxy_protocol = section.bool("proxy_protocol").unwrap_or(false);
    section.finish();
    let (kind, address) = (kind?, parsed?);
    let tls = written.unwrap_or_else(|| usual(kind, address));
    Some(Listen { kind, address, tls, allow_plain_without_tls, proxy_protocol })
}

pub(super) fn tls(mut section: Section) -> Tls {
    let mut certificates = Vec::new();
    for mut one in section.sections("certificates").unwrap_or_default() {
        match (one.text("certificate"), one.text("key")) {
            (Some(certificate), Some(key)) => {
                certificates.push(net::tls::Files { certificate: certificate.into(), key: key.into() });
            }
            _ => one.faults.at(&one.here(), "[[tls.certificates]] needs both certificate and key"),
        }
        one.finish();
    }
    let client_authorities = section.text("client_authorities").map(PathBuf::from);
    section.finish();
    Tls { certificates, client_authorities }
}
