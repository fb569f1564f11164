//! Specifications that are implemented outside of modules: streams, TLS, authentication, addresses, routing. They
//! cannot be switched off. `docs/xeps.md`, `doap.xml` and the compliance report list them with those of the modules.
//!
//! Not implemented: specifications of modules; each module's declaration names its own.
//!
//! # Pitfalls
//!
//! There is one line for each specification and part that implements it, with the version that was read. A change of
//! that part must update the line; no test detects a missing update.

use feature_api::feature::Spec;

/// A specification and the part of the server that implements it.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInSpec {
    /// Crate or part, as in `docs/xeps.md`.
    pub part: &'static str,
    /// The implemented specification.
    pub spec: Spec,
}

const fn built_in(
    part: &'static str,
    name: &'static str,
    title: &'static str,
    version: &'static str,
    not_implemented: &'static str,
) -> BuiltInSpec {
    BuiltInSpec { part, spec: Spec { name, title, version, not_implemented } }
}

/// All built-in specifications, by part.
pub static BUILT_IN: &[BuiltInSpec] = &[
    built_in(
        "streams",
        "RFC 6120",
        "XMPP: Core",
        "",
        "streams between servers; section 8.1.5: `xml:lang` of the stream on its stanzas",
    ),
    built_in("core", "RFC 6121", "XMPP: Instant Messaging and Presence", "", "section 10: other servers"),
    built_in(
        "core",
        "XEP-0131",
        "Stanza Headers and Internet Metadata",
        "1.2",
        "headers are forwarded unchanged; the server interprets none",
    ),
    built_in("jid", "RFC 7622", "XMPP: Address Format", "", ""),
    built_in("net", "RFC 7590", "Use of TLS in XMPP", "", "section 3.3: session resumption"),
    built_in(
        "net",
        "XEP-0368",
        "SRV records for XMPP over TLS",
        "1.1.0",
        "the operator publishes the records",
    ),
    built_in(
        "streams",
        "XEP-0178",
        "Best Practices for Use of SASL EXTERNAL with Certificates",
        "1.2",
        "section 3: servers",
    ),
    built_in("streams", "XEP-0440", "SASL Channel-Binding Type Capability", "1.0.0", ""),
    built_in("streams", "XEP-0474", "SASL SCRAM Downgrade Protection", "0.5.0", ""),
    built_in("sasl", "XEP-0175", "Best Practices for Use of SASL ANONYMOUS", "1.2", ""),
    built_in("sasl", "RFC 4505", "Anonymous SASL Mechanism", "", ""),
    built_in("sasl", "RFC 4616", "The PLAIN SASL Mechanism", "", ""),
    built_in("sasl", "RFC 5802", "SCRAM SASL and GSS-API Mechanisms", "", "GSS-API; the error text `e=`"),
    built_in(
        "sasl",
        "RFC 7628",
        "SASL Mechanisms for OAuth",
        "",
        "OAUTH10A; the scope and the configuration of the authorization server in errors",
    ),
    built_in("sasl", "RFC 7677", "SCRAM-SHA-256 and SCRAM-SHA-256-PLUS", "", ""),
    built_in(
        "stanza",
        "XEP-0085",
        "Chat State Notifications",
        "2.1",
        "forwarded; not stored, and delayed for inactive clients",
    ),
    built_in(
        "stanza",
        "XEP-0184",
        "Message Delivery Receipts",
        "1.4.0",
        "forwarded; delayed for inactive clients",
    ),
    built_in("stanza", "XEP-0308", "Last Message Correction", "1.2.1", "passed on"),
    built_in("stanza", "XEP-0333", "Displayed Markers", "1.0.0", "forwarded; delayed for inactive clients"),
    built_in("stanza", "XEP-0380", "Explicit Message Encryption", "0.4.0", "passed on"),
    built_in("stanza", "XEP-0461", "Message Replies", "0.2.1", "passed on"),
    built_in("api", "XEP-0156", "Discovering Alternative XMPP Connection Methods", "1.4.0", ""),
    built_in(
        "net",
        "XEP-0124",
        "Bidirectional-streams Over Synchronous HTTP (BOSH)",
        "1.11.2",
        "section 16: multiple streams in a session; `charsets`, `accept`, `route`",
    ),
    built_in("net", "XEP-0206", "XMPP Over BOSH", "1.4", "SASL EXTERNAL with certificates of HTTPS clients"),
    built_in("net", "RFC 7395", "XMPP Subprotocol for WebSocket", "", ""),
    built_in(
        "net",
        "RFC 6455",
        "The WebSocket Protocol",
        "",
        "pings from the server; fragmentation of messages to the client",
    ),
    built_in(
        "net",
        "RFC 7692",
        "Compression Extensions for WebSocket",
        "",
        "context takeover; windows of the server below 32 kB",
    ),
    built_in("net", "RFC 8441", "Bootstrapping WebSockets with HTTP/2", "", ""),
    built_in("net", "RFC 5929", "Channel Bindings for TLS", "", "`tls-unique`"),
    built_in("net", "RFC 9266", "Channel Bindings for TLS 1.3", "", "TLS 1.2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_specification_is_complete_and_listed_once() {
        let mut seen = std::collections::BTreeSet::new();
        for BuiltInSpec { part, spec } in BUILT_IN {
            let rfc = spec.name.strip_prefix("RFC ").is_some_and(|n| n.parse::<u32>().is_ok());
            assert!(rfc || spec.name.starts_with("XEP-") && spec.name.len() == 8, "{}", spec.name);
            assert!(rfc == spec.version.is_empty(), "{}: XEPs have a version, RFCs none", spec.name);
            assert!(!part.is_empty() && !spec.title.is_empty(), "{}", spec.name);
            assert!(seen.insert((part, spec.name)), "{} twice in {part}", spec.name);
        }
    }
}
