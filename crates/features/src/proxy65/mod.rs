//! Proxy of SOCKS5 Bytestreams: XEP-0065 1.8.2, section 4 (discovery) and section 6 (mediated connection), as a service.
//!
//! The service tells its users where to connect, and activates a bytestream for its requester. The bytes are relayed by
//! the listener of kind `socks5-proxy`; see [`throng_core::bytestream_relay`].
//!
//! Not implemented: UDP (section 8); connections that arrive at another node than the activation.
//!
//! # Pitfalls
//!
//! The destination is computed from the address that sent the request, so a wrong requester cannot be distinguished
//! from a bytestream that does not exist: both are `item-not-found`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jid::Jid;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use stanza::{StanzaCondition, StanzaError};
use throng_core::bytestream_relay::{BytestreamRelay, RelayLimits, RelayRefusal, SharedBytestreamRelay};
use throng_core::disco::DiscoIdentity;
use throng_core::feature::{
    DiscoFeature, Feature, FeatureBuilder, FeatureOptions, OptionKind, OptionSpec, OptionValue, Spec,
};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::service::ServiceSpec;
use xml::{Ns, Writer};

/// Proxy of SOCKS5 Bytestreams.
pub static FEATURE: Feature = Feature {
    name: "proxy65",
    summary: "Relays file transfers between clients that cannot connect to each other. Requires a listener of kind \
              `socks5-proxy`.",
    specs: &[Spec {
        name: "XEP-0065",
        title: "SOCKS5 Bytestreams",
        version: "1.8.2",
        not_implemented: "section 8: UDP",
    }],
    disco: &[DiscoFeature::Service(Ns::Bytestreams.as_str())],
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "proxy", kind: "bytestreams", name: "File transfer proxy" },
    }),
    iq: &[ADDRESS, ACTIVATE],
    options: &[
        ServiceSpec::address_option("proxy.{domain}"),
        OptionSpec {
            key: "streamhost",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "Name or IP address at which clients reach the listeners; empty: the address of the listener, or the \
                  domain if it listens on all addresses.",
        },
        number(
            "streamhost_port",
            65_535,
            0,
            "Port at which clients reach the listeners; 0: that of the listener.",
        ),
        number(
            "sessions_per_user",
            10_000,
            5,
            "Concurrent transfers that one user has activated; 0: unlimited.",
        ),
        number("sessions", 1_000_000, 500, "Concurrent transfers of the domain; 0: unlimited."),
        number(
            "bytes_per_second_per_user",
            4_000_000_000,
            10_000_000,
            "Bytes per second of all transfers that one user has activated; 0: unlimited.",
        ),
        number(
            "bytes_per_second",
            4_000_000_000,
            100_000_000,
            "Bytes per second of the domain; 0: unlimited.",
        ),
        number(
            "idle_seconds",
            86_400,
            120,
            "Seconds without data after which a transfer is closed; 0: never.",
        ),
        number(
            "pairing_seconds",
            3600,
            60,
            "Seconds from a connection to the activation of its transfer. The highest value of all domains applies, since \
             the domain is not known before the activation.",
        ),
    ],
    default_on: false,
    build,
    ..Feature::EMPTY
};

const fn number(key: &'static str, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(0, max), default: OptionValue::Int(default), doc }
}

const ADDRESS: IqKey = IqKey::get(IqTarget::Service, Ns::Bytestreams, "query");
const ACTIVATE: IqKey = IqKey::set(IqTarget::Service, Ns::Bytestreams, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    let limits = limits(builder.options);
    let streamhost = StreamHost::new(builder.options, builder.domain);
    builder.iq(ADDRESS, move |request: &mut IqRequest<'_>| {
        IqFlow::Reply(relay(request).and_then(|relay| streamhost.answer(request, &*relay)))
    });
    builder.iq(ACTIVATE, move |request: &mut IqRequest<'_>| {
        IqFlow::Reply(relay(request).and_then(|relay| activate(request, &*relay, &limits)))
    });
}

fn limits(options: &FeatureOptions) -> RelayLimits {
    let of = |key: &str| u32::try_from(options.int(key)).unwrap_or(u32::MAX);
    RelayLimits {
        sessions_per_user: of("sessions_per_user"),
        sessions: of("sessions"),
        bytes_per_second_per_user: of("bytes_per_second_per_user"),
        bytes_per_second: of("bytes_per_second"),
        idle_seconds: of("idle_seconds"),
    }
}

/// The relay, for a user who may use it (section 4).
fn relay(request: &IqRequest<'_>) -> Result<SharedBytestreamRelay, StanzaError> {
    if request.from.domain() != request.host.domain() || request.from.local().is_none() {
        return Err(StanzaCondition::Forbidden.into());
    }
    let relay = request.node.extensions.get::<SharedBytestreamRelay>();
    relay.map(|relay| (*relay).clone()).ok_or_else(|| StanzaCondition::NotAllowed.into())
}

/// Where clients connect.
struct StreamHost {
    /// As configured; empty: that of the listener.
    host: String,
    /// As configured; 0: that of the listener.
    port: u16,
    domain: String,
}

impl StreamHost {
    fn new(options: &FeatureOptions, domain: &str) -> StreamHost {
        StreamHost {
            host: options.text("streamhost").to_owned(),
            port: u16::try_from(options.int("streamhost_port")).unwrap_or(0),
            domain: domain.to_owned(),
        }
    }

    /// Section 4: the addresses of the proxy.
    fn answer(&self, request: &IqRequest<'_>, relay: &dyn BytestreamRelay) -> IqAnswer {
        let Some(service) = request.service else { return Err(StanzaCondition::ServiceUnavailable.into()) };
        let places: BTreeSet<(String, u16)> = relay
            .addresses()
            .into_iter()
            .map(|listener| {
                let host = match listener.ip() {
                    _ if !self.host.is_empty() => self.host.clone(),
                    ip if ip.is_unspecified() => self.domain.clone(),
                    ip => ip.to_string(),
                };
                (host, if self.port == 0 { listener.port() } else { self.port })
            })
            .collect();
        if places.is_empty() {
            return Err(StanzaCondition::NotAllowed.into());
        }
        let mut out = Vec::with_capacity(256);
        let mut writer = Writer::new(&mut out);
        writer.start_ns("query", Ns::Bytestreams);
        for (host, port) in places {
            writer.start("streamhost").attr("host", &host).attr("jid", service.address());
            writer.attr("port", &port.to_string()).end();
        }
        writer.end();
        Ok(out)
    }
}

/// Section 6.3.5: activation by the requester.
fn activate(request: &IqRequest<'_>, relay: &dyn BytestreamRelay, limits: &RelayLimits) -> IqAnswer {
    let Some(service) = request.service else { return Err(StanzaCondition::ServiceUnavailable.into()) };
    let tree = request.tree()?;
    let query = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
    let sid = query.attr("sid").filter(|sid| !sid.is_empty()).ok_or(StanzaCondition::BadRequest)?;
    if query.attr("mode").is_some_and(|mode| mode != "tcp") {
        return Err(StanzaCondition::FeatureNotImplemented.into());
    }
    let target = query.child("activate", Ns::Bytestreams).ok_or(StanzaCondition::BadRequest)?.text();
    let target = Jid::parse(target.trim()).map_err(|_| StanzaCondition::JidMalformed)?;
    let text = [&*sid, request.from.as_str(), target.as_str()].concat();
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let destination = digest.as_ref().try_into().map_err(|_| StanzaCondition::InternalServerError)?;
    relay.activate(destination, service.address(), request.from.bare(), limits).map(|()| Vec::new()).map_err(
        |refusal| match refusal {
            RelayRefusal::NotConnected => StanzaCondition::ItemNotFound.into(),
            RelayRefusal::OneParty => StanzaCondition::NotAllowed.into(),
            RelayRefusal::TooMany => StanzaError::new(StanzaCondition::ResourceConstraint)
                .text("too many transfers; wait until one has ended"),
        },
    )
}
