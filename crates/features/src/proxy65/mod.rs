//! Proxy of SOCKS5 Bytestreams: XEP-0065 1.8.2, section 4 (discovery) and section 6 (mediated connection), as a service.
//!
//! The service tells its users where to connect, and activates a bytestream for its requester. The bytes are relayed by
//! its own listener of kind `socks5-proxy` ([`listener`]; the protocol is [`socks5`]).
//!
//! Not implemented: UDP (section 8); connections that arrive at another node than the activation; the end of active
//! bytestreams when their account or domain is removed.
//!
//! # Pitfalls
//!
//! The destination is computed from the address that sent the request, so a wrong requester cannot be distinguished
//! from a bytestream that does not exist: both are `item-not-found`.
//!
//! Section 6.3.5 joins the stream id and both addresses without separators, so `ab@c/d` with the stream id `x` and `b@c/d`
//! with the stream id `xa` have the same destination. A user whose address is the end of another's can activate a
//! bytestream of the other, if he knows its stream id, and it then counts as his.

mod listener;
mod socks5;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use feature_api::disco::DiscoIdentity;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, FeatureOptions, OptionKind, OptionSpec, OptionValue, Spec,
};
use feature_api::service::ServiceSpec;
use jid::{Jid, prepare_domain};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use xml::{Ns, Writer};

use self::socks5::{ActivationRefusal, BytestreamDestination, BytestreamLimits, Socks5Proxy};

/// Proxy of SOCKS5 Bytestreams.
pub static FEATURE: Feature = Feature {
    name: "proxy65",
    summary: "Relays file transfers between clients that cannot connect to each other.",
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
    listeners: &[&listener::LISTENER],
    iq: &[ADDRESS, ACTIVATE],
    options: &[
        ServiceSpec::address_option("proxy.{domain}"),
        ServiceSpec::rate_option(20),
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
            "bytestreams_per_user",
            10_000,
            5,
            "Concurrent bytestreams that one user has activated; 0: unlimited.",
        ),
        number("bytestreams", 1_000_000, 500, "Concurrent bytestreams of the domain; 0: unlimited."),
        number(
            "bytes_per_second_per_user",
            4_000_000_000,
            10_000_000,
            "Bytes per second of all bytestreams that one user has activated, at least 32768; 0: unlimited.",
        ),
        number(
            "bytes_per_second",
            4_000_000_000,
            100_000_000,
            "Bytes per second of the domain, at least 32768; 0: unlimited.",
        ),
        number(
            "idle_seconds",
            86_400,
            120,
            "Seconds without data after which a bytestream is closed; 0: never.",
        ),
        OptionSpec {
            key: "activation_timeout_seconds",
            kind: OptionKind::Int(5, 3600),
            default: OptionValue::Int(60),
            doc: "Seconds from the connection of the second party, or of the only one, to the activation of their bytestream. \
                  The highest value of all domains applies, since the domain is not known before the activation.",
        },
        number(
            "unactivated_connections",
            1_000_000,
            2000,
            "Concurrent connections without an active bytestream; further ones are closed immediately. 0: unlimited. The \
             highest value of all domains applies.",
        ),
        number(
            "unactivated_connections_per_address",
            1_000_000,
            20,
            "The same from one IPv4 address or one IPv6 /64. 0: unlimited. The highest value of all domains applies.",
        ),
    ],
    default_on: false,
    build,
    ..Feature::EMPTY
};

/// What the listener reads at once: with a lower rate, one read would delay a bytestream for more than a second.
const MIN_BYTES_PER_SECOND: i64 = 32_768;

const fn number(key: &'static str, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(0, max), default: OptionValue::Int(default), doc }
}

const ADDRESS: IqKey = IqKey::get(IqTarget::Service, Ns::Bytestreams, "query");
const ACTIVATE: IqKey = IqKey::set(IqTarget::Service, Ns::Bytestreams, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    refuse_options(builder);
    let limits = limits(builder.options);
    let streamhost = StreamHost::new(builder.options, builder.domain);
    builder.iq(ADDRESS, move |request: &mut IqRequest<'_>| {
        IqFlow::Reply(proxy(request).and_then(|proxy| streamhost.answer(request, &proxy)))
    });
    builder.iq(ACTIVATE, move |request: &mut IqRequest<'_>| {
        IqFlow::Reply(proxy(request).and_then(|proxy| activate(request, &proxy, &limits)))
    });
}

fn refuse_options(builder: &mut FeatureBuilder<'_>) {
    // Section 4: "the IP address or DNS domain name".
    let streamhost = builder.options.text("streamhost");
    let is_domain = || prepare_domain(streamhost).is_ok() && !streamhost.contains([':', '[']);
    if !(streamhost.is_empty() || streamhost.parse::<IpAddr>().is_ok() || is_domain()) {
        builder.refuse_option("streamhost", format!("must be a name or an IP address, not \"{streamhost}\""));
    }
    for key in ["bytes_per_second_per_user", "bytes_per_second"] {
        if (1..MIN_BYTES_PER_SECOND).contains(&builder.options.int(key)) {
            builder.refuse_option(key, format!("must be 0 or at least {MIN_BYTES_PER_SECOND}"));
        }
    }
}

fn limits(options: &FeatureOptions) -> BytestreamLimits {
    let of = |key: &str| u32::try_from(options.int(key)).unwrap_or(u32::MAX);
    BytestreamLimits {
        bytestreams_per_user: of("bytestreams_per_user"),
        bytestreams: of("bytestreams"),
        bytes_per_second_per_user: of("bytes_per_second_per_user"),
        bytes_per_second: of("bytes_per_second"),
        idle_seconds: of("idle_seconds"),
    }
}

/// The proxy, for a user who may use it (section 4).
fn proxy(request: &IqRequest<'_>) -> Result<Arc<Socks5Proxy>, StanzaError> {
    if request.from.domain() != request.host.domain() || request.from.local().is_none() {
        return Err(StanzaCondition::Forbidden.into());
    }
    request.node.extensions.get::<Socks5Proxy>().ok_or_else(|| StanzaCondition::NotAllowed.into())
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
    fn answer(&self, request: &IqRequest<'_>, proxy: &Socks5Proxy) -> IqAnswer {
        let Some(service) = request.service else { return Err(StanzaCondition::ServiceUnavailable.into()) };
        let streamhosts: BTreeSet<(String, u16)> = proxy
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
        if streamhosts.is_empty() {
            return Err(StanzaCondition::NotAllowed.into());
        }
        let mut out = Vec::with_capacity(256);
        let mut writer = Writer::new(&mut out);
        writer.start_ns("query", Ns::Bytestreams);
        for (host, port) in streamhosts {
            writer.start("streamhost").attr("host", &host).attr("jid", service.address());
            writer.attr("port", &port.to_string()).end();
        }
        writer.end();
        Ok(out)
    }
}

/// Section 6.3.5: activation by the requester.
fn activate(request: &IqRequest<'_>, proxy: &Socks5Proxy, limits: &BytestreamLimits) -> IqAnswer {
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
    let names = (service.address(), request.from.bare().as_str());
    let activated = proxy.activate(BytestreamDestination::new(destination), names, limits);
    activated.map(|()| Vec::new()).map_err(|refusal| match refusal {
        ActivationRefusal::NotConnected => StanzaCondition::ItemNotFound.into(),
        ActivationRefusal::OneParty => StanzaCondition::NotAllowed.into(),
        ActivationRefusal::UserLimit | ActivationRefusal::ServiceLimit => {
            StanzaError::new(StanzaCondition::ResourceConstraint)
                .text("too many transfers; wait until one has ended")
        }
    })
}
