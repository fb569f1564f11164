//! `[http]`, `[http.bosh]` and `[http.websocket]`: settings shared by all HTTP listeners.
//!
//! # Pitfalls
//!
//! The default size of bodies and messages leaves room for the longest stanza, so these sections are read after the
//! limits.

use net::Networks;
use net::http::{AddressHeader, AllowedOrigins, HttpSettings, SchemeHeader};
use throng_core::NodeLimits;

use super::reader::{ConfigErrors, ConfigSection};

/// Bytes of a BOSH body around its stanzas.
const BODY_OVERHEAD_BYTES: usize = 4096;
/// Maximum bytes of a BOSH body that a node of a cluster forwards, with room for what it adds.
const MAX_FORWARDED_BODY_BYTES: usize = peers::forwarded_requests::MAX_REQUEST_BYTES - 1024;
/// Milliseconds: shorter than people notice, and a quarter fewer requests of a client with 24 contacts.
const DEFAULT_PRESENCE_DELAY_MS: u32 = 500;

/// Settings shared by all HTTP listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpConfig {
    /// Public base address of this node: scheme, host and port, without a trailing slash.
    pub(crate) public_url: Option<String>,
    /// Maximum connections of one listener.
    pub(crate) connections: u32,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub(crate) connections_per_address: u32,
    /// Non-local addresses that may read `/metrics`.
    pub(crate) metrics_allow: Networks,
    pub(crate) settings: HttpSettings,
    pub(crate) bosh: net::bosh::BoshSettings,
    /// Maximum milliseconds that presence of contacts waits for more before a BOSH request is answered.
    pub(crate) presence_delay: u32,
}

pub(super) fn http(mut section: ConfigSection, limits: &NodeLimits) -> HttpConfig {
    let public_url = section.text("public_url").and_then(|url| parse_public_url(&url, &section));
    let mut settings = HttpSettings::default();
    if let Some(list) = section.texts("allowed_origins") {
        settings.allowed_origins = AllowedOrigins::Listed(Vec::new());
        for (number, origin) in list.into_iter().enumerate() {
            if let Err(fault) = settings.allowed_origins.add(&origin) {
                section.fault_at("allowed_origins", number, format!("[http] allowed_origins: {fault}"));
            }
        }
    }
    for (number, network) in section.texts("trusted_proxies").unwrap_or_default().into_iter().enumerate() {
        if let Err(fault) = settings.proxies.trusted.add(&network) {
            section.fault_at("trusted_proxies", number, format!("[http] trusted_proxies: {fault}"));
        }
    }
    let mut metrics_allow = Networks::NONE;
    for (number, network) in section.texts("metrics_allow").unwrap_or_default().into_iter().enumerate() {
        if let Err(fault) = metrics_allow.add(&network) {
            section.fault_at("metrics_allow", number, format!("[http] metrics_allow: {fault}"));
        }
    }
    settings.proxies.address = proxy_header(&mut section, "client_address_header", |name| match name {
        "x-forwarded-for" => Some(AddressHeader::XForwardedFor),
        "forwarded" => Some(AddressHeader::Forwarded),
        _ => None,
    });
    settings.proxies.scheme = proxy_header(&mut section, "client_scheme_header", |name| match name {
        "x-forwarded-proto" => Some(SchemeHeader::XForwardedProto),
        "forwarded" => Some(SchemeHeader::Forwarded),
        _ => None,
    });
    settings.gzip = section.bool("gzip").unwrap_or(settings.gzip);
    let seconds = |section: &mut ConfigSection, key, now: &mut u32| {
        if let Some(value) = section.int(key, 1, 3600) {
            *now = value as u32;
        }
    };
    seconds(&mut section, "header_timeout_seconds", &mut settings.header_timeout_seconds);
    seconds(&mut section, "body_timeout_seconds", &mut settings.body_timeout_seconds);
    seconds(&mut section, "idle_timeout_seconds", &mut settings.idle_timeout_seconds);
    seconds(&mut section, "write_stall_timeout_seconds", &mut settings.write_stall_timeout_seconds);
    let connections = section.int("connections", 1, 10_000_000).unwrap_or(100_000) as u32;
    let per_address = section.int("connections_per_address", 1, 10_000_000).unwrap_or(100_000);
    let (on, bosh, presence_delay) = bosh(section.section("bosh"), limits);
    settings.bosh_body_bytes = on.then_some(bosh.body_bytes);
    settings.websocket = websocket(section.section("websocket"), limits);
    section.finish();
    HttpConfig {
        public_url,
        connections,
        connections_per_address: per_address as u32,
        metrics_allow,
        settings,
        bosh,
        presence_delay,
    }
}

/// Parses the header name of a reverse proxy.
fn proxy_header<T>(
    section: &mut ConfigSection,
    key: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let name = section.text(key)?;
    let header = read(&name.to_ascii_lowercase());
    if header.is_none() {
        let own = if key == "client_address_header" { "X-Forwarded-For" } else { "X-Forwarded-Proto" };
        section.fault(key, format!("[http] {key} must be \"{own}\" or \"Forwarded\", not \"{name}\""));
    }
    header
}

/// Parses a base such as `https://xmpp.example.org`.
fn parse_public_url(url: &str, section: &ConfigSection) -> Option<String> {
    // XEP-0156, section 3.2: clients accept only TLS addresses.
    let rest = url.strip_prefix("https://");
    let good = rest.map(|rest| rest.trim_end_matches('/')).filter(|rest| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_/~".contains(&byte);
        !rest.is_empty() && rest.bytes().all(known)
    });
    if good.is_none() {
        section.fault(
            "public_url",
            format!(
                "[http] public_url must be a base URL such as \"https://xmpp.example.org\", not \"{url}\""
            ),
        );
        return None;
    }
    Some(url.trim_end_matches('/').to_owned())
}

fn bosh(mut section: ConfigSection, limits: &NodeLimits) -> (bool, net::bosh::BoshSettings, u32) {
    let on = section.bool("enabled").unwrap_or(true);
    let mut bosh = net::bosh::BoshSettings {
        body_bytes: limits.stanza_bytes as usize + BODY_OVERHEAD_BYTES,
        ..net::bosh::BoshSettings::default()
    };
    macro_rules! take {
        ($($name:ident: $low:literal ..= $high:literal),* $(,)?) => {$(
            if let Some(value) = section.int(stringify!($name), $low, $high) {
                bosh.$name = value as _;
            }
        )*};
    }
    take! {
        max_wait_seconds: 1..=600,
        max_inactivity_seconds: 5..=3_600,
        max_pause_seconds: 0..=3_600,
        max_hold: 1..=10,
        polling_seconds: 0..=60,
        body_bytes: 10_000..=16_777_216,
        sessions: 0..=10_000_000,
        sessions_per_address: 0..=10_000_000,
        requests_per_second: 0..=1_000_000,
    }
    let delay =
        section.int("presence_delay_ms", 0, 10_000).map_or(DEFAULT_PRESENCE_DELAY_MS, |millis| millis as u32);
    section.finish();
    (on, bosh, delay)
}

fn websocket(mut section: ConfigSection, limits: &NodeLimits) -> Option<net::websocket::WebSocketSettings> {
    let on = section.bool("enabled").unwrap_or(true);
    let usual = net::websocket::WebSocketSettings::default();
    let message_bytes = section.int("message_bytes", 10_000, 16_777_216).map(|bytes| bytes as u32);
    let compression = section.bool("compression").unwrap_or(usual.compression);
    let see_other_uri = section.text("see_other_uri");
    if let Some(uri) = &see_other_uri
        && !(uri.starts_with("wss://") || uri.starts_with("ws://"))
    {
        section.fault(
            "see_other_uri",
            format!("[http.websocket] see_other_uri must begin with wss:// or ws://, not \"{uri}\""),
        );
    }
    section.finish();
    let message_bytes = message_bytes.unwrap_or(limits.stanza_bytes);
    on.then_some(net::websocket::WebSocketSettings { message_bytes, compression, see_other_uri })
}

/// Checks that involve several sections.
pub(super) fn check_consistency(
    http: &HttpConfig,
    listen: &[super::ListenConfig],
    is_cluster: bool,
    faults: &ConfigErrors,
) {
    if let Some(body_bytes) = http.settings.bosh_body_bytes.filter(|_| is_cluster)
        && body_bytes > MAX_FORWARDED_BODY_BYTES
    {
        faults.add(format!(
            "[http.bosh] body_bytes is {body_bytes}, but the nodes of a cluster forward at most \
             {MAX_FORWARDED_BODY_BYTES} to each other; set [http.bosh] body_bytes to no more than that"
        ));
    }
    let net::http::TrustedProxies { trusted, address, scheme } = &http.settings.proxies;
    if trusted.is_empty() && (address.is_some() || scheme.is_some()) {
        faults.add(
            "[http] client_address_header and client_scheme_header are used only for trusted proxies; add \
             the proxies to trusted_proxies"
                .to_owned(),
        );
    }
    if !trusted.is_empty() && address.is_none() && !listen.iter().any(|one| one.proxy_protocol) {
        faults.add(
            "[http] trusted_proxies requires the header in which the proxies report client addresses, and \
             which they overwrite: client_address_header = \"X-Forwarded-For\" or \"Forwarded\""
                .to_owned(),
        );
    }
    if *scheme == Some(SchemeHeader::Forwarded) && *address != Some(AddressHeader::Forwarded) {
        faults.add(
            "[http] client_scheme_header = \"Forwarded\" requires client_address_header = \"Forwarded\""
                .to_owned(),
        );
    }
    if http.settings.proxies.trusted == Networks::NONE {
        for one in listen.iter().filter(|one| one.proxy_protocol) {
            faults.add(format!(
                "[[listen]] {} has proxy_protocol, but [http] trusted_proxies is empty; add the addresses \
                 of the proxies",
                one.address
            ));
        }
    }
}
