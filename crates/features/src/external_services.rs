//! External Service Discovery: XEP-0215 1.0.0, sections 3.1 (all services), 3.2 (services of a type) and 3.3
//! (credentials).
//!
//! The services are a list in the configuration. With a secret that is shared with a TURN server, each answer
//! contains fresh, expiring credentials as in draft-uberti-behave-turn-rest-00, section 2.2: the name consists of the
//! expiry time in seconds and a pseudonym of the user, the password is HMAC-SHA1 of the name under the secret. The
//! pseudonym lets the TURN server apply limits per user without revealing who that is.
//!
//! Not implemented: pushes (section 3.2), since services change with the configuration only; extended information
//! (section 4).
//!
//! # Pitfalls
//!
//! Credentials are for users with an account here. Guests and users of other servers get none.

use base::Secret;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use jid::JidRef;
use ring::hmac;
use stanza::payload::datetime::format_utc;
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::session::flags;
use xml::{Ns, Writer};

/// External Service Discovery.
pub static FEATURE: Feature = Feature {
    name: "external_services",
    summary: "Announces STUN and TURN servers to clients and issues credentials for them.",
    specs: &[Spec {
        name: "XEP-0215",
        title: "External Service Discovery",
        version: "1.0.0",
        not_implemented: "section 3.2: pushes; section 4: extended information",
    }],
    disco: &[DiscoFeature::Server(Ns::ExtDisco2.as_str())],
    iq: &[SERVICES, CREDENTIALS],
    options: &[
        OptionSpec {
            key: "services",
            kind: OptionKind::Texts,
            default: OptionValue::Texts(Vec::new()),
            doc: "The services, such as `stun:stun.example.org:3478` or `turn:turn.example.org:3478?transport=udp`.",
        },
        OptionSpec {
            key: "secret",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "The secret shared with the TURN servers (coturn's `static-auth-secret`); without it there are no credentials.",
        },
        OptionSpec {
            key: "ttl_seconds",
            kind: OptionKind::Int(60, 604_800),
            default: OptionValue::Int(86_400),
            doc: "Lifetime of credentials, in seconds.",
        },
    ],
    default_on: false,
    build,
    ..Feature::EMPTY
};

const SERVICES: IqKey = IqKey::get(IqTarget::Server, Ns::ExtDisco2, "services");
const CREDENTIALS: IqKey = IqKey::get(IqTarget::Server, Ns::ExtDisco2, "credentials");

/// One entry of the configured list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    kind: String,
    host: String,
    port: Option<u16>,
    transport: Option<String>,
}

struct ServiceDirectory {
    services: Vec<Service>,
    key: Option<CredentialKey>,
    ttl: u64,
}

struct CredentialKey(hmac::Key);

struct Credentials {
    username: String,
    password: String,
    expires: String,
}

impl Service {
    /// Parses `type:host[:port][?transport=udp|tcp]`, with an IPv6 address in brackets.
    fn parse(text: &str) -> Option<Service> {
        let (kind, rest) = text.split_once(':')?;
        let (address, transport) = match rest.split_once('?') {
            None => (rest, None),
            Some((address, query)) => (address, Some(query.strip_prefix("transport=")?)),
        };
        let (host, port) = match address.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => match address.split_once(':') {
                None => (address, None),
                Some((host, port)) => (host, Some(port)),
            },
        };
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        };
        if !word(kind)
            || !(word(host) || host.contains(':'))
            || transport.is_some_and(|t| !matches!(t, "udp" | "tcp"))
        {
            return None;
        }
        // Default ports: RFC 7064, section 3.2 and RFC 7065, section 3.1.
        let usual = match kind {
            "stun" | "turn" => (Some(3478), Some("udp")),
            "stuns" | "turns" => (Some(5349), Some("tcp")),
            _ => (None, None),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|p| *p > 0)?),
            None => usual.0,
        };
        let transport = transport.or(usual.1).map(str::to_owned);
        Some(Service { kind: kind.to_owned(), host: host.to_owned(), port, transport })
    }

    fn wants_credentials(&self) -> bool {
        matches!(self.kind.as_str(), "turn" | "turns")
    }

    fn write(&self, w: &mut Writer<'_>, credentials: Option<&Credentials>) {
        w.start("service").attr("type", &self.kind).attr("host", &self.host);
        if let Some(port) = self.port {
            w.attr("port", &port.to_string());
        }
        w.attr_opt("transport", self.transport.as_deref());
        if self.wants_credentials() {
            w.attr("restricted", "1");
            if let Some(Credentials { username, password, expires }) = credentials {
                w.attr("username", username).attr("password", password).attr("expires", expires);
            }
        }
        w.end();
    }
}

impl CredentialKey {
    fn sign(&self, text: &str) -> String {
        BASE64_STANDARD.encode(hmac::sign(&self.0, text.as_bytes()))
    }

    /// Credentials of a user, valid for `ttl` seconds from `now` (seconds since 1970).
    fn credentials(&self, user: JidRef<'_>, now: u64, ttl: u64) -> Credentials {
        let pseudonym = hmac::sign(&self.0, format!("user {user}").as_bytes());
        let pseudonym: String = pseudonym.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
        let ends = now + ttl;
        let username = format!("{ends}:{pseudonym}");
        Credentials { password: self.sign(&username), username, expires: format_utc(ends * 1000, false) }
    }
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let mut services = Vec::new();
    for text in builder.options.texts("services") {
        match Service::parse(text) {
            Some(service) => services.push(service),
            None => tracing::error!(
                service = text.as_str(),
                "ignored an invalid external service; write it as `turn:turn.example.org:3478?transport=udp`"
            ),
        }
    }
    // TURN comes first: a client that uses the first service in the list must not get STUN alone, and a TURN server
    // answers STUN as well (RFC 8656, section 3). Otherwise the order of the configuration is kept.
    services.sort_by_key(|service| !service.wants_credentials());
    let secret = Secret::from(builder.options.text("secret"));
    let key = (!secret.is_empty())
        .then(|| CredentialKey(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose())));
    let ttl = builder.options.int("ttl_seconds").unsigned_abs();
    let known = std::sync::Arc::new(ServiceDirectory { services, key, ttl });
    let other = known.clone();
    builder.iq(SERVICES, move |r: &mut IqRequest<'_>| IqFlow::Reply(answer_services(&known, r)));
    builder.iq(CREDENTIALS, move |r: &mut IqRequest<'_>| IqFlow::Reply(answer_credentials(&other, r)));
}

/// Credentials for the requester, if there can be any.
///
/// # Errors
///
/// `forbidden` for guests and for users without an account here.
fn credentials_for(
    known: &ServiceDirectory,
    request: &IqRequest<'_>,
) -> Result<Option<Credentials>, StanzaError> {
    let session = request.session.filter(|session| !session.flags.has(flags::EPHEMERAL));
    let session = session.ok_or_else(|| {
        StanzaError::new(StanzaCondition::Forbidden)
            .text("only users with an account on this server can use the services")
    })?;
    let now = request.node.clock.unix_millis() / 1000;
    Ok(known.key.as_ref().map(|key| key.credentials(session.bare(), now, known.ttl)))
}

/// Sections 3.1 and 3.2.
fn answer_services(known: &ServiceDirectory, request: &IqRequest<'_>) -> IqAnswer {
    let credentials = credentials_for(known, request)?;
    let tree = request.tree()?;
    let wanted = tree.root().child_elements().next().and_then(|services| services.attr("type"));
    let mut out = Vec::with_capacity(256);
    let mut w = Writer::new(&mut out);
    w.start_ns("services", Ns::ExtDisco2).attr_opt("type", wanted.as_deref());
    for service in known.services.iter().filter(|s| wanted.as_deref().is_none_or(|wanted| wanted == s.kind)) {
        service.write(&mut w, credentials.as_ref());
    }
    w.end();
    Ok(out)
}

/// Section 3.3.
fn answer_credentials(known: &ServiceDirectory, request: &IqRequest<'_>) -> IqAnswer {
    let credentials = credentials_for(known, request)?;
    let tree = request.tree()?;
    let service = tree.root().child_elements().next().and_then(|c| c.child("service", Ns::ExtDisco2));
    let bad = || {
        StanzaError::new(StanzaCondition::BadRequest)
            .text("the request requires a service with type and host")
    };
    let service = service.ok_or_else(bad)?;
    let (kind, host) = (service.attr("type").ok_or_else(bad)?, service.attr("host").ok_or_else(bad)?);
    let port = match service.attr("port") {
        Some(port) => Some(port.parse::<u16>().map_err(|_| bad())?),
        None => None,
    };
    let mut found = known
        .services
        .iter()
        .filter(|s| s.kind == kind && s.host == host && port.is_none_or(|port| s.port == Some(port)));
    let none = |text| Err(StanzaError::new(StanzaCondition::ItemNotFound).text(text));
    let Some(first) = found.next() else { return none("this service does not exist") };
    if !first.wants_credentials() {
        return none("this service requires no credentials");
    }
    let Some(credentials) = credentials else {
        return none("no credentials are available for this service: no shared secret is configured");
    };
    let mut out = Vec::with_capacity(256);
    let mut w = Writer::new(&mut out);
    w.start_ns("credentials", Ns::ExtDisco2);
    for service in std::iter::once(first).chain(found) {
        service.write(&mut w, Some(&credentials));
    }
    w.end();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode as TestEngine, assert_same};

    fn engine(services: &[&str], secret: &str) -> TestEngine {
        let services = OptionValue::Texts(services.iter().map(|s| (*s).to_owned()).collect());
        let secret = OptionValue::Text(secret.to_owned().into());
        let engine = TestEngine::with_options(&FEATURE, &[("services", services), ("secret", secret)]);
        engine.create_user("bard");
        engine.create_user("iago@example.net");
        engine
    }

    fn services(attrs: &str) -> String {
        format!("<iq to='example.com' type='get' id='1'><services xmlns='urn:xmpp:extdisco:2'{attrs}/></iq>")
    }

    fn credentials(service: &str) -> String {
        format!(
            "<iq to='example.com' type='get' id='1'><credentials xmlns='urn:xmpp:extdisco:2'>{service}</credentials></iq>"
        )
    }

    fn result(name: &str, inner: &str) -> String {
        format!(
            "<iq from='example.com' to='bard@example.com/globe' type='result' id='1'>\
             <{name} xmlns='urn:xmpp:extdisco:2'{inner}</iq>"
        )
    }
    const STUN: &str = "<service type='stun' host='stun.example.com' port='3478' transport='udp'/>";

    #[test]
    fn service_lines_of_the_configuration_are_parsed() {
        let read = |text: &str| {
            Service::parse(text).map(|s| (s.kind, s.host, s.port, s.transport.unwrap_or_default()))
        };
        let service = |kind: &str, host: &str, port, transport: &str| {
            Some((kind.to_owned(), host.to_owned(), port, transport.to_owned()))
        };
        assert_eq!(read("stun:stun.example.org"), service("stun", "stun.example.org", Some(3478), "udp"));
        assert_eq!(
            read("turn:t.example.org:9?transport=tcp"),
            service("turn", "t.example.org", Some(9), "tcp")
        );
        assert_eq!(read("turns:[2001:db8::1]"), service("turns", "2001:db8::1", Some(5349), "tcp"));
        assert_eq!(read("turn:[::1]:5000"), service("turn", "::1", Some(5000), "udp"));
        assert_eq!(read("ftp:ftp.example.org"), service("ftp", "ftp.example.org", None, ""));
        for wrong in [
            "",
            "stun",
            "stun:",
            ":host",
            "turn:h:0",
            "turn:h:70000",
            "turn:h?udp",
            "turn:h?transport=sctp",
            "turn:[::1",
            "turn:[x]",
            "turn:a b",
            "turn:h:1:2",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sections_3_1_and_3_2_services_are_listed_and_filtered_by_type() {
        let engine = engine(&["stun:stun.example.com", "turn:turn.example.com", "bad line"], "");
        let bard = engine.connect("bard", "globe");
        let turn =
            "<service type='turn' host='turn.example.com' port='3478' transport='udp' restricted='1'/>";
        // TURN first, whatever the order of the configuration.
        assert_same(
            &bard.request(&services("")),
            &[result("services", &format!(">{turn}{STUN}</services>"))],
        );
        assert_same(
            &bard.request(&services(" type='stun'")),
            &[result("services", &format!(" type='stun'>{STUN}</services>"))],
        );
        assert_same(&bard.request(&services(" type='ftp'")), &[result("services", " type='ftp'/>")]);
        let missing = bard.request(&credentials("<service type='turn' host='turn.example.com'/>"));
        assert!(
            missing[0].contains("<item-not-found") && missing[0].contains("no shared secret"),
            "without a secret there are none: {missing:?}"
        );
    }

    #[test]
    fn credentials_expire_and_are_verifiable_with_the_secret_alone() {
        let key = CredentialKey(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"logen"));
        // printf 1433895918:506f6c | openssl dgst -sha1 -hmac logen -binary | base64
        assert_eq!(key.sign("1433895918:506f6c"), VECTOR);
        let bard = jid::Jid::parse("bard@example.com").unwrap();
        let Credentials { username, password, expires } = key.credentials(bard.as_ref(), 1_433_895_000, 918);
        assert!(
            username.starts_with("1433895918:") && username.len() == 11 + 16 && !username.contains("bard")
        );
        assert_eq!(password, key.sign(&username));
        assert_eq!(expires, "2015-06-10T00:25:18Z");
        let other = jid::Jid::parse("iago@example.com").unwrap();
        assert_ne!(key.credentials(other.as_ref(), 1_433_895_000, 918).username, username);
    }
    const VECTOR: &str = "b1E9W5z8/8wdokOaYBQ92vRBMB4=";

    #[test]
    fn section_3_3_credentials_for_a_service() {
        let engine =
            engine(&["stun:stun.example.com", "turn:turn.example.com", "turn:turn.example.com:80"], "logen");
        let bard = engine.connect("bard", "globe");
        let answer = bard.request(&services("")).remove(0);
        assert_eq!(answer.matches("username='").count(), 2, "{answer}");
        let answer = bard.request(&credentials("<service type='turn' host='turn.example.com'/>")).remove(0);
        assert_eq!(answer.matches(" password='").count(), 2, "{answer}");
        let answer =
            bard.request(&credentials("<service type='turn' host='turn.example.com' port='80'/>")).remove(0);
        assert_eq!(answer.matches(" port='80'").count(), 1, "{answer}");
        for (service, condition, text) in [
            (
                "<service type='turn' host='other.example.com'/>",
                "item-not-found",
                "this service does not exist",
            ),
            ("<service type='stun' host='stun.example.com'/>", "item-not-found", "requires no credentials"),
            ("<service type='turn'/>", "bad-request", "type and host"),
            ("<service type='turn' host='turn.example.com' port='x'/>", "bad-request", "type and host"),
            ("", "bad-request", "type and host"),
        ] {
            let answer = bard.request(&credentials(service)).remove(0);
            assert!(
                answer.contains(&format!("<{condition} ")) && answer.contains(text),
                "{service}: {answer}"
            );
        }
    }

    #[test]
    fn guests_and_users_of_other_domains_are_refused() {
        let engine = engine(&["turn:turn.example.com"], "logen");
        let guest = engine.connect_anonymous("guest", "globe");
        let foreign_user = engine.connect("iago@example.net", "globe");
        for client in [&guest, &foreign_user] {
            for ask in [services(""), credentials("<service type='turn' host='turn.example.com'/>")] {
                let answer = client.request(&ask).remove(0);
                assert!(answer.contains("<forbidden ") && !answer.contains("password"), "{answer}");
            }
        }
    }
}
